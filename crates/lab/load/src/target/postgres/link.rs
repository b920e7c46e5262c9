//! A connection to PostgreSQL: protocol 3 over a line of the driver, with the times of its phases. Tries the hosts of
//! the URL in turn.

use driver::{Event, LineError, LineFault, Lines};
use pool::Time;
use postgres_session::{Answer, Fault, Parameters, Requester, SqlError, TransactionStatus, Verdict};

use super::{
    super::{
        cancel::Cancels,
        link::{self, CLOSED, Down, News, Refusal, Stopwatch, VIOLATION},
    },
    place::Place,
};
use crate::{
    plan::QueryProtocol,
    record::{ErrorKind, Phases},
    script::{Client, Scripts, Step},
};

pub(super) struct Link {
    key: u32,
    /// Index of the host that is tried.
    host: usize,
    stopwatch: Stopwatch,
    up: bool,
    detoured: bool,
    requester: Option<Requester>,
    /// Memory for the parameters of the statement at hand.
    parameters: Parameters,
    /// Number of the statement at hand, if the script wants its row.
    wants_row: Option<u32>,
}

impl link::Link for Link {
    type Place = Place;

    fn open(key: u32, lines: &mut Lines, place: &Place, now: Time) -> Self {
        lines.open(key, &place.hosts[0].address);
        Self {
            key,
            host: 0,
            stopwatch: Stopwatch::start(now),
            up: false,
            detoured: false,
            requester: None,
            parameters: Parameters::default(),
            wants_row: None,
        }
    }

    fn phases(&self) -> &Phases {
        &self.stopwatch.phases
    }

    fn close(mut self, lines: &mut Lines, place: &Place, cancels: &Cancels) {
        let mut out = Vec::new();
        match self.requester.as_mut().filter(|_| self.up) {
            Some(requester) if requester.is_asking() => {
                requester.write_cancel(&mut out);
                if !out.is_empty() {
                    cancels.send(&place.hosts[self.host].address, out);
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

    fn ask(
        &mut self,
        step: &Step<'_>,
        place: &Place,
        (client, scripts): (&Client, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        let Step::Send(statement) = step else { unreachable!("a script of SQL holds no commands") };
        let Self { parameters, requester, wants_row, .. } = self;
        let requester = requester.as_mut().expect("a connection that is up has logged in");
        if place.protocol == QueryProtocol::Simple {
            requester.query_with(out, |to| client.write_query(scripts, statement, to))?;
        } else {
            parameters.clear();
            for parameter in 0..statement.parameters() {
                parameters.push(|to| client.write_parameter(scripts, statement, parameter, to))?;
            }
            match place.protocol {
                QueryProtocol::Prepared => requester.prepared(statement.number(), statement.text(), parameters, out),
                _ => requester.extended(statement.text(), parameters, out),
            }
        }
        *wants_row = statement.gset().map(|_| statement.number());
        if wants_row.is_some() {
            requester.keep_row();
        }
        Ok(())
    }

    fn read_answer(&mut self, client: &mut Client, scripts: &Scripts) -> Result<(), Refusal> {
        let wants_row = self.wants_row.take();
        let answer = self.requester().answer();
        if let Some(error) = &answer.error {
            return Err(Refusal { kind: kind_of(error), said: Some(error.to_string()) });
        }
        let Some(number) = wants_row else { return Ok(()) };
        take_row(answer, client, scripts, number).map_err(|kind| Refusal { kind, said: None })
    }

    fn in_transaction(&self) -> bool {
        self.requester.as_ref().is_some_and(|requester| requester.transaction() != TransactionStatus::Idle)
    }

    fn roll_back(&mut self, out: &mut Vec<u8>) -> bool {
        self.requester().query("ROLLBACK", out);
        true
    }

    fn is_open(&self) -> bool {
        self.requester.as_ref().is_none_or(|requester| requester.farewell().is_none())
    }
}

impl Link {
    /// The protocol's state, once the connection is up.
    pub(super) fn requester(&mut self) -> &mut Requester {
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
pub(super) fn kind_of(error: &SqlError) -> ErrorKind {
    sqlstate(error.code())
}

fn sqlstate(code: &str) -> ErrorKind {
    ErrorKind(format!("sqlstate {code}").into())
}

/// Gives the row of a statement with `\gset` to the client's variables.
fn take_row(answer: &Answer, client: &mut Client, scripts: &Scripts, number: u32) -> Result<(), ErrorKind> {
    let row = match (answer.row(), answer.last_rows) {
        (Some(row), 1) => row,
        _ => return Err(ErrorKind("script: \\gset needs exactly one row".into())),
    };
    let mut statements = scripts.programs().iter().flat_map(|program| program.statements());
    let statement = statements.find(|statement| statement.number() == number).expect("the statement was just sent");
    for (name, value) in row {
        client.take_column(scripts, statement, name, value.as_deref().map(str::as_bytes))?;
    }
    Ok(())
}
