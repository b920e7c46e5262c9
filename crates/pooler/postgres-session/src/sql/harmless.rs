//! The functions of PostgreSQL itself that leave nothing behind in the session that calls them. A name stands in
//! `harmless/functions.txt` if every function of `pg_catalog` with that name is immutable or stable, or is volatile and
//! was looked at (versions 14 to 18), unless it executes SQL that it is given as text. Whether the
//! database has another function of the same name is for `catalogue` to find out.

use std::{collections::HashSet, sync::LazyLock};

const NAMES: &str = include_str!("harmless/functions.txt");

/// Functions of PostgreSQL and its extensions, except dblink, that take one argument and may leave something behind.
const OF_ONE_ARGUMENT: &str = include_str!("harmless/of_one_argument.txt");

/// Longest name in bytes: PostgreSQL cuts off the rest.
pub(crate) const MAX_NAME: usize = 63;

static FUNCTIONS: LazyLock<HashSet<&'static [u8]>> = LazyLock::new(|| NAMES.lines().map(str::as_bytes).collect());

/// Whether all functions of the system with this name, in lower case, leave nothing behind.
pub(crate) fn is_harmless(name: &[u8]) -> bool {
    FUNCTIONS.contains(name)
}

/// Whether the connection keeps state of this function that no SQL takes back: such a server is closed.
pub(crate) fn is_irreversible(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 11] = [
        b"setseed",
        b"isn_weak",
        b"pg_backup_start",
        b"pg_backup_stop",
        b"pg_start_backup",
        b"pg_stop_backup",
        b"pg_create_logical_replication_slot",
        b"pg_create_physical_replication_slot",
        b"pg_copy_logical_replication_slot",
        b"pg_copy_physical_replication_slot",
        b"pg_replication_origin_session_setup",
    ];
    NAMES.contains(&name) || name.starts_with(b"dblink")
}

/// Whether a function of this name, in lower case, takes one argument and may leave something behind: it can be called
/// without a parenthesis.
pub(crate) fn may_harm_by_notation(name: &[u8]) -> bool {
    OF_ONE_ARGUMENT.lines().any(|known| known.as_bytes() == name) || name.starts_with(b"dblink")
}

/// Functions that drivers call by number: those for large objects, whose descriptors end with the transaction.
pub(crate) fn is_harmless_oid(oid: u32) -> bool {
    matches!(oid, 715 | 764 | 765 | 767 | 952..=958 | 964 | 1004 | 3170..=3172 | 3457..=3460)
}

/// Whether no SQL cleans the session after the function of this number: one named above, or one that did not come with
/// PostgreSQL.
pub(crate) fn is_irreversible_oid(oid: u32) -> bool {
    matches!(oid, 1599 | 2172 | 2173 | 2739 | 3779 | 3786 | 4220..=4224 | 6006 | 16384..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_by_what_their_functions_leave_behind() {
        for name in ["now", "count", "lower", "generate_series", "pg_advisory_xact_lock", "random", "pg_get_expr"] {
            assert!(is_harmless(name.as_bytes()), "{name}");
        }
        for name in ["set_config", "setseed", "pg_advisory_lock", "query_to_xml", "ts_stat", "dblink_connect", "f", ""]
        {
            assert!(!is_harmless(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn the_list_is_sorted_and_short_enough_to_read() {
        let names: Vec<&str> = NAMES.lines().collect();
        assert!(names.is_sorted() && names.iter().all(|name| name.len() <= MAX_NAME && !name.is_empty()));
        assert!(!names.iter().any(|name| is_irreversible(name.as_bytes())));
        assert!(!names.iter().any(|name| may_harm_by_notation(name.as_bytes())));
    }
}
