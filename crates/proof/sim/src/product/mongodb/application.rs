//! An application with a driver: up to three connections, of which each command takes any, and one thing after the
//! other. It repeats what the drivers' specifications let be repeated ("Retryable Writes", "Transactions", "Load
//! Balancers"), and judges what it is answered and what the database has.

mod answer;
mod judge;
mod leave;
mod link;
mod reading;
mod tailing;
mod task;
mod transaction;
mod verdicts;
mod verify;
mod write;

use std::time::Duration;

use mongodb_session::{ServerLogin, bson::Writer, wire};
use pool::Time;

use self::{
    answer::Outcome,
    judge::{Judge, Row},
    leave::Leave,
    link::{Event, Link},
    reading::Reading,
    tailing::Tailing,
    task::Task,
    transaction::{End, Statement, Transaction},
    verdicts::{Next, Verdicts},
    verify::Verify,
    write::Write,
};
use crate::{
    databases::mongodb::{ASKED, FIRST_ID, HOT, Kind, MongoDb},
    network::EndId,
    product::{extra_client::ExtraClient, player::Around, site::elapsed},
    random::Rng,
};

/// Connections of an application, at most.
const MAX_LINKS: usize = 3;

/// The longest that an answer may take: longer than any configured time-out.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(100);

/// How often an application checks for answers that are overdue.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What is drawn for an application.
pub struct Traits {
    pub number: usize,
    /// The user's number, and how it logs in if it has to.
    pub user: usize,
    pub login: Option<ServerLogin>,
    /// It believes that a load balancer stands between.
    pub balanced: bool,
    pub kind: Kind,
    pub tasks: u64,
    /// Around how long it waits from one to the next.
    pub pause: Duration,
    /// It writes to what transactions have for themselves.
    pub hot: bool,
    /// It never leaves in the middle of anything.
    pub patient: bool,
    /// Its sessions have the ids of another user's.
    pub session_of: usize,
}

pub struct Application {
    traits: Traits,
    rng: Rng,
    links: Vec<Link>,
    wake: Time,
    session: [u8; 16],
    /// How many sessions it has had.
    sessions: u64,
    last_number: i64,
    last_id: i32,
    last_row: u32,
    judge: Judge,
    task: Option<Task>,
    /// The connection that the task keeps to.
    bound: Option<EndId>,
    /// What is answered next: over which connection, its id, since when, and how many faults there had been.
    asked: Option<Asked>,
    /// A connection is to be ready first.
    opening: Option<EndId>,
    /// It does not come again.
    retired: bool,
    /// What it has asked, for people.
    story: Vec<String>,
}

struct Asked {
    end: EndId,
    /// The id that the next answer refers to.
    id: i32,
    /// What came in answers behind which more are to come.
    read: Vec<String>,
    since: Time,
    faults: u64,
}

impl Application {
    pub fn new(traits: Traits, mut rng: Rng) -> Self {
        let wake = Time(rng.below(50_000_000));
        let last_id = FIRST_ID + (traits.number % 1000) as i32 * 1_000_000;
        let mut made = Self {
            traits,
            rng,
            links: Vec::new(),
            wake,
            session: [0; 16],
            sessions: 0,
            last_number: 0,
            last_id,
            last_row: 0,
            judge: Judge::default(),
            task: None,
            bound: None,
            asked: None,
            opening: None,
            retired: false,
            story: Vec::new(),
        };
        made.begin_session();
        made
    }

    /// A session of whose number no other application knows, unless it is to have the same.
    fn begin_session(&mut self) {
        let mut rng = Rng::new((self.traits.session_of as u64) << 20 | self.sessions);
        self.sessions += 1;
        self.last_number = 0;
        self.session = (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_le_bytes();
        self.session[..4].copy_from_slice(b"app ");
    }

    fn ledger(&self) -> String {
        format!("rows.a{}", self.traits.number)
    }

    fn row(&mut self, collection: String) -> Row {
        self.last_row += 1;
        (collection, format!("{}of{}", self.last_row, self.traits.number))
    }

    /// Where the next row is written.
    fn some_row(&mut self) -> Row {
        let hot = self.traits.hot && self.rng.percent(30);
        let collection = if hot { HOT.to_owned() } else { self.ledger() };
        self.row(collection)
    }

    fn draw_task(&mut self) -> Task {
        let kind = self.traits.kind;
        let lot = self.rng.below(11);
        match lot {
            10 => Task::Leave(Leave::new((self.traits.user, self.session), self.rng.percent(60))),
            0 | 1 => {
                let modes = ["primary", "secondaryPreferred", "nearest", "secondary"];
                let (label, mode) = (self.row(String::new()).1, self.rng.pick(&modes));
                let (count, size) = (self.rng.index(9), self.rng.below(4) as i32);
                let exhausts = self.rng.percent(30);
                Task::Read(Reading::new(label, count, size, mode, exhausts))
            }
            2 if self.rng.percent(40) => {
                let collection = if self.traits.hot { HOT.to_owned() } else { self.ledger() };
                let (mode, rounds) = (self.rng.pick(&["primary", "secondaryPreferred", "nearest"]), self.rng.below(4));
                Task::Tail(Tailing::new(collection, mode, rounds as u32, 1 + self.rng.below(30) as i64))
            }
            2..=4 => {
                let row = self.some_row();
                let numbered = kind != Kind::Standalone && self.rng.percent(80);
                self.last_number += i64::from(numbered);
                let quick = self.rng.percent(30);
                Task::Write(Write::new(row, numbered.then_some(self.last_number), quick))
            }
            _ if kind == Kind::Standalone => {
                let row = self.some_row();
                Task::Write(Write::new(row, None, false))
            }
            _ => {
                let statements = (0..1 + self.rng.below(4)).map(|_| match self.rng.percent(30) {
                    true => Statement::Read(self.ledger()),
                    false => Statement::Write(self.some_row()),
                });
                let statements = statements.collect();
                let ends = [End::Commit, End::Commit, End::Commit, End::CommitTwice, End::Abort, End::Nothing];
                // Who forgets what others wait for holds them up for as long as a server lets it.
                let ends = if self.traits.hot { &ends[..5] } else { &ends[..] };
                self.last_number += 1;
                let sharded = kind == Kind::Sharded;
                Task::Transaction(Transaction::new(statements, self.rng.pick(ends), sharded, self.last_number))
            }
        }
    }

    /// The next command of the task goes over some connection, as soon as that is ready.
    fn ask(&mut self, around: &Around<'_, MongoDb>) {
        let Some(task) = &self.task else { return };
        if self.asked.is_some() || self.opening.is_some() {
            return;
        }
        let bound = self.bound.filter(|_| self.traits.balanced && task.is_bound());
        let chosen = match bound {
            Some(end) => self.links.iter().position(|link| link.end == end),
            None => Some(self.rng.index(MAX_LINKS)),
        };
        // The connection that it keeps to is gone: so is what belonged to it.
        let Some(chosen) = chosen else { return self.take(Outcome::Lost("it was pinned".into()), true, around) };
        if chosen >= self.links.len() {
            let link = Link::open(around.network, self.traits.login.clone(), self.traits.balanced);
            self.opening = Some(link.end);
            self.links.push(link);
            self.links.last_mut().expect("it was just opened").flush(around.network);
            return;
        }
        self.send(chosen, around);
    }

    fn send(&mut self, chosen: usize, around: &Around<'_, MongoDb>) {
        let Some(task) = &self.task else { return };
        self.last_id += 1;
        let (id, session) = (self.last_id, self.session);
        let mut document = Vec::new();
        {
            let mut body = Writer::new(&mut document);
            task.command(&mut body);
            body.document("lsid", |lsid| _ = lsid.uuid("id", session))
                .int64(ASKED, elapsed(around.now).as_nanos() as i64);
            body.text("$db", task.database());
        }
        let mut message = Vec::new();
        wire::request_with(&mut message, id, &document);
        if task.exhausts() {
            message[16..20].copy_from_slice(&wire::EXHAUST_ALLOWED.to_le_bytes());
        }
        let link = &mut self.links[chosen];
        if around.trace {
            let (now, number) = (around.now.0 as f64 / 1e9, self.traits.number);
            println!("{now:>12.6}   application {number} over {}: {}", link.end, message.escape_ascii());
        }
        self.story.push(format!("over {}: {}", link.end, message.escape_ascii()));
        let faults = around.faults - around.felt;
        self.asked = Some(Asked { end: link.end, id, read: Vec::new(), since: around.now, faults });
        self.bound = Some(link.end);
        link.send(around.network, &message);
    }

    /// Something has come of the last command.
    fn take(&mut self, outcome: Outcome, hurt: bool, around: &Around<'_, MongoDb>) {
        let Some(task) = &mut self.task else { return };
        let mut verdicts = Verdicts {
            judge: &mut self.judge,
            real: around.real,
            hurt,
            rng: &mut self.rng,
            last_number: &mut self.last_number,
        };
        let next = task.take(outcome, &mut verdicts);
        match next {
            Next::Ask(pause) => self.wake = around.now + pause,
            Next::Over => {
                if let Some(Task::Leave(_)) = self.task.take() {
                    self.begin_session();
                }
                self.wake = around.now + self.rng.around(self.traits.pause);
                self.judge.check(around.real);
            }
        }
        self.asked = None;
    }

    /// It closes its connections, whatever is under way.
    fn vanish(&mut self, around: &Around<'_, MongoDb>) {
        let asked = self.asked.take().is_some();
        for link in std::mem::take(&mut self.links) {
            if self.rng.percent(20) {
                around.network.reset(link.end);
            }
            around.network.close(link.end);
        }
        self.opening = None;
        if around.trace {
            println!("{:>12.6}   application {} has gone", around.now.0 as f64 / 1e9, self.traits.number);
        }
        let (user, session) = (self.traits.user, self.session);
        let task = self.task.take().map(|mut task| task.vanish(asked, &mut self.judge));
        self.begin_session();
        if self.traits.balanced && task.is_some() && self.traits.tasks > 0 {
            self.task = Some(Task::Verify(Verify::new(user, session)));
        }
        self.wake = around.now + self.rng.around(Duration::from_millis(5));
    }

    fn tale(&self) -> String {
        format!("{}\napplication {}", self.story.join("\n"), self.traits.number)
    }
}

impl ExtraClient<MongoDb> for Application {
    fn wake(&self) -> Time {
        self.wake
    }

    fn act(&mut self, around: &Around<'_, MongoDb>) {
        self.wake = around.now + RECHECK_INTERVAL;
        if let Some(asked) = &self.asked {
            assert!(around.now.since(asked.since) < MAX_ANSWER_TIME, "{} waits for ever", self.tale());
        }
        let impatience = match self.task {
            None => 300,
            Some(_) if self.traits.hot || self.traits.patient => 0,
            Some(_) => 150,
        };
        if !self.links.is_empty() && self.rng.per_myriad(impatience) {
            return self.vanish(around);
        }
        if self.task.is_none() {
            if self.traits.tasks == 0 {
                if !self.links.is_empty() {
                    self.vanish(around);
                }
                self.wake = Time(u64::MAX);
                return;
            }
            self.traits.tasks -= 1;
            self.task = Some(self.draw_task());
        }
        self.ask(around);
    }

    fn has(&self, end: EndId) -> bool {
        self.links.iter().any(|link| link.end == end)
    }

    fn listen(&mut self, end: EndId, around: &Around<'_, MongoDb>) {
        let Some(at) = self.links.iter().position(|link| link.end == end) else { return };
        for event in self.links[at].listen(around.network) {
            match event {
                Event::Ready => {
                    self.opening = self.opening.filter(|opening| *opening != end);
                    self.send(at, around);
                }
                Event::Message(message) => {
                    let asked = self.asked.as_mut().filter(|asked| asked.end == end);
                    let Some(asked) = asked else { panic!("{} hears what it has not asked", self.tale()) };
                    let hurt = around.faults > asked.faults;
                    let (mut outcome, next) = Outcome::read(&message, asked.id);
                    if let Outcome::Done { batch, .. } = &mut outcome {
                        asked.read.append(batch);
                        *batch = std::mem::take(&mut asked.read);
                    }
                    match (outcome, next) {
                        (Outcome::Done { batch, .. }, Some(id)) => (asked.read, asked.id) = (batch, id),
                        (outcome, _) => self.take(outcome, hurt, around),
                    }
                }
                Event::Lost(why) => {
                    around.network.close(end);
                    self.links.remove(at);
                    let opening = self.opening.take_if(|opening| *opening == end).is_some();
                    let asked = self.asked.as_ref().filter(|asked| asked.end == end);
                    let hurt = asked.map(|asked| around.faults > asked.faults);
                    if opening {
                        assert!(around.felt > 0 || around.faults > 0, "{} is not let in: {why}", self.tale());
                        self.wake = around.now + Duration::from_millis(50);
                        if let Some(mut task) = self.task.take_if(|_| self.retired) {
                            task.vanish(false, &mut self.judge);
                        }
                    } else if let Some(hurt) = hurt {
                        self.take(Outcome::Lost(why), hurt, around);
                    } else {
                        assert!(around.faults > 0, "{} loses an idle connection: {why}", self.tale());
                    }
                    return;
                }
            }
        }
    }

    fn is_here(&self) -> bool {
        !self.links.is_empty()
    }

    fn is_done(&self) -> bool {
        self.traits.tasks == 0 && self.task.is_none() && self.links.is_empty()
    }

    fn retire(&mut self) {
        (self.traits.tasks, self.retired) = (0, true);
    }
}
