//! The products whose settings a plan can tell, by their names. Knows none of their settings.

use std::str::FromStr;

use load::plan::Target;
use settings::choose;

/// Whose settings can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Product {
    Poolhouse,
    /// Another pooler of PostgreSQL.
    PgBouncer,
    HikariCp,
    /// A framework of Python, whose pool is psycopg's.
    Django,
    Rails,
    /// A driver of PostgreSQL for Node.js.
    NodePostgres,
    SqlAlchemy,
    /// A driver of PostgreSQL for Go.
    Pgx,
    /// The drivers of MongoDB.
    MongoDb,
}

impl Product {
    /// The words of the command line.
    pub const WORDS: &[(&'static str, Self)] = &[
        ("poolhouse", Self::Poolhouse),
        ("pgbouncer", Self::PgBouncer),
        ("hikaricp", Self::HikariCp),
        ("django", Self::Django),
        ("rails", Self::Rails),
        ("node-postgres", Self::NodePostgres),
        ("sqlalchemy", Self::SqlAlchemy),
        ("pgx", Self::Pgx),
        ("mongodb", Self::MongoDb),
    ];

    /// Those that make sense for a database; `None`: it is not known which, and so taken to be the commonest.
    pub fn of(target: Option<&Target>) -> &'static [Self] {
        match target {
            Some(Target::Postgres(_)) | None => &[Self::Poolhouse, Self::PgBouncer, Self::HikariCp],
            Some(Target::Redis(_)) => &[Self::Poolhouse],
            Some(Target::MongoDb(_)) => &[Self::Poolhouse, Self::MongoDb],
            Some(Target::Http(_)) => &[Self::Poolhouse, Self::PgBouncer, Self::HikariCp, Self::MongoDb],
        }
    }
}

impl FromStr for Product {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        choose(text, Self::WORDS)
    }
}
