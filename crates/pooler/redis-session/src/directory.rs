//! What sessions of Redis ask of the configuration.

use std::{sync::Arc, time::Duration};

use seam::{Encryption, Origin, PoolId};

use crate::{Access, HttpRules, Version};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Welcome {
    Open,
    /// It has to log in first.
    Password,
    /// It is refused, for this reason.
    Forbidden(String),
}

/// How Poolhouse asks sentinels for the master.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sentinel {
    pub master: Arc<str>,
    /// The user; `None` is Redis's `default`.
    pub user: Option<Arc<str>>,
    /// The password, if sentinels need one.
    pub password: Option<Arc<str>>,
}

/// How Poolhouse logs in to a server.
#[derive(Clone, Default)]
pub struct ServerLogin {
    pub tls: bool,
    /// The user; `None` is Redis's `default`.
    pub user: Option<Arc<str>>,
    pub password: Option<Arc<str>>,
    pub database: u32,
    pub version: Version,
    /// Set if the configured hosts are sentinels.
    pub sentinel: Option<Sentinel>,
}

/// Why a request exceeds the rate limit of its token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OverRate {
    /// The request may be repeated after this time.
    Wait(Duration),
    /// No request may have more commands than this.
    Burst(u32),
}

/// Tells who may log in, and which pool serves a user.
pub trait Directory: Send + Sync + 'static {
    fn encryption(&self, listener: u16) -> Encryption;

    fn welcome(&self, origin: Origin) -> Welcome;

    /// Whether this is the user's password. The time does not depend on what is wrong with it.
    fn is_password(&self, user: &str, password: &[u8]) -> bool;

    /// The pool that serves a user in a logical database and a version of the protocol. `user` is empty where no login
    /// is required.
    /// Fails with the reason for the client if no pool does.
    fn route(&self, user: &str, database: u32, version: Version) -> Result<PoolId, String>;

    /// The number of the current configuration. While it is the same, [`route`](Directory::route) returns the same
    /// pools.
    fn epoch(&self) -> u64 {
        0
    }

    /// The rules of a listener whose clients speak HTTP; `None` if they speak RESP.
    fn http(&self, listener: u16) -> Option<Arc<HttpRules>> {
        let _ = listener;
        None
    }

    /// What the holder of this token may do. The time does not depend on what is wrong with the token.
    fn access(&self, token: &[u8]) -> Option<Arc<Access>> {
        let _ = token;
        None
    }

    /// The same token in the current configuration; `None` if it is gone.
    fn renewed(&self, access: &Access) -> Option<Arc<Access>> {
        let _ = access;
        None
    }

    /// Counts commands against a token's rate.
    /// Fails if they exceed it; then none is counted.
    fn spend(&self, access: &Access, commands: u32) -> Result<(), OverRate> {
        let _ = (access, commands);
        Ok(())
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin;
}
