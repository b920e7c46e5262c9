//! Error replies: codes as MongoDB's servers use them, and labels that tell drivers whether a retry is safe.
//!
//! A driver retries a read once for codes of its own list, and a write once if the error has the label
//! `RetryableWriteError`. Inside a transaction, `TransientTransactionError` makes the application retry the whole
//! transaction. A change stream resumes after `ResumableChangeStreamError`. An error has no label where a wait took too
//! long (all clients would retry at once), nor where a retry might do something twice.

use std::time::Duration;

use seam::{LeaseFailure, Refusal};

use crate::{
    bson::Malformed,
    command::Transaction,
    wire::{self, Answers},
};

/// The prefix of a pool's last error if the server refuses the login.
pub const REFUSED: &str = "MongoDB refuses the login of";

/// Codes of MongoDB's servers (`src/mongo/base/error_codes.yml`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    HostUnreachable = 6,
    FailedToParse = 9,
    Unauthorized = 13,
    AuthenticationFailed = 18,
    CursorNotFound = 43,
    CommandNotFound = 59,
    MaxTimeMsExpired = 50,
    CommandFailed = 125,
    FailedToSatisfyReadPreference = 133,
    MaxStalenessOutOfRange = 160,
    NoSuchTransaction = 251,
    MechanismUnavailable = 334,
    TemporarilyUnavailable = 365,
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Self::HostUnreachable => "HostUnreachable",
            Self::FailedToParse => "FailedToParse",
            Self::Unauthorized => "Unauthorized",
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::CursorNotFound => "CursorNotFound",
            Self::CommandNotFound => "CommandNotFound",
            Self::MaxTimeMsExpired => "MaxTimeMSExpired",
            Self::CommandFailed => "CommandFailed",
            Self::FailedToSatisfyReadPreference => "FailedToSatisfyReadPreference",
            Self::MaxStalenessOutOfRange => "MaxStalenessOutOfRange",
            Self::NoSuchTransaction => "NoSuchTransaction",
            Self::MechanismUnavailable => "MechanismUnavailable",
            Self::TemporarilyUnavailable => "TemporarilyUnavailable",
        }
    }
}

/// The label of an error, by the command's part in a transaction, and by whether it may belong to a change stream.
pub fn label(transaction: Transaction, of_change_stream: bool) -> Option<&'static str> {
    match transaction {
        Transaction::Starts | Transaction::Continues => Some("TransientTransactionError"),
        Transaction::Commits | Transaction::Aborts => Some("RetryableWriteError"),
        Transaction::RetryableWrite => Some("RetryableWriteError"),
        Transaction::None => of_change_stream.then_some("ResumableChangeStreamError"),
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub code: Code,
    pub message: String,
    /// A retry at once is safe.
    pub transient: bool,
}

impl From<Malformed> for Failure {
    fn from(error: Malformed) -> Self {
        Self::new(Code::FailedToParse, format!("Poolhouse: {error}"))
    }
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), transient: false }
    }

    pub fn transient(self) -> Self {
        Self { transient: true, ..self }
    }

    /// The error of a request that gets no server.
    pub fn lease_failed(why: &LeaseFailure) -> Self {
        match why {
            LeaseFailure::WaitTimeout { waited, shortage } => Self::new(
                Code::MaxTimeMsExpired,
                format!(
                    "Poolhouse: no server connection became free within {} ms (max_wait_time): {shortage}",
                    waited.as_millis()
                ),
            ),
            LeaseFailure::Unavailable { last_error: Some(why), .. } if why.starts_with(REFUSED) => Self::new(
                Code::AuthenticationFailed,
                format!(
                    "Poolhouse: {}. Correct user, password or authSource in the url of Poolhouse's [[database]], or \
                     the password of the [[user]] where that url has none",
                    why.trim_end_matches('.')
                ),
            ),
            LeaseFailure::Unavailable { waited, last_error, .. } => {
                let why = last_error.as_deref().unwrap_or("it does not answer");
                let text = format!("Poolhouse: no connection to MongoDB within {} ms: {why}", waited.as_millis());
                Self::new(Code::HostUnreachable, text).transient()
            }
            LeaseFailure::UnknownDatabase { said } => {
                let why = said.as_deref().unwrap_or("the reason is not known");
                Self::new(Code::HostUnreachable, format!("Poolhouse: MongoDB refuses the connection: {why}"))
            }
            LeaseFailure::QueueFull => {
                let text = "Poolhouse: too many requests wait for a server connection (max_waiters)";
                Self::new(Code::TemporarilyUnavailable, text)
            }
            LeaseFailure::Closed | LeaseFailure::Forgotten => {
                Self::new(Code::HostUnreachable, "Poolhouse: the pool of this database was closed").transient()
            }
        }
    }

    /// The error of a request that has waited before, for a host or at another one, and gets no server at this one in
    /// time.
    pub fn second_wait_timed_out(waited: Duration) -> Self {
        let text = format!(
            "Poolhouse: no server connection became free within {} ms (max_wait_time, and unavailable_wait_time while \
             there is no host): another host was elected meanwhile, or none was known",
            waited.as_millis()
        );
        Self::new(Code::MaxTimeMsExpired, text)
    }

    /// The server's connection was lost before it had replied.
    pub fn server_lost() -> Self {
        let text = "Poolhouse: the connection to MongoDB was lost; whether the command was carried out is not known";
        Self::new(Code::HostUnreachable, text).transient()
    }

    /// A transaction cannot continue at another host.
    pub fn primary_changed() -> Self {
        let text = "Poolhouse: the primary at which this transaction began is the primary no longer";
        Self::new(Code::NoSuchTransaction, text).transient()
    }

    /// All stream slots of a pool are in use.
    pub fn stream_slots_full(most: u32) -> Self {
        let text = format!(
            "Poolhouse: this request would keep a server connection while it waits (a change stream, a tailable or an \
             exhaust cursor), and max_pinned = {most} do: raise max_pinned, and max_size with it"
        );
        Self::new(Code::TemporarilyUnavailable, text)
    }

    /// The error of a client that the driver refuses.
    pub fn refused(why: &Refusal) -> Self {
        let (code, text) = match why {
            Refusal::TooManyClients { limit, setting } => {
                (Code::TemporarilyUnavailable, format!("too many connections: {setting} is {limit}"))
            }
            Refusal::Full { of, limit } => (
                Code::TemporarilyUnavailable,
                format!("too many connections of {of}: the hard_limit of its {} is {limit}", of.section()),
            ),
            Refusal::Throttled { retry_after } => (
                Code::AuthenticationFailed,
                format!("too many failed logins from this address: try again in {} s", retry_after.as_secs().max(1)),
            ),
            Refusal::LoginTimeout => (Code::AuthenticationFailed, "login took too long".to_owned()),
            Refusal::IdleTimeout => (Code::CommandFailed, "idle for too long (client_idle_time)".to_owned()),
            Refusal::Evicted => (Code::CommandFailed, "the longest idle, and above the soft limit".to_owned()),
            Refusal::QueryTimeout => (Code::MaxTimeMsExpired, "the request took too long (query_time)".to_owned()),
            Refusal::TransactionIdleTimeout => {
                (Code::CommandFailed, "the transaction was idle for too long".to_owned())
            }
            Refusal::TransactionTimeout => {
                (Code::CommandFailed, "a transaction took too long (transaction_time)".to_owned())
            }
            Refusal::ServerReplaced => (Code::CommandFailed, "its server is replaced (fast_close)".to_owned()),
            Refusal::ShuttingDown => (Code::CommandFailed, "shutting down".to_owned()),
            Refusal::Drained { .. } => {
                (Code::TemporarilyUnavailable, "an administrator drains this database: connect again later".to_owned())
            }
            Refusal::Disabled { .. } => (
                Code::TemporarilyUnavailable,
                "an administrator has disabled this database: connect again later".to_owned(),
            ),
            Refusal::Displaced => (
                Code::TemporarilyUnavailable,
                "too many connections, and this one took long to log in or shares its address with most of those who do"
                    .to_owned(),
            ),
            Refusal::Killed | Refusal::DatabaseKilled => (Code::CommandFailed, "closed by an operator".to_owned()),
        };
        Self::new(code, format!("Poolhouse: {text}"))
    }

    /// Appends it as the reply to a request, with this label if a retry is safe.
    pub fn append(&self, to: &mut Vec<u8>, answers: Answers, label: Option<&str>) {
        let label = label.filter(|_| self.transient);
        wire::answer(to, answers, |answer| {
            answer.double("ok", 0.0).text("errmsg", &self.message);
            answer.int32("code", self.code as i32).text("codeName", self.code.name());
            if let Some(label) = label {
                answer.texts("errorLabels", &[label]);
            }
        });
    }
}
