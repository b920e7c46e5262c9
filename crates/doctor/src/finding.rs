//! What is said of a symptom.

use serde::Serialize;
use watch::Pooler;

/// What can be wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Symptom {
    /// No connection to the database can be made.
    OutOfReach,
    /// Clients wait although the database would serve more of them.
    PoolTooSmall,
    /// Clients wait, and more connections would not help: the database is slower the more it has to do at once.
    ServerSaturated,
    /// Clients hold servers in open transactions while they do something else.
    TransactionsLeftOpen,
    /// Servers were taken and never come back.
    Leak,
    /// Servers stay with clients that do nothing.
    HeldByIdleClients,
    /// Clients wait although the pool may have more servers.
    AnotherLimit,
    /// An operator lets nothing through.
    Paused,
    /// Clients connect for a transaction or two and leave.
    EphemeralClients,
    /// Idle servers are closed, and made again for the next burst.
    IdleChurn,
    /// An application keeps a pool of objects with a pool each.
    PoolOfPools,
    /// Far more connections are kept than ever have work, and they take up what the database allows.
    OverProvisioned,
    /// The database turns connections away for want of room, although those that it has do work.
    ConnectionsRefused,
}

/// A symptom that is there.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Which.
    pub symptom: Symptom,
    /// Whose pool or listener it is of: names that people know.
    pub of: String,
    /// Signals that do not follow from each other; at least two.
    pub evidence: Vec<String>,
    /// The cause that looks alike, and why it is not that.
    pub rules_out: String,
    /// What to change; none where the cure is elsewhere.
    pub setting: Option<Setting>,
    /// What to do, and what will come of it.
    pub advice: String,
}

/// A setting and its better value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// As in the configuration.
    pub key: &'static str,
    /// What it is now, if that is known.
    pub from: Option<String>,
    /// What it should be.
    pub to: String,
}

/// A setting that several poolers have, each by its own name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    /// Most servers of a pool.
    MaxSize,
    /// Servers that are kept.
    MinSize,
    /// How long a client may pause within a transaction.
    TransactionIdleTime,
    /// How long a client may be idle.
    ClientIdleTime,
}

impl Key {
    pub(crate) fn of(self, pooler: Pooler) -> &'static str {
        match (self, pooler) {
            (Self::MaxSize, Pooler::Poolhouse) => "max_size",
            (Self::MaxSize, Pooler::PgBouncer) => "pool_size",
            (Self::MaxSize, Pooler::HikariCp) => "maximumPoolSize",
            (Self::MaxSize, Pooler::MongoDriver) => "maxPoolSize",
            (Self::TransactionIdleTime, Pooler::Poolhouse) => "transaction_idle_time",
            (Self::TransactionIdleTime, Pooler::PgBouncer) => "idle_transaction_timeout",
            (Self::MinSize, Pooler::Poolhouse) => "min_size",
            (Self::MinSize, Pooler::PgBouncer) => "min_pool_size",
            (Self::MinSize, Pooler::HikariCp) => "minimumIdle",
            (Self::MinSize, Pooler::MongoDriver) => "minPoolSize",
            (Self::ClientIdleTime, Pooler::Poolhouse) => "client_idle_time",
            (Self::ClientIdleTime, Pooler::PgBouncer) => "client_idle_timeout",
            // Drivers leave these to the database.
            (Self::TransactionIdleTime | Self::ClientIdleTime, Pooler::HikariCp | Pooler::MongoDriver) => {
                "a limit of the database"
            }
        }
    }
}

/// Signs of trouble that do not suffice to name it.
#[derive(Clone, Debug, Serialize)]
pub struct Undecided {
    /// Between which.
    pub between: Vec<Symptom>,
    /// Whose.
    pub of: String,
    /// What was seen.
    pub seen: Vec<String>,
    /// What would decide it.
    pub needs: String,
}

impl Symptom {
    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfReach => "the database is out of reach",
            Self::PoolTooSmall => "the pool is too small",
            Self::ServerSaturated => "the database is saturated",
            Self::TransactionsLeftOpen => "transactions are left open",
            Self::Leak => "servers are never given back",
            Self::HeldByIdleClients => "servers stay with idle clients",
            Self::AnotherLimit => "another limit keeps the pool small",
            Self::Paused => "the pool is paused",
            Self::EphemeralClients => "clients connect for each transaction",
            Self::IdleChurn => "idle servers are closed and made again",
            Self::PoolOfPools => "a pool of pools",
            Self::OverProvisioned => "more connections are kept than have work",
            Self::ConnectionsRefused => "the database refuses connections",
        }
    }
}
