//! A connection to MongoDB: OP_MSG over a line of the driver, with the times of its phases.

use mongodb_session::bson::Document;
use pool::Time;

use super::{
    place::Place,
    requester::{CommandError, Fault, Requester, Verdict},
};
use crate::{
    ErrorKind, Phases,
    cancel::Cancels,
    lines::{Event, LineError, LineFault, Lines},
    link::{self, CLOSED, Down, News, Stopwatch, VIOLATION},
};

pub struct Link {
    key: u32,
    stopwatch: Stopwatch,
    requester: Requester,
    logs_in: bool,
}

impl link::Link for Link {
    type Place = Place;

    fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.endpoint.address);
        Self {
            key,
            stopwatch: Stopwatch::start(now),
            requester: Requester::new(place.login.clone()),
            logs_in: place.login.user.is_some(),
        }
    }

    fn phases(&self) -> &Phases {
        &self.stopwatch.phases
    }

    /// The protocol has no goodbye.
    fn close(self, lines: &mut Lines, _: &Place, _: &Cancels) {
        lines.close(self.key);
    }

    fn happened(&mut self, event: Event, lines: &mut Lines, place: &Place, out: &mut Vec<u8>) -> News {
        match event {
            Event::Resolved { took, .. } => {
                self.stopwatch.resolved(took, lines.now());
                News::Nothing
            }
            Event::Connected { .. } => {
                self.stopwatch.connected(&place.endpoint.address, lines.now());
                self.received(&[], lines, place, out)
            }
            Event::Secured { .. } => {
                self.stopwatch.phases.tls = Some(self.stopwatch.lap(lines.now()));
                self.requester.secured();
                self.received(&[], lines, place, out)
            }
            Event::Ended { .. } => {
                let message = format!("{} closed the connection", place.endpoint.address);
                News::Down(Down { kind: ErrorKind(CLOSED.into()), permanent: false, message })
            }
            Event::Failed { error, .. } => News::Down(failed(error)),
            Event::Received { .. } => unreachable!("bytes are handed over by themselves"),
        }
    }

    fn received(&mut self, mut bytes: &[u8], lines: &mut Lines, place: &Place, out: &mut Vec<u8>) -> News {
        let mut news = News::Nothing;
        out.clear();
        loop {
            match self.requester.take(&place.keys, &mut bytes, out) {
                Ok(Verdict::More) => break,
                Ok(Verdict::StartTls) => {
                    let connector = place.connector.as_ref().expect("a login in TLS has a connector");
                    lines.start_tls(self.key, connector, &place.endpoint.name, bytes);
                    return News::Nothing;
                }
                // The hello before the login counts as getting ready, not as authentication.
                Ok(Verdict::Greeted) => self.stopwatch.phases.ready = Some(self.stopwatch.lap(lines.now())),
                Ok(Verdict::Ready) => {
                    let took = Some(self.stopwatch.lap(lines.now()));
                    let phases = &mut self.stopwatch.phases;
                    *(if self.logs_in { &mut phases.auth } else { &mut phases.ready }) = took;
                    news = News::Up;
                }
                Ok(Verdict::Answered) => news = News::Answered,
                Err(fault) => {
                    lines.close(self.key);
                    return News::Down(faulty(fault, self.stopwatch.phases.ready.is_some()));
                }
            }
        }
        lines.send(self.key, out);
        news
    }
}

impl Link {
    /// Appends a command.
    pub fn ask(&mut self, command: &[u8], out: &mut Vec<u8>) {
        self.requester.ask(command, out);
    }

    /// Appends a command whose answer is wanted.
    pub fn ask_for(&mut self, command: &[u8], out: &mut Vec<u8>) {
        self.requester.ask_for(command, out);
    }

    /// The error that the last command was answered with.
    pub fn said(&self) -> Option<&CommandError> {
        self.requester.error()
    }

    /// The answer that was wanted.
    pub fn kept(&self) -> Option<Document<'_>> {
        self.requester.kept()
    }

    /// It logs in as a user.
    pub fn logs_in(&self) -> bool {
        self.logs_in
    }
}

fn failed(error: LineError) -> Down {
    let permanent = matches!(error.fault, LineFault::Tls { certificate: true });
    Down { kind: link::kind_of(error.fault), permanent, message: error.message }
}

/// The protocol says that there is no going on.
fn faulty(fault: Fault, greeted: bool) -> Down {
    let kind = match (fault.refused, greeted) {
        (false, _) => VIOLATION,
        (true, true) => "login refused",
        (true, false) => "refused",
    };
    Down { kind: ErrorKind(kind.into()), permanent: fault.permanent, message: fault.message }
}

/// The kind of an error that a server gave: its name in MongoDB's list where the server says it, its number otherwise.
pub fn kind_of(error: &CommandError) -> ErrorKind {
    const MAX_NAME: usize = 64;
    let is_name = |name: &&str| name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let kind = match error.name.as_deref().filter(is_name) {
        Some(name) => format!("error {name}"),
        None => format!("error {}", error.code),
    };
    ErrorKind(kind.into())
}
