//! The identity of a pool: clients with equal keys share servers.

use std::{fmt, sync::Arc};

use redis_session::Version;
use upstream::Kind;

/// Suffix in the label of a pool of Redis whose clients speak RESP3.
pub const RESP3_SUFFIX: &str = "/resp3";

/// Suffix in the label of a pool whose servers look up users.
pub const LOOKUPS_SUFFIX: &str = "/auth_query";

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Key {
    /// Clients of a database of PostgreSQL.
    Postgres {
        /// The name that clients use, also where the configured one is `*`.
        database: Arc<str>,
        /// The user that its servers log in as.
        user: Arc<str>,
    },
    /// Clients of PostgreSQL each of which gets a dedicated server, made with these start-up parameters.
    Dedicated {
        /// The name that clients use, also where the configured one is `*`.
        database: Arc<str>,
        /// The user that its servers log in as.
        user: Arc<str>,
        /// The clients ask for replication.
        replication: bool,
        parameters: Arc<[(String, String)]>,
    },
    /// Clients of a logical database of Redis.
    Redis {
        database: u32,
        version: Version,
        /// The user that its servers log in as; empty if they do not log in.
        user: Arc<str>,
    },
    MongoDb {
        /// The host, and its port.
        host: Arc<str>,
        /// The user that its servers log in as; empty if they do not log in.
        user: Arc<str>,
        /// The pool has no clients: its one server monitors the host.
        monitors: bool,
    },
    /// No clients: its servers look up the users of a database of PostgreSQL.
    Lookups {
        /// The configured database.
        database: Arc<str>,
        user: Arc<str>,
    },
}

/// Suffix in the label of a pool of replication connections.
const REPLICATION_SUFFIX: &str = "/replication";

/// Redis' default for `databases`.
const DEFAULT_REDIS_DATABASES: u32 = 16;

impl Key {
    /// Whether a client may have invented a part of the key, whatever is configured.
    pub fn is_made_up(&self) -> bool {
        match self {
            Self::Redis { database, .. } => *database >= DEFAULT_REDIS_DATABASES,
            // Clients choose the parameters.
            Self::Dedicated { .. } => true,
            Self::Postgres { .. } | Self::MongoDb { .. } | Self::Lookups { .. } => false,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Postgres { .. } | Self::Dedicated { .. } | Self::Lookups { .. } => Kind::Postgres,
            Self::Redis { .. } => Kind::Redis,
            Self::MongoDb { .. } => Kind::MongoDb,
        }
    }

    /// The user that the servers log in as.
    pub fn user(&self) -> &Arc<str> {
        match self {
            Self::Postgres { user, .. }
            | Self::Dedicated { user, .. }
            | Self::Redis { user, .. }
            | Self::MongoDb { user, .. }
            | Self::Lookups { user, .. } => user,
        }
    }

    /// The key of the same pool whose servers log in as another user.
    pub fn with_user(mut self, other: Arc<str>) -> Self {
        match &mut self {
            Self::Postgres { user, .. }
            | Self::Dedicated { user, .. }
            | Self::Redis { user, .. }
            | Self::MongoDb { user, .. }
            | Self::Lookups { user, .. } => *user = other,
        }
        self
    }

    /// The database's name in an operator's orders, if that is not its label. It covers the pools of all versions of
    /// the protocol, and those of replication connections.
    pub fn ordered_as(&self) -> Option<String> {
        match self {
            Self::Redis { database, .. } => Some(database.to_string()),
            Self::Dedicated { database, .. } => Some(database.to_string()),
            Self::Postgres { .. } | Self::MongoDb { .. } | Self::Lookups { .. } => None,
        }
    }

    /// The database's name in metrics and logs.
    pub fn label(&self) -> String {
        match self {
            Self::Postgres { database, .. } | Self::Dedicated { database, replication: false, .. } => {
                database.to_string()
            }
            Self::Dedicated { database, replication: true, .. } => format!("{database}{REPLICATION_SUFFIX}"),
            Self::Redis { database, version: Version::Resp2, .. } => database.to_string(),
            Self::Redis { database, version: Version::Resp3, .. } => format!("{database}{RESP3_SUFFIX}"),
            Self::MongoDb { host, monitors: false, .. } => host.to_string(),
            Self::MongoDb { host, monitors: true, .. } => format!("{host}/monitor"),
            Self::Lookups { database, .. } => format!("{database}{LOOKUPS_SUFFIX}"),
        }
    }
}

/// The name of its caps. It says the protocol where the label is not a database's name. Replication connections count
/// for their database.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis { .. } => write!(f, "redis {}", self.label()),
            Self::MongoDb { .. } => write!(f, "mongodb {}", self.label()),
            Self::Dedicated { database, .. } => f.write_str(database),
            Self::Postgres { .. } | Self::Lookups { .. } => f.write_str(&self.label()),
        }
    }
}
