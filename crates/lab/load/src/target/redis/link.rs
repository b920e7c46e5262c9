//! One connection to the target: made step by step, with the times of its phases, then asked one command after the other. Puts the
//! requester's protocol on a line of the driver. Does not know why it is made and what it is asked.

use driver::{Address, Event, LineError, Lines};
use pool::Time;
use redis_session::{ErrorReply, Fault, Requester, Verdict, Words};

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
    /// Memory for the command at hand.
    words: Words,
}

impl commands::Link for Link {
    type Place = Place;

    fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.address);
        Self { key, since: now, phases: Phases::default(), requester: Requester::new(), words: Words::default() }
    }

    fn phases(&self) -> &Phases {
        &self.phases
    }

    fn close(mut self, lines: &mut Lines) {
        if !self.requester.is_asking() {
            let mut out = Vec::new();
            self.requester.quit(&mut out);
            lines.send(self.key, &out);
        }
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
            Event::Ended { .. } => News::Down(self.ended(place)),
            Event::Failed { error, .. } => News::Down(self.failed(error)),
            Event::Received { .. } => unreachable!("bytes are handed over by themselves"),
        }
    }

    fn received(&mut self, mut bytes: &[u8], lines: &mut Lines, place: &Place, out: &mut Vec<u8>) -> News {
        let mut news = News::Nothing;
        out.clear();
        loop {
            match self.requester.take(&place.login, &mut bytes, out) {
                Ok(Verdict::More) => break,
                Ok(Verdict::StartTls) => {
                    let connector = place.connector.as_ref().expect("a login in TLS has a connector");
                    lines.start_tls(self.key, connector, &place.name, bytes);
                    return News::Nothing;
                }
                Ok(Verdict::Authenticated) => self.phases.auth = Some(self.lap(lines.now())),
                Ok(Verdict::Ready) => {
                    // Who had nothing to say was ready at once.
                    if place.login.database > 0 {
                        self.phases.ready = Some(self.lap(lines.now()));
                    }
                    news = News::Up;
                }
                Ok(Verdict::Answered) => news = News::Answered,
                Err(fault) => {
                    lines.close(self.key);
                    return News::Down(faulty(fault));
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
        self.words.clear();
        for word in 0..request.words() {
            self.words.push(|to| client.write_word(scripts, request, word, to))?;
        }
        self.requester.ask(&self.words, out);
        Ok(())
    }

    fn error(&self) -> Option<(ErrorKind, String)> {
        self.requester.error().map(|error| (kind_of(error), error.to_string()))
    }

    /// What has said goodbye behind the answer takes no other command.
    fn is_open(&self) -> bool {
        self.requester.farewell().is_none()
    }
}

impl Link {
    /// The protocol's state.
    pub(super) fn requester(&mut self) -> &mut Requester {
        &mut self.requester
    }

    /// How long the phase took that has just ended.
    fn lap(&mut self, now: Time) -> std::time::Duration {
        now - std::mem::replace(&mut self.since, now)
    }

    fn ended(&self, place: &Place) -> Down {
        match self.requester.farewell() {
            Some(error) => Down { kind: kind_of(error), permanent: false, message: error.to_string() },
            None => {
                let message = format!("{} closed the connection", place.address);
                Down { kind: ErrorKind(CLOSED.into()), permanent: false, message }
            }
        }
    }

    fn failed(&self, error: LineError) -> Down {
        // Whoever closes for a reason has said so before, whichever way the connection then ended.
        let kind = self.requester.farewell().map_or_else(|| on_lines::kind_of(error.fault), kind_of);
        let permanent = matches!(error.fault, driver::LineFault::Tls { certificate: true });
        Down { kind, permanent, message: error.message }
    }
}

/// The protocol says that there is no going on.
fn faulty(fault: Fault) -> Down {
    let kind = fault.reply.as_ref().map_or_else(|| ErrorKind(VIOLATION.into()), kind_of);
    Down { kind, permanent: fault.permanent, message: fault.message }
}

/// The kind of an error that a server gave.
pub(super) fn kind_of(error: &ErrorReply) -> ErrorKind {
    let kind = error.kind();
    let is_code = kind.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    ErrorKind(if is_code { format!("error {kind}") } else { kind.to_owned() }.into())
}
