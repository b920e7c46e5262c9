//! Looks as lines of a file, and back: what was seen can be examined elsewhere and later, with the same result. The
//! file is JSON by line: what it is, the looks, and its end, without which it is not whole. Its lines, numbers and
//! looks are bounded, for it may come from anywhere. Opens no file.
//!
//! There is no secret in it: it has names of users, databases and applications, addresses, and what the last attempt to
//! connect was told, and no text of a statement.

use std::{fmt, time::Duration};

use admin_api::{Activity, Client, Look, Mongo, Observation, Redis};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    database::DatabaseWindow,
    databases::{examine_mongodb, examine_redis},
    diagnosis::{Diagnosis, examine_database, examine_with},
    forecast::Forecast,
    mongodb::MongoWindow,
    redis::RedisWindow,
    window::{MAX_POOLS, Window},
};

/// Bytes of a recording.
pub const MAX_RECORDING: u64 = 256 * 1024 * 1024;
/// Bytes of a line: those of the pools that a window looks at, and of the clients that hold their servers. See
/// [`Line::fitted`].
pub const MAX_LINE: usize = MAX_POOLS * 9 * 1024;
pub const MAX_LOOKS: usize = 5_000;
/// Fewer looks tell nothing.
const MIN_LOOKS: usize = 4;
/// What a shorter window tells is chance: each pause in it seems endless.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Why a recording has no list.
const LIST_TOO_LONG: &str = "their names are so long that a recording does not hold the list";
/// Numbers of a line.
const MAX_NUMBERS: usize = 1_000_000;
/// The largest number, so that sums cannot overflow.
const MAX_NUMBER: f64 = 1e13;
/// Fields that are never added up, and may be larger than [`MAX_NUMBER`].
const UNSUMMED_FIELDS: [&str; 5] = ["id", "pool", "soft_limit", "hard_limit", "started_us"];

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Recording {
        version: u32,
        /// Of the Poolhouse that wrote it.
        by: String,
    },
    Pooler {
        /// When, in microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Look>,
        /// Clients that held a server.
        holders: Vec<Client>,
    },
    /// A look at a PostgreSQL.
    Database {
        /// When, in microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Activity>,
    },
    #[serde(rename = "mongodb")]
    MongoDb {
        /// When, in microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Mongo>,
    },
    Redis {
        /// When, in microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Redis>,
    },
    End {
        looks: usize,
        /// Clients of the pooler at the end.
        clients: Vec<Client>,
    },
}

#[derive(Clone, Debug)]
pub enum Patient {
    Pooler(Box<Window>),
    Database(Box<DatabaseWindow>),
    MongoDb(Box<MongoWindow>),
    Redis(Box<RedisWindow>),
}

/// Why something is no recording, or not whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage(pub(crate) String);

/// Reads one, line by line.
#[derive(Debug, Default)]
pub struct Reading {
    lines: usize,
    begun: bool,
    ended: bool,
    last_us: u64,
    looks: usize,
    patient: Option<Patient>,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damage {}

impl Line {
    /// The first line of a recording. `by`: the version of who writes it.
    pub fn first(by: &str) -> Self {
        Self::Recording { version: VERSION, by: by.to_owned() }
    }

    /// As it stands in a file, without its end.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("lines have names and numbers only")
    }

    /// The line, and how it stands in a file, with as much of it as fits there: of a pooler's pools those that a window
    /// looks at; and where names are so long that this is too much, fewer of whatever it lists. It tells what is
    /// lacking.
    pub fn fitted(mut self) -> (Self, String) {
        if let Self::Pooler { look, .. } = &mut self {
            look.keep_pools(MAX_POOLS);
        }
        loop {
            let text = self.text();
            if text.len() <= MAX_LINE || !self.halve() {
                return (self, text);
            }
        }
    }

    /// Leaves out half of what it lists; false if it lists nothing.
    fn halve(&mut self) -> bool {
        match self {
            Self::Pooler { look, holders, .. } => {
                let (pools, clients) = (look.pools.len(), holders.len());
                look.keep_pools(pools / 2);
                holders.truncate(clients / 2);
                pools + clients > 0
            }
            Self::Database { look, .. } => {
                let (all, kept) = (look.backends.len(), look.backends.len() / 2);
                look.backends.truncate(kept);
                look.left_out = look.left_out.saturating_add((all - kept) as u64);
                all > 0
            }
            Self::MongoDb { look, .. } => {
                look.hides_sessions = look.hides_sessions.take().or_else(|| Some(LIST_TOO_LONG.to_owned()));
                look.sessions.take().is_some()
            }
            Self::Redis { look, .. } => {
                look.hides_clients = look.hides_clients.take().or_else(|| Some(LIST_TOO_LONG.to_owned()));
                look.clients.take().is_some()
            }
            Self::End { clients, .. } => {
                let all = clients.len();
                clients.truncate(all / 2);
                all > 0
            }
            Self::Recording { .. } => false,
        }
    }

    /// The other way.
    ///
    /// # Errors
    /// It is no line of a recording.
    pub fn read(text: &str) -> Result<Self, Damage> {
        if text.len() > MAX_LINE {
            return Err(Damage(format!("it has more than {MAX_LINE} bytes")));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| Damage(format!("it is no JSON: {error}")))?;
        let mut numbers = 0;
        check("", &value, &mut numbers)?;
        serde_json::from_value(value).map_err(|error| Damage(format!("it is no look: {error}")))
    }
}

/// That nothing in it is so large that it could not be added up.
fn check(name: &str, value: &Value, numbers: &mut usize) -> Result<(), Damage> {
    match value {
        Value::Number(number) => {
            *numbers += 1;
            if *numbers > MAX_NUMBERS {
                return Err(Damage(format!("it has more than {MAX_NUMBERS} numbers")));
            }
            match number.as_f64() {
                Some(number) if number.abs() <= MAX_NUMBER || UNSUMMED_FIELDS.contains(&name) => Ok(()),
                _ => Err(Damage(format!("`{}` is too large a number", name.escape_debug()))),
            }
        }
        Value::Array(values) => values.iter().try_for_each(|value| check(name, value, numbers)),
        Value::Object(values) => values.iter().try_for_each(|(name, value)| check(name, value, numbers)),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

impl Patient {
    /// The window that a look begins; `None` if the line is none.
    pub fn of(line: &Line) -> Option<Self> {
        match line {
            Line::Pooler { .. } => Some(Self::Pooler(Box::default())),
            Line::Database { .. } => Some(Self::Database(Box::default())),
            Line::MongoDb { .. } => Some(Self::MongoDb(Box::default())),
            Line::Redis { .. } => Some(Self::Redis(Box::default())),
            Line::Recording { .. } | Line::End { .. } => None,
        }
    }

    /// Adds a look, or what there is at the end. False if this look is at another process than those before.
    ///
    /// # Errors
    /// It is a look at something else.
    pub fn take(&mut self, line: Line) -> Result<bool, Damage> {
        match (self, line) {
            (Self::Pooler(window), Line::Pooler { at_us, look, holders }) => {
                Ok(window.add(Observation { at: Duration::from_micros(at_us), look: *look, holders }))
            }
            (Self::Pooler(window), Line::End { clients, .. }) => {
                window.clients = clients;
                Ok(true)
            }
            (Self::Database(window), Line::Database { at_us, look }) => {
                Ok(window.add(Duration::from_micros(at_us), *look))
            }
            (Self::MongoDb(window), Line::MongoDb { at_us, look }) => {
                Ok(window.add(Duration::from_micros(at_us), *look))
            }
            (Self::Redis(window), Line::Redis { at_us, look }) => Ok(window.add(Duration::from_micros(at_us), *look)),
            (Self::Database(_) | Self::MongoDb(_) | Self::Redis(_), Line::End { .. }) => Ok(true),
            _ => Err(Damage("it is of something else than the lines before".to_owned())),
        }
    }

    /// Looks at the process that was there last.
    pub fn looks(&self) -> usize {
        match self {
            Self::Pooler(window) => window.looks(),
            Self::Database(window) => window.looks(),
            Self::MongoDb(window) => window.looks(),
            Self::Redis(window) => window.looks(),
        }
    }

    /// More looks cannot be kept: there are too many pools at each.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Pooler(window) if window.is_full())
    }

    fn lasts(&self) -> Duration {
        match self {
            Self::Pooler(window) => window.lasts(),
            Self::Database(window) => window.lasts(),
            Self::MongoDb(window) => window.lasts(),
            Self::Redis(window) => window.lasts(),
        }
    }

    /// Says what is wrong. Values of settings are those of rules.
    ///
    /// # Errors
    /// There are too few looks to say anything, or too little time is between them.
    pub fn examine(&self) -> Result<Diagnosis, Damage> {
        self.examine_with(None)
    }

    /// Says what is wrong. Who can predict what a pool does gives the values of settings.
    ///
    /// # Errors
    /// There are too few looks to say anything, or too little time is between them.
    pub fn examine_with(&self, forecast: Option<&dyn Forecast>) -> Result<Diagnosis, Damage> {
        if self.looks() < MIN_LOOKS {
            let looks = self.looks();
            return Err(Damage(format!(
                "only {looks} looks at this process: too few to say anything; use a longer --window"
            )));
        }
        if self.lasts() < MIN_WINDOW {
            return Err(Damage(format!(
                "all looks at this process were within {:.1} s: too short to say anything; use a longer --window",
                self.lasts().as_secs_f64()
            )));
        }
        Ok(match self {
            Self::Pooler(window) => examine_with(window, forecast),
            Self::Database(window) => examine_database(window),
            Self::MongoDb(window) => examine_mongodb(window),
            Self::Redis(window) => examine_redis(window),
        })
    }
}

impl Reading {
    /// Takes the next line, without its end.
    ///
    /// # Errors
    /// It cannot be the next line of a recording.
    pub fn take(&mut self, text: &str) -> Result<(), Damage> {
        self.lines += 1;
        let number = self.lines;
        self.next(text).map_err(|Damage(why)| Damage(format!("line {number}: {why}")))
    }

    fn next(&mut self, text: &str) -> Result<(), Damage> {
        let line = match Line::read(text) {
            Err(_) if !self.begun => {
                return Err(Damage("it does not begin like a recording of `doctor --record`".to_owned()));
            }
            line => line?,
        };
        match &line {
            Line::Recording { version, by } if !self.begun => {
                if *version != VERSION {
                    let by: String = by.chars().filter(|one| !printable::steers(*one)).take(40).collect();
                    return Err(Damage(format!(
                        "it is of version {version}, by Poolhouse {by}; this one reads version {VERSION}"
                    )));
                }
                self.begun = true;
                return Ok(());
            }
            _ if !self.begun => {
                return Err(Damage("it does not begin like a recording of `doctor --record`".to_owned()));
            }
            _ if self.ended => return Err(Damage("something stands behind the end".to_owned())),
            Line::Recording { .. } => {
                return Err(Damage("another recording begins before this one has ended".to_owned()));
            }
            Line::Pooler { at_us, .. }
            | Line::Database { at_us, .. }
            | Line::MongoDb { at_us, .. }
            | Line::Redis { at_us, .. } => {
                if *at_us < self.last_us {
                    return Err(Damage("it is from before the look in front of it".to_owned()));
                }
                (self.last_us, self.looks) = (*at_us, self.looks + 1);
                if self.looks > MAX_LOOKS {
                    return Err(Damage(format!("there are more than {MAX_LOOKS} looks")));
                }
            }
            Line::End { looks, .. } => {
                if *looks != self.looks {
                    return Err(Damage(format!("the end speaks of {looks} looks, and {} are there", self.looks)));
                }
                self.ended = true;
            }
        }
        if self.patient.is_none() {
            self.patient = Patient::of(&line);
        }
        let patient = self.patient.as_mut().ok_or_else(|| Damage("there is no look in it".to_owned()))?;
        patient.take(line).map(|_| ())
    }

    /// All lines were taken.
    ///
    /// # Errors
    /// It is empty, or broke off.
    pub fn finish(self) -> Result<Patient, Damage> {
        match self.patient {
            _ if !self.begun => Err(Damage("the file is empty".to_owned())),
            Some(patient) if self.ended => Ok(patient),
            _ => Err(Damage(format!("it breaks off after {} lines: it has no end", self.lines))),
        }
    }
}
