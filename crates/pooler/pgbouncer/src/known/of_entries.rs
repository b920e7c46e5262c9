//! What the connection strings of `[databases]`, `[users]` and `[peers]` may have, in the manual's order.

use super::{
    Fate, Known,
    general::{MINIMUM_STAYS, MODES},
};
use crate::values::Kind::{Number, Text, Time, Word};

pub const BALANCING: &[&str] = &["round-robin", "disable"];

pub const DATABASE: &[Known] = &[
    Known::new("dbname", "", Text, &[("database", "url")], Fate::Same),
    Known::new("host", "", Text, &[("database", "url")], Fate::Same),
    Known::new("port", "5432", Text, &[("database", "url")], Fate::Same),
    Known::new("user", "", Text, &[("database", "url")], Fate::Same),
    Known::new("password", "", Text, &[("database", "url")], Fate::Same),
    Known::new("auth_user", "", Text, &[("database", "auth_user")], Fate::Same),
    Known::new("auth_query", "", Text, &[("database", "auth_query")], Fate::Same),
    Known::new("auth_dbname", "", Text, &[("database", "auth_server")], Fate::Same),
    Known::new("pool_size", "-1", Number, &[("database", "max_size")], Fate::Same),
    Known::new("min_pool_size", "-1", Number, &[("database", "min_size")], Fate::Different(MINIMUM_STAYS)),
    Known::new("reserve_pool_size", "-1", Number, &[("database", "reserve_size")], Fate::Same),
    Known::new("reserve_pool", "-1", Number, &[("database", "reserve_size")], Fate::Same),
    Known::new(
        "connect_query",
        "",
        Text,
        &[("database", "connect_query")],
        Fate::Different("if it fails, the connection is closed and clients are told; PgBouncer goes on"),
    ),
    Known::new("pool_mode", "", Word(MODES), &[("database", "mode")], Fate::Same),
    Known::new("query_wait_timeout", "-1", Number, &[("database", "max_wait_time")], Fate::Same),
    Known::new(
        "load_balance_hosts",
        "round-robin",
        Word(BALANCING),
        &[("url", "load_balance_hosts=round-robin")],
        Fate::Same,
    ),
    Known::new("max_db_connections", "-1", Number, &[("database", "max_connections")], Fate::Same),
    Known::new("max_db_client_connections", "-1", Number, &[("database", "hard_limit")], Fate::Same),
    Known::new("server_lifetime", "", Time, &[("database", "max_life_time")], Fate::Same),
    Known::new("client_encoding", "", Text, &[("url", "options")], Fate::Same),
    Known::new("datestyle", "", Text, &[("url", "options")], Fate::Same),
    Known::new("timezone", "", Text, &[("url", "options")], Fate::Same),
];

/// What a connection string may have beside the manual's keys.
pub const DATABASE_UNDOCUMENTED: &[Known] =
    &[Known::new("application_name", "", Text, &[("url", "options")], Fate::Same)];

pub const USER: &[Known] = &[
    Known::new("pool_size", "-1", Number, &[("user", "max_size")], Fate::Same),
    Known::new("reserve_pool_size", "-1", Number, &[("user", "reserve_size")], Fate::Same),
    Known::new("pool_mode", "", Word(MODES), &[("user", "mode")], Fate::Same),
    Known::new("max_user_connections", "-1", Number, &[("user", "max_user_connections")], Fate::Same),
    Known::new("query_timeout", "0", Time, &[("user", "query_time")], Fate::Same),
    Known::new("query_wait_timeout", "-1", Number, &[("user", "max_wait_time")], Fate::Same),
    Known::new("idle_transaction_timeout", "0", Time, &[("user", "transaction_idle_time")], Fate::Same),
    Known::new("transaction_timeout", "0", Time, &[("user", "transaction_time")], Fate::Same),
    Known::new("client_idle_timeout", "0", Time, &[("user", "client_idle_time")], Fate::Same),
    Known::new("max_user_client_connections", "-1", Number, &[("user", "hard_limit")], Fate::Same),
];

pub const PEER: &[Known] = &[
    Known::new("host", "", Text, &[("peer", "address")], Fate::Same),
    Known::new("port", "6432", Text, &[("peer", "address")], Fate::Same),
    Known::new("pool_size", "-1", Number, &[("peer", "max_size")], Fate::Same),
];
