//! Names of PgBouncer in a file of Poolhouse: what to write in their place. docs/from-pgbouncer.md says more of each.

/// The page that says what replaces PgBouncer's settings.
const PAGE: &str = "docs/from-pgbouncer.md";

/// PgBouncer's sections and keys, and where the same is said here.
const NAMES: &[(&str, &str)] = &[
    ("databases", "a `[[database]]` for each"),
    ("users", "a `[[user]]` for each"),
    ("pgbouncer", "in `[[listener]]`, `[pool]`, `[auth]`, `[limits]`, `[serve]` and `[admin]`"),
    ("listen_addr", "`listen` in a `[[listener]]`, with the port"),
    ("listen_port", "`listen` in a `[[listener]]`, with the address"),
    ("unix_socket_dir", "`listen` in a `[[listener]]`, with the path of the socket"),
    ("unix_socket_mode", "`socket_mode` in a `[[listener]]`"),
    ("logfile", "`file` in `[log]`"),
    ("pidfile", "`pid_file` in `[serve]`"),
    ("pool_mode", "`mode` in `[pool]`, a `[[database]]` or a `[[user]]`"),
    ("max_client_conn", "`max_clients` in `[limits]`, or `hard_limit` in a `[[listener]]`"),
    ("default_pool_size", "`max_size` in `[pool]`"),
    ("pool_size", "`max_size` in a `[[database]]` or a `[[user]]`"),
    ("min_pool_size", "`min_size` in `[pool]`, a `[[database]]` or a `[[user]]`"),
    ("max_db_connections", "`max_connections` in a `[[database]]`, `max_database_connections` in `[limits]`"),
    ("max_db_client_connections", "`hard_limit` in a `[[database]]`, with `soft_limit`"),
    ("max_user_client_connections", "`hard_limit` in a `[[user]]`, with `soft_limit`"),
    ("peer_id", "`node_id` in `[serve]`"),
    ("peers", "a `[[peer]]` for each"),
    ("so_reuseport", "`reuse_port` in a `[[listener]]`, or `workers` in `[serve]`"),
    ("auth_file", "`file` in `[auth]`"),
    ("auth_type", "`type` in `[auth]`; `stored` follows what is stored for the user"),
    ("auth_hba_file", "`hba_file` in `[auth]`"),
    ("auth_ident_file", "`ident_file` in `[auth]`"),
    ("auth_ldap_options", "`ldap_options` in `[auth]`"),
    ("auth_dbname", "`auth_server` in `[auth]` or a `[[database]]`"),
    ("admin_users", "`admins` in `[console]`"),
    ("stats_users", "`viewers` in `[console]`"),
    ("server_reset_query", "`reset` in `[pool]` or a `[[database]]`"),
    ("server_reset_query_always", "`reset = \"always\"` in `[pool]` or a `[[database]]`"),
    ("server_check_delay", "`check_after_idle` in `[pool]` or a `[[database]]`"),
    ("server_lifetime", "`max_life_time` in `[pool]` or a `[[database]]`"),
    ("server_idle_timeout", "`max_idle_time` in `[pool]` or a `[[database]]`"),
    ("server_connect_timeout", "`connect_time` in `[pool]` or a `[[database]]`"),
    ("client_login_timeout", "`login_time` in a `[[listener]]`"),
    ("query_timeout", "`query_time` in a `[[listener]]`, `[pool]`, a `[[database]]` or a `[[user]]`"),
    (
        "query_wait_timeout",
        "`max_wait_time` in `[pool]`, a `[[database]]` or a `[[user]]`, and `unavailable_wait_time`",
    ),
    ("client_idle_timeout", "`client_idle_time` in a `[[listener]]`, `[pool]`, a `[[database]]` or a `[[user]]`"),
    (
        "idle_transaction_timeout",
        "`transaction_idle_time` in a `[[listener]]`, `[pool]`, a `[[database]]` or a `[[user]]`",
    ),
    ("client_tls_sslmode", "`tls` in a `[[listener]]`"),
    ("client_tls_cert_file", "`tls_cert` in a `[[listener]]`"),
    ("client_tls_key_file", "`tls_key` in a `[[listener]]`"),
    ("client_tls_ca_file", "`tls_client_ca` in a `[[listener]]`"),
    ("server_tls_sslmode", "`?sslmode=` in the url of a `[[database]]`"),
    ("server_tls_ca_file", "`sslrootcert=` in the url of a `[[database]]`"),
    ("server_tls_cert_file", "`sslcert=` in the url of a `[[database]]`"),
    ("server_tls_key_file", "`sslkey=` in the url of a `[[database]]`"),
    ("reserve_pool_size", "`reserve_size` in `[pool]`, a `[[database]]` or a `[[user]]`"),
    ("reserve_pool_timeout", "`reserve_wait_time` in `[pool]`, a `[[database]]` or a `[[user]]`"),
    ("transaction_timeout", "`transaction_time` in a `[[listener]]`, `[pool]`, a `[[database]]` or a `[[user]]`"),
    ("server_login_retry", "`login_retry_time` in `[pool]` or a `[[database]]`"),
    ("server_round_robin", "`round_robin` in `[pool]` or a `[[database]]`"),
    ("server_fast_close", "`fast_close` in `[pool]` or a `[[database]]`"),
    ("cancel_wait_timeout", "`cancel_wait_time` in `[pool]` or a `[[database]]`"),
    ("unix_socket_group", "`socket_group` in a `[[listener]]`"),
    ("listen_backlog", "`backlog` in a `[[listener]]`"),
    ("tcp_keepalive", "`keepalive` in `[tcp]`"),
    ("tcp_keepidle", "`keep_idle` in `[tcp]`"),
    ("tcp_keepintvl", "`keep_interval` in `[tcp]`"),
    ("tcp_keepcnt", "`keep_count` in `[tcp]`"),
    ("tcp_user_timeout", "`user_timeout` in `[tcp]`"),
    ("tcp_socket_buffer", "`socket_buffer` in `[tcp]`"),
    ("tcp_defer_accept", "not settable: a client that says nothing has a place for login_time at most"),
    ("dns_max_ttl", "`max_ttl` in `[dns]`"),
    ("dns_zone_check_period", "`max_ttl` in `[dns]`: names are looked up again, zones are not"),
    ("dns_nxdomain_ttl", "`failure_ttl` in `[dns]`"),
    ("log_pooler_errors", "`log_client_errors` in `[serve]`"),
    ("client_tls_ecdhcurve", "`tls_curves` in a `[[listener]]`"),
    ("resolv_conf", "not settable: the system resolves names"),
];

/// What to write in place of a key of PgBouncer.
pub(super) fn advice(key: &str) -> Option<String> {
    let (_, here) = NAMES.iter().find(|(name, _)| *name == key)?;
    Some(format!("PgBouncer's `{key}` is here: {here}; see {PAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_explained_on_the_page() {
        let page = include_str!("../../../../../docs/from-pgbouncer.md");
        for (name, here) in NAMES {
            let named = [format!("`{name}"), format!("`[{name}]")];
            assert!(named.iter().any(|word| page.contains(word.as_str())), "{name}");
            let word = here.split('`').nth(1).unwrap_or_default().trim_matches(['[', ']']);
            assert!(here.starts_with("not ") || page.contains(word), "{name}: {word}");
        }
    }
}
