//! A run: the engine's orders on one side, links on the other, and between them what each operation does. Decides nothing about when
//! something begins, or has taken too long.

use std::{cmp::Reverse, collections::BinaryHeap};

use driver::{Event, Lines};
use pool::Time;

use super::{Link, News};
use crate::{
    engine::{ConnId, Engine, Order, Outcome},
    plan::MAX_CONNECTIONS,
    record::ErrorKind,
    script::{Client, Request, Scripts, Step, Turn},
    target::{
        Surroundings, TargetError,
        on_lines::{OnLines, drive, key_of, no_going_on},
    },
};

/// Clients of one run.
const MAX_CLIENTS: usize = 1_000_000;

/// See the module.
pub(in crate::target) struct Run<'a, L: Link> {
    place: &'a L::Place,
    scripts: &'a Scripts,
    lines: Lines,
    conns: Vec<Option<Conn<L>>>,
    clients: Vec<Option<Client>>,
    /// Operations that pause; at most one for each connection that is open, and those that were closed while they paused.
    pauses: BinaryHeap<Reverse<(Time, u32, u64)>>,
    /// Numbers operations, so that a pause finds out whether its own is still under way.
    serial: u64,
    out: Vec<u8>,
    /// Why the last connection that could not be made was not.
    refusal: Option<String>,
}

struct Conn<L> {
    link: L,
    work: Work,
    /// A transaction is open, or keys are watched.
    bound: bool,
}

/// What a connection is doing.
#[derive(Clone, Copy)]
enum Work {
    /// It is being made.
    Making,
    /// Nothing.
    Idle,
    /// An operation for this client; `turn`: what its present command means to the connection.
    Operation { client: u32, serial: u64, turn: Turn },
    /// It has failed, or waits to be closed.
    Gone,
}

impl<'a, L: Link> Run<'a, L> {
    /// Nothing is open yet.
    ///
    /// # Errors
    /// The machine has no descriptors left.
    pub(in crate::target) fn new(
        place: &'a L::Place,
        scripts: &'a Scripts,
        around: &Surroundings<'_>,
    ) -> Result<Self, TargetError> {
        Ok(Self {
            place,
            scripts,
            lines: Lines::new(around.origin).map_err(|error| no_going_on(&error))?,
            conns: Vec::new(),
            clients: Vec::new(),
            pauses: BinaryHeap::new(),
            serial: 0,
            out: Vec::new(),
            refusal: None,
        })
    }

    /// Carries out orders until there will be no more.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub(in crate::target) fn run(
        &mut self,
        engine: &mut Engine,
        around: &mut Surroundings<'_>,
    ) -> Result<(), TargetError> {
        drive(self, engine, around)
    }

    /// Why the last connection that could not be made was not, for people.
    pub(in crate::target) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn connect(&mut self, conn: ConnId, now: Time) {
        let index = conn.0 as usize;
        assert!(conn.0 < MAX_CONNECTIONS, "connections have small numbers");
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        let link = L::open(conn.0, &mut self.lines, self.place, now);
        // What was there has failed, which the engine knows.
        let before = self.conns[index].replace(Conn { link, work: Work::Making, bound: false });
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
        *work = Work::Operation { client, serial, turn: Turn::Plain };
        self.go_on(conn, engine, now);
    }

    /// Takes an operation to its next command, pause, or end.
    fn go_on(&mut self, conn: ConnId, engine: &mut Engine, now: Time) {
        let scripts = self.scripts;
        let Work::Operation { client, serial, .. } = self.conn(conn).work else {
            unreachable!("an operation is under way")
        };
        match self.clients[client as usize].as_mut().expect("the client has begun").next(scripts) {
            Step::Ask(request) => {
                if let Err(error) = self.ask(conn, client, request) {
                    self.end(conn, Some(error), engine, now);
                }
            }
            Step::Sleep(pause) => self.pauses.push(Reverse((now + pause, conn.0, serial))),
            Step::End => self.end(conn, None, engine, now),
            Step::Failed(error) => self.end(conn, Some(error), engine, now),
            Step::Send(_) => unreachable!("a script of commands holds no SQL"),
        }
    }

    fn ask(&mut self, conn: ConnId, client: u32, request: &Request) -> Result<(), ErrorKind> {
        let Self { scripts, conns, clients, out, lines, .. } = self;
        let client = clients[client as usize].as_ref().expect("the client has begun");
        let Conn { link, work, .. } = conns[conn.0 as usize].as_mut().expect("the connection is there");
        out.clear();
        link.ask(request, client, scripts, out)?;
        if let Work::Operation { turn, .. } = work {
            *turn = request.turn();
        }
        lines.send(conn.0, out);
        Ok(())
    }

    fn answered(&mut self, conn: ConnId, engine: &mut Engine, now: Time) {
        let open = self.conn(conn);
        let error = open.link.error().map(|(kind, text)| {
            engine.heard(&text);
            kind
        });
        let Work::Operation { turn, .. } = open.work else { unreachable!("only what was asked is answered") };
        match (turn, &error) {
            (Turn::Begins, None) => open.bound = true,
            (Turn::Ends, None) => open.bound = false,
            _ => {}
        }
        match error {
            Some(error) => self.end(conn, Some(error), engine, now),
            None => self.go_on(conn, engine, now),
        }
    }

    /// An operation has ended. A connection that it has left in a transaction is of no more use.
    fn end(&mut self, conn: ConnId, error: Option<ErrorKind>, engine: &mut Engine, now: Time) {
        let open = self.conn(conn);
        open.work = Work::Idle;
        let bound = std::mem::take(&mut open.bound);
        let left = bound.then(|| ErrorKind("script: it leaves a transaction open".into()));
        // What has said goodbye behind the answer takes no other command.
        let reusable = !bound && open.link.is_open();
        engine.ended(conn, Outcome { error: error.or(left), reusable }, now);
    }

    fn conn(&mut self, conn: ConnId) -> &mut Conn<L> {
        self.conns[conn.0 as usize].as_mut().expect("the connection is there")
    }
}

impl<L: Link> OnLines for Run<'_, L> {
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
                        gone.link.close(&mut self.lines);
                    }
                    engine.closed(conn, now);
                }
            }
        }
    }

    fn happened(&mut self, event: Event, engine: &mut Engine) -> Time {
        let Self { conns, lines, place, out, .. } = self;
        let key = key_of(&event);
        let link = &mut conns[key as usize].as_mut().expect("only open connections are told of").link;
        let news = match event {
            Event::Received { bytes, .. } => {
                let news = link.received(&bytes, lines, place, out);
                lines.done(bytes);
                news
            }
            other => link.happened(other, lines, place, out),
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
            let own = |conn: &Conn<L>| matches!(conn.work, Work::Operation { serial: own, .. } if own == serial);
            if self.conns[key as usize].as_ref().is_some_and(own) {
                self.go_on(ConnId(key), engine, now);
            }
        }
    }
}
