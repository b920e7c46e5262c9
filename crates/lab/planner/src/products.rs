//! The products for which a plan prints settings, by name.

use std::str::FromStr;

use load::plan::Target;
use settings::choose;

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
    pub const NAMES: &[(&'static str, Self)] = &[
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

    /// The default products for a database. An unknown one is taken for PostgreSQL.
    pub fn defaults(target: Option<&Target>) -> &'static [Self] {
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
        choose(text, Self::NAMES)
    }
}
