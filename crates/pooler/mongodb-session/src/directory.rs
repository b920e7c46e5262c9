//! What MongoDB's sessions ask of the configuration.

use std::{sync::Arc, time::Duration};

use scram::Verifiers;
use seam::{Encryption, Origin, PoolId};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Welcome {
    Open,
    /// The client has to log in.
    Password,
    /// The client is refused, for this reason.
    Forbidden(String),
}

/// How Poolhouse logs in to a server.
#[derive(Clone, Default)]
pub struct ServerLogin {
    /// One of [`Directory::hosts`], or a former one.
    pub host: usize,
    /// The connection is a monitor's.
    pub monitors: bool,
    pub tls: bool,
    /// User and password, if the server requires a login.
    pub user: Option<(Arc<str>, Arc<str>)>,
    /// The database that has the user (`authSource`).
    pub source: Arc<str>,
    /// Uses SCRAM-SHA-1, which users created before MongoDB 4.0 may need.
    pub sha1: bool,
}

/// Answers who may log in, and which pool serves a user.
pub trait Directory: Send + Sync + 'static {
    fn encryption(&self, listener: u16) -> Encryption;

    fn welcome(&self, origin: Origin) -> Welcome;

    /// The verifiers of a user's passwords, if there is such a user.
    fn verifiers(&self, user: &str) -> Option<Verifiers>;

    /// The numbers of the configured hosts. A host keeps its number, and no other host ever gets it.
    fn hosts(&self) -> Vec<usize>;

    fn host_name(&self, host: usize) -> Arc<str>;

    /// Whether the configuration should list all members of the replica set.
    fn lists_members(&self) -> bool;

    /// Reports a replica set member that the configuration does not list, once.
    fn note_unlisted(&self, member: &str);

    /// Reports that `count` cleanup tasks of a pool have expired because no server could carry them out; every 10 s at
    /// most for each pool.
    fn note_expired_cleanup(&self, pool: PoolId, count: usize);

    /// The name of the replica set that hosts must belong to, if it is configured.
    fn replica_set(&self) -> Option<Arc<str>>;

    /// Whether several users share one login at the upstream, which cannot tell them apart.
    fn shares_login(&self) -> bool;

    /// `localThresholdMS`.
    fn local_threshold(&self) -> Duration;

    /// How long a client waits for a suitable host.
    fn unavailable_wait(&self) -> Duration;

    /// The pool that serves a user at a host. `user` is empty for a client without a login.
    /// Fails with the reason for the client if there is none.
    fn route(&self, user: &str, host: usize) -> Result<PoolId, String>;

    /// Whether a pool is still configured: [`Directory::route`] may return it.
    fn is_configured(&self, pool: PoolId) -> bool;

    /// How long a client waits for a server of a pool; `None` is forever.
    fn max_wait(&self, pool: PoolId) -> Option<Duration>;

    /// How many requests may keep a server of a pool while they wait for other clients' writes.
    fn max_pinned(&self, pool: PoolId) -> u32;

    fn server_login(&self, pool: PoolId) -> ServerLogin;
}
