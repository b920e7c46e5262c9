//! Messages of a client: the start-up message, then requests, one after another.

use std::time::Duration;

use super::{
    failure::{Failure, protocol_violation},
    parameters::INTERVAL_STYLES,
    session::{Phase, Running, Session},
    settings::Settings,
    shared::Shared,
    wire::{Reader, StartupMessage, take_message, take_startup},
};

const RELOAD_INTERVAL: Duration = Duration::from_millis(300);

const PROTOCOL_3: u32 = 3 << 16;
const CANCEL: u32 = 1234 << 16 | 5678;

/// Pid and secret of the session to cancel.
pub(super) type Cancel = (u32, u32);

impl Session {
    /// Handles the input as far as possible. Returns a request to cancel another session, if this was one.
    pub(super) fn work(&mut self, shared: &mut Shared) -> Option<Cancel> {
        while self.phase == Phase::Start {
            match take_startup(&mut self.input) {
                Ok(Some(startup)) => {
                    if let Some(cancel) = self.on_startup(startup) {
                        return Some(cancel);
                    }
                }
                Ok(None) => return None,
                Err(()) => {
                    self.end_with(protocol_violation("invalid length of startup packet"));
                    return None;
                }
            }
        }
        while self.phase == Phase::Ready && self.wait.is_none() {
            if self.copying.is_none() && self.running.is_some() {
                self.resume(shared);
                continue;
            }
            match take_message(&mut self.input) {
                Ok(Some((kind, body))) => self.message(shared, kind, &body),
                Ok(None) => break,
                Err(()) => self.end_with(protocol_violation("invalid message length")),
            }
        }
        None
    }

    fn on_startup(&mut self, startup: StartupMessage) -> Option<Cancel> {
        match startup.code {
            CANCEL => {
                self.phase = Phase::Over;
                let mut reader = Reader(&startup.body);
                return Some((reader.u32()?, reader.u32()?));
            }
            PROTOCOL_3 => {
                if let Err(failure) = self.log_in(&startup.body) {
                    self.end_with(failure);
                }
            }
            code => self.end_with(Failure::new("0A000", format!("unsupported frontend protocol {code:#x}"))),
        }
        None
    }

    fn log_in(&mut self, body: &[u8]) -> Result<(), Failure> {
        let invalid = || protocol_violation("invalid startup packet layout: expected terminator as last byte");
        let mut reader = Reader(body);
        let (mut wanted, mut switches) = (Vec::new(), String::new());
        loop {
            let name = String::from_utf8_lossy(reader.text().ok_or_else(invalid)?).into_owned();
            if name.is_empty() {
                break;
            }
            let value = String::from_utf8_lossy(reader.text().ok_or_else(invalid)?).into_owned();
            match &*name {
                "user" => self.user = value,
                "database" => self.database = value,
                "options" => switches = value,
                "replication" => self.replication = value == "database",
                _ => wanted.push((name, value)),
            }
        }
        self.settings = Settings::new(&self.user);
        self.read_configuration();
        self.send(b'R', |to| to.extend([0; 4]));
        for (name, value) in options(&switches)?.into_iter().chain(wanted) {
            self.settings.begin_with(&name, &value)?;
        }
        self.settings.report(&mut self.buffer);
        let key = [self.pid.to_be_bytes(), self.secret.to_be_bytes()].concat();
        self.send(b'K', |to| to.extend(key));
        self.phase = Phase::Ready;
        self.send_ready();
        Ok(())
    }

    fn resume(&mut self, shared: &mut Shared) {
        match self.running.take() {
            Some(Running::Query(query)) => self.resume_query(shared, query),
            Some(Running::Portal { name, limit, progress }) => {
                self.resume_portal(shared, (name, limit), progress);
            }
            None => {}
        }
    }

    /// A changed configuration takes effect at the next message.
    fn read_configuration(&mut self) {
        if self.changes_configuration {
            let style =
                INTERVAL_STYLES[(self.now.as_millis() / RELOAD_INTERVAL.as_millis()) as usize % INTERVAL_STYLES.len()];
            self.settings.configure("intervalstyle", style);
        }
    }

    fn message(&mut self, shared: &mut Shared, kind: u8, body: &[u8]) {
        self.read_configuration();
        if self.copying.is_some() {
            return self.copy_message(shared, kind, body);
        }
        match kind {
            b'B' | b'C' | b'D' | b'E' | b'H' | b'P' => self.extended = true,
            b'S' | b'X' => (self.skipping, self.extended) = (false, false),
            b'Q' | b'F' | b'd' | b'c' | b'f' => self.extended = false,
            _ => {
                let message = format!("invalid frontend message type {kind}");
                return self.end_with(protocol_violation(message));
            }
        }
        if self.skipping {
            return;
        }
        let outcome = match kind {
            b'Q' => {
                self.query(shared, body);
                Ok(())
            }
            b'P' => self.parse(body),
            b'B' => self.bind(body),
            b'D' => self.describe_message(body),
            b'E' => self.execute_message(body),
            b'C' => self.close_message(body),
            b'S' => {
                self.sync(shared);
                Ok(())
            }
            b'X' => {
                self.phase = Phase::Over;
                Ok(())
            }
            b'F' => Err(Failure::new("0A000", "the model knows no function calls")),
            b'H' => {
                self.flush();
                Ok(())
            }
            // The rest of a failed COPY.
            _ => Ok(()),
        };
        if let Err(failure) = outcome {
            self.fail(shared, &failure);
        }
    }
}

/// The parameters that `-c name=value` switches of a command line set.
fn options(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut words = text.split_ascii_whitespace();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let assignment = words.next().filter(|_| word == "-c").and_then(|assignment| assignment.split_once('='));
        let invalid = || Failure::new("42601", format!("invalid command-line argument for server process: {word}"));
        let (name, value) = assignment.ok_or_else(invalid)?;
        found.push((name.to_owned(), value.to_owned()));
    }
    Ok(found)
}
