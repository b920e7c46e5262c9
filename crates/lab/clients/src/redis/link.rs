//! A connection to Redis: RESP2 over a line of the driver, with the times of its phases.

use pool::Time;

use super::{
    place::Place,
    requester::{ErrorReply, Fault, Requester, Verdict},
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
}

impl link::Link for Link {
    type Place = Place;

    fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.endpoint.address);
        Self { key, stopwatch: Stopwatch::start(now), requester: Requester::new() }
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

    fn is_open(&self) -> bool {
        self.requester.farewell().is_none()
    }
}

impl Link {
    /// The protocol's state.
    pub fn requester(&mut self) -> &mut Requester {
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
pub fn kind_of(error: &ErrorReply) -> ErrorKind {
    let kind = error.kind();
    let is_code = kind.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    ErrorKind(if is_code { format!("error {kind}") } else { kind.to_owned() }.into())
}
