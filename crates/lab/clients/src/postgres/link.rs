//! A connection to PostgreSQL: protocol 3 over a line of the driver, with the times of its phases. Tries the hosts of
//! the URL in turn.

use pool::Time;
use postgres_session::Fault;

use super::{
    place::Place,
    requester::{Requester, SqlError, Verdict},
};
use crate::{
    ErrorKind, Phases,
    cancel::Cancels,
    lines::{Event, LineError, LineFault, Lines},
    link::{self, CLOSED, Down, News, Stopwatch, VIOLATION},
};

pub struct Link {
    key: u32,
    /// Index of the host that is tried.
    host: usize,
    stopwatch: Stopwatch,
    up: bool,
    detoured: bool,
    requester: Option<Requester>,
}

impl link::Link for Link {
    type Place = Place;

    fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.hosts[0].address);
        Self { key, host: 0, stopwatch: Stopwatch::start(now), up: false, detoured: false, requester: None }
    }

    fn phases(&self) -> &Phases {
        &self.stopwatch.phases
    }

    fn close(mut self, lines: &mut Lines, place: &Place, cancels: &Cancels) {
        match self.requester.as_mut().filter(|_| self.up) {
            Some(requester) if requester.is_asking() => {
                let request = requester.cancel_request();
                if !request.is_empty() {
                    cancels.send(&place.hosts[self.host].address, request);
                }
            }
            Some(requester) => {
                let mut out = Vec::new();
                requester.terminate(&mut out);
                lines.send(self.key, &out);
            }
            None => {}
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
                self.stopwatch.connected(&place.hosts[self.host].address, lines.now());
                out.clear();
                self.requester = Some(Requester::begin(&place.login, out));
                lines.send(self.key, out);
                self.received(&[], lines, place, out)
            }
            Event::Secured { secured, .. } => {
                self.stopwatch.phases.tls = Some(self.stopwatch.lap(lines.now()));
                out.clear();
                let requester = self.requester.as_mut().expect("TLS begins in the login");
                match requester.secured(&place.login, *secured, out) {
                    Ok(()) => {
                        lines.send(self.key, out);
                        News::Nothing
                    }
                    Err(fault) => self.faulty(fault, lines, place),
                }
            }
            Event::Ended { .. } => self.ended(lines, place),
            Event::Failed { error, .. } => self.failed(error, lines, place),
            Event::Received { .. } => unreachable!("bytes are handed over by themselves"),
        }
    }

    fn received(&mut self, mut bytes: &[u8], lines: &mut Lines, place: &Place, out: &mut Vec<u8>) -> News {
        let requester = self.requester.as_mut().expect("nothing is received before the login");
        let mut news = News::Nothing;
        out.clear();
        loop {
            match requester.take(&place.login, &mut bytes, out) {
                Ok(Verdict::More) => break,
                Ok(Verdict::StartTls) => {
                    lines.send(self.key, out);
                    let connector = place.connector.as_ref().expect("a login that may use TLS has a connector");
                    lines.start_tls(self.key, connector, &place.hosts[self.host].name, bytes);
                    return News::Nothing;
                }
                Ok(Verdict::Authenticated) => {
                    self.stopwatch.phases.auth = Some(self.stopwatch.lap(lines.now()));
                }
                Ok(Verdict::Ready) => {
                    self.stopwatch.phases.ready = Some(self.stopwatch.lap(lines.now()));
                    self.up = true;
                    news = News::Up;
                }
                Ok(Verdict::Answered) => news = News::Answered,
                Err(fault) => return self.faulty(fault, lines, place),
            }
        }
        lines.send(self.key, out);
        news
    }

    fn is_open(&self) -> bool {
        self.requester.as_ref().is_none_or(|requester| requester.farewell().is_none())
    }
}

impl Link {
    /// The protocol's state, once the connection is up.
    pub fn requester(&mut self) -> &mut Requester {
        self.requester.as_mut().expect("a connection that is up has logged in")
    }

    /// The protocol leaves no way to go on.
    fn faulty(&mut self, fault: Fault, lines: &mut Lines, place: &Place) -> News {
        if lines.is_open(self.key) {
            lines.close(self.key);
        }
        if fault.detour && !self.detoured {
            self.detoured = true;
            return self.again(lines, place);
        }
        let kind = match fault.code {
            Some(code) => sqlstate(std::str::from_utf8(&code).expect("only ASCII is taken")),
            None if fault.violation => ErrorKind(VIOLATION.into()),
            None => ErrorKind("login failed".into()),
        };
        self.next_host(Down { kind, permanent: fault.permanent, message: fault.message }, lines, place)
    }

    fn ended(&mut self, lines: &mut Lines, place: &Place) -> News {
        let down = match self.requester.as_ref().and_then(Requester::farewell) {
            Some(error) => Down { kind: kind_of(error), permanent: false, message: error.to_string() },
            None => {
                let kind = ErrorKind(CLOSED.into());
                let message = format!("{} closed the connection", place.hosts[self.host].address);
                Down { kind, permanent: false, message }
            }
        };
        self.next_host(down, lines, place)
    }

    fn failed(&mut self, error: LineError, lines: &mut Lines, place: &Place) -> News {
        if let (LineFault::Tls { certificate }, Some(requester), false) = (error.fault, &mut self.requester, self.up) {
            let fault = requester.tls_failed(&place.login, certificate, error.message);
            if fault.detour && !self.detoured {
                self.detoured = true;
                return self.again(lines, place);
            }
            let kind = ErrorKind("tls failed".into());
            return self.next_host(Down { kind, permanent: fault.permanent, message: fault.message }, lines, place);
        }
        let down = Down { kind: link::kind_of(error.fault), permanent: false, message: error.message };
        self.next_host(down, lines, place)
    }

    /// Tries the next host, unless the connection was up or there is no other host.
    fn next_host(&mut self, down: Down, lines: &mut Lines, place: &Place) -> News {
        if self.up || self.host + 1 == place.hosts.len() {
            return News::Down(down);
        }
        self.host += 1;
        self.again(lines, place)
    }

    fn again(&mut self, lines: &mut Lines, place: &Place) -> News {
        self.stopwatch = Stopwatch::start(lines.now());
        self.requester = None;
        lines.open(self.key, &place.hosts[self.host].address);
        News::Nothing
    }
}

/// The kind of an error that a server gave.
pub fn kind_of(error: &SqlError) -> ErrorKind {
    sqlstate(error.code())
}

fn sqlstate(code: &str) -> ErrorKind {
    ErrorKind(format!("sqlstate {code}").into())
}
