//! A client that asks to log in, as far as it is known before it has proved who it is.

use seam::Origin;

/// What rules for logins can look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginAttempt {
    pub origin: Origin,
    /// Whether the connection is encrypted.
    pub encrypted: bool,
    /// The common name of the certificate that the client has shown, if an authority of the listener has signed it.
    pub certificate: Option<String>,
    pub database: String,
    pub user: String,
    /// The client asks for the stream of a whole server (physical replication), and for no database.
    pub replication: bool,
}

impl LoginAttempt {
    /// One over a connection without encryption.
    pub fn new(origin: Origin, database: &str, user: &str) -> Self {
        let (database, user) = (database.to_owned(), user.to_owned());
        Self { origin, encrypted: false, certificate: None, database, user, replication: false }
    }
}

/// Why a client is refused before it is asked for anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// No rule is for such a client.
    NoRule,
    /// The rule for such clients refuses them.
    Rule,
    /// The rule asks for no proof, and the user does not exist.
    UnknownUser,
    /// The same, and a lookup has not found the user either.
    NotFound,
    /// The user of the client's process on this machine may not log in under this name.
    Peer,
    /// The client has shown no certificate for this user.
    Certificate,
    /// The user has logged in, and may not use the console.
    Console,
}
