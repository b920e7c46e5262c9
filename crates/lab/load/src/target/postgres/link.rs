//! One connection to the target: made step by step, with the times of its phases, then asked one request after the other. Puts the
//! requester's protocol on a line of the driver. Does not know why it is made and what it is asked.

use driver::{Address, Event, LineError, LineFault, Lines};
use pool::Time;
use postgres_session::{Fault, Requester, SqlError, Verdict};

use super::{
    super::on_lines::{self, CLOSED, Down, VIOLATION},
    cancel::Cancels,
    place::Place,
};
use crate::record::{ErrorKind, Phases};

/// A connection.
pub(super) struct Link {
    key: u32,
    /// Of the place's hosts, the one that is tried.
    host: usize,
    /// When the phase at hand began.
    since: Time,
    phases: Phases,
    up: bool,
    detoured: bool,
    requester: Option<Requester>,
}

/// What has become of it.
#[derive(Debug)]
pub(super) enum News {
    /// Nothing to report.
    Nothing,
    /// It takes requests.
    Up,
    /// The request is answered.
    Answered,
    /// It is closed.
    Down(Down),
}

impl Link {
    /// Begins to connect under a key of the lines' that is free.
    pub(super) fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.hosts[0].0);
        let phases = Phases::default();
        Self { key, host: 0, since: now, phases, up: false, detoured: false, requester: None }
    }

    /// What making it took; of the attempt that succeeded.
    pub(super) fn phases(&self) -> &Phases {
        &self.phases
    }

    /// The protocol's state, once it is up.
    pub(super) fn requester(&mut self) -> &mut Requester {
        self.requester.as_mut().expect("a connection that is up has logged in")
    }

    /// Closes it, with a goodbye where that is possible, and has what the server is still doing cancelled.
    pub(super) fn close(mut self, lines: &mut Lines, place: &Place, cancels: &Cancels) {
        let mut out = Vec::new();
        match self.requester.as_mut().filter(|_| self.up) {
            Some(requester) if requester.is_asking() => {
                requester.write_cancel(&mut out);
                if !out.is_empty() {
                    cancels.send(&place.hosts[self.host].0, out);
                }
            }
            Some(requester) => {
                requester.terminate(&mut out);
                lines.send(self.key, &out);
            }
            None => {}
        }
        lines.close(self.key);
    }

    /// Takes what has happened to it, apart from bytes: these go to [`received`](Self::received).
    pub(super) fn happened(&mut self, event: Event, lines: &mut Lines, place: &Place, out: &mut Vec<u8>) -> News {
        let now = lines.now();
        match event {
            Event::Resolved { took, .. } => {
                self.phases.dns = Some(took);
                self.since = now;
                News::Nothing
            }
            Event::Connected { .. } => {
                let is_tcp = matches!(*place.hosts[self.host].0, Address::Tcp { .. });
                self.phases.tcp = is_tcp.then_some(now - self.since);
                self.since = now;
                out.clear();
                self.requester = Some(Requester::begin(&place.login, out));
                lines.send(self.key, out);
                self.received(&[], lines, place, out)
            }
            Event::Secured { secured, .. } => {
                self.phases.tls = Some(now - self.since);
                self.since = now;
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

    /// Takes bytes. `out` is memory to write in.
    pub(super) fn received(&mut self, mut bytes: &[u8], lines: &mut Lines, place: &Place, out: &mut Vec<u8>) -> News {
        let requester = self.requester.as_mut().expect("nothing is received before the login");
        let mut news = News::Nothing;
        out.clear();
        loop {
            match requester.take(&place.login, &mut bytes, out) {
                Ok(Verdict::More) => break,
                Ok(Verdict::StartTls) => {
                    lines.send(self.key, out);
                    let connector = place.connector.as_ref().expect("a login that may use TLS has a connector");
                    lines.start_tls(self.key, connector, &place.hosts[self.host].1, bytes);
                    return News::Nothing;
                }
                Ok(Verdict::Authenticated) => {
                    let now = lines.now();
                    self.phases.auth = Some(now - self.since);
                    self.since = now;
                }
                Ok(Verdict::Ready) => {
                    self.phases.ready = Some(lines.now() - self.since);
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

    /// The protocol says that there is no going on.
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
                let message = format!("{} closed the connection", place.hosts[self.host].0);
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
        let down = Down { kind: on_lines::kind_of(error.fault), permanent: false, message: error.message };
        self.next_host(down, lines, place)
    }

    /// The host at hand will not do: goes on with the next one, if that is how far it had come.
    fn next_host(&mut self, down: Down, lines: &mut Lines, place: &Place) -> News {
        if self.up || self.host + 1 == place.hosts.len() {
            return News::Down(down);
        }
        self.host += 1;
        self.again(lines, place)
    }

    fn again(&mut self, lines: &mut Lines, place: &Place) -> News {
        self.phases = Phases::default();
        self.requester = None;
        self.since = lines.now();
        lines.open(self.key, &place.hosts[self.host].0);
        News::Nothing
    }
}

/// The kind of an error that a server gave.
pub(super) fn kind_of(error: &SqlError) -> ErrorKind {
    sqlstate(error.code())
}

fn sqlstate(code: &str) -> ErrorKind {
    ErrorKind(format!("sqlstate {code}").into())
}
