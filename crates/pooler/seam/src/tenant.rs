//! Groups of clients that have limits of their own, beside the limits of their listener.

use alloc::sync::Arc;
use core::fmt;

/// All clients of a database, or all of a user.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tenant {
    Database {
        /// The protocol of its clients.
        protocol: &'static str,
        /// The name by which clients ask for it; empty where all clients of a protocol use the same database.
        name: Arc<str>,
    },
    /// A user, by the name of the login, whatever protocol its clients speak.
    User(Arc<str>),
}

impl Tenant {
    /// The section of the configuration that has the limits of this tenant.
    pub fn section(&self) -> &'static str {
        match self {
            Self::Database { .. } => "[[database]]",
            Self::User(_) => "[[user]]",
        }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database { name, .. } if name.is_empty() => f.write_str("this database"),
            Self::Database { name, .. } => write!(f, "database \"{name}\""),
            Self::User(name) => write!(f, "user \"{name}\""),
        }
    }
}
