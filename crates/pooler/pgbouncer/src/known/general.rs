//! The settings of `[pgbouncer]`, in the manual's order.

use super::{Fate, Known};
use crate::values::Kind::{Number, Text, Time, Word};

pub const MODES: &[&str] = &["session", "transaction", "statement"];
pub const AUTH_TYPES: &[&str] =
    &["any", "trust", "plain", "md5", "cert", "hba", "pam", "scram-sha-256", "ldap", "peer"];
pub const CLIENT_TLS_MODES: &[&str] = &["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
pub const SERVER_TLS_MODES: &[&str] = CLIENT_TLS_MODES;

/// PgBouncer's own default of `auth_query`. Poolhouse's default finds the same users.
pub const DEFAULT_AUTH_QUERY: &str = "SELECT rolname, CASE WHEN rolvaliduntil < now() THEN NULL ELSE rolpassword END \
    FROM pg_authid WHERE rolname=$1 AND rolcanlogin";

const NO_DHE: &str = "TLS comes from rustls, which exchanges keys by elliptic curves only: take the line away";
pub const MINIMUM_STAYS: &str =
    "the servers stay while no client is connected, too, until a pool without any needs one of them";
const CIPHER_WORDS: &str =
    "names of ciphers are taken, and words for many of them, such as HIGH, are left out: all that are spoken here hold";

pub const GENERAL: &[Known] = &[
    Known::new("logfile", "", Text, &[("log", "file")], Fate::Same),
    Known::new("pidfile", "", Text, &[("serve", "pid_file")], Fate::Same),
    Known::new("listen_addr", "", Text, &[("listener", "listen")], Fate::Same),
    Known::new("listen_port", "6432", Number, &[("listener", "listen")], Fate::Same),
    Known::new("unix_socket_dir", "/tmp", Text, &[("listener", "listen")], Fate::Same),
    Known::new("unix_socket_mode", "0777", Number, &[("listener", "socket_mode")], Fate::Same),
    Known::new("unix_socket_group", "", Text, &[("listener", "socket_group")], Fate::Same),
    Known::new("user", "", Text, &[("serve", "user")], Fate::Same),
    Known::new("pool_mode", "session", Word(MODES), &[("pool", "mode")], Fate::Same),
    Known::new("max_client_conn", "100", Number, &[("limits", "max_clients")], Fate::Same),
    Known::new("default_pool_size", "20", Number, &[("pool", "max_size")], Fate::Same),
    Known::new("min_pool_size", "0", Number, &[("pool", "min_size")], Fate::Different(MINIMUM_STAYS)),
    Known::new("reserve_pool_size", "0", Number, &[("pool", "reserve_size")], Fate::Same),
    Known::new("reserve_pool_timeout", "5.0", Time, &[("pool", "reserve_wait_time")], Fate::Same),
    Known::new("max_db_connections", "0", Number, &[("limits", "max_database_connections")], Fate::Same),
    Known::new("max_db_client_connections", "0", Number, &[("limits", "max_database_clients")], Fate::Same),
    Known::new("max_user_connections", "0", Number, &[("limits", "max_user_connections")], Fate::Same),
    Known::new("max_user_client_connections", "0", Number, &[("limits", "max_user_clients")], Fate::Same),
    Known::new("server_round_robin", "0", Number, &[("pool", "round_robin")], Fate::Same),
    Known::new(
        "track_extra_parameters",
        "",
        Text,
        &[("listener", "allow_startup_parameters")],
        Fate::Different("all parameters follow the client; these it may send at its start, too"),
    ),
    Known::new("ignore_startup_parameters", "", Text, &[("listener", "ignore_startup_parameters")], Fate::Same),
    Known::new("peer_id", "0", Number, &[("serve", "node_id")], Fate::Same),
    Known::new("disable_pqexec", "0", Number, &[("listener", "refuse_simple_queries")], Fate::Same),
    Known::new("application_name_add_host", "0", Number, &[("pool", "application_name_add_host")], Fate::Same),
    Known::new(
        "conffile",
        "",
        Text,
        &[],
        Fate::Refused("the file is the one that the command line names; that one may be named"),
    ),
    Known::new("service_name", "pgbouncer", Text, &[], Fate::Same),
    Known::new("job_name", "pgbouncer", Text, &[], Fate::Same),
    Known::new("stats_period", "60", Number, &[("log", "stats_period")], Fate::Same),
    Known::new(
        "max_prepared_statements",
        "200",
        Number,
        &[("pool", "max_prepared_statements")],
        Fate::Different("prepared statements are followed with 0, too"),
    ),
    Known::new("scram_iterations", "4096", Number, &[("auth", "scram_iterations")], Fate::Same),
    // Authentication
    Known::new("auth_type", "md5", Word(AUTH_TYPES), &[("auth", "type")], Fate::Same),
    Known::new("auth_hba_file", "", Text, &[("auth", "hba_file")], Fate::Same),
    Known::new("auth_ident_file", "", Text, &[("auth", "ident_file")], Fate::Same),
    Known::new("auth_file", "", Text, &[("auth", "file")], Fate::Same),
    Known::new("auth_user", "", Text, &[("auth", "auth_user")], Fate::Same),
    Known::new("auth_query", DEFAULT_AUTH_QUERY, Text, &[("auth", "auth_query")], Fate::Same),
    Known::new("auth_dbname", "", Text, &[("auth", "auth_server")], Fate::Same),
    Known::new("auth_ldap_options", "", Text, &[("auth", "ldap_options")], Fate::Same),
    // Log
    Known::new("syslog", "0", Number, &[("log", "syslog")], Fate::Same),
    Known::new("syslog_ident", "pgbouncer", Text, &[("log", "syslog_ident")], Fate::Same),
    Known::new("syslog_facility", "daemon", Text, &[("log", "syslog_facility")], Fate::Same),
    Known::new("log_connections", "1", Number, &[("serve", "log_connections")], Fate::Same),
    Known::new("log_disconnections", "1", Number, &[("serve", "log_disconnections")], Fate::Same),
    Known::new("log_pooler_errors", "1", Number, &[("serve", "log_client_errors")], Fate::Same),
    Known::new("log_stats", "1", Number, &[("log", "stats_period")], Fate::Same),
    Known::new("verbose", "0", Number, &[("log", "level")], Fate::Same),
    // Console
    Known::new("admin_users", "", Text, &[("console", "admins")], Fate::Same),
    Known::new("stats_users", "", Text, &[("console", "viewers")], Fate::Same),
    // Sanity checks, time-outs
    Known::new(
        "server_reset_query",
        "DISCARD ALL",
        Text,
        &[],
        Fate::Different(
            "servers are cleaned by statements of Poolhouse's own; one that does more than reset is refused",
        ),
    ),
    Known::new("server_reset_query_always", "0", Number, &[("pool", "reset")], Fate::Different(STILL_CLEAN)),
    Known::new("server_check_delay", "30", Time, &[("pool", "check_after_idle")], Fate::Same),
    Known::new(
        "server_check_query",
        "<empty>",
        Text,
        &[("pool", "check_after_idle")],
        Fate::Different("the check is an empty query, whatever is written; an empty text switches it off as there"),
    ),
    Known::new("server_fast_close", "0", Number, &[("pool", "fast_close")], Fate::Same),
    Known::new("server_lifetime", "3600", Time, &[("pool", "max_life_time")], Fate::Same),
    Known::new("server_idle_timeout", "600", Time, &[("pool", "max_idle_time")], Fate::Same),
    Known::new("server_connect_timeout", "15", Time, &[("pool", "connect_time")], Fate::Same),
    Known::new("server_login_retry", "15", Time, &[("pool", "login_retry_time")], Fate::Same),
    Known::new("client_login_timeout", "60", Time, &[("listener", "login_time")], Fate::Same),
    Known::new("autodb_idle_timeout", "3600", Time, &[("database", "pool_idle_time")], Fate::Same),
    Known::new("pool_idle_timeout", "0", Time, &[("pool", "pool_idle_time")], Fate::Same),
    Known::new("dns_max_ttl", "15", Time, &[("dns", "max_ttl")], Fate::Same),
    Known::new("dns_nxdomain_ttl", "15", Time, &[("dns", "failure_ttl")], Fate::Same),
    Known::new(
        "dns_zone_check_period",
        "0",
        Time,
        &[],
        Fate::Refused("zones are not asked for their serial: have names looked up again sooner, by dns_max_ttl"),
    ),
    Known::new(
        "resolv_conf",
        "",
        Text,
        &[],
        Fate::Refused("the system resolves names: change /etc/resolv.conf, or mount another file there"),
    ),
    Known::new("query_wait_notify", "5", Number, &[("listener", "wait_notice_time")], Fate::Same),
    Known::new("login_notify_message", "", Text, &[("listener", "login_notice")], Fate::Same),
    // TLS
    Known::new("client_tls_sslmode", "disable", Word(CLIENT_TLS_MODES), &[("listener", "tls")], Fate::Same),
    Known::new("client_tls_key_file", "", Text, &[("listener", "tls_key")], Fate::Same),
    Known::new("client_tls_cert_file", "", Text, &[("listener", "tls_cert")], Fate::Same),
    Known::new("client_tls_ca_file", "", Text, &[("listener", "tls_client_ca")], Fate::Same),
    Known::new("client_tls_protocols", "secure", Text, &[("listener", "tls_protocols")], Fate::Same),
    Known::new("client_tls_ciphers", "default", Text, &[("listener", "tls_ciphers")], Fate::Different(CIPHER_WORDS)),
    Known::new("client_tls13_ciphers", "", Text, &[("listener", "tls_ciphers")], Fate::Same),
    Known::new("client_tls_ecdhcurve", "auto", Text, &[("listener", "tls_curves")], Fate::Same),
    Known::new("client_tls_dheparams", "auto", Text, &[], Fate::Refused(NO_DHE)),
    Known::new("server_tls_sslmode", "prefer", Word(SERVER_TLS_MODES), &[("url", "sslmode")], Fate::Same),
    Known::new("server_tls_ca_file", "", Text, &[("url", "sslrootcert")], Fate::Same),
    Known::new("server_tls_key_file", "", Text, &[("url", "sslkey")], Fate::Same),
    Known::new("server_tls_cert_file", "", Text, &[("url", "sslcert")], Fate::Same),
    Known::new("server_tls_protocols", "secure", Text, &[("url", "tls_protocols")], Fate::Same),
    Known::new("server_tls_ciphers", "default", Text, &[("url", "tls_ciphers")], Fate::Different(CIPHER_WORDS)),
    Known::new("server_tls13_ciphers", "", Text, &[("url", "tls_ciphers")], Fate::Same),
    // Dangerous time-outs
    Known::new("query_timeout", "0", Time, &[("pool", "query_time")], Fate::Same),
    Known::new(
        "query_wait_timeout",
        "120",
        Time,
        &[("pool", "max_wait_time"), ("pool", "unavailable_wait_time")],
        Fate::Same,
    ),
    Known::new("cancel_wait_timeout", "10", Time, &[("pool", "cancel_wait_time")], Fate::Same),
    Known::new("client_idle_timeout", "0", Time, &[("pool", "client_idle_time")], Fate::Same),
    Known::new("idle_transaction_timeout", "0", Time, &[("pool", "transaction_idle_time")], Fate::Same),
    Known::new("transaction_timeout", "0", Time, &[("pool", "transaction_time")], Fate::Same),
    // Network
    Known::new("pkt_buf", "4096", Number, &[], Fate::Accepted("buffers have a size of their own")),
    Known::new("max_packet_size", "2147483647", Number, &[("listener", "max_message_size")], Fate::Same),
    Known::new("listen_backlog", "128", Number, &[("listener", "backlog")], Fate::Same),
    Known::new(
        "sbuf_loopcnt",
        "5",
        Number,
        &[],
        Fate::Accepted("how much is read of one connection before the next has its turn is fixed"),
    ),
    Known::new("so_reuseport", "0", Number, &[("listener", "reuse_port")], Fate::Same),
    Known::new(
        "tcp_defer_accept",
        "1",
        Number,
        &[],
        Fate::Accepted("a client that connects and says nothing has a place for client_login_timeout at most"),
    ),
    Known::new("tcp_socket_buffer", "0", Number, &[("tcp", "socket_buffer")], Fate::Same),
    Known::new("tcp_keepalive", "1", Number, &[("tcp", "keepalive")], Fate::Same),
    Known::new("tcp_keepcnt", "0", Number, &[("tcp", "keep_count")], Fate::Same),
    Known::new("tcp_keepidle", "0", Number, &[("tcp", "keep_idle")], Fate::Same),
    Known::new("tcp_keepintvl", "0", Number, &[("tcp", "keep_interval")], Fate::Same),
    Known::new("tcp_user_timeout", "0", Number, &[("tcp", "user_timeout")], Fate::Same),
];

const STILL_CLEAN: &str =
    "with 0, too, a server is cleaned of what a client may have left before another client gets it";
