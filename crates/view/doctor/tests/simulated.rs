//! Healthy windows by the hundred, played in virtual time: a queue with some servers, arrivals at random, and what
//! healthy systems have besides: cron jobs, deployments, cold starts, monitors of drivers, clients that only listen.
//! None of them may be taken for ill.
//!
//! What is healthy here: the servers are busy for less than 60% of the time apart from bursts, and these pass within a
//! fifth of the window.

use std::{
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use admin_api::{Activity, Backend, Client, Listener, ListenerClients, Look, Observation, Pool, PoolServers, Times};
use doctor::{DatabaseWindow, Diagnosis, Window, examine, examine_database};

const SEEDS: u64 = 300;
const WINDOW_MS: f64 = 30_000.0;
const EVERY_MS: f64 = 500.0;
const BOUNDS: [f64; 6] = [1.0, 5.0, 20.0, 100.0, 500.0, 2_000.0];

/// Numbers at random, the same for the same seed (xorshift64*).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    /// With this mean; most are shorter, and a few much longer.
    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// A transaction: when it was asked for, when it got a server, when it gave that back.
#[derive(Clone, Copy)]
struct Transaction {
    asked: f64,
    began: f64,
    ended: f64,
    /// Of its time with the server, the share in which its client thinks.
    thinks: f64,
    server: u32,
}

/// What happens to healthy systems.
struct Course {
    servers: u64,
    transactions: Vec<Transaction>,
    /// When clients log in, and that many.
    logins: Vec<(f64, u64)>,
    idle_clients: u64,
}

fn course(seed: u64) -> Course {
    let mut random = Random::new(seed);
    let servers = random.between(3.0, 40.0) as u64;
    let work = random.between(0.5, 30.0);
    let load = random.between(0.05, 0.55) * servers as f64 / work;
    let thinks = if random.unit() < 0.3 { random.between(0.1, 0.6) } else { 0.0 };
    let mut asked = Vec::new();
    // A cold start has nobody at first; a quiet night has hardly anybody at all.
    let mut at = if random.unit() < 0.2 { random.between(0.0, 5_000.0) } else { 0.0 };
    let slower = if random.unit() < 0.1 { 50.0 } else { 1.0 };
    while at < WINDOW_MS {
        asked.push(at);
        at += random.exponential(slower / load);
    }
    let mut logins = vec![];
    // A cron job, or two: many ask at once, for less than a fifth of the window's work together.
    for _ in 0..(random.unit() * 3.0) as usize {
        let (when, room) = (random.between(0.0, WINDOW_MS), WINDOW_MS / 10.0 * servers as f64 / work);
        let many = (room * 0.3 * random.unit()) as usize;
        asked.extend((0..many).map(|n| when + n as f64 * 0.05));
        logins.push((when, 1 + many as u64 / 20));
    }
    // A deployment: clients that stay. Or a monitoring that logs in now and then.
    match random.unit() {
        way if way < 0.3 => {
            let when = random.between(0.0, WINDOW_MS);
            logins.extend((0..random.between(1.0, 30.0) as usize).map(|n| (when + n as f64 * 200.0, 6)));
        }
        way if way < 0.6 => logins.extend((0..30).map(|n| (f64::from(n) * 1_000.0, 1))),
        _ => {}
    }
    asked.sort_by(f64::total_cmp);
    let mut free: BinaryHeap<std::cmp::Reverse<(u64, u32)>> =
        (0..servers as u32).map(|server| std::cmp::Reverse((0, server))).collect();
    let mut transactions = Vec::new();
    for asked in asked {
        let std::cmp::Reverse((micros, server)) = free.pop().unwrap();
        let began = asked.max(micros as f64 / 1e3);
        let ended = began + random.exponential(work);
        free.push(std::cmp::Reverse(((ended * 1e3).ceil() as u64, server)));
        transactions.push(Transaction { asked, began, ended, thinks, server });
    }
    let idle_clients = random.between(5.0, 60.0) as u64;
    Course { servers, transactions, logins, idle_clients }
}

fn count(times: &mut Times, ms: f64) {
    times.buckets.resize(BOUNDS.len() + 1, 0);
    times.buckets[BOUNDS.iter().position(|bound| ms <= *bound).unwrap_or(BOUNDS.len())] += 1;
    times.sum_ms += ms;
}

impl Course {
    fn at(&self, at: f64) -> impl Iterator<Item = &Transaction> {
        self.transactions.iter().filter(move |one| one.began <= at && at < one.ended)
    }

    /// Within its transaction, the client thinks from here on.
    fn thinks(one: &Transaction, at: f64) -> bool {
        at >= one.ended - one.thinks * (one.ended - one.began)
    }

    fn logged_in(&self, at: f64) -> u64 {
        self.logins.iter().filter(|(when, _)| *when <= at).map(|(_, many)| many).sum()
    }

    fn of_a_pooler(&self) -> Window {
        let mut window = Window::default();
        let (mut hold, mut queued, mut done) = (Times::default(), Times::default(), 0);
        let mut before = f64::NEG_INFINITY;
        for n in 0..=(WINDOW_MS / EVERY_MS) as u64 {
            let at = n as f64 * EVERY_MS;
            for one in self.transactions.iter().filter(|one| before < one.ended && one.ended <= at) {
                done += 1;
                count(&mut hold, one.ended - one.began);
            }
            for one in
                self.transactions.iter().filter(|one| before < one.began && one.began <= at && one.began > one.asked)
            {
                count(&mut queued, one.began - one.asked);
            }
            before = at;
            let holders = self.at(at).map(|one| Client {
                id: u64::from(one.server),
                state: if Self::thinks(one, at) { "transaction" } else { "active" }.into(),
                state_ms: at - one.began,
                pool: Some(1),
                ..Client::default()
            });
            let holders: Vec<Client> = holders.collect();
            let in_use = holders.len() as u64;
            let waiting = |one: &&Transaction| one.asked <= at && at < one.began;
            let pool = Pool {
                id: 1,
                database: "shop".into(),
                user: "app".into(),
                waiters: self.transactions.iter().filter(waiting).count() as u64,
                servers: PoolServers {
                    in_use,
                    total: self.servers,
                    idle: self.servers - in_use,
                    ..PoolServers::default()
                },
                max_size: self.servers,
                created: self.servers,
                transactions: 1_000 + done,
                checkout: BTreeMap::from([("queued".to_owned(), queued.clone())]),
                hold: hold.clone(),
                ..Pool::default()
            };
            let logins = 100 + self.logged_in(at);
            let clients = ListenerClients { idle: self.idle_clients + logins, ..ListenerClients::default() };
            let look = Look {
                bucket_bounds_ms: BOUNDS.to_vec(),
                uptime_ms: 3_600_000.0 + at,
                listeners: vec![Listener { logins, accepted: logins, clients, ..Listener::default() }],
                pools: vec![pool],
                ..Look::default()
            };
            window.add(Observation { at: Duration::from_millis(at as u64), look, holders });
        }
        window
    }

    /// The same, as its database sees it: the servers are its sessions.
    fn of_a_database(&self, processors: u64) -> DatabaseWindow {
        let mut window = DatabaseWindow::default();
        for n in 0..=(WINDOW_MS / EVERY_MS) as u64 {
            let at = n as f64 * EVERY_MS;
            let mut backends: Vec<Backend> = (0..self.servers as u32)
                .map(|pid| Backend {
                    pid,
                    age_ms: 900_000.0 + at,
                    database: "shop".into(),
                    user: "app".into(),
                    application: "web".into(),
                    address: "10.0.0.7".into(),
                    state: "idle".into(),
                    state_ms: 40.0,
                    ..Backend::default()
                })
                .collect();
            for one in self.at(at) {
                let backend = &mut backends[one.server as usize];
                let thinks = Self::thinks(one, at);
                backend.state = if thinks { "idle in transaction" } else { "active" }.into();
                let since = if thinks { one.ended - one.thinks * (one.ended - one.began) } else { one.began };
                backend.state_ms = at - since;
                backend.transaction_ms = Some(at - one.began);
                // Two in three wait for the disk.
                backend.wait = thinks.then(|| "Client".into()).or_else(|| (one.server % 3 > 0).then(|| "IO".into()));
            }
            let done = self.transactions.iter().filter(|one| one.ended <= at).count() as u64;
            window.add(
                Duration::from_millis(at as u64),
                Activity {
                    version: "15".into(),
                    max_connections: 100,
                    reserved: 3,
                    // The one who looks has some, too.
                    transactions: 1_000 + done + 2 * n,
                    sessions: Some(500),
                    processors: Some(processors),
                    backends,
                    ..Activity::default()
                },
            );
        }
        window
    }
}

fn is_healthy(diagnosis: &Diagnosis) -> bool {
    diagnosis.findings.is_empty() && diagnosis.undecided.is_empty()
}

#[test]
fn no_healthy_window_of_a_pooler_is_taken_for_ill() {
    for seed in 0..SEEDS {
        let diagnosis = examine(&course(seed).of_a_pooler());
        assert!(is_healthy(&diagnosis), "seed {seed}: {}", diagnosis.text(str::to_owned));
    }
}

#[test]
fn no_healthy_window_of_a_database_is_taken_for_ill() {
    for seed in 0..SEEDS {
        // As many processors as a load of at most 55% of the sessions, of which one in three computes, keeps from
        // queueing.
        let course = course(seed);
        let diagnosis = examine_database(&course.of_a_database((course.servers / 5).max(2)));
        assert!(is_healthy(&diagnosis), "seed {seed}: {}", diagnosis.text(str::to_owned));
    }
}

#[test]
fn the_same_course_with_too_few_servers_is_ill() {
    let told = (0..20).filter(|seed| {
        let mut course = course(*seed);
        // All that had a server beyond the first two had to wait for one of these instead.
        let mut free = [0.0_f64; 2];
        for one in &mut course.transactions {
            let server = usize::from(free[1] < free[0]);
            let took = one.ended - one.began;
            (one.began, one.server) = (one.asked.max(free[server]), server as u32);
            one.ended = one.began + took;
            free[server] = one.ended;
        }
        course.servers = 2;
        !is_healthy(&examine(&course.of_a_pooler()))
    });
    let told = told.count();
    assert!(told >= 12, "only {told} of 20: the healthy ones prove nothing");
}
