//! `[[admin_token]]`: tokens of the admin address with names and roles.

use settings::{Problem, Secret, Section};

use super::http::MIN_TOKEN;

/// The keys.
pub const ADMIN_TOKEN_KEYS: &[&str] = &["name", "token", "token_file", "role"];

/// The name of the token of `[admin]` in the log.
const UNNAMED: &str = "admin";

/// What a token permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// To look.
    View,
    /// To look, and to give orders.
    Operate,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminToken {
    /// Whose it is, for the log.
    pub name: String,
    pub token: Secret,
    pub role: Role,
}

impl AdminToken {
    /// The token of `[admin]`.
    pub fn unnamed(token: Secret) -> Self {
        Self { name: UNNAMED.to_owned(), token, role: Role::Operate }
    }
}

/// Reads a section; errors are reported there.
pub fn admin_token(section: &Section<'_>) -> Option<AdminToken> {
    let name = section.string("name").filter(|name| !name.is_empty());
    let token = section.secret("token", "token_file", false);
    let role = section.choice("role", &[("view", Role::View), ("operate", Role::Operate)]);
    for key in ["name", "role"] {
        if !section.has(key) {
            section.error("", format!("this [[admin_token]] has no `{key}`"));
        }
    }
    let key = if section.has("token_file") { "token_file" } else { "token" };
    if !section.has(key) {
        section.error("", "this [[admin_token]] has no `token` or `token_file`");
    }
    if token.as_ref().is_some_and(|token| token.reveal().len() < MIN_TOKEN) {
        let problem = Problem::error(format!("the token has fewer than {MIN_TOKEN} characters"));
        section.report(key, problem.hint("make one: openssl rand -hex 32"));
    }
    Some(AdminToken { name: name?, token: token?, role: role? })
}

/// Reports tokens that are equal, or have equal names: the log would not tell who gave an order.
pub fn refuse_equal(sections: &[Section<'_>], tokens: &[AdminToken]) {
    for (at, token) in tokens.iter().enumerate() {
        if tokens[..at].iter().any(|before| before.name == token.name || before.token == token.token)
            && let Some(section) = sections.get(at)
        {
            section.error("name", format!("`{}` has the name or the token of another [[admin_token]]", token.name));
        }
    }
}
