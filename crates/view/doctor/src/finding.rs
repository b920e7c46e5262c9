//! Symptoms, and what the doctor says of one: that it is present, or what would decide whether it is.

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
    /// More connections would not help: the database is slower the more it has to do at once.
    ServerSaturated,
    /// Clients hold servers in open transactions while they do something else.
    TransactionsLeftOpen,
    /// Servers were taken and never come back.
    Leak,
    /// Servers stay with clients that do nothing.
    HeldByIdleClients,
    /// Clients wait although the pool may have more servers.
    AnotherLimit,
    /// An operator has paused the pool.
    Paused,
    /// An operator drains a database: its clients are sent away, and new ones are refused.
    Drained,
    /// Sessions need servers of their own, and max_pinned has been reached.
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
    /// The database refuses connections because its limit is reached, although its open connections do work.
    ConnectionsRefused,
    /// Several pools, each of them within its own limit, together have all that the database allows.
    LimitsAddUp,
    /// After an outage all connections are created at once, so that each takes long.
    Stampede,
    /// Clients are gone, or frozen, without closing: their connections stay.
    Zombies,
}

/// A symptom that is present.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub symptom: Symptom,
    /// The pool, listener, client or server that has the symptom, by a name that people know.
    pub of: String,
    /// Signals that do not follow from each other; at least two.
    pub evidence: Vec<String>,
    /// The cause that looks alike, and why it is not the cause here.
    pub rules_out: String,
    /// The setting to change; `None` where the cure is elsewhere.
    pub setting: Option<Setting>,
    /// What to do, and what will come of it.
    pub advice: String,
    /// What the value of the setting will do, if a forecast gave it.
    pub predicted: Option<Box<Predicted>>,
    /// Why the value of the setting comes from a rule, if a forecast could have given it.
    pub not_planned: Option<String>,
}

/// What the load that was seen comes to with another value of a setting.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Predicted {
    pub now: Effect,
    /// The load simulated with the settings in force, where that is possible.
    #[serde(rename = "played")]
    pub simulated: Option<Effect>,
    /// The load simulated with the proposed value.
    #[serde(rename = "then")]
    pub after: Effect,
    /// Another setting that would cure it, too.
    pub instead: Option<Instead>,
    pub note: String,
}

/// A setting that may be changed instead.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Instead {
    /// As in the configuration.
    pub key: &'static str,
    pub to: String,
    #[serde(rename = "then")]
    pub after: Effect,
}

/// A finding is built in the order in which people read it: evidence, the cause that it rules out, setting, advice.
impl Finding {
    pub(crate) fn new(symptom: Symptom, of: impl Into<String>) -> Self {
        Self {
            symptom,
            of: of.into(),
            evidence: Vec::new(),
            rules_out: String::new(),
            setting: None,
            advice: String::new(),
            predicted: None,
            not_planned: None,
        }
    }

    pub(crate) fn evidence(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    pub(crate) fn all_evidence(mut self, evidence: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    pub(crate) fn rules_out(self, rules_out: impl Into<String>) -> Self {
        Self { rules_out: rules_out.into(), ..self }
    }

    pub(crate) fn setting(self, setting: impl Into<Option<Setting>>) -> Self {
        Self { setting: setting.into(), ..self }
    }

    pub(crate) fn advice(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    pub(crate) fn planned(self, setting: Setting, predicted: Predicted) -> Self {
        Self { setting: Some(setting), predicted: Some(Box::new(predicted)), ..self }
    }

    pub(crate) fn not_planned(self, why: impl Into<String>) -> Self {
        Self { not_planned: Some(why.into()), ..self }
    }
}

/// A setting and its better value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// As in the configuration.
    pub key: &'static str,
    /// The value in force, if that is known.
    pub from: Option<String>,
    pub to: String,
}

impl Setting {
    /// A shorter time-out than the one in force; `None` if that is as short.
    pub(crate) fn shorten(key: &'static str, from_ms: Option<f64>, to_ms: f64) -> Option<Self> {
        let is_shorter = from_ms.is_none_or(|ms| ms > to_ms);
        is_shorter.then(|| Self { key, from: from_ms.map(format_setting_time), to: format_setting_time(to_ms) })
    }
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
pub(crate) fn format_setting_time(ms: f64) -> String {
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
    /// What would decide between the symptoms.
    pub needs: String,
}

impl Undecided {
    pub(crate) fn new(between: impl Into<Vec<Symptom>>, of: impl Into<String>) -> Self {
        Self { between: between.into(), of: of.into(), seen: Vec::new(), needs: String::new() }
    }

    pub(crate) fn seen(mut self, seen: impl Into<String>) -> Self {
        self.seen.push(seen.into());
        self
    }

    pub(crate) fn all_seen(mut self, seen: impl IntoIterator<Item = String>) -> Self {
        self.seen.extend(seen);
        self
    }

    pub(crate) fn needs(self, needs: impl Into<String>) -> Self {
        Self { needs: needs.into(), ..self }
    }
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
