//! Who may log in to what, and how Poolhouse itself logs in: the sessions ask a [`Directory`], behind which is the
//! configuration.

mod attempt;
mod cancels;
mod checks;
mod policy;
mod rules;
pub(crate) mod target;

use std::sync::Arc;

use seam::{Encryption, Origin, PoolId};

use crate::wire::encryption::ServerEncryption;

pub use attempt::{LoginAttempt, Rejection};
pub use cancels::{CancelDealtWith, ForeignCancel};
pub(crate) use checks::ComparedWith;
pub use checks::{CheckOutcome, CheckVerdict, LoginCheck, LoginQuestion, SlowComparison, StoredPassword};
pub use policy::{OnState, ResetPolicy, StatePolicy};
pub use rules::ListenerRules;
pub use target::Target;

/// Answers questions of the sessions from the configuration in force. Called at start-up of a connection only; must not
/// block. No method has a default, so that one directory that asks another forgets none. What only a database knows is
/// asked of it by the session: see [`Proof::Ask`].
pub trait Directory: Send + Sync + 'static {
    /// Whether clients of a listener may, or must, use TLS. The driver must have TLS wherever the answer allows it.
    fn encryption(&self, listener: u16) -> Encryption;

    /// What clients of a listener may send, and what they are told. Called at each login.
    fn rules(&self, listener: u16) -> ListenerRules;

    /// Parameters that clients of a pool are told beside those of its servers.
    fn announcements(&self, pool: PoolId) -> Vec<(String, String)>;

    /// How a client must prove who it is.
    fn proof(&self, attempt: &LoginAttempt) -> Result<Proof, Unknown>;

    /// The same after a query that [`Proof::Ask`] named has found this stored password, or no user who may log in. Must
    /// not return [`Proof::Ask`].
    fn note_lookup(&self, attempt: &LoginAttempt, stored: Option<&str>) -> Result<Proof, Unknown>;

    /// The kinds of authentication that existing users are asked for who come in the same way, each once. A user who
    /// does not exist is asked for one of these.
    fn looks(&self, attempt: &LoginAttempt) -> Vec<Look>;

    /// Has something found out that takes long. The outcome is among [`Self::finished_checks`] some time later, even if
    /// it is that nothing can be found out.
    fn begin_check(&self, check: LoginCheck);

    /// Takes the outcomes of checks that have ended. Called at each tick of each worker.
    fn finished_checks(&self) -> Vec<CheckOutcome>;

    /// Hands a cancel request on to the node whose key it carries. Its client is among [`Self::handed_on_cancels`] some
    /// time later, even if there is no such node.
    fn hand_on_cancel(&self, cancel: ForeignCancel);

    /// Takes the clients whose requests have been dealt with. Called at each tick of each worker.
    fn handed_on_cancels(&self) -> Vec<CancelDealtWith>;

    /// A client that logged in as `user` gave a wrong proof: what is remembered of that user may be outdated.
    fn note_refuted(&self, database: &str, user: &str);

    /// Whether places are kept for some clients of a database, where there is no room for others.
    fn keeps_places(&self, database: &str) -> bool;

    /// What serves `user`, who has been authenticated, in `database`. Not called before that, so that unauthenticated
    /// clients learn nothing of databases and use nothing up.
    fn route(&self, database: &str, user: &str) -> Result<Route, Unknown>;

    /// As [`route`](Self::route), for a client that gets a dedicated server: one that asks for replication, or whose
    /// database is served so. `None`: it shares servers with others, and `route` tells which.
    fn dedicated_route(&self, database: &str, user: &str, request: &StartRequest<'_>)
    -> Result<Option<Route>, Unknown>;

    /// The catalogue of a pool's database was read. `suspicious` names, for people, what could touch sessions behind
    /// the text of a statement. Called when it has changed.
    fn note_catalogue(&self, pool: PoolId, suspicious: &[String]);

    fn server_login(&self, pool: PoolId) -> ServerLogin;

    /// What clients call the database of a pool.
    fn database_name(&self, pool: PoolId) -> String {
        self.server_login(pool).database
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    pub pool: PoolId,
    pub mode: PoolMode,
    /// The pool's servers are logged in to with the keys of the client's own login, because no password is known.
    pub pass_through: bool,
    /// The client's address and port are appended to its `application_name`.
    pub add_host: bool,
}

/// What the start-up message of a client asks for, beside its database and its user.
#[derive(Clone, Copy, Debug)]
pub struct StartRequest<'a> {
    /// The value of `replication`, unless that is off.
    pub replication: Option<&'a str>,
    /// All other parameters, those in `options` included; no name twice.
    pub settings: &'a [(String, String)],
    /// Where the client comes from.
    pub origin: Origin,
}

/// When a server returns to its pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PoolMode {
    #[default]
    Transaction,
    Session,
    /// After each statement; transactions of several statements are refused.
    Statement,
    /// Never: a server is made for one client, with that client's own start-up parameters, and is closed when the
    /// client leaves. Poolhouse relays their messages and looks at none.
    Dedicated,
}

/// What a client must show to log in.
#[derive(Clone)]
pub enum Proof {
    Trust,
    /// Knowledge of the password behind one of these md5 hashes (`md5` + 32 hexadecimal digits, of password followed by
    /// user name).
    Md5(Arc<[Arc<str>]>),
    /// Knowledge of the password behind one of these SCRAM-SHA-256 verifiers.
    Scram(scram::Verifiers),
    /// The password itself, which is compared with each of these.
    Cleartext(Arc<[StoredPassword]>),
    /// The password itself, which is checked by another program: see [`Directory::begin_check`].
    Elsewhere,
    /// That is known only after a while. The client is asked for nothing, waits for the outcome of
    /// [`Directory::begin_check`], and then [`Directory::proof`] is asked again.
    Later,
    /// What a query to a server tells: the client waits for the answer, then [`Directory::note_lookup`] is called.
    Ask(Ask),
}

/// What a client sees of a login before it has proved anything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Look {
    /// An md5 challenge, whose salt is new each time.
    Md5,
    /// A SCRAM exchange with a verifier of this shape.
    Scram(scram::Shape),
    /// A question for the password itself. It is compared with a verifier of this shape, if there is one.
    Cleartext(Option<scram::Shape>),
}

/// A question to a database: who may log in?
#[derive(Clone)]
pub struct Ask {
    /// The pool whose servers are asked. No client is ever routed there.
    pub pool: PoolId,
    /// SQL with the user's name as parameter `$1`. It gives at most one row: the user and the stored password.
    pub query: Arc<str>,
}

/// Why there is no login to try.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unknown {
    Database,
    /// No such user. The client is put through an authentication that always fails and has one of the
    /// [looks](Directory::looks) of logins that may succeed, so that it cannot tell an unknown user from a wrong
    /// password.
    User,
    /// No rule admits the client, or it has not shown what the rule for it demands. Told before anything is asked.
    Rejected(Rejection),
    /// The client may not connect from its address, or not at all. The text says what to do and is sent to the client.
    Forbidden(String),
    /// The client does not fit into a limit. The text names the limit and is sent to the client.
    Full(String),
}

/// How Poolhouse logs in to an upstream. Never logged (no `Debug`).
#[derive(Clone, Default)]
pub struct ServerLogin {
    pub database: String,
    /// Tells that database from all others, and from the same one with other [trusted
    /// functions](Self::trusted_functions), or in session mode if this pool is not.
    pub database_id: Arc<str>,
    pub user: String,
    /// The password, if it is known. Without one, the keys of the user's own login are tried.
    pub password: Option<Arc<str>>,
    /// `md5` and 32 hexadecimal digits, if only that is known: enough for servers that ask for md5.
    pub md5_hash: Option<Arc<str>>,
    /// Further start-up parameters (`application_name`, `options`).
    pub parameters: Vec<(String, String)>,
    /// SQL that is run on each new connection before it is used.
    pub connect_query: Option<Arc<str>>,
    pub mode: PoolMode,
    /// What Poolhouse does about the state that sessions leave behind.
    pub state: StatePolicy,
    /// Functions of the database that count as harmless to sessions: `schema.name`, `schema.*` or `extension:name`.
    pub trusted_functions: Arc<[String]>,
    pub target: Target,
    /// Whether the connection is encrypted.
    pub encryption: ServerEncryption,
}
