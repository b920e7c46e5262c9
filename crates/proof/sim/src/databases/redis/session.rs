//! State of one connection. It knows no others.

use std::{collections::BTreeSet, time::Duration};

/// A command's name and arguments.
pub type Words = Vec<Vec<u8>>;

/// The wait of a BLPOP.
pub struct Blocked {
    /// `None` if it has no time-out.
    pub until: Option<Duration>,
}

/// Commands that wait for EXEC.
#[derive(Default)]
pub struct Queue {
    pub commands: Vec<Words>,
    /// A command was refused, so EXEC will be.
    pub broken: bool,
}

#[derive(Default)]
pub struct Session {
    /// Bytes that have not been read.
    pub input: Vec<u8>,
    /// 2 or 3.
    pub version: u8,
    pub database: usize,
    pub name: Option<Vec<u8>>,
    pub multi: Option<Queue>,
    /// EXEC runs its commands, of which none blocks.
    pub in_exec: bool,
    /// Database and key that must not change before EXEC.
    pub watched: Vec<(usize, Vec<u8>)>,
    /// A watched key has changed.
    pub dirty: bool,
    pub channels: BTreeSet<Vec<u8>>,
    pub blocked: Option<Blocked>,
    /// The connection ends with the present command.
    pub closing: bool,
}

impl Session {
    pub fn new() -> Self {
        Self { version: 2, ..Self::default() }
    }

    pub fn is_subscriber(&self) -> bool {
        !self.channels.is_empty()
    }

    pub fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        left.extend(self.multi.as_ref().map(|queue| format!("a transaction with {} commands", queue.commands.len())));
        left.extend(self.watched.iter().map(|(_, key)| format!("the watched key `{}`", key.escape_ascii())));
        left.extend(self.channels.iter().map(|name| format!("a subscription to `{}`", name.escape_ascii())));
        left.extend(self.blocked.is_some().then(|| "a wait for a list".to_owned()));
        left.extend((!self.input.is_empty() && self.blocked.is_none()).then(|| "an incomplete command".to_owned()));
        left
    }
}
