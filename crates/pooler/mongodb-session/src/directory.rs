//! What MongoDB's sessions ask of the configuration.

use std::{sync::Arc, time::Duration};

use scram::Verifier;
use seam::{Encryption, Origin, PoolId};

/// How a client is received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Welcome {
    Open,
    /// It has to log in first.
    Password,
    /// It has no chance, for this reason.
    Forbidden(String),
}

/// How Poolhouse logs in to a server.
#[derive(Clone, Default)]
pub struct ServerLogin {
    /// Which host it is: one of [`Directory::hosts`], or one that was.
    pub host: usize,
    /// Nobody asks there but Poolhouse, what the host is.
    pub monitors: bool,
    pub tls: bool,
    /// The user and its password, if the server wants one.
    pub user: Option<(Arc<str>, Arc<str>)>,
    /// The database that knows the user.
    pub source: Arc<str>,
    /// With SCRAM-SHA-1, as users that MongoDB has known since before version 4.0 may have to.
    pub sha1: bool,
}

/// Answers who may log in and which pool serves whom.
pub trait Directory: Send + Sync + 'static {
    /// Whether clients of a listener use TLS.
    fn encryption(&self, listener: u16) -> Encryption;

    /// How a client from there is received.
    fn welcome(&self, origin: Origin) -> Welcome;

    /// What is stored of a user's password.
    fn verifier(&self, user: &str) -> Option<Arc<Verifier>>;

    /// The numbers of the upstream's present hosts. A host keeps its number whatever becomes of the others, and no
    /// other ever has it.
    fn hosts(&self) -> Vec<usize>;

    /// What the configuration calls a host, with its port.
    fn host_name(&self, host: usize) -> Arc<str>;

    /// The configuration is to list all members of a replica set.
    fn lists_members(&self) -> bool;

    /// The replica set has a member of this name that the configuration does not list. Told once.
    fn note_unlisted(&self, member: &str);

    /// So many requests to end what clients have left at the host of a pool, none of which could be sent for so long
    /// that the host has ended that by itself, are dropped. Told every 10 s at most, once for each pool.
    fn note_undone(&self, pool: PoolId, count: usize);

    /// The name of the replica set that they must be of, if that is configured.
    fn replica_set(&self) -> Option<Arc<str>>;

    /// Several users have one login at the upstream, which cannot tell them apart.
    fn shares_login(&self) -> bool;

    /// How much longer than those of the nearest host the answers of a host may take that reads are sent to.
    fn local_threshold(&self) -> Duration;

    /// How long a client waits until a host is known that can serve it.
    fn patience(&self) -> Duration;

    /// The pool that serves a user at a host. `user` is empty for a client that had not to log in.
    ///
    /// # Errors
    /// There is none, for this reason, which is told to the client.
    fn route(&self, user: &str, host: usize) -> Result<PoolId, String>;

    /// Whether a pool is configured still: [`Directory::route`] may name it.
    fn is_configured(&self, pool: PoolId) -> bool;

    /// How long a client waits for a server of a pool while all are busy; `None` is for ever.
    fn max_wait(&self, pool: PoolId) -> Option<Duration>;

    /// How many requests may keep a server of a pool while they wait for what others may write.
    fn max_pinned(&self, pool: PoolId) -> u32;

    /// How the servers of a pool are logged in to.
    fn server_login(&self, pool: PoolId) -> ServerLogin;
}
