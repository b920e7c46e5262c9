//! Hundreds of healthy windows, simulated in virtual time: a queue with some servers, arrivals at random, and what
//! healthy systems have besides: cron jobs, deployments, cold starts, monitorings. No symptom may be found in them.
//!
//! What is healthy here: the servers are busy for less than 60% of the time apart from bursts, and these pass within a
//! fifth of the window.

use std::{
    collections::{BTreeMap, BinaryHeap},
    time::Duration,
};

use admin_api::{Activity, Backend, Client, Listener, ListenerClients, Look, Observation, Pool, PoolServers, Times};
use doctor::{Diagnosis, PoolerWindow, PostgresWindow, examine, examine_postgres};

use crate::support::Random;

const SEEDS: u64 = 300;
const WINDOW_MS: f64 = 30_000.0;
const INTERVAL_MS: f64 = 500.0;
const BOUNDS: [f64; 6] = [1.0, 5.0, 20.0, 100.0, 500.0, 2_000.0];

/// A random number with this mean; most are smaller, and a few much larger.
fn exponential(random: &mut Random, mean: f64) -> f64 {
    -mean * (1.0 - random.unit()).ln()
}

/// A transaction, with times in milliseconds.
#[derive(Clone, Copy)]
struct Transaction {
    arrived: f64,
    began: f64,
    ended: f64,
    /// The share of its time with the server in which its client pauses.
    pause_share: f64,
    server: u32,
}

/// What happens to a healthy system.
struct Simulation {
    servers: u64,
    transactions: Vec<Transaction>,
    /// The times at which clients log in, with their number.
    logins: Vec<(f64, u64)>,
    idle_clients: u64,
}

fn simulate(seed: u64) -> Simulation {
    let mut random = Random::new(seed);
    let servers = random.between(3.0, 40.0) as u64;
    let work = random.between(0.5, 30.0);
    let load = random.between(0.05, 0.55) * servers as f64 / work;
    let pause_share = if random.unit() < 0.3 { random.between(0.1, 0.6) } else { 0.0 };
    let mut arrived = Vec::new();
    // A cold start has no client at first; a quiet night has hardly any.
    let mut at = if random.unit() < 0.2 { random.between(0.0, 5_000.0) } else { 0.0 };
    let slower = if random.unit() < 0.1 { 50.0 } else { 1.0 };
    while at < WINDOW_MS {
        arrived.push(at);
        at += exponential(&mut random, slower / load);
    }
    let mut logins = vec![];
    // A cron job, or two: many arrive at once, for less than a fifth of the window's work together.
    for _ in 0..(random.unit() * 3.0) as usize {
        let (when, room) = (random.between(0.0, WINDOW_MS), WINDOW_MS / 10.0 * servers as f64 / work);
        let many = (room * 0.3 * random.unit()) as usize;
        arrived.extend((0..many).map(|n| when + n as f64 * 0.05));
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
    arrived.sort_by(f64::total_cmp);
    let mut free: BinaryHeap<std::cmp::Reverse<(u64, u32)>> =
        (0..servers as u32).map(|server| std::cmp::Reverse((0, server))).collect();
    let mut transactions = Vec::new();
    for arrived in arrived {
        let std::cmp::Reverse((micros, server)) = free.pop().unwrap();
        let began = arrived.max(micros as f64 / 1e3);
        let ended = began + exponential(&mut random, work);
        free.push(std::cmp::Reverse(((ended * 1e3).ceil() as u64, server)));
        transactions.push(Transaction { arrived, began, ended, pause_share, server });
    }
    let idle_clients = random.between(5.0, 60.0) as u64;
    Simulation { servers, transactions, logins, idle_clients }
}

fn count(times: &mut Times, ms: f64) {
    times.buckets.resize(BOUNDS.len() + 1, 0);
    times.buckets[BOUNDS.iter().position(|bound| ms <= *bound).unwrap_or(BOUNDS.len())] += 1;
    times.sum_ms += ms;
}

impl Simulation {
    fn at(&self, at: f64) -> impl Iterator<Item = &Transaction> {
        self.transactions.iter().filter(move |one| one.began <= at && at < one.ended)
    }

    /// Whether the client pauses in its transaction at this time.
    fn pauses(one: &Transaction, at: f64) -> bool {
        at >= one.ended - one.pause_share * (one.ended - one.began)
    }

    fn logged_in(&self, at: f64) -> u64 {
        self.logins.iter().filter(|(when, _)| *when <= at).map(|(_, many)| many).sum()
    }

    fn pooler_window(&self) -> PoolerWindow {
        let mut window = PoolerWindow::default();
        let (mut hold, mut queued, mut done) = (Times::default(), Times::default(), 0);
        let mut before = f64::NEG_INFINITY;
        for n in 0..=(WINDOW_MS / INTERVAL_MS) as u64 {
            let at = n as f64 * INTERVAL_MS;
            for one in self.transactions.iter().filter(|one| before < one.ended && one.ended <= at) {
                done += 1;
                count(&mut hold, one.ended - one.began);
            }
            for one in
                self.transactions.iter().filter(|one| before < one.began && one.began <= at && one.began > one.arrived)
            {
                count(&mut queued, one.began - one.arrived);
            }
            before = at;
            let holders = self.at(at).map(|one| Client {
                id: u64::from(one.server),
                state: if Self::pauses(one, at) { "transaction" } else { "active" }.into(),
                state_ms: at - one.began,
                pool: Some(1),
                ..Client::default()
            });
            let holders: Vec<Client> = holders.collect();
            let in_use = holders.len() as u64;
            let waiting = |one: &&Transaction| one.arrived <= at && at < one.began;
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

    /// The same, as the database sees it: the servers are its sessions.
    fn postgres_window(&self, processors: u64) -> PostgresWindow {
        let mut window = PostgresWindow::default();
        for n in 0..=(WINDOW_MS / INTERVAL_MS) as u64 {
            let at = n as f64 * INTERVAL_MS;
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
                let pauses = Self::pauses(one, at);
                backend.state = if pauses { "idle in transaction" } else { "active" }.into();
                let since = if pauses { one.ended - one.pause_share * (one.ended - one.began) } else { one.began };
                backend.state_ms = at - since;
                backend.transaction_ms = Some(at - one.began);
                // Two in three wait for the disk.
                backend.wait = pauses.then(|| "Client".into()).or_else(|| (one.server % 3 > 0).then(|| "IO".into()));
            }
            let done = self.transactions.iter().filter(|one| one.ended <= at).count() as u64;
            window.add(
                Duration::from_millis(at as u64),
                Activity {
                    version: "15".into(),
                    max_connections: 100,
                    reserved: 3,
                    // Two transactions for each look are the doctor's own.
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
fn no_healthy_window_pooler_window_is_taken_for_ill() {
    for seed in 0..SEEDS {
        let diagnosis = examine(&simulate(seed).pooler_window());
        assert!(is_healthy(&diagnosis), "seed {seed}: {}", diagnosis.text(str::to_owned));
    }
}

#[test]
fn no_healthy_window_postgres_window_is_taken_for_ill() {
    for seed in 0..SEEDS {
        // As many processors as a load of at most 55% of the sessions, of which one in three computes, keeps from
        // queueing.
        let simulation = simulate(seed);
        let diagnosis = examine_postgres(&simulation.postgres_window((simulation.servers / 5).max(2)));
        assert!(is_healthy(&diagnosis), "seed {seed}: {}", diagnosis.text(str::to_owned));
    }
}

#[test]
fn the_same_load_with_too_few_servers_is_ill() {
    let told = (0..20).filter(|seed| {
        let mut simulation = simulate(*seed);
        // All that had a server beyond the first two had to wait for one of these instead.
        let mut free = [0.0_f64; 2];
        for one in &mut simulation.transactions {
            let server = usize::from(free[1] < free[0]);
            let took = one.ended - one.began;
            (one.began, one.server) = (one.arrived.max(free[server]), server as u32);
            one.ended = one.began + took;
            free[server] = one.ended;
        }
        simulation.servers = 2;
        !is_healthy(&examine(&simulation.pooler_window()))
    });
    let told = told.count();
    assert!(told >= 12, "only {told} of 20: the healthy ones prove nothing");
}
