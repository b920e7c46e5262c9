//! `[admin]` and each `[[admin_token]]`.

use std::{net::SocketAddr, path::PathBuf};

use settings::{Document, Problem, Secret, Section, Spots};

use super::{
    admin_token::{ADMIN_TOKEN_KEYS, AdminToken, Role, admin_token, refuse_equal},
    endpoint::parse_tcp,
    http::MIN_TOKEN,
    keys::ADMIN_KEYS,
};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admin {
    /// The address; `None` is off.
    pub listen: Option<SocketAddr>,
    /// Whether the address was configured: failing to listen there is then an error.
    pub is_configured: bool,
    /// Whether metrics carry the user.
    pub user_label: bool,
    /// The token that orders take; without one, every program on this machine may give orders.
    pub token: Option<Secret>,
    /// Further tokens, with names and roles.
    pub tokens: Vec<AdminToken>,
    /// Whether looking takes a token, too.
    pub view_needs_token: bool,
    /// Host names that requests may use, besides addresses and `localhost`.
    pub names: Vec<String>,
    pub spots: Spots,
}

impl Default for Admin {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], 9930));
        Self {
            listen: Some(listen),
            is_configured: false,
            user_label: true,
            token: None,
            tokens: Vec::new(),
            view_needs_token: false,
            names: Vec::new(),
            spots: Spots::new(),
        }
    }
}

impl Admin {
    /// All tokens, with the one of `[admin]`.
    pub fn all_tokens(&self) -> impl Iterator<Item = AdminToken> {
        self.token.iter().cloned().map(AdminToken::unnamed).chain(self.tokens.iter().cloned())
    }

    /// Whether orders take a token.
    pub fn orders_need_token(&self) -> bool {
        self.all_tokens().any(|token| token.role == Role::Operate)
    }
}

/// Reads the sections. The files that they name are added to `files`. Errors are reported.
pub fn admin(root: &Section<'_>, document: &Document<'_>, files: &mut Vec<PathBuf>) -> Admin {
    let section = root.table("admin", &[ADMIN_KEYS]);
    let sections = root.tables("admin_token", &[ADMIN_TOKEN_KEYS]);
    let named = section.iter().chain(&sections).filter_map(|section| section.path("token_file"));
    files.extend(named);
    let admin = section.as_ref().map(own_keys).unwrap_or_default();
    let before = document.problems.borrow().len();
    let tokens: Vec<_> = sections.iter().filter_map(admin_token).collect();
    if before == document.problems.borrow().len() {
        refuse_equal(&sections, &tokens);
    }
    let admin = Admin { tokens, ..admin };
    if let Some(section) = section.filter(|_| admin.view_needs_token && admin.all_tokens().next().is_none()) {
        section.error("view_needs_token", "there is no token to show: add `token`, or an [[admin_token]]");
    }
    admin
}

/// The keys of `[admin]` itself.
fn own_keys(section: &Section<'_>) -> Admin {
    let default = Admin::default();
    let listen = section.text("listen", |text| match text {
        "off" => Ok(None),
        _ => parse_tcp(text).map(Some),
    });
    let token = section.secret("token", "token_file", false);
    if token.as_ref().is_some_and(|token| token.reveal().len() < MIN_TOKEN) {
        let key = if section.has("token_file") { "token_file" } else { "token" };
        let problem = Problem::error(format!("the token has fewer than {MIN_TOKEN} characters"));
        section.report(key, problem.hint("make one: openssl rand -hex 32"));
    }
    Admin {
        is_configured: listen.is_some(),
        listen: listen.unwrap_or(default.listen),
        user_label: section.truth("user_label").unwrap_or(default.user_label),
        token,
        view_needs_token: section.truth("view_needs_token").unwrap_or(false),
        tokens: Vec::new(),
        names: section.texts("names").unwrap_or_default(),
        spots: section.spots(),
    }
}
