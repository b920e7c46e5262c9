//! A connection to Redis: RESP2 over a line of the driver, with the times of its phases.

use driver::{Event, LineError, LineFault, Lines};
use pool::Time;
use redis_session::{ErrorReply, Fault, Requester, Verdict, Words};

use super::{
    super::{
        cancel::Cancels,
        link::{self, CLOSED, Down, News, Refusal, Stopwatch, VIOLATION},
    },
    place::Place,
};
use crate::{
    record::{ErrorKind, Phases},
    script::{Client, Scripts, Step, Turn},
};

pub(super) struct Link {
    key: u32,
    stopwatch: Stopwatch,
    requester: Requester,
    /// Memory for the command at hand.
    words: Words,
    /// What the command at hand means to the connection if it succeeds.
    turn: Turn,
    /// A transaction is open, or keys are watched.
    in_transaction: bool,
}

impl link::Link for Link {
    type Place = Place;

    fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.endpoint.address);
        Self {
            key,
            stopwatch: Stopwatch::start(now),
            requester: Requester::new(),
            words: Words::default(),
            turn: Turn::Plain,
            in_transaction: false,
        }
    }

    fn phases(&self) -> &Phases {
        &self.stopwatch.phases
    }

    fn close(mut self, lines: &mut Lines, _: &Place, _: &Cancels) {
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
                    lines.start_tls(self.key, connector, &place.endpoint.name, bytes);
                    return News::Nothing;
                }
                Ok(Verdict::Authenticated) => self.stopwatch.phases.auth = Some(self.stopwatch.lap(lines.now())),
                Ok(Verdict::Ready) => {
                    // Without a SELECT of a database the connection was ready at once.
                    if place.login.database > 0 {
                        self.stopwatch.phases.ready = Some(self.stopwatch.lap(lines.now()));
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
        step: &Step<'_>,
        _: &Place,
        (client, scripts): (&Client, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        let Step::Ask(request) = step else { unreachable!("a script of commands holds no SQL") };
        self.words.clear();
        for word in 0..request.words() {
            self.words.push(|to| client.write_word(scripts, request, word, to))?;
        }
        self.turn = request.turn();
        self.requester.ask(&self.words, out);
        Ok(())
    }

    fn read_answer(&mut self, _: &mut Client, _: &Scripts) -> Result<(), Refusal> {
        if let Some(error) = self.requester.error() {
            return Err(Refusal { kind: kind_of(error), said: Some(error.to_string()) });
        }
        match self.turn {
            Turn::Begins => self.in_transaction = true,
            Turn::Ends => self.in_transaction = false,
            Turn::Plain => {}
        }
        Ok(())
    }

    fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    fn is_open(&self) -> bool {
        self.requester.farewell().is_none()
    }
}

impl Link {
    /// The protocol's state.
    pub(super) fn requester(&mut self) -> &mut Requester {
        &mut self.requester
    }

    fn ended(&self, place: &Place) -> Down {
        match self.requester.farewell() {
            Some(error) => Down { kind: kind_of(error), permanent: false, message: error.to_string() },
            None => {
                let message = format!("{} closed the connection", place.endpoint.address);
                Down { kind: ErrorKind(CLOSED.into()), permanent: false, message }
            }
        }
    }

    fn failed(&self, error: LineError) -> Down {
        // A server that closes for a reason has sent it before, however the connection then ended.
        let kind = self.requester.farewell().map_or_else(|| link::kind_of(error.fault), kind_of);
        let permanent = matches!(error.fault, LineFault::Tls { certificate: true });
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
