//! A run: carries out the engine's orders over clients of a database, and takes each operation from step to step. The
//! engine decides when something begins or has taken too long.

use std::{cmp::Reverse, collections::BinaryHeap};

use clients::{
    Cancels,
    client::{ClientProtocol, Progress, ProtocolConnection, wait_error},
    transport::{Event, Transport},
};
use pool::Time;

use super::{RunContext, TargetError, WATCH_INTERVAL, reserve_descriptors, start_error};
use crate::{
    engine::{ConnId, Engine, Order, Outcome},
    plan::{MAX_CONNECTIONS, Plan},
    record::ErrorKind,
    script::{ScriptClient, Scripts, Step},
};

/// Clients of one run.
const MAX_CLIENTS: usize = 1_000_000;

/// The server answered a request with an error.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    /// What the server said; `None`: the script itself is at fault.
    pub(super) said: Option<String>,
}

/// Operations of scripts over one connection: writes their requests and reads the answers.
pub(super) trait ScriptExchange: Clone {
    type Protocol: ClientProtocol;

    /// Appends the request of a step, with the values of the client's variables.
    ///
    /// # Errors
    /// A variable is not set.
    fn write_request(
        &mut self,
        requester: &mut Self::Protocol,
        step: &Step<'_>,
        values: (&ScriptClient, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind>;

    /// Reads the answer to the last request; a row that the script wants goes to the client's variables.
    ///
    /// # Errors
    /// The server refused the request, or its row does not fit the script.
    fn read_answer(
        &mut self,
        requester: &mut Self::Protocol,
        client: &mut ScriptClient,
        scripts: &Scripts,
    ) -> Result<(), Refusal>;

    /// A transaction is open, or keys are watched.
    fn in_transaction(&self, _requester: &Self::Protocol) -> bool {
        false
    }

    /// Appends a request that ends the open transaction; `false`: the protocol has none, and the connection is closed
    /// instead.
    fn roll_back(&self, _requester: &mut Self::Protocol, _out: &mut Vec<u8>) -> bool {
        false
    }
}

/// Carries out the engine's orders until it is done. Each connection gets a copy of `exchange`.
///
/// # Errors
/// What makes going on impossible, or kept the load from beginning.
pub(super) fn carry_out<O: ScriptExchange>(
    exchange: O,
    options: &<O::Protocol as ClientProtocol>::Options,
    scripts: &Scripts,
    plan: &Plan,
    engine: &mut Engine,
    mut context: RunContext<'_>,
) -> Result<(), TargetError> {
    reserve_descriptors(plan)?;
    let mut run = Run {
        exchange,
        options,
        scripts,
        transport: Transport::new(context.origin).map_err(|error| wait_error(&error))?,
        conns: Vec::new(),
        script_clients: Vec::new(),
        pauses: BinaryHeap::new(),
        count: 0,
        out: Vec::new(),
        cancels: Cancels::default(),
        refusal: None,
    };
    run.drive(engine, &mut context)?;
    run.cancels.finish();
    engine.failure().map_or(Ok(()), |failure| Err(start_error(failure, run.refusal.as_deref())))
}

struct Run<'a, O: ScriptExchange> {
    exchange: O,
    options: &'a <O::Protocol as ClientProtocol>::Options,
    scripts: &'a Scripts,
    transport: Transport,
    conns: Vec<Option<Conn<O>>>,
    script_clients: Vec<Option<ScriptClient>>,
    /// When pauses end, with connection and operation: at most one for each open connection, and those of connections
    /// that were closed during a pause.
    pauses: BinaryHeap<Reverse<(Time, u32, u64)>>,
    /// Counts operations, so that a pause is matched with its own.
    count: u64,
    out: Vec<u8>,
    cancels: Cancels,
    /// Why the last connection that failed to open did.
    refusal: Option<String>,
}

struct Conn<O: ScriptExchange> {
    client: ProtocolConnection<O::Protocol>,
    exchange: O,
    work: Work,
}

/// What a connection is doing.
enum Work {
    Connecting,
    Idle,
    Operation {
        client: u32,
        operation: u64,
    },
    /// A failed operation left a transaction open, which is being rolled back.
    RollingBack {
        error: ErrorKind,
    },
    /// It has failed, or waits to be closed.
    Gone,
}

impl<O: ScriptExchange> Run<'_, O> {
    /// Carries out orders until there will be no more.
    fn drive(&mut self, engine: &mut Engine, context: &mut RunContext<'_>) -> Result<(), TargetError> {
        let mut now = self.transport.now();
        let (mut next_watch, mut stopped, mut begun) = (now, false, false);
        loop {
            self.execute_orders(engine, now);
            if engine.is_done() {
                (context.watch)(engine, now);
                return Ok(());
            }
            // The relay must learn at once that the load begins.
            let begins = !begun && engine.measured_from().is_some();
            if now >= next_watch || begins {
                begun |= begins;
                (context.watch)(engine, now);
                next_watch = now + WATCH_INTERVAL;
                if context.is_stopped() && !stopped {
                    stopped = true;
                    engine.stop(now);
                    continue;
                }
            }
            let next_pause = self.pauses.peek().map(|Reverse((end, ..))| *end);
            let until = [engine.deadline(), next_pause, Some(next_watch)].into_iter().flatten().min();
            self.transport.wait(until).map_err(|error| wait_error(&error))?;
            while let Some(event) = self.transport.next() {
                now = self.on_event(event, engine);
                self.execute_orders(engine, now);
            }
            now = self.transport.now();
            self.end_pauses(engine, now);
        }
    }

    /// Carries out all orders that there are.
    fn execute_orders(&mut self, engine: &mut Engine, now: Time) {
        while let Some(order) = engine.poll_order(now) {
            match order {
                Order::Connect(conn) => self.connect(conn, now),
                Order::Run { conn, client } => self.begin(conn, client, engine, now),
                Order::Close(conn) => {
                    let gone = self.conns[conn.0 as usize].take().expect("only what was opened is closed");
                    if !matches!(gone.work, Work::Gone) {
                        gone.client.close(&mut self.transport, self.options, &self.cancels);
                    }
                    engine.closed(conn, now);
                }
            }
        }
    }

    fn connect(&mut self, conn: ConnId, now: Time) {
        let index = conn.0 as usize;
        assert!(conn.0 < MAX_CONNECTIONS, "connections have small numbers");
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        let client = ProtocolConnection::open(conn.0, &mut self.transport, self.options, now);
        // A connection with the same number before has failed, which the engine knows.
        let before =
            self.conns[index].replace(Conn { client, exchange: self.exchange.clone(), work: Work::Connecting });
        assert!(before.is_none_or(|before| matches!(before.work, Work::Gone)), "a number stands for one connection");
    }

    fn begin(&mut self, conn: ConnId, client: u32, engine: &mut Engine, now: Time) {
        let index = client as usize;
        assert!(index < MAX_CLIENTS, "clients have small numbers");
        if index >= self.script_clients.len() {
            self.script_clients.resize_with(index + 1, || None);
        }
        let scripts = self.scripts;
        self.script_clients[index].get_or_insert_with(|| scripts.client(client)).begin(scripts);
        self.count += 1;
        let operation = self.count;
        let work = &mut self.conn(conn).work;
        assert!(matches!(work, Work::Idle), "an operation runs where nothing else does");
        *work = Work::Operation { client, operation };
        self.advance(conn, engine, now);
    }

    /// Takes an operation to its next request, pause, or end.
    fn advance(&mut self, conn: ConnId, engine: &mut Engine, now: Time) {
        let Self { scripts, conns, script_clients, transport, out, .. } = self;
        let Conn { client, exchange, work } = conns[conn.0 as usize].as_mut().expect("the connection is there");
        let Work::Operation { client: number, operation } = work else { unreachable!("an operation is under way") };
        let script_client = script_clients[*number as usize].as_mut().expect("the client has begun");
        match script_client.next(scripts) {
            step @ (Step::Send(_) | Step::Request(_)) => {
                out.clear();
                match exchange.write_request(client.protocol(), &step, (script_client, scripts), out) {
                    Ok(()) => transport.send(conn.0, out),
                    Err(error) => self.end(conn, Some(error), engine, now),
                }
            }
            Step::Sleep(pause) => self.pauses.push(Reverse((now + pause, conn.0, *operation))),
            Step::End => self.end(conn, None, engine, now),
            Step::Failed(error) => self.end(conn, Some(error), engine, now),
        }
    }

    fn answered(&mut self, conn: ConnId, engine: &mut Engine, now: Time) {
        let Conn { client, exchange, work } = self.conns[conn.0 as usize].as_mut().expect("the connection is there");
        match work {
            Work::Operation { client: number, .. } => {
                let script_client = self.script_clients[*number as usize].as_mut().expect("the client has begun");
                match exchange.read_answer(client.protocol(), script_client, self.scripts) {
                    Ok(()) => self.advance(conn, engine, now),
                    Err(Refusal { kind, said }) => {
                        said.iter().for_each(|said| engine.note_error_text(said));
                        self.end(conn, Some(kind), engine, now);
                    }
                }
            }
            Work::RollingBack { .. } => {
                let reusable = !exchange.in_transaction(client.protocol());
                let Work::RollingBack { error } = std::mem::replace(work, Work::Idle) else {
                    unreachable!("it was rolling back")
                };
                engine.ended(conn, Outcome { error: Some(error), reusable }, now);
            }
            Work::Connecting | Work::Idle | Work::Gone => unreachable!("only a request is answered"),
        }
    }

    /// Ends an operation. A transaction that it has left open is rolled back before the connection is used again.
    fn end(&mut self, conn: ConnId, error: Option<ErrorKind>, engine: &mut Engine, now: Time) {
        let Self { conns, transport, out, .. } = self;
        let Conn { client, exchange, work } = conns[conn.0 as usize].as_mut().expect("the connection is there");
        *work = Work::Idle;
        if !exchange.in_transaction(client.protocol()) {
            return engine.ended(conn, Outcome { error, reusable: client.is_open() }, now);
        }
        let error = error.unwrap_or_else(|| ErrorKind("script: it leaves a transaction open".into()));
        out.clear();
        if exchange.roll_back(client.protocol(), out) {
            *work = Work::RollingBack { error };
            transport.send(conn.0, out);
        } else {
            engine.ended(conn, Outcome { error: Some(error), reusable: false }, now);
        }
    }

    /// Takes an event of a connection. Returns the time.
    fn on_event(&mut self, event: Event, engine: &mut Engine) -> Time {
        let Self { conns, transport, options, out, .. } = self;
        let key = event.key();
        let client = &mut conns[key as usize].as_mut().expect("only open connections have events").client;
        let progress = match event {
            Event::Received { bytes, .. } => {
                let progress = client.on_received(&bytes, transport, options, out);
                transport.give_back(bytes);
                progress
            }
            other => client.on_event(other, transport, options, out),
        };
        let now = transport.now();
        let conn = ConnId(key);
        match progress {
            Progress::Nothing => {}
            Progress::Ready => {
                let open = self.conn(conn);
                open.work = Work::Idle;
                let phases = *open.client.phases();
                engine.connected(conn, &phases, now);
            }
            Progress::Answered => self.answered(conn, engine, now),
            Progress::Closed(why) => match std::mem::replace(&mut self.conn(conn).work, Work::Gone) {
                Work::Connecting => {
                    engine.note_error_text(&why.message);
                    self.refusal = Some(why.message);
                    engine.connect_failed(conn, why.kind, why.permanent, now);
                }
                Work::Idle | Work::Operation { .. } => {
                    engine.note_error_text(&why.message);
                    engine.lost(conn, why.kind, now);
                }
                // The error before the rollback is the one that counts.
                Work::RollingBack { error } => engine.lost(conn, error, now),
                Work::Gone => unreachable!("a closed connection has no events"),
            },
        }
        now
    }

    /// Goes on with operations whose pause is over.
    fn end_pauses(&mut self, engine: &mut Engine, now: Time) {
        while let Some(Reverse((end, key, paused))) = self.pauses.peek().copied() {
            if end > now {
                return;
            }
            self.pauses.pop();
            let is_paused =
                |conn: &Conn<O>| matches!(conn.work, Work::Operation { operation, .. } if operation == paused);
            if self.conns[key as usize].as_ref().is_some_and(is_paused) {
                self.advance(ConnId(key), engine, now);
            }
        }
    }

    fn conn(&mut self, conn: ConnId) -> &mut Conn<O> {
        self.conns[conn.0 as usize].as_mut().expect("the connection is there")
    }
}
