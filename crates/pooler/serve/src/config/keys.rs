//! The keys of each section, and what is said of one that stands in a section that has none of that name.

use super::{
    admin_token::ADMIN_TOKEN_KEYS,
    auth::LOGIN_KEYS,
    auth_query::AUTH_QUERY_KEYS,
    console::CONSOLE_KEYS,
    http::{HTTP_KEYS, TOKEN_KEYS},
    listener_rules::RULE_KEYS,
    log::LOG_KEYS,
    network::{DNS_KEYS, TCP_KEYS},
    options::POOL_KEYS,
    password_command::PASSWORD_COMMAND_KEYS,
    peers::PEER_KEYS,
    pgbouncer,
    tls::LISTENER_TLS_KEYS,
};

/// The file itself: its sections.
pub const ROOT_KEYS: &[&str] = &[
    "admin",
    "console",
    "limits",
    "auth",
    "serve",
    "log",
    "pool",
    "listener",
    "database",
    "user",
    "token",
    "admin_token",
    "peer",
    "tcp",
    "dns",
];

/// `[admin]`.
pub const ADMIN_KEYS: &[&str] = &["listen", "user_label", "token", "token_file", "names", "view_needs_token"];

/// `[limits]`.
pub const LIMITS_KEYS: &[&str] = &[
    "max_server_connections",
    "max_user_connections",
    "max_database_connections",
    "max_clients",
    "max_database_clients",
    "max_user_clients",
];

/// `[auth]`, beside those that say how clients log in and how users are looked up.
pub const AUTH_KEYS: &[&str] = &["file", "scram_iterations"];

/// `[serve]`.
pub const SERVE_KEYS: &[&str] = &[
    "workers",
    "drain_time",
    "stay_time",
    "max_auth_failures",
    "node_id",
    "log_connections",
    "log_disconnections",
    "log_client_errors",
    "pid_file",
    "user",
    "compatible_with",
];

/// `[[listener]]`, beside those of TLS and HTTP.
pub const LISTENER_KEYS: &[&str] = &[
    "protocol",
    "listen",
    "soft_limit",
    "hard_limit",
    "evict_min_idle",
    "client_idle_time",
    "newcomer_wait_time",
    "login_time",
    "query_time",
    "transaction_idle_time",
    "transaction_time",
    "preset",
    "socket_mode",
    "socket_group",
    "backlog",
    "reuse_port",
    "proxy_protocol_from",
];

/// `[[database]]`, beside those of pools and of looking users up.
pub const DATABASE_KEYS: &[&str] = &[
    "name",
    "url",
    "url_file",
    "password",
    "password_file",
    "max_connections",
    "max_user_connections",
    "soft_limit",
    "hard_limit",
];

/// `[[user]]`.
pub const USER_KEYS: &[&str] = &[
    "name",
    "password",
    "password_file",
    "passwords",
    "password_files",
    "certificate",
    "rules_only",
    "mode",
    "max_size",
    "reserve_size",
    "reserve_wait_time",
    "min_size",
    "max_wait_time",
    "client_idle_time",
    "query_time",
    "transaction_idle_time",
    "transaction_time",
    "max_user_connections",
    "soft_limit",
    "hard_limit",
];

/// All sections with their keys.
const SECTIONS: &[(&str, &[&[&str]])] = &[
    ("[serve]", &[SERVE_KEYS]),
    ("[log]", &[LOG_KEYS]),
    ("[admin]", &[ADMIN_KEYS]),
    ("[console]", &[CONSOLE_KEYS]),
    ("[limits]", &[LIMITS_KEYS]),
    ("[auth]", &[AUTH_KEYS, LOGIN_KEYS, AUTH_QUERY_KEYS]),
    ("[pool]", &[POOL_KEYS]),
    ("[[listener]]", &[LISTENER_KEYS, RULE_KEYS, LISTENER_TLS_KEYS, HTTP_KEYS]),
    ("[[database]]", &[DATABASE_KEYS, PASSWORD_COMMAND_KEYS, POOL_KEYS, AUTH_QUERY_KEYS]),
    ("[[user]]", &[USER_KEYS]),
    ("[[token]]", &[TOKEN_KEYS]),
    ("[[admin_token]]", &[ADMIN_TOKEN_KEYS]),
    ("[[peer]]", &[PEER_KEYS]),
    ("[tcp]", &[TCP_KEYS]),
    ("[dns]", &[DNS_KEYS]),
];

/// What to do with a key that its section does not have: what it is called here, if it is PgBouncer's, or where it
/// belongs.
pub fn advice(key: &str) -> Option<String> {
    pgbouncer::advice(key).or_else(|| belongs(key))
}

/// The sections that have the key.
fn belongs(key: &str) -> Option<String> {
    let has = |(_, keys): &&(&str, &[&[&str]])| keys.iter().any(|keys| keys.contains(&key));
    let titles: Vec<&str> = SECTIONS.iter().filter(has).map(|(title, _)| *title).collect();
    let (last, others) = titles.split_last()?;
    Some(match others {
        [] => format!("`{key}` belongs in {last}"),
        others => format!("`{key}` belongs in {} or {last}", others.join(", ")),
    })
}
