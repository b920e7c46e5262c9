//! What Redis's sessions ask of the configuration.

use std::{sync::Arc, time::Duration};

use seam::{Encryption, Origin, PoolId};

use crate::{Access, HttpRules, Version};

/// How a client is received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Welcome {
    Open,
    /// It has to log in first.
    Password,
    /// It has no chance, for this reason.
    Forbidden(String),
}

/// How sentinels are asked for the master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sentinel {
    pub master: Arc<str>,
    /// Whom to log in to them as; `None` is Redis's `default`.
    pub user: Option<Arc<str>>,
    /// With which password, if they want one.
    pub password: Option<Arc<str>>,
}

/// How Poolhouse logs in to a server.
#[derive(Clone, Default)]
pub struct ServerLogin {
    pub tls: bool,
    /// The user; `None` is Redis's `default`.
    pub user: Option<Arc<str>>,
    /// Its password, if it needs one.
    pub password: Option<Arc<str>>,
    pub database: u32,
    pub version: Version,
    /// The configured hosts are sentinels.
    pub sentinel: Option<Sentinel>,
}

/// Why a token has no room for what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverRate {
    /// Its commands are used up: there may be as many again after that time.
    Wait(Duration),
    /// It may never have more than these at once.
    Burst(u32),
}

/// Answers who may log in and which pool serves whom.
pub trait Directory: Send + Sync + 'static {
    /// Whether clients of a listener use TLS.
    fn encryption(&self, listener: u16) -> Encryption;

    /// How a client from there is received.
    fn welcome(&self, origin: Origin) -> Welcome;

    /// Whether this is the password of this user. Takes the same time whatever is wrong with it.
    fn is_password(&self, user: &str, password: &[u8]) -> bool;

    /// The pool that serves a user in a logical database and a version. `user` is empty for a client that had not to
    /// log in.
    ///
    /// # Errors
    /// There is none, for this reason, which is told to the client.
    fn route(&self, user: &str, database: u32, version: Version) -> Result<PoolId, String>;

    /// The number of the configuration in force: while that stays, so does what [`route`](Directory::route) says of a
    /// pool.
    fn epoch(&self) -> u64 {
        0
    }

    /// The rules of a listener whose clients speak HTTP; `None` if they speak Redis's protocol.
    fn http(&self, listener: u16) -> Option<Arc<HttpRules>> {
        let _ = listener;
        None
    }

    /// Who shows this token. Takes the same time whatever is wrong with it.
    fn access(&self, token: &[u8]) -> Option<Arc<Access>> {
        let _ = token;
        None
    }

    /// The same token as the configuration in force has it; `None` if it has it no more.
    fn renewed(&self, access: &Access) -> Option<Arc<Access>> {
        let _ = access;
        None
    }

    /// Counts commands against a token's rate.
    ///
    /// # Errors
    /// There is no room for them, and nothing is counted.
    fn spend(&self, access: &Access, commands: u32) -> Result<(), OverRate> {
        let _ = (access, commands);
        Ok(())
    }

    /// How the servers of a pool are logged in to.
    fn server_login(&self, pool: PoolId) -> ServerLogin;
}
