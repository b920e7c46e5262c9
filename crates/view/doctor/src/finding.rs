//! What is said of a symptom.

use std::ops::{Deref, DerefMut};

use admin_api::Pooler;
use serde::Serialize;

use crate::forecast::Effect;

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
    /// An operator sends the clients of a database away, and lets none in.
    Drained,
    /// Sessions need servers of their own, and as many are kept so as may be.
    PinsRefused,
    /// The system refuses to accept clients.
    NotAccepted,
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
    /// Several pools, each of them within its own limit, together have all that the database allows.
    LimitsAddUp,
    /// After an outage all connections are created at once, so that each takes long.
    Stampede,
    /// Clients are gone, or frozen, and have not said so: their connections stay.
    Zombies,
}

/// A symptom that is there.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
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

/// A finding as it is told: with what its setting will do, where that could be computed, or why not. Everything of the
/// finding is its own.
#[derive(Clone, Debug, Serialize)]
pub struct Told {
    #[serde(flatten)]
    finding: Finding,
    /// What the value of the setting will do, if a plan gave it.
    pub predicted: Option<Predicted>,
    /// Why the value is that of a rule, if a plan could have given it.
    pub not_planned: Option<String>,
}

/// What the load that was seen comes to with another value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Predicted {
    pub now: Effect,
    /// The same played with the settings that are in force, where that can be.
    pub played: Option<Effect>,
    /// Played with the value that is proposed.
    pub then: Effect,
    /// Another setting that would do instead.
    pub instead: Option<Instead>,
    pub note: String,
}

/// A setting that may be changed instead.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Instead {
    /// As in the configuration.
    pub key: &'static str,
    pub to: String,
    pub then: Effect,
}

impl Told {
    /// One whose setting, if it has one, is not of a kind that is planned.
    pub(crate) fn new(finding: Finding) -> Self {
        Self { finding, predicted: None, not_planned: None }
    }

    pub(crate) fn by_rule(finding: Finding, why: String) -> Self {
        Self { not_planned: Some(why), ..Self::new(finding) }
    }

    pub(crate) fn by_plan(finding: Finding, setting: Setting, predicted: Predicted) -> Self {
        Self { predicted: Some(predicted), ..Self::new(Finding { setting: Some(setting), ..finding }) }
    }
}

impl Deref for Told {
    type Target = Finding;

    fn deref(&self) -> &Finding {
        &self.finding
    }
}

impl DerefMut for Told {
    fn deref_mut(&mut self) -> &mut Finding {
        &mut self.finding
    }
}

/// A setting and its better value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// As in the configuration.
    pub key: &'static str,
    /// What it is now, if that is known.
    pub from: Option<String>,
    pub to: String,
}

/// A setting that several poolers have, each by its own name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Key {
    /// Most servers of a pool.
    MaxSize,
    MinSize,
    /// How long a server may be idle.
    MaxIdleTime,
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
            (Self::MaxIdleTime, Pooler::Poolhouse) => "max_idle_time",
            (Self::MaxIdleTime, Pooler::PgBouncer) => "server_idle_timeout",
            (Self::MaxIdleTime, Pooler::HikariCp) => "idleTimeout",
            (Self::MaxIdleTime, Pooler::MongoDriver) => "maxIdleTimeMS",
            (Self::ClientIdleTime, Pooler::Poolhouse) => "client_idle_time",
            (Self::ClientIdleTime, Pooler::PgBouncer) => "client_idle_timeout",
            // Drivers leave these to the database.
            (Self::TransactionIdleTime | Self::ClientIdleTime, Pooler::HikariCp | Pooler::MongoDriver) => {
                "a limit of the database"
            }
        }
    }
}

/// A time as the configuration has it.
pub(crate) fn setting_time(ms: f64) -> String {
    match ms / 1e3 {
        seconds if seconds.fract() == 0.0 => format!("{seconds}s"),
        _ => format!("{ms}ms"),
    }
}

/// Signs of trouble that do not suffice to name it.
#[derive(Clone, Debug, Serialize)]
pub struct Undecided {
    pub between: Vec<Symptom>,
    pub of: String,
    pub seen: Vec<String>,
    pub needs: String,
}

impl Symptom {
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
            Self::Drained => "the database is drained",
            Self::PinsRefused => "sessions get no server of their own",
            Self::NotAccepted => "clients cannot be accepted",
            Self::EphemeralClients => "clients connect for each transaction",
            Self::IdleChurn => "idle servers are closed and made again",
            Self::PoolOfPools => "a pool of pools",
            Self::OverProvisioned => "more connections are kept than have work",
            Self::ConnectionsRefused => "the database refuses connections",
            Self::LimitsAddUp => "limits add up to more than the database allows",
            Self::Stampede => "all connect at once after an outage",
            Self::Zombies => "clients vanish without closing",
        }
    }
}
