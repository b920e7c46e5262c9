//! What the server keeps of one connection. It knows no others.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

/// A command's name and arguments.
pub type Words = Vec<Vec<u8>>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Left,
    Right,
}

/// What a connection waits for before it goes on.
pub enum Blocked {
    /// That there is something in one of these lists, to be taken from this end, and put into another list perhaps.
    Pop {
        from: End,
        to: Option<(Vec<u8>, End)>,
        until: Option<Duration>,
    },
    /// Replicas, of which there are none.
    Wait {
        until: Option<Duration>,
    },
    /// That clients are not held up any more.
    Postponed,
    Script,
}

impl Blocked {
    /// When it has waited for long enough.
    pub fn until(&self) -> Option<Duration> {
        match self {
            Self::Pop { until, .. } | Self::Wait { until } => *until,
            Self::Postponed | Self::Script => None,
        }
    }
}

/// Commands that wait for EXEC.
#[derive(Default)]
pub struct Queue {
    pub commands: VecDeque<Words>,
    pub writes: bool,
    pub broken: bool,
}

/// A key that must not change.
pub struct Watched {
    pub database: usize,
    pub key: Vec<u8>,
}

#[derive(Default)]
pub struct Silence {
    pub off: bool,
    /// Nothing is said to the present command.
    pub now: bool,
    /// Nothing to the next one.
    pub next: bool,
}

/// CLIENT TRACKING, as far as CLIENT CACHING and TRACKINGINFO tell of it.
#[derive(Default, Clone)]
pub struct Tracking {
    /// `bcast`, `optin`, `optout` and `noloop`, in this order.
    pub options: [bool; 4],
    pub redirect: Option<u64>,
    pub prefixes: BTreeSet<Vec<u8>>,
    /// CLIENT CACHING has said so of the next command.
    pub caching: Option<bool>,
}

#[derive(Default)]
pub struct Session {
    /// What has not been read.
    pub input: Vec<u8>,
    /// 2 or 3.
    pub version: u8,
    pub database: usize,
    pub name: Option<Vec<u8>>,
    /// It has logged in, or need not.
    pub known: bool,
    pub multi: Option<Queue>,
    /// What is left of the transaction that is being carried out.
    pub executing: Option<VecDeque<Words>>,
    pub watched: Vec<Watched>,
    /// A watched key has changed.
    pub dirty: bool,
    /// Channels, patterns and channels of shards.
    pub subscriptions: [BTreeSet<Vec<u8>>; 3],
    pub silence: Silence,
    pub tracking: Option<Tracking>,
    pub no_evict: bool,
    pub blocked: Option<Blocked>,
    /// The command that was postponed.
    pub postponed: Option<Words>,
    /// It ends with the present command.
    pub closing: bool,
    /// The peer has gone, and nobody has noticed.
    pub gone: bool,
    /// Since when it is there, when it last asked something, and what.
    pub since: Duration,
    pub active: Duration,
    pub command: &'static str,
}

impl Session {
    pub fn new(known: bool, now: Duration) -> Self {
        Self { version: 2, known, since: now, active: now, command: "NULL", ..Self::default() }
    }

    /// In how many channels and patterns it hears.
    pub fn subscribed(&self) -> usize {
        self.subscriptions[0].len() + self.subscriptions[1].len()
    }

    pub fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|names| !names.is_empty())
    }

    /// What a connection that has just been made would not have.
    pub fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        if self.database != 0 {
            left.push(format!("database {}", self.database));
        }
        if let Some(name) = &self.name {
            left.push(format!("the name `{}`", name.escape_ascii()));
        }
        if let Some(queue) = &self.multi {
            left.push(format!("a transaction with {} commands", queue.commands.len()));
        }
        for watched in &self.watched {
            left.push(format!("the watched key `{}`", watched.key.escape_ascii()));
        }
        for (names, what) in self.subscriptions.iter().zip(["channel", "pattern", "shard channel"]) {
            left.extend(names.iter().map(|name| format!("a subscription to the {what} `{}`", name.escape_ascii())));
        }
        let blocked = match &self.blocked {
            Some(Blocked::Pop { .. }) => Some("a wait for a list"),
            Some(Blocked::Wait { .. }) => Some("a wait for replicas"),
            Some(Blocked::Postponed) => Some("a command that is held up"),
            Some(Blocked::Script) => Some("a script that runs"),
            None => None,
        };
        let flags = [
            (self.tracking.is_some(), "tracking"),
            (self.no_evict, "no-evict"),
            (self.closing, "a farewell that was not said"),
            (self.silence.off, "no replies"),
            (self.silence.now || self.silence.next, "no reply to the next command"),
            (!self.input.is_empty() && self.blocked.is_none(), "a command that has not come whole"),
        ];
        let flags = flags.into_iter().filter_map(|(is_set, what)| is_set.then_some(what));
        left.extend(blocked.into_iter().chain(flags).map(str::to_owned));
        left
    }
}
