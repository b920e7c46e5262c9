//! A run: the engine's orders on one side, links on the other, and between them what each operation does. Decides nothing about when
//! something begins, or has taken too long.

use std::{cmp::Reverse, collections::BinaryHeap};

use driver::{Event, Lines};
use pool::Time;
use postgres_session::{MAX_PREPARED, Parameters, TransactionStatus};

use super::{
    cancel::Cancels,
    link::{Link, News, kind_of},
    place::Place,
};
use crate::{
    engine::{ConnId, Engine, Order, Outcome},
    plan::{MAX_CONNECTIONS, QueryProtocol},
    record::ErrorKind,
    script::{Client, Scripts, Statement, Step},
    target::{
        Surroundings, TargetError,
        on_lines::{OnLines, drive, key_of, no_going_on},
    },
};

/// Clients of one run.
const MAX_CLIENTS: usize = 1_000_000;
/// See the module.
pub(super) struct Run<'a> {
    place: &'a Place,
    scripts: &'a Scripts,
    protocol: QueryProtocol,
    lines: Lines,
    conns: Vec<Option<Conn>>,
    clients: Vec<Option<Client>>,
    /// Operations that pause; at most one for each connection that is open, and those that were closed while they paused.
    pauses: BinaryHeap<Reverse<(Time, u32, u64)>>,
    /// Numbers operations, so that a pause finds out whether its own is still under way.
    serial: u64,
    out: Vec<u8>,
    parameters: Parameters,
    cancels: Cancels,
    /// Why the last connection that could not be made was not.
    refusal: Option<String>,
}

struct Conn {
    link: Link,
    work: Work,
}

/// What a connection is doing.
enum Work {
    /// It is being made.
    Making,
    /// Nothing.
    Idle,
    /// An operation for this client; `asked`: the number of the statement whose row is wanted.
    Operation { client: u32, serial: u64, asked: Option<u32> },
    /// The transaction that a failed operation has left is being rolled back.
    Tidying { error: ErrorKind },
    /// It has failed, or waits to be closed.
    Gone,
}

impl<'a> Run<'a> {
    /// Nothing is open yet.
    ///
    /// # Errors
    /// The machine has no descriptors left.
    pub(super) fn new(
        place: &'a Place,
        scripts: &'a Scripts,
        protocol: QueryProtocol,
        around: &Surroundings<'_>,
    ) -> Result<Self, TargetError> {
        if protocol == QueryProtocol::Prepared && scripts.statements() > MAX_PREPARED {
            let message = format!("the scripts have more than {MAX_PREPARED} statements to prepare");
            return Err(TargetError::configuration(message));
        }
        Ok(Self {
            place,
            scripts,
            protocol,
            lines: Lines::new(around.origin).map_err(|error| no_going_on(&error))?,
            conns: Vec::new(),
            clients: Vec::new(),
            pauses: BinaryHeap::new(),
            serial: 0,
            out: Vec::new(),
            parameters: Parameters::default(),
            cancels: Cancels::default(),
            refusal: None,
        })
    }

    /// Carries out orders until there will be no more.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(super) fn run(&mut self, engine: &mut Engine, around: &mut Surroundings<'_>) -> Result<(), TargetError> {
        drive(self, engine, around)?;
        self.cancels.finish();
        Ok(())
    }

    /// Why the last connection that could not be made was not, for people.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn connect(&mut self, conn: ConnId, now: Time) {
        let index = conn.0 as usize;
        assert!(conn.0 < MAX_CONNECTIONS, "connections have small numbers");
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        // What was there has failed, which the engine knows.
        let before = self.conns[index]
            .replace(Conn { link: Link::open(conn.0, &mut self.lines, self.place, now), work: Work::Making });
        assert!(before.is_none_or(|before| matches!(before.work, Work::Gone)), "a number stands for one connection");
    }

    fn begin(&mut self, conn: ConnId, client: u32, engine: &mut Engine, now: Time) {
        let index = client as usize;
        assert!(index < MAX_CLIENTS, "clients have small numbers");
        if index >= self.clients.len() {
            self.clients.resize_with(index + 1, || None);
        }
        let scripts = self.scripts;
        self.clients[index].get_or_insert_with(|| scripts.client(client)).begin(scripts);
        self.serial += 1;
        let serial = self.serial;
        let work = &mut self.conn(conn).work;
        assert!(matches!(work, Work::Idle), "an operation runs where nothing else does");
        *work = Work::Operation { client, serial, asked: None };
        self.go_on(conn, engine, now);
    }

    /// Takes an operation to its next statement, pause, or end.
    fn go_on(&mut self, conn: ConnId, engine: &mut Engine, now: Time) {
        let scripts = self.scripts;
        let Work::Operation { client, serial, .. } = self.conn(conn).work else {
            unreachable!("an operation is under way")
        };
        match self.clients[client as usize].as_mut().expect("the client has begun").next(scripts) {
            Step::Send(statement) => {
                if let Err(error) = self.ask(conn, client, statement) {
                    self.end(conn, Some(error), engine, now);
                }
            }
            Step::Ask(_) => unreachable!("a script for PostgreSQL holds SQL"),
            Step::Sleep(pause) => self.pauses.push(Reverse((now + pause, conn.0, serial))),
            Step::End => self.end(conn, None, engine, now),
            Step::Failed(error) => self.end(conn, Some(error), engine, now),
        }
    }

    fn ask(&mut self, conn: ConnId, client: u32, statement: &Statement) -> Result<(), ErrorKind> {
        let Self { scripts, conns, clients, out, parameters, lines, protocol, .. } = self;
        let client = clients[client as usize].as_ref().expect("the client has begun");
        let Conn { link, work } = conns[conn.0 as usize].as_mut().expect("the connection is there");
        let requester = link.requester();
        out.clear();
        if *protocol == QueryProtocol::Simple {
            requester.query_with(out, |to| client.write_query(scripts, statement, to))?;
        } else {
            parameters.clear();
            for parameter in 0..statement.parameters() {
                parameters.push(|to| client.write_parameter(scripts, statement, parameter, to))?;
            }
            match protocol {
                QueryProtocol::Prepared => requester.prepared(statement.number(), statement.text(), parameters, out),
                _ => requester.extended(statement.text(), parameters, out),
            }
        }
        let asked = statement.gset().map(|_| statement.number());
        if asked.is_some() {
            requester.keep_row();
        }
        if let Work::Operation { asked: place, .. } = work {
            *place = asked;
        }
        lines.send(conn.0, out);
        Ok(())
    }

    fn answered(&mut self, conn: ConnId, engine: &mut Engine, now: Time) {
        let open = self.conns[conn.0 as usize].as_mut().expect("the connection is there");
        let answer = open.link.requester().answer();
        match &mut open.work {
            Work::Operation { client, asked, .. } => {
                let error = match (&answer.error, asked.take()) {
                    (Some(error), _) => {
                        engine.heard(&error.to_string());
                        Some(kind_of(error))
                    }
                    (None, None) => None,
                    (None, Some(number)) => {
                        let client = self.clients[*client as usize].as_mut().expect("the client has begun");
                        take_row(answer, client, self.scripts, number).err()
                    }
                };
                match error {
                    Some(error) => self.end(conn, Some(error), engine, now),
                    None => self.go_on(conn, engine, now),
                }
            }
            Work::Tidying { .. } => {
                let reusable = answer.status == TransactionStatus::Idle;
                let Work::Tidying { error, .. } = std::mem::replace(&mut open.work, Work::Idle) else {
                    unreachable!("it was tidying")
                };
                engine.ended(conn, Outcome { error: Some(error), reusable }, now);
            }
            Work::Making | Work::Idle | Work::Gone => unreachable!("only what was asked is answered"),
        }
    }

    /// An operation has ended. A transaction that it has left open is rolled back before the connection is used again.
    fn end(&mut self, conn: ConnId, error: Option<ErrorKind>, engine: &mut Engine, now: Time) {
        let Self { conns, lines, out, .. } = self;
        let open = conns[conn.0 as usize].as_mut().expect("the connection is there");
        if open.link.requester().transaction() == TransactionStatus::Idle {
            open.work = Work::Idle;
            // What has said goodbye behind the answer takes no other request.
            let reusable = open.link.requester().farewell().is_none();
            return engine.ended(conn, Outcome { error, reusable }, now);
        }
        let error = error.unwrap_or_else(|| ErrorKind("script: it leaves a transaction open".into()));
        open.work = Work::Tidying { error };
        out.clear();
        open.link.requester().query("ROLLBACK", out);
        lines.send(conn.0, out);
    }

    fn conn(&mut self, conn: ConnId) -> &mut Conn {
        self.conns[conn.0 as usize].as_mut().expect("the connection is there")
    }
}

impl OnLines for Run<'_> {
    fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    fn obey(&mut self, engine: &mut Engine, now: Time) {
        while let Some(order) = engine.poll_order(now) {
            match order {
                Order::Connect(conn) => self.connect(conn, now),
                Order::Run { conn, client } => self.begin(conn, client, engine, now),
                Order::Close(conn) => {
                    let gone = self.conns[conn.0 as usize].take().expect("only what was opened is closed");
                    if !matches!(gone.work, Work::Gone) {
                        gone.link.close(&mut self.lines, self.place, &self.cancels);
                    }
                    engine.closed(conn, now);
                }
            }
        }
    }

    fn happened(&mut self, event: Event, engine: &mut Engine) -> Time {
        let Self { conns, lines, place, out, .. } = self;
        let (key, news) = match event {
            Event::Received { key, bytes } => {
                let link = &mut conns[key as usize].as_mut().expect("only open connections receive").link;
                let news = link.received(&bytes, lines, place, out);
                lines.done(bytes);
                (key, news)
            }
            other => {
                let key = key_of(&other);
                let link = &mut conns[key as usize].as_mut().expect("only open connections are told of").link;
                (key, link.happened(other, lines, place, out))
            }
        };
        let now = lines.now();
        let conn = ConnId(key);
        match news {
            News::Nothing => {}
            News::Up => {
                let open = self.conn(conn);
                open.work = Work::Idle;
                let phases = *open.link.phases();
                engine.connected(conn, &phases, now);
            }
            News::Answered => self.answered(conn, engine, now),
            News::Down(down) => match std::mem::replace(&mut self.conn(conn).work, Work::Gone) {
                Work::Making => {
                    engine.heard(&down.message);
                    self.refusal = Some(down.message);
                    engine.connect_failed(conn, down.kind, down.permanent, now);
                }
                Work::Idle | Work::Operation { .. } => {
                    engine.heard(&down.message);
                    engine.lost(conn, down.kind, now);
                }
                // What it failed for first is what counts.
                Work::Tidying { error, .. } => engine.lost(conn, error, now),
                Work::Gone => unreachable!("nothing happens to what is gone"),
            },
        }
        now
    }

    fn next_pause(&self) -> Option<Time> {
        self.pauses.peek().map(|Reverse((end, ..))| *end)
    }

    fn end_pauses(&mut self, engine: &mut Engine, now: Time) {
        while let Some(Reverse((end, key, serial))) = self.pauses.peek().copied() {
            if end > now {
                return;
            }
            self.pauses.pop();
            let own = |conn: &Conn| matches!(conn.work, Work::Operation { serial: own, .. } if own == serial);
            if self.conns[key as usize].as_ref().is_some_and(own) {
                self.go_on(ConnId(key), engine, now);
            }
        }
    }
}

/// Gives the row of a statement with `\gset` to the variables.
fn take_row(
    answer: &postgres_session::Answer,
    client: &mut Client,
    scripts: &Scripts,
    number: u32,
) -> Result<(), ErrorKind> {
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
