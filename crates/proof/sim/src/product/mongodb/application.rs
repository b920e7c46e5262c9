//! An application with a driver: it carries out one task after another, over up to three connections. It retries as the
//! drivers' specifications allow ("Retryable Writes", "Transactions", "Load Balancers"), and checks the answers and the
//! rows in the database.

mod answer_check;
mod await_cleanup;
mod cursor_read;
mod driver_connection;
mod end_session;
mod expected_rows;
mod outcome;
mod tailable_read;
mod task;
mod transaction;
mod write;

use std::time::Duration;

use mongodb_session::{ServerLogin, bson::Writer, wire};
use pool::Time;

use self::{
    answer_check::{AnswerCheck, Next},
    await_cleanup::AwaitCleanup,
    cursor_read::CursorRead,
    driver_connection::{DriverConnection, Event},
    end_session::EndSession,
    expected_rows::{ExpectedRows, Row},
    outcome::Outcome,
    tailable_read::TailableRead,
    task::Task,
    transaction::{End, Statement, Transaction},
    write::Write,
};
use crate::{
    databases::mongodb::{ASKED, FIRST_ID, HOT, Kind, MongoDb},
    network::EndId,
    product::{database_server::elapsed, environment::Environment, self_checking_client::SelfCheckingClient},
    random::Rng,
};

const MAX_CONNECTIONS: usize = 3;

/// The longest that an answer may take: longer than any configured time-out.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(100);

/// How often an application checks for answers that are overdue.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

pub struct Profile {
    pub number: usize,
    pub user: usize,
    pub login: Option<ServerLogin>,
    /// Its driver is configured for a load balancer (`loadBalanced=true`).
    pub balanced: bool,
    pub kind: Kind,
    pub tasks: u64,
    /// Mean time between tasks.
    pub pause: Duration,
    /// It writes to the hot collection, which transactions lock.
    pub hot: bool,
    /// It never vanishes during a task.
    pub never_vanishes: bool,
    /// The number from which the ids of its sessions are derived.
    pub session_seed: usize,
}

pub struct Application {
    profile: Profile,
    rng: Rng,
    connections: Vec<DriverConnection>,
    wake: Time,
    session: [u8; 16],
    /// Number of sessions so far.
    sessions: u64,
    last_number: i64,
    last_id: i32,
    last_row: u32,
    rows: ExpectedRows,
    task: Option<Task>,
    /// The connection of the last command.
    last_connection: Option<EndId>,
    pending: Option<PendingRequest>,
    /// A connection that has to be ready before the next command.
    opening: Option<EndId>,
    /// It begins no further task.
    retired: bool,
    /// All requests, for the message of a failed check.
    sent_log: Vec<String>,
}

struct PendingRequest {
    end: EndId,
    /// The id that the next answer refers to.
    id: i32,
    /// Rows of earlier answers, if more answers follow (`moreToCome`).
    read: Vec<String>,
    since: Time,
    faults: u64,
}

impl Application {
    pub fn new(profile: Profile, mut rng: Rng) -> Self {
        let wake = Time(rng.below(50_000_000));
        let last_id = FIRST_ID + (profile.number % 1000) as i32 * 1_000_000;
        let mut made = Self {
            profile,
            rng,
            connections: Vec::new(),
            wake,
            session: [0; 16],
            sessions: 0,
            last_number: 0,
            last_id,
            last_row: 0,
            rows: ExpectedRows::default(),
            task: None,
            last_connection: None,
            pending: None,
            opening: None,
            retired: false,
            sent_log: Vec::new(),
        };
        made.begin_session();
        made
    }

    fn begin_session(&mut self) {
        let mut rng = Rng::new((self.profile.session_seed as u64) << 20 | self.sessions);
        self.sessions += 1;
        self.last_number = 0;
        self.session = (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_le_bytes();
        self.session[..4].copy_from_slice(b"app ");
    }

    fn ledger_name(&self) -> String {
        format!("rows.a{}", self.profile.number)
    }

    fn new_row(&mut self, collection: String) -> Row {
        self.last_row += 1;
        (collection, format!("{}of{}", self.last_row, self.profile.number))
    }

    /// Draws the next row.
    fn draw_row(&mut self) -> Row {
        let hot = self.profile.hot && self.rng.percent(30);
        let collection = if hot { HOT.to_owned() } else { self.ledger_name() };
        self.new_row(collection)
    }

    fn draw_task(&mut self) -> Task {
        let kind = self.profile.kind;
        let lot = self.rng.below(11);
        match lot {
            10 => Task::EndSession(EndSession::new((self.profile.user, self.session), self.rng.percent(60))),
            0 | 1 => {
                let modes = ["primary", "secondaryPreferred", "nearest", "secondary"];
                let (label, mode) = (self.new_row(String::new()).1, self.rng.pick(&modes));
                let (count, size) = (self.rng.index(9), self.rng.below(4) as i32);
                let exhausts = self.rng.percent(30);
                Task::Read(CursorRead::new(label, count, size, mode, exhausts))
            }
            2 if self.rng.percent(40) => {
                let collection = if self.profile.hot { HOT.to_owned() } else { self.ledger_name() };
                let (mode, rounds) = (self.rng.pick(&["primary", "secondaryPreferred", "nearest"]), self.rng.below(4));
                Task::Tail(TailableRead::new(collection, mode, rounds as u32, 1 + self.rng.below(30) as i64))
            }
            2..=4 => {
                let row = self.draw_row();
                let numbered = kind != Kind::Standalone && self.rng.percent(80);
                self.last_number += i64::from(numbered);
                let quick = self.rng.percent(30);
                Task::Write(Write::new(row, numbered.then_some(self.last_number), quick))
            }
            _ if kind == Kind::Standalone => {
                let row = self.draw_row();
                Task::Write(Write::new(row, None, false))
            }
            _ => {
                let statements = (0..1 + self.rng.below(4)).map(|_| match self.rng.percent(30) {
                    true => Statement::Read(self.ledger_name()),
                    false => Statement::Write(self.draw_row()),
                });
                let statements = statements.collect();
                let ends = [End::Commit, End::Commit, End::Commit, End::CommitTwice, End::Abort, End::Nothing];
                // A forgotten transaction would block the hot collection until it expires.
                let ends = if self.profile.hot { &ends[..5] } else { &ends[..] };
                self.last_number += 1;
                let sharded = kind == Kind::Sharded;
                Task::Transaction(Transaction::new(statements, self.rng.pick(ends), sharded, self.last_number))
            }
        }
    }

    /// Sends the next command of the task, over a connection that may have to be opened first.
    fn ask(&mut self, env: &Environment<'_, MongoDb>) {
        let Some(task) = &self.task else { return };
        if self.pending.is_some() || self.opening.is_some() {
            return;
        }
        let bound = self.last_connection.filter(|_| self.profile.balanced && task.is_bound());
        let chosen = match bound {
            Some(end) => self.connections.iter().position(|connection| connection.end == end),
            None => Some(self.rng.index(MAX_CONNECTIONS)),
        };
        // The task was bound to a connection that is gone, and its state with it.
        let Some(chosen) = chosen else { return self.on_outcome(Outcome::Lost("it was pinned".into()), true, env) };
        if chosen >= self.connections.len() {
            let connection = DriverConnection::open(env.network, self.profile.login.clone(), self.profile.balanced);
            self.opening = Some(connection.end);
            self.connections.push(connection);
            self.connections.last_mut().expect("it was just opened").flush(env.network);
            return;
        }
        self.send(chosen, env);
    }

    fn send(&mut self, chosen: usize, env: &Environment<'_, MongoDb>) {
        let Some(task) = &self.task else { return };
        self.last_id += 1;
        let (id, session) = (self.last_id, self.session);
        let mut document = Vec::new();
        {
            let mut body = Writer::new(&mut document);
            task.command(&mut body);
            body.document("lsid", |lsid| _ = lsid.uuid("id", session)).int64(ASKED, elapsed(env.now).as_nanos() as i64);
            body.text("$db", task.database());
        }
        let mut message = Vec::new();
        wire::request_with(&mut message, id, &document);
        if task.exhausts() {
            message[16..20].copy_from_slice(&wire::EXHAUST_ALLOWED.to_le_bytes());
        }
        let connection = &mut self.connections[chosen];
        if env.trace {
            let (now, number) = (env.now.0 as f64 / 1e9, self.profile.number);
            println!("{now:>12.6}   application {number} over {}: {}", connection.end, message.escape_ascii());
        }
        self.sent_log.push(format!("over {}: {}", connection.end, message.escape_ascii()));
        let faults = env.faults - env.lingering_faults;
        self.pending = Some(PendingRequest { end: connection.end, id, read: Vec::new(), since: env.now, faults });
        self.last_connection = Some(connection.end);
        connection.send(env.network, &message);
    }

    /// Handles the outcome of the last command.
    fn on_outcome(&mut self, outcome: Outcome, after_fault: bool, env: &Environment<'_, MongoDb>) {
        let Some(task) = &mut self.task else { return };
        let mut check = AnswerCheck {
            rows: &mut self.rows,
            product_database: env.product_database,
            after_fault,
            rng: &mut self.rng,
            last_number: &mut self.last_number,
        };
        let next = task.on_outcome(outcome, &mut check);
        match next {
            Next::Send(pause) => self.wake = env.now + pause,
            Next::Done => {
                if let Some(Task::EndSession(_)) = self.task.take() {
                    self.begin_session();
                }
                self.wake = env.now + self.rng.exponential(self.profile.pause);
                self.rows.check(env.product_database);
            }
        }
        self.pending = None;
    }

    /// Closes all connections, even during a task.
    fn vanish(&mut self, env: &Environment<'_, MongoDb>) {
        let pending = self.pending.take().is_some();
        for connection in std::mem::take(&mut self.connections) {
            if self.rng.percent(20) {
                env.network.reset(connection.end);
            }
            env.network.close(connection.end);
        }
        self.opening = None;
        if env.trace {
            println!("{:>12.6}   application {} has gone", env.now.0 as f64 / 1e9, self.profile.number);
        }
        let (user, session) = (self.profile.user, self.session);
        let task = self.task.take().map(|mut task| task.vanish(pending, &mut self.rows));
        self.begin_session();
        if self.profile.balanced && task.is_some() && self.profile.tasks > 0 {
            self.task = Some(Task::AwaitCleanup(AwaitCleanup::new(user, session)));
        }
        self.wake = env.now + self.rng.exponential(Duration::from_millis(5));
    }

    fn describe(&self) -> String {
        format!("{}\napplication {}", self.sent_log.join("\n"), self.profile.number)
    }
}

impl SelfCheckingClient<MongoDb> for Application {
    fn wake(&self) -> Time {
        self.wake
    }

    fn act(&mut self, env: &Environment<'_, MongoDb>) {
        self.wake = env.now + RECHECK_INTERVAL;
        if let Some(pending) = &self.pending {
            assert!(env.now.since(pending.since) < MAX_ANSWER_TIME, "{} waits for ever", self.describe());
        }
        let impatience = match self.task {
            None => 300,
            Some(_) if self.profile.hot || self.profile.never_vanishes => 0,
            Some(_) => 150,
        };
        if !self.connections.is_empty() && self.rng.per_myriad(impatience) {
            return self.vanish(env);
        }
        if self.task.is_none() {
            if self.profile.tasks == 0 {
                if !self.connections.is_empty() {
                    self.vanish(env);
                }
                self.wake = Time(u64::MAX);
                return;
            }
            self.profile.tasks -= 1;
            self.task = Some(self.draw_task());
        }
        self.ask(env);
    }

    fn owns_end(&self, end: EndId) -> bool {
        self.connections.iter().any(|connection| connection.end == end)
    }

    fn on_event(&mut self, end: EndId, env: &Environment<'_, MongoDb>) {
        let Some(at) = self.connections.iter().position(|connection| connection.end == end) else { return };
        for event in self.connections[at].on_event(env.network) {
            match event {
                Event::Ready => {
                    self.opening = self.opening.filter(|opening| *opening != end);
                    self.send(at, env);
                }
                Event::Message(message) => {
                    let pending = self.pending.as_mut().filter(|pending| pending.end == end);
                    let Some(pending) = pending else { panic!("{} gets an answer to no request", self.describe()) };
                    let after_fault = env.faults > pending.faults;
                    let (mut outcome, next) = Outcome::read(&message, pending.id);
                    if let Outcome::Done { batch, .. } = &mut outcome {
                        pending.read.append(batch);
                        *batch = std::mem::take(&mut pending.read);
                    }
                    match (outcome, next) {
                        (Outcome::Done { batch, .. }, Some(id)) => (pending.read, pending.id) = (batch, id),
                        (outcome, _) => self.on_outcome(outcome, after_fault, env),
                    }
                }
                Event::Lost(why) => {
                    env.network.close(end);
                    self.connections.remove(at);
                    let opening = self.opening.take_if(|opening| *opening == end).is_some();
                    let pending = self.pending.as_ref().filter(|pending| pending.end == end);
                    let after_fault = pending.map(|pending| env.faults > pending.faults);
                    if opening {
                        assert!(env.lingering_faults > 0 || env.faults > 0, "{} is not let in: {why}", self.describe());
                        self.wake = env.now + Duration::from_millis(50);
                        if let Some(mut task) = self.task.take_if(|_| self.retired) {
                            task.vanish(false, &mut self.rows);
                        }
                    } else if let Some(after_fault) = after_fault {
                        self.on_outcome(Outcome::Lost(why), after_fault, env);
                    } else {
                        assert!(env.faults > 0, "{} loses an idle connection: {why}", self.describe());
                    }
                    return;
                }
            }
        }
    }

    fn has_connection(&self) -> bool {
        !self.connections.is_empty()
    }

    fn is_done(&self) -> bool {
        self.profile.tasks == 0 && self.task.is_none() && self.connections.is_empty()
    }

    fn retire(&mut self) {
        (self.profile.tasks, self.retired) = (0, true);
    }
}
