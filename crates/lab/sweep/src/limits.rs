//! What a PostgreSQL lets in, and what is to be cleaned up between two points of its curve. Measures nothing.

use std::time::Duration;

use load::{
    plan::{PostgresTarget, Script},
    target::{TargetError, postgres},
};

const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// What to ask for them. Of other users' sessions a user without pg_read_all_stats sees no type, only that they have a
/// database.
const LIMITS_QUERY: &str = "SELECT current_setting('max_connections')::int, \
                            current_setting('superuser_reserved_connections')::int + \
                            coalesce(current_setting('reserved_connections', true), '0')::int, (SELECT count(*) FROM \
                            pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid() AND (backend_type = \
                            'client backend' OR (backend_type IS NULL AND datname IS NOT NULL)))";

/// What a server says of its limits, and how much of them is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `max_connections`.
    pub max_connections: u32,
    /// `superuser_reserved_connections` and `reserved_connections` together.
    pub reserved: u32,
    /// Connections of others that are open.
    pub others: u32,
}

impl Limits {
    /// Connections that are left for a load.
    pub fn room(&self) -> u32 {
        self.max_connections.saturating_sub(self.reserved + self.others)
    }
}

/// Asks a PostgreSQL for its limits.
///
/// # Errors
/// Why it could not be asked.
pub fn ask_limits(target: &PostgresTarget) -> Result<Limits, TargetError> {
    let row = postgres::ask(target, LIMITS_QUERY, QUERY_TIMEOUT)?;
    let number = |i: usize| row.get(i).and_then(|value| value.as_deref()?.parse().ok());
    match (number(0), number(1), number(2)) {
        (Some(max_connections), Some(reserved), Some(others)) => Ok(Limits { max_connections, reserved, others }),
        _ => Err(TargetError::target("the server does not say what max_connections is: is it a PostgreSQL?")),
    }
}

/// The statements that clean up the tables that a script changes, between two points. Empty: no script is known to
/// change one.
pub(super) fn vacuum_statements(target: &PostgresTarget) -> Vec<String> {
    let writes = |script: &Script| matches!(script, Script::TpcbLike | Script::SimpleUpdate);
    if target.scripts.iter().any(|(script, _)| writes(script)) {
        let schema = target.schema.replace('"', "\"\"");
        return ["branches", "tellers", "history"].map(|table| format!("VACUUM \"{schema}\".pgbench_{table}")).to_vec();
    }
    let changes = |text: &str| {
        let text = text.to_ascii_lowercase();
        ["insert", "update", "delete", "merge"].iter().any(|word| text.split_whitespace().any(|w| w == *word))
    };
    let any = target.scripts.iter().any(|(script, _)| matches!(script, Script::File(_, text) if changes(text)));
    // Whose tables they are is not known; the server passes over those that this user may not clean up.
    if any { vec!["VACUUM".to_owned()] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use settings::Secret;

    use super::*;

    fn target(scripts: Vec<Script>) -> PostgresTarget {
        let scripts = scripts.into_iter().map(|script| (script, 1)).collect();
        let target = PostgresTarget::new(Secret::new("postgres://app:s3cret@127.0.0.1:5432/shop"), scripts);
        PostgresTarget { schema: "load\"s".to_owned(), ..target }
    }

    #[test]
    fn only_loads_that_write_are_cleaned_up_after() {
        let file = |text: &str| Script::File("x.sql".into(), text.to_owned());
        assert!(vacuum_statements(&target(vec![Script::SelectOnly, file("SELECT updated FROM t;")])).is_empty());
        assert_eq!(vacuum_statements(&target(vec![file("update t set a = 1;")])), ["VACUUM"]);
        assert_eq!(vacuum_statements(&target(vec![Script::TpcbLike]))[0], "VACUUM \"load\"\"s\".pgbench_branches");
    }

    #[test]
    fn what_others_and_superusers_have_is_not_left_for_a_load() {
        assert_eq!(Limits { max_connections: 100, reserved: 3, others: 7 }.room(), 90);
        assert_eq!(Limits { max_connections: 3, reserved: 3, others: 7 }.room(), 0);
    }

    #[test]
    fn sessions_of_other_users_count_though_their_type_is_hidden() {
        assert!(LIMITS_QUERY.contains("backend_type IS NULL AND datname IS NOT NULL"), "{LIMITS_QUERY}");
    }
}
