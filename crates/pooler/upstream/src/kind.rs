//! Kinds of databases, and their default ports.

/// The kind of a database, which is the scheme of its URL.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Kind {
    /// `postgres://`
    #[default]
    Postgres,
    /// `redis://`, and `rediss://` with TLS
    Redis,
    /// `mongodb://`
    MongoDb,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Redis => "Redis",
            Self::MongoDb => "MongoDB",
        }
    }

    /// The name in the configuration, in metrics and at the admin address.
    pub fn word(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Redis => "redis",
            Self::MongoDb => "mongodb",
        }
    }

    pub(crate) fn default_port(self, sentinels: bool) -> u16 {
        match self {
            Self::Postgres => 5432,
            Self::Redis if sentinels => 26_379,
            Self::Redis => 6379,
            Self::MongoDb => 27_017,
        }
    }
}
