//! `[admin]` and each `[[admin_token]]`.

use std::path::PathBuf;

use settings::{Document, Problem, Section};

use super::{
    Admin,
    admin_token::{ADMIN_TOKEN_KEYS, admin_token, refuse_equal},
    endpoint::parse_tcp,
    http::MIN_TOKEN,
    keys::ADMIN_KEYS,
};

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
