//! Redis over HTTP: what a listener may say about it, and the tokens.

use std::{collections::HashSet, sync::Arc};

use redis_session::{DEFAULT_MAX_REQUEST, HttpRules, Rules};
use settings::{Problem, Secret, Section, Spots};
use upstream::Kind;

use super::{Database, User, options::MAX_COUNT};
use crate::token_digest::{Digest, digest};

/// Keys of a `[[listener]]` with `protocol = "http"`.
pub const HTTP_KEYS: &[&str] = &["origins", "token_in_query", "max_request"];

/// Keys of a `[[token]]`.
pub const TOKEN_KEYS: &[&str] =
    &["name", "hash", "token", "token_file", "user", "database", "read_only", "allow", "deny", "rate_limit"];

/// Characters that a token must have: it is guessed at the speed of HTTP.
pub const MIN_TOKEN: usize = 16;

/// Highest number of a logical database that a token may be for.
const MAX_DATABASE: u32 = 255;

/// Largest `max_request` in bytes.
const MAX_REQUEST: u32 = 512 * 1024 * 1024;

/// A token that clients may send requests with.
#[derive(Clone, Debug)]
pub struct Token {
    pub name: String,
    /// The SHA-256 of the token.
    pub digest: Digest,
    /// The user whose servers it uses; `None` if the URL names the user, or no login is needed.
    pub user: Option<String>,
    /// The logical database.
    pub database: u32,
    pub rules: Rules,
    /// Commands per second; `None` is no limit.
    pub rate_limit: Option<u32>,
    pub spots: Spots,
}

impl Token {
    /// A token without restrictions.
    pub fn all(name: &str, token: &Secret) -> Self {
        Self {
            name: name.to_owned(),
            digest: digest(token.reveal().as_bytes()),
            user: None,
            database: 0,
            rules: Rules::default(),
            rate_limit: None,
            spots: Spots::new(),
        }
    }
}

/// The rules of a listener whose clients speak HTTP.
pub fn rules(section: &Section<'_>) -> Arc<HttpRules> {
    let origins = section.texts("origins").unwrap_or_default();
    if let Some(wrong) = origins.iter().find(|origin| *origin != "*" && !is_origin(origin)) {
        section.error("origins", format!("\"{wrong}\" is no origin such as \"https://shop.example\", nor \"*\""));
    }
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        section.error("origins", "\"*\" is every origin: leave the others out");
    }
    Arc::new(HttpRules {
        origins,
        token_in_query: section.truth("token_in_query").unwrap_or(false),
        max_request: section.number("max_request", 1024..=MAX_REQUEST).map_or(DEFAULT_MAX_REQUEST, |n| n as usize),
    })
}

/// The rules of a listener that says nothing about them.
pub fn default_rules() -> Arc<HttpRules> {
    Arc::new(HttpRules { origins: Vec::new(), token_in_query: false, max_request: DEFAULT_MAX_REQUEST })
}

/// Reports keys that are for HTTP at a listener that is not.
pub fn refuse_keys(section: &Section<'_>) {
    for key in HTTP_KEYS.iter().filter(|key| section.has(key)) {
        section.error(key, format!("`{key}` is for listeners with protocol = \"http\""));
    }
}

/// A scheme and a host, with a port or not, and nothing behind them. What ends up in a header must be plain.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte))
    })
}

/// A `[[token]]`.
pub fn token(section: &Section<'_>) -> Option<Token> {
    let name = section.string("name").filter(|name| !name.is_empty());
    if name.is_none() {
        section.error("name", "this [[token]] has no `name`");
    }
    let names = |key| section.texts(key).unwrap_or_default().iter().map(|name| command(name)).collect();
    let rules: Rules =
        Rules { read_only: section.truth("read_only").unwrap_or(false), allow: names("allow"), deny: names("deny") };
    let digest = proof(section);
    Some(Token {
        name: name?,
        digest: digest?,
        user: section.string("user").filter(|user| !user.is_empty()),
        database: section.number("database", 0..=MAX_DATABASE).unwrap_or(0),
        rules,
        rate_limit: section.number("rate_limit", 1..=MAX_COUNT),
        spots: section.spots(),
    })
}

/// A command as it is looked up: `script load` and `SCRIPT|LOAD` are the same.
fn command(name: &str) -> String {
    name.split(['|', ' ']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("|").to_ascii_uppercase()
}

/// What proves a token: the hash as it stands, or that of the token.
fn proof(section: &Section<'_>) -> Option<Digest> {
    let make = "make one: openssl rand -hex 32";
    let token = section.secret("token", "token_file", false);
    match (section.string("hash"), token) {
        (Some(_), Some(_)) => {
            section.error("hash", "give either `hash` or the token, not both");
            None
        }
        (Some(hash), None) => {
            let digest = Digest::parse(&hash);
            if digest.is_none() {
                let problem = Problem::error("a hash is `sha256:` and 64 hexadecimal digits");
                section.report("hash", problem.hint("printf %s \"$TOKEN\" | sha256sum"));
            }
            digest
        }
        (None, Some(token)) => {
            let key = if section.has("token_file") { "token_file" } else { "token" };
            if token.reveal().len() < MIN_TOKEN {
                let problem = Problem::error(format!("the token has fewer than {MIN_TOKEN} characters"));
                section.report(key, problem.hint(make));
            }
            Some(digest(token.reveal().as_bytes()))
        }
        (None, None) => {
            if !["hash", "token", "token_file"].iter().any(|key| section.has(key)) {
                let problem = Problem::error("this [[token]] has neither `hash` nor `token` nor `token_file`");
                section.report("", problem.hint(make));
            }
            None
        }
    }
}

/// Finds tokens that cannot work: the same one twice, or for users that there are not.
pub fn refuse_impossible(
    tokens: &[Token],
    users: &[User],
    databases: &[Database],
    mut error: impl FnMut(&Token, &'static str, String),
) {
    let mut names = HashSet::new();
    let mut digests = HashSet::new();
    let named = databases.iter().any(|database| database.kind == Kind::Redis && database.user.is_some());
    for token in tokens {
        if !names.insert(&token.name) {
            error(token, "name", format!("the token `{}` is configured twice", token.name.escape_debug()));
        }
        if !digests.insert(token.digest) {
            error(token, "hash", format!("`{}` is the same token as another one", token.name.escape_debug()));
        }
        let known = |name: &str| users.iter().any(|user| user.name == name);
        match &token.user {
            Some(_) if named => error(token, "user", "the url names the user for all: leave `user` out".to_owned()),
            Some(user) if !known(user) => {
                error(token, "user", format!("there is no [[user]] `{}`", user.escape_debug()));
            }
            None if !named && users.iter().any(|user| user.password.is_some()) => {
                error(token, "", "say with `user` as whom this token asks".to_owned());
            }
            _ => {}
        }
    }
}
