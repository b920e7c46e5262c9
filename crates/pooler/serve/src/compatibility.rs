//! `compatible_with = "pgbouncer"`: what drivers, tests and scripts see that expect PgBouncer there.

use postgres_session::Wording;

/// The version of PgBouncer whose behaviour is kept.
pub const PGBOUNCER_VERSION: &str = "1.26.1";

/// What a process stands in for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Compatibility {
    #[default]
    Own,
    PgBouncer,
}

impl Compatibility {
    /// The words of the configuration.
    pub const WORDS: &[(&'static str, Self)] = &[("poolhouse", Self::Own), ("pgbouncer", Self::PgBouncer)];

    pub fn wording(self) -> Wording {
        match self {
            Self::Own => Wording::Poolhouse,
            Self::PgBouncer => Wording::PgBouncer,
        }
    }
}
