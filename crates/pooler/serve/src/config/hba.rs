//! HBA: rules that say how clients log in, by the kind of their connection, address, database and user. The first rule
//! that is for a client holds. Reads no file: [`parse`] makes rules of a text.
//!
//! - [`lines`]: the fields of a line, for HBA and ident files;
//! - [`ident`]: which users of a system may log in under which names;
//! - [`parse`]: a line as a rule.

mod ident;
mod lines;
mod parse;
#[cfg(test)]
mod tests;

use std::{collections::HashSet, sync::Arc};

use driver::Network;
use postgres_session::{LoginAttempt, Rejection};

pub use ident::{IdentMap, IdentMaps};
pub use lines::{MAX_BYTES, Wrong};
pub use parse::{NO_PAM, parse};

use super::ldap::LdapOptions;

/// How a client proves who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Method {
    /// By a password, in the way that fits what is stored of it; or by a certificate, if the user has one instead.
    Stored,
    Trust,
    Reject,
    /// By an md5 challenge; users with a SCRAM verifier by SCRAM.
    Md5,
    Scram,
    /// The password is sent as it is.
    Cleartext,
    /// By the common name of the client's certificate.
    Certificate(Option<Arc<IdentMap>>),
    /// By the user of the client's process, on a Unix socket.
    Peer(Option<Arc<IdentMap>>),
    /// The password is sent as it is, and a directory server checks it.
    Ldap(Arc<LdapOptions>),
}

/// The rules of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hba {
    rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    connection: Connection,
    databases: DatabaseNames,
    users: UserNames,
    /// `None` on a Unix socket, and for all addresses.
    network: Option<Network>,
    method: Method,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Connection {
    Unix,
    Tcp,
    Encrypted,
    Unencrypted,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct DatabaseNames {
    all: bool,
    /// The database that has the name of the user.
    same_user: bool,
    /// Physical replication, which is of no database.
    replication: bool,
    listed: HashSet<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct UserNames {
    all: bool,
    listed: HashSet<String>,
}

impl Hba {
    pub fn new(rules: Vec<Rule>) -> Self {
        Self { rules }
    }

    /// How this client has to log in.
    ///
    /// # Errors
    /// When no rule is for it, or the first one refuses it.
    pub fn method(&self, attempt: &LoginAttempt) -> Result<&Method, Rejection> {
        let rule = self.rules.iter().find(|rule| rule.is_for(attempt)).ok_or(Rejection::NoRule)?;
        match &rule.method {
            Method::Reject => Err(Rejection::Rule),
            method => Ok(method),
        }
    }

    /// The methods of all rules.
    pub fn methods(&self) -> impl Iterator<Item = &Method> {
        self.rules.iter().map(|rule| &rule.method)
    }
}

impl Rule {
    fn is_for(&self, attempt: &LoginAttempt) -> bool {
        let is_connection = match self.connection {
            Connection::Unix => attempt.origin.address.is_none(),
            Connection::Tcp => attempt.origin.address.is_some(),
            Connection::Encrypted => attempt.origin.address.is_some() && attempt.encrypted,
            Connection::Unencrypted => attempt.origin.address.is_some() && !attempt.encrypted,
        };
        is_connection
            && self.network.is_none_or(|network| attempt.origin.address.is_some_and(|ip| network.contains(ip)))
            && self.users.contain(&attempt.user)
            && self.databases.contain(attempt)
    }
}

impl DatabaseNames {
    fn contain(&self, attempt: &LoginAttempt) -> bool {
        if attempt.replication {
            return self.replication;
        }
        self.all || (self.same_user && attempt.database == attempt.user) || self.listed.contains(&attempt.database)
    }
}

impl UserNames {
    fn contain(&self, user: &str) -> bool {
        self.all || self.listed.contains(user)
    }
}
