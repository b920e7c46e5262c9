//! One connection to the target: made step by step, with the times of its phases, then asked one command after the other. Puts the
//! requester's protocol on a line of the driver. Does not know why it is made and what it is asked.

use driver::{Address, Event, LineError, Lines};
use mongodb_session::{CommandError, Fault, Requester, Verdict, bson::Document};
use pool::Time;

use super::{
    super::{
        commands::{self, News},
        on_lines::{self, CLOSED, Down, VIOLATION},
    },
    place::Place,
};
use crate::{
    record::{ErrorKind, Phases},
    script::{Client, Request, Scripts},
};

/// A connection.
pub(super) struct Link {
    key: u32,
    /// When the phase at hand began.
    since: Time,
    phases: Phases,
    requester: Requester,
    /// The database of commands that name none.
    database: std::sync::Arc<str>,
    logs_in: bool,
    /// Memory for the command at hand.
    command: Vec<u8>,
}

impl commands::Link for Link {
    type Place = Place;

    fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.address);
        Self {
            key,
            since: now,
            phases: Phases::default(),
            requester: Requester::new(place.login.clone()),
            database: place.database.clone(),
            logs_in: place.login.user.is_some(),
            command: Vec::new(),
        }
    }

    fn phases(&self) -> &Phases {
        &self.phases
    }

    /// There is no goodbye in this protocol.
    fn close(self, lines: &mut Lines) {
        lines.close(self.key);
    }

    fn happened(&mut self, event: Event, lines: &mut Lines, place: &Place, out: &mut Vec<u8>) -> News {
        match event {
            Event::Resolved { took, .. } => {
                self.phases.dns = Some(took);
                self.since = lines.now();
                News::Nothing
            }
            Event::Connected { .. } => {
                let took = self.lap(lines.now());
                self.phases.tcp = matches!(*place.address, Address::Tcp { .. }).then_some(took);
                self.received(&[], lines, place, out)
            }
            Event::Secured { .. } => {
                self.phases.tls = Some(self.lap(lines.now()));
                self.requester.secured();
                self.received(&[], lines, place, out)
            }
            Event::Ended { .. } => {
                let message = format!("{} closed the connection", place.address);
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
                    lines.start_tls(self.key, connector, &place.name, bytes);
                    return News::Nothing;
                }
                // What a server says of itself before the login is the price of being ready, not that of the login.
                Ok(Verdict::Greeted) => self.phases.ready = Some(self.lap(lines.now())),
                Ok(Verdict::Ready) => {
                    let took = Some(self.lap(lines.now()));
                    *(if self.logs_in { &mut self.phases.auth } else { &mut self.phases.ready }) = took;
                    news = News::Up;
                }
                Ok(Verdict::Answered) => news = News::Answered,
                Err(fault) => {
                    lines.close(self.key);
                    return News::Down(faulty(fault, self.phases.ready.is_some()));
                }
            }
        }
        lines.send(self.key, out);
        news
    }

    fn ask(
        &mut self,
        request: &Request,
        client: &Client,
        scripts: &Scripts,
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        self.command.clear();
        client.write_document(scripts, request, &self.database, &mut self.command)?;
        self.requester.ask(&self.command, out);
        Ok(())
    }

    fn error(&self) -> Option<(ErrorKind, String)> {
        self.requester.error().map(|error| (kind_of(error), error.to_string()))
    }

    fn is_open(&self) -> bool {
        true
    }
}

impl Link {
    /// Appends a command whose answer is wanted.
    pub(super) fn ask_for(&mut self, command: &[u8], out: &mut Vec<u8>) {
        self.requester.ask_for(command, out);
    }

    /// The error that the last command was answered with.
    pub(super) fn said(&self) -> Option<&CommandError> {
        self.requester.error()
    }

    /// The answer that was wanted.
    pub(super) fn kept(&self) -> Option<Document<'_>> {
        self.requester.kept()
    }

    /// It logs in as somebody.
    pub(super) fn logs_in(&self) -> bool {
        self.logs_in
    }

    /// How long the phase took that has just ended.
    fn lap(&mut self, now: Time) -> std::time::Duration {
        now - std::mem::replace(&mut self.since, now)
    }
}

fn failed(error: LineError) -> Down {
    let permanent = matches!(error.fault, driver::LineFault::Tls { certificate: true });
    Down { kind: on_lines::kind_of(error.fault), permanent, message: error.message }
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
fn kind_of(error: &CommandError) -> ErrorKind {
    const MAX_NAME: usize = 64;
    let is_name = |name: &&str| name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let kind = match error.name.as_deref().filter(is_name) {
        Some(name) => format!("error {name}"),
        None => format!("error {}", error.code),
    };
    ErrorKind(kind.into())
}
