//! Looks as lines of a file, and back: what was seen can be examined elsewhere and later, with the same result. The
//! file is JSON by line: a header, the looks, and an end, without which it is not whole. Its lines, numbers and looks
//! are bounded, for it may come from anywhere. Opens no file.
//!
//! There is no secret in it: it has names of users, databases and applications, addresses, and the error of the last
//! attempt to connect, and no text of a statement.

use std::time::Duration;

use admin_api::{Activity, Client, Look, Mongo, Observation, Redis};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    diagnosis::{Diagnosis, examine_mongodb, examine_postgres, examine_redis, examine_with},
    forecast::Forecast,
    mongodb::MongoWindow,
    pooler::{MAX_POOLS, PoolerWindow},
    postgres::PostgresWindow,
    redis::RedisWindow,
};

pub const MAX_RECORDING_BYTES: u64 = 256 * 1024 * 1024;
/// A line has room for the pools that a window looks at, and for the clients that hold their servers.
pub const MAX_LINE_BYTES: usize = MAX_POOLS * 9 * 1024;
pub const MAX_LOOKS: usize = 5_000;
/// Fewer looks tell nothing.
const MIN_RECORDED_LOOKS: usize = 4;
/// What a shorter window tells is chance: each pause in it seems endless.
const MIN_WINDOW: Duration = Duration::from_secs(1);
/// The version that is written, and the only one that is read.
const VERSION: u32 = 1;
/// Why a recorded look lists no sessions of a MongoDB, or no clients of a Redis.
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
        /// The version of the Poolhouse that wrote the recording.
        by: String,
    },
    Pooler {
        /// Microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Look>,
        /// Clients that held a server.
        holders: Vec<Client>,
    },
    #[serde(rename = "database")]
    Postgres {
        /// Microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Activity>,
    },
    #[serde(rename = "mongodb")]
    MongoDb {
        /// Microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Mongo>,
    },
    Redis {
        /// Microseconds from the beginning of the window.
        at_us: u64,
        look: Box<Redis>,
    },
    End {
        looks: usize,
        /// Clients of the pooler at the end.
        clients: Vec<Client>,
    },
}

/// What was looked at, with all looks.
#[derive(Clone, Debug)]
pub enum Subject {
    Pooler(Box<PoolerWindow>),
    Postgres(Box<PostgresWindow>),
    MongoDb(Box<MongoWindow>),
    Redis(Box<RedisWindow>),
}

/// Why a file cannot be read, or what was read cannot be examined.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub(crate) String);

/// Reads a recording line by line.
#[derive(Debug, Default)]
pub struct RecordingReader {
    lines: usize,
    part: Part,
    last_us: u64,
    looks: usize,
    subject: Option<Subject>,
}

/// The part of a recording to which the next line belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Part {
    #[default]
    Header,
    Looks,
    /// The end was read.
    Nothing,
}

impl Line {
    /// The first line of a recording. `by`: the version of the Poolhouse that writes it.
    pub fn first(by: &str) -> Self {
        Self::Recording { version: VERSION, by: by.to_owned() }
    }

    /// The line as it stands in a file, without a line feed.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("lines have names and numbers only")
    }

    /// The line and its text, with as much of it as fits into a file: of a pooler's pools those that a window looks at,
    /// and where long names make the line too long, shorter lists. The line tells how many
    /// pools or sessions are lacking, but not how many holders or clients.
    pub fn fitted(mut self) -> (Self, String) {
        if let Self::Pooler { look, .. } = &mut self {
            look.keep_pools(MAX_POOLS);
        }
        loop {
            let text = self.text();
            if text.len() <= MAX_LINE_BYTES || !self.halve() {
                return (self, text);
            }
        }
    }

    /// Leaves out half of the line's lists; false if these are empty.
    fn halve(&mut self) -> bool {
        match self {
            Self::Pooler { look, holders, .. } => {
                let (pools, clients) = (look.pools.len(), holders.len());
                look.keep_pools(pools / 2);
                holders.truncate(clients / 2);
                pools + clients > 0
            }
            Self::Postgres { look, .. } => {
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

    /// Reads a line's text.
    ///
    /// # Errors
    /// The text is no line of a recording.
    pub fn read(text: &str) -> Result<Self, ReadError> {
        if text.len() > MAX_LINE_BYTES {
            return Err(ReadError(format!("it has more than {MAX_LINE_BYTES} bytes")));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| ReadError(format!("it is no JSON: {error}")))?;
        let mut numbers = 0;
        check_numbers("", &value, &mut numbers)?;
        serde_json::from_value(value).map_err(|error| ReadError(format!("it is no look: {error}")))
    }
}

/// Checks that no number is so large that it could not be added up.
fn check_numbers(name: &str, value: &Value, numbers: &mut usize) -> Result<(), ReadError> {
    match value {
        Value::Number(number) => {
            *numbers += 1;
            if *numbers > MAX_NUMBERS {
                return Err(ReadError(format!("it has more than {MAX_NUMBERS} numbers")));
            }
            match number.as_f64() {
                Some(number) if number.abs() <= MAX_NUMBER || UNSUMMED_FIELDS.contains(&name) => Ok(()),
                _ => Err(ReadError(format!("`{}` is too large a number", name.escape_debug()))),
            }
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_numbers(name, value, numbers)),
        Value::Object(values) => values.iter().try_for_each(|(name, value)| check_numbers(name, value, numbers)),
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}

impl Subject {
    /// The window that a look begins; `None` if the line is no look.
    pub fn of(line: &Line) -> Option<Self> {
        match line {
            Line::Pooler { .. } => Some(Self::Pooler(Box::default())),
            Line::Postgres { .. } => Some(Self::Postgres(Box::default())),
            Line::MongoDb { .. } => Some(Self::MongoDb(Box::default())),
            Line::Redis { .. } => Some(Self::Redis(Box::default())),
            Line::Recording { .. } | Line::End { .. } => None,
        }
    }

    /// Adds a look or an end. False if the look is at another process than those before.
    ///
    /// # Errors
    /// The look is at something else.
    pub fn add(&mut self, line: Line) -> Result<bool, ReadError> {
        match (self, line) {
            (Self::Pooler(window), Line::Pooler { at_us, look, holders }) => {
                Ok(window.add(Observation { at: Duration::from_micros(at_us), look: *look, holders }))
            }
            (Self::Pooler(window), Line::End { clients, .. }) => {
                window.clients = clients;
                Ok(true)
            }
            (Self::Postgres(window), Line::Postgres { at_us, look }) => {
                Ok(window.add(Duration::from_micros(at_us), *look))
            }
            (Self::MongoDb(window), Line::MongoDb { at_us, look }) => {
                Ok(window.add(Duration::from_micros(at_us), *look))
            }
            (Self::Redis(window), Line::Redis { at_us, look }) => Ok(window.add(Duration::from_micros(at_us), *look)),
            (Self::Postgres(_) | Self::MongoDb(_) | Self::Redis(_), Line::End { .. }) => Ok(true),
            _ => Err(ReadError("it is of something else than the lines before".to_owned())),
        }
    }

    /// Looks at the last process.
    pub fn looks(&self) -> usize {
        match self {
            Self::Pooler(window) => window.looks(),
            Self::Postgres(window) => window.looks(),
            Self::MongoDb(window) => window.looks(),
            Self::Redis(window) => window.looks(),
        }
    }

    /// No more looks can be kept: there are too many pools at each.
    pub fn is_at_memory_limit(&self) -> bool {
        matches!(self, Self::Pooler(window) if window.is_at_memory_limit())
    }

    fn duration(&self) -> Duration {
        match self {
            Self::Pooler(window) => window.duration(),
            Self::Postgres(window) => window.duration(),
            Self::MongoDb(window) => window.duration(),
            Self::Redis(window) => window.duration(),
        }
    }

    /// Says what is wrong. Values of settings come from rules.
    ///
    /// # Errors
    /// There are too few looks to say anything, or too little time is between them.
    pub fn examine(&self) -> Result<Diagnosis, ReadError> {
        self.examine_with(None)
    }

    /// Says what is wrong. A forecast gives the values of settings.
    ///
    /// # Errors
    /// There are too few looks to say anything, or too little time is between them.
    pub fn examine_with(&self, forecast: Option<&dyn Forecast>) -> Result<Diagnosis, ReadError> {
        if self.looks() < MIN_RECORDED_LOOKS {
            let looks = self.looks();
            return Err(ReadError(format!(
                "only {looks} looks at this process: too few to say anything; use a longer --window"
            )));
        }
        if self.duration() < MIN_WINDOW {
            return Err(ReadError(format!(
                "all looks at this process were within {:.1} s: too short to say anything; use a longer --window",
                self.duration().as_secs_f64()
            )));
        }
        Ok(match self {
            Self::Pooler(window) => examine_with(window, forecast),
            Self::Postgres(window) => examine_postgres(window),
            Self::MongoDb(window) => examine_mongodb(window),
            Self::Redis(window) => examine_redis(window),
        })
    }
}

impl RecordingReader {
    /// Reads the next line, without its line feed.
    ///
    /// # Errors
    /// It cannot be the next line of a recording.
    pub fn read(&mut self, text: &str) -> Result<(), ReadError> {
        self.lines += 1;
        let number = self.lines;
        self.read_next(text).map_err(|ReadError(why)| ReadError(format!("line {number}: {why}")))
    }

    fn read_next(&mut self, text: &str) -> Result<(), ReadError> {
        let no_recording = || ReadError("it does not begin like a recording of `doctor --record`".to_owned());
        let line = match self.part {
            Part::Header => return self.read_header(&Line::read(text).map_err(|_| no_recording())?, no_recording),
            Part::Looks => Line::read(text)?,
            Part::Nothing => {
                Line::read(text)?;
                return Err(ReadError("something stands behind the end".to_owned()));
            }
        };
        match &line {
            Line::Recording { .. } => {
                return Err(ReadError("another recording begins before this one has ended".to_owned()));
            }
            Line::Pooler { at_us, .. }
            | Line::Postgres { at_us, .. }
            | Line::MongoDb { at_us, .. }
            | Line::Redis { at_us, .. } => {
                if *at_us < self.last_us {
                    return Err(ReadError("it is from before the look in front of it".to_owned()));
                }
                (self.last_us, self.looks) = (*at_us, self.looks + 1);
                if self.looks > MAX_LOOKS {
                    return Err(ReadError(format!("there are more than {MAX_LOOKS} looks")));
                }
            }
            Line::End { looks, .. } => {
                if *looks != self.looks {
                    return Err(ReadError(format!("the end speaks of {looks} looks, and {} are there", self.looks)));
                }
                self.part = Part::Nothing;
            }
        }
        if self.subject.is_none() {
            self.subject = Subject::of(&line);
        }
        let subject = self.subject.as_mut().ok_or_else(|| ReadError("there is no look in it".to_owned()))?;
        subject.add(line).map(|_| ())
    }

    fn read_header(&mut self, line: &Line, no_recording: impl Fn() -> ReadError) -> Result<(), ReadError> {
        let Line::Recording { version, by } = line else { return Err(no_recording()) };
        if *version != VERSION {
            let by: String = by.chars().filter(|one| !printable::steers(*one)).take(40).collect();
            return Err(ReadError(format!(
                "it is of version {version}, by Poolhouse {by}; this one reads version {VERSION}"
            )));
        }
        self.part = Part::Looks;
        Ok(())
    }

    /// Ends the reading after the last line.
    ///
    /// # Errors
    /// The recording is empty, or breaks off.
    pub fn finish(self) -> Result<Subject, ReadError> {
        match (self.part, self.subject) {
            (Part::Header, _) => Err(ReadError("the file is empty".to_owned())),
            (Part::Nothing, Some(subject)) => Ok(subject),
            _ => Err(ReadError(format!("it breaks off after {} lines: it has no end", self.lines))),
        }
    }
}
