//! The tables of the built-in scripts: those of pgbench, by name and columns, in a schema of their own, so that no
//! other tables are touched. Knows no load.

use std::time::Duration;

use clients::postgres::{Querier, Row};

use super::quote;
use crate::{
    plan::PostgresTarget,
    script::{ACCOUNTS, BRANCHES, TELLERS},
    target::TargetError,
};

/// Bounds the statement that fills one table.
const FILL_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Scale up to which account numbers fit the integer columns.
pub const MAX_SCALE: u32 = 20_000;
/// The comment by which a schema made here is recognized.
const SCHEMA_COMMENT: &str = "made by poolhouse bench --init";

/// The scale that the tables were made with: one for each branch, as pgbench itself counts it.
pub(super) fn scale(
    connection: &mut Querier<'_>,
    target: &PostgresTarget,
    within: Duration,
) -> Result<u32, TargetError> {
    let schema = &target.schema;
    let table = literal(&format!("{}.pgbench_branches", quote(schema)));
    let there = connection.query(&format!("SELECT pg_catalog.to_regclass({table}) IS NOT NULL"), within)?;
    if first(there.row()) != Some("t") {
        let elsewhere = connection.query(OTHER_SCHEMA_QUERY, within)?;
        return Err(TargetError::target(missing(schema, first(elsewhere.row()), target.scale)));
    }
    let branches =
        connection.query(&format!("SELECT pg_catalog.count(*) FROM {}.pgbench_branches", quote(schema)), within)?;
    let branches: u32 = first(branches.row()).and_then(|count| count.parse().ok()).unwrap_or(0);
    Ok(branches / BRANCHES)
}

/// Whether the tables are there, and large enough for the target's scale.
pub(super) fn check(
    connection: &mut Querier<'_>,
    target: &PostgresTarget,
    within: Duration,
) -> Result<(), TargetError> {
    match scale(connection, target, within)? {
        scale if scale < target.scale => Err(TargetError::target(format!(
            "the tables in schema {} were made with --scale {scale}, and the load asks for {1}: make them anew with \
             `--init --scale {1}`, or use `--scale {scale}`",
            target.schema, target.scale
        ))),
        _ => Ok(()),
    }
}

/// Finds another schema that has such tables, those of pgbench itself first.
const OTHER_SCHEMA_QUERY: &str = "\
    SELECT n.nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relname = 'pgbench_branches' AND c.relkind IN ('r', 'p') \
    ORDER BY n.nspname <> 'public', n.nspname LIMIT 1";

fn missing(schema: &str, elsewhere: Option<&str>, scale: u32) -> String {
    let there = elsewhere.map_or_else(String::new, |other| {
        format!(
            ": schema {other} has one, which `--schema {other}` loads (built-in scripts that write change what it \
                 holds)"
        )
    });
    let sep = if there.is_empty() { ":" } else { ". Or" };
    format!(
        "there is no table pgbench_branches in schema {schema}{there}{sep} make the tables with `--init --scale \
         {scale}`, or give statements of your own with `--script FILE.sql`"
    )
}

/// Makes the schema and its tables anew.
pub(super) fn init(connection: &mut Querier<'_>, target: &PostgresTarget) -> Result<(), TargetError> {
    if !(1..=MAX_SCALE).contains(&target.scale) {
        return Err(TargetError::configuration(format!("--scale must be from 1 to {MAX_SCALE}")));
    }
    make_schema(connection, &target.schema)?;
    for statement in statements(&target.schema, target.scale) {
        connection.query(&statement, FILL_TIMEOUT)?;
    }
    Ok(())
}

/// Makes the schema anew if it was made here or does not exist; any other schema is left alone.
fn make_schema(connection: &mut Querier<'_>, schema: &str) -> Result<(), TargetError> {
    let mark = format!(
        "SELECT coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '') FROM pg_catalog.pg_namespace \
         WHERE nspname = {}",
        literal(schema)
    );
    let found = connection.query(&mark, FILL_TIMEOUT)?;
    match first(found.row()) {
        Some(SCHEMA_COMMENT) => {}
        Some(_) => {
            return Err(TargetError::configuration(format!(
                "there is a schema {schema} already that was not made by --init: choose another one with --schema"
            )));
        }
        None => {
            let comment = format!("COMMENT ON SCHEMA {} IS {}", quote(schema), literal(SCHEMA_COMMENT));
            connection.query(&format!("BEGIN; CREATE SCHEMA {}; {comment}; COMMIT", quote(schema)), FILL_TIMEOUT)?;
        }
    }
    Ok(())
}

/// Everything in the schema, table by table. Rows are padded as pgbench's are, so that results can be compared.
fn statements(schema: &str, scale: u32) -> Vec<String> {
    let in_schema = |name: &str| format!("{}.pgbench_{name}", quote(schema));
    let (branches, tellers, accounts, history) =
        (in_schema("branches"), in_schema("tellers"), in_schema("accounts"), in_schema("history"));
    let rows = |each: u32| format!("pg_catalog.generate_series(1, {}) AS n", u64::from(each) * u64::from(scale));
    vec![
        format!("DROP TABLE IF EXISTS {branches}, {tellers}, {accounts}, {history}"),
        format!("CREATE TABLE {history} (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))"),
        format!(
            "CREATE TABLE {tellers} (tid int NOT NULL, bid int, tbalance int, filler char(84)) WITH (fillfactor = 100)"
        ),
        format!(
            "CREATE TABLE {accounts} (aid int NOT NULL, bid int, abalance int, filler char(84)) WITH (fillfactor = 100)"
        ),
        format!("CREATE TABLE {branches} (bid int NOT NULL, bbalance int, filler char(88)) WITH (fillfactor = 100)"),
        format!("INSERT INTO {branches} (bid, bbalance) SELECT n, 0 FROM {}", rows(BRANCHES)),
        format!(
            "INSERT INTO {tellers} (tid, bid, tbalance) SELECT n, (n - 1) / {TELLERS} + 1, 0 FROM {}",
            rows(TELLERS)
        ),
        format!(
            "INSERT INTO {accounts} (aid, bid, abalance, filler) SELECT n, (n - 1) / {ACCOUNTS} + 1, 0, '' FROM {}",
            rows(ACCOUNTS)
        ),
        format!("ALTER TABLE {branches} ADD PRIMARY KEY (bid)"),
        format!("ALTER TABLE {tellers} ADD PRIMARY KEY (tid)"),
        format!("ALTER TABLE {accounts} ADD PRIMARY KEY (aid)"),
        format!("VACUUM ANALYZE {branches}"),
        format!("VACUUM ANALYZE {tellers}"),
        format!("VACUUM ANALYZE {accounts}"),
        format!("VACUUM ANALYZE {history}"),
    ]
}

/// The first column of a row.
fn first(row: Option<&Row>) -> Option<&str> {
    row?.first()?.1.as_deref()
}

/// An SQL literal, whatever `standard_conforming_strings` says.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_made_in_the_schema_and_nowhere_else() {
        for statement in statements("o'dd \"one\"", 3) {
            let names = statement.matches("pgbench_").count();
            let ours = statement.matches("\"o'dd \"\"one\"\"\".pgbench_").count();
            assert!(names > 0 && names == ours, "{statement}");
        }
        assert!(statements("s", 3).iter().any(|statement| statement.contains("generate_series(1, 300000)")));
    }

    #[test]
    fn a_literal_cannot_be_left() {
        assert_eq!(literal("a'b\\"), "E'a''b\\\\'");
    }
}
