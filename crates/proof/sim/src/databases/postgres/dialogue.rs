//! What is said on a connection, message by message: the start, and then whatever is asked, one thing at a time.

use std::time::Duration;

use super::{
    failure::{Failure, protocol_violation},
    parameters::INTERVALS,
    session::{Running, Session, Stage},
    settings::Settings,
    shared::Shared,
    wire::{First, Reader, message, take_first, take_message, text},
};

/// How often the configuration is changed, where it is.
const RELOADED_EVERY: Duration = Duration::from_millis(300);

const PROTOCOL_3: u32 = 3 << 16;
const CANCEL: u32 = 1234 << 16 | 5678;
const SSL: u32 = 1234 << 16 | 5679;
const GSS: u32 = 1234 << 16 | 5680;

/// Pid and secret of the session whose statement is to be cancelled.
pub(super) type Cancel = (u32, u32);

impl Session {
    /// Does what can be done now; a request to cancel a statement of another session, if that was it.
    pub(super) fn work(&mut self, shared: &mut Shared) -> Option<Cancel> {
        while self.stage == Stage::Start {
            match take_first(&mut self.input) {
                Ok(Some(first)) => {
                    if let Some(cancel) = self.first(first) {
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
        while self.stage == Stage::Ready && self.wait.is_none() {
            if self.copying.is_none() && self.running.is_some() {
                self.go_on(shared);
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

    fn first(&mut self, first: First) -> Option<Cancel> {
        match first.code {
            SSL | GSS => self.output.push(b'N'),
            CANCEL => {
                self.stage = Stage::Over;
                let mut reader = Reader(&first.body);
                return Some((reader.u32()?, reader.u32()?));
            }
            code if code >> 16 == PROTOCOL_3 >> 16 => {
                if let Err(failure) = self.log_in(code, &first.body) {
                    self.end_with(failure);
                }
            }
            code => {
                let message = format!(
                    "unsupported frontend protocol {}.{}: server supports 3.0 to 3.0",
                    code >> 16,
                    code & 0xffff
                );
                self.end_with(Failure::new("0A000", message));
            }
        }
        None
    }

    fn log_in(&mut self, version: u32, body: &[u8]) -> Result<(), Failure> {
        let invalid = || protocol_violation("invalid startup packet layout: expected terminator as last byte");
        let mut reader = Reader(body);
        let (mut wanted, mut extensions, mut switches) = (Vec::new(), Vec::new(), String::new());
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
                _ if name.starts_with("_pq_.") => extensions.push(name),
                _ => wanted.push((name, value)),
            }
        }
        if version != PROTOCOL_3 || !extensions.is_empty() {
            message(&mut self.buffer, b'v', |to| {
                to.extend(PROTOCOL_3.to_be_bytes());
                to.extend((extensions.len() as u32).to_be_bytes());
                extensions.iter().for_each(|name| text(to, name.as_bytes()));
            });
        }
        if self.user.is_empty() {
            return Err(Failure::new("28000", "no PostgreSQL user name specified in startup packet"));
        }
        if self.database.is_empty() {
            self.database = self.user.clone();
        }
        self.settings = Settings::new(&self.user);
        self.read_configuration();
        self.say(b'R', |to| to.extend([0; 4]));
        for (name, value) in options(&switches)?.into_iter().chain(wanted) {
            self.settings.begin_with(&name, &value)?;
        }
        self.settings.report(&mut self.buffer);
        let key = [self.pid.to_be_bytes(), self.secret.to_be_bytes()].concat();
        self.say(b'K', |to| to.extend(key));
        self.stage = Stage::Ready;
        self.ready();
        Ok(())
    }

    /// Carries on with what is under way.
    fn go_on(&mut self, shared: &mut Shared) {
        match self.running.take() {
            Some(Running::Query(query)) => self.go_on_with_query(shared, query),
            Some(Running::Portal { name, limit, progress }) => {
                self.go_on_with_portal(shared, (name, limit), progress);
            }
            None => {}
        }
    }

    /// A configuration that was changed is read when the next message comes.
    fn read_configuration(&mut self) {
        if self.is_reloaded {
            let style = INTERVALS[(self.now.as_millis() / RELOADED_EVERY.as_millis()) as usize % INTERVALS.len()];
            self.settings.configure("intervalstyle", style);
        }
    }

    fn message(&mut self, shared: &mut Shared, kind: u8, body: &[u8]) {
        self.read_configuration();
        if self.copying.is_some() {
            return self.copy_message(shared, kind, body);
        }
        self.idle_since = None;
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
                self.stage = Stage::Over;
                Ok(())
            }
            b'F' => Err(Failure::new("0A000", "the model knows no function calls")),
            b'H' => {
                self.flush();
                Ok(())
            }
            // What is left of a COPY that failed.
            _ => Ok(()),
        };
        if let Err(failure) = outcome {
            self.fail(shared, &failure);
        }
    }
}

/// The parameters that options of a command line set.
fn options(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut words = vec![String::new()];
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        let last = words.len() - 1;
        match c {
            '\\' => words[last].extend(rest.next()),
            c if c.is_ascii_whitespace() => words.push(String::new()),
            c => words[last].push(c),
        }
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let assignment = match word.strip_prefix("-c") {
            Some("") => words.next().unwrap_or_default(),
            Some(rest) => rest.to_owned(),
            None => word.strip_prefix("--").unwrap_or_default().to_owned(),
        };
        let Some((name, value)) = assignment.split_once('=') else {
            return Err(Failure::new("42601", format!("invalid command-line argument for server process: {word}")));
        };
        found.push((name.replace('-', "_"), value.to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_on_a_command_line() {
        let read = options(r"-c a.b=1 -cgeqo=off  --search-path=x\ y").unwrap();
        let expected = [("a.b", "1"), ("geqo", "off"), ("search_path", "x y")];
        assert_eq!(read, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(options("-x").is_err());
    }
}
