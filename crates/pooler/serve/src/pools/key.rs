//! What tells the pools of a process apart.

use std::{fmt, sync::Arc};

use redis_session::Version;
use upstream::Kind;

/// What stands behind the number of a database of Redis, in the label of the pool of its clients that speak RESP3.
pub const RESP3: &str = "/resp3";

/// The clients that share servers, by what these have in common.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Key {
    /// Clients of a database of PostgreSQL.
    Postgres {
        /// What they call it: not the configured name when that is `*`.
        database: Arc<str>,
        /// The user that its servers log in as.
        user: Arc<str>,
    },
    /// Clients of a logical database of Redis.
    Redis {
        database: u32,
        /// What its servers speak.
        version: Version,
        /// The user that its servers log in as; empty if they do not log in.
        user: Arc<str>,
    },
    MongoDb {
        /// The host, and its port.
        host: Arc<str>,
        /// The user that its servers log in as; empty if they do not log in.
        user: Arc<str>,
        /// No clients: it is asked what it is.
        monitors: bool,
    },
    /// Nobody: the users of a database of PostgreSQL are looked up there.
    Lookups {
        /// The configured database.
        database: Arc<str>,
        user: Arc<str>,
    },
}

/// Logical databases that Redis has unless it is configured otherwise.
const USUAL_DATABASES: u32 = 16;

impl Key {
    /// Whether a client may have made it up, whatever is configured.
    pub fn is_made_up(&self) -> bool {
        matches!(self, Self::Redis { database, .. } if *database >= USUAL_DATABASES)
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Postgres { .. } | Self::Lookups { .. } => Kind::Postgres,
            Self::Redis { .. } => Kind::Redis,
            Self::MongoDb { .. } => Kind::MongoDb,
        }
    }

    /// The user that the servers log in as.
    pub fn user(&self) -> &Arc<str> {
        match self {
            Self::Postgres { user, .. }
            | Self::Redis { user, .. }
            | Self::MongoDb { user, .. }
            | Self::Lookups { user, .. } => user,
        }
    }

    /// The same for servers that log in as another user.
    pub fn with_user(mut self, other: Arc<str>) -> Self {
        match &mut self {
            Self::Postgres { user, .. }
            | Self::Redis { user, .. }
            | Self::MongoDb { user, .. }
            | Self::Lookups { user, .. } => *user = other,
        }
        self
    }

    /// The database, as orders of an operator call it, where that is not its label: whatever its clients speak.
    pub fn ordered_as(&self) -> Option<String> {
        match self {
            Self::Redis { database, .. } => Some(database.to_string()),
            Self::Postgres { .. } | Self::MongoDb { .. } | Self::Lookups { .. } => None,
        }
    }

    /// The database, as metrics and logs call it.
    pub fn label(&self) -> String {
        match self {
            Self::Postgres { database, .. } => database.to_string(),
            Self::Redis { database, version: Version::Resp2, .. } => database.to_string(),
            Self::Redis { database, version: Version::Resp3, .. } => format!("{database}{RESP3}"),
            Self::MongoDb { host, monitors: false, .. } => host.to_string(),
            Self::MongoDb { host, monitors: true, .. } => format!("{host}/monitor"),
            Self::Lookups { database, .. } => format!("{database}/auth_query"),
        }
    }
}

/// What its caps are called: a number is no name of a database.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis { .. } => write!(f, "redis {}", self.label()),
            Self::MongoDb { .. } => write!(f, "mongodb {}", self.label()),
            Self::Postgres { .. } | Self::Lookups { .. } => f.write_str(&self.label()),
        }
    }
}
