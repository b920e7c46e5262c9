//! Those clients that have limits of their own beside their listener's.

use alloc::sync::Arc;
use core::fmt;

/// All clients of a database, or all of a user.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Tenant {
    Database {
        /// What its clients speak.
        protocol: &'static str,
        /// What they call it; empty where all of a protocol's clients ask for the same.
        name: Arc<str>,
    },
    /// Of a user, by the name of its login, whatever its clients speak.
    User(Arc<str>),
}

impl Tenant {
    /// The section of the configuration that has its limits.
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
