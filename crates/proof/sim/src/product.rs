//! Simulates the product in virtual time: real workers and real sessions, between clients that know what every answer
//! must be and models of databases. The seed decides everything: who works next, how long bytes take, what breaks.
//!
//! Checked at every step: each answer is the one that the client's own copy of the database gives; an acknowledged
//! write is there, once; there are no more connections than allowed; no client waits for ever; bytes that wait for a
//! peer stay within bounds. In the end, when all clients have left: nothing is held, and no session of the database has
//! anything left in it. An error may replace an answer only after a fault, and not after one that no client may notice.
//!
//! The simulator cannot see: TLS, logins with passwords but MongoDB's, HTTP, host names, real threads (two workers
//! never run at the same time), and what the models of the databases do not know, such as functions and triggers that
//! users made. For these there are the leak hunter and the adversary (`tests/hunts/leaks.py`,
//! `tests/hunts/adversary.py`) on a real PostgreSQL.

mod drawn;
mod extra_client;
pub mod mongodb;
mod numbers;
mod player;
pub mod postgres;
mod raw_client;
pub mod redis;
mod site;
mod speech;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, time::Duration};

use pool::Time;
use seam::Protocol;

use crate::{
    databases::Database,
    harness::Harness,
    network::{EndId, Host, Network},
    random::Rng,
    shrink,
};

use extra_client::ExtraClient;
use player::{Around, Player};
use raw_client::RawClient;
use site::{Site, elapsed};
use speech::Speech;

/// Steps after which a schedule counts as endless.
const MAX_STEPS: u64 = 3_000_000;
/// Time after the last client has left by which everything must be at rest.
const MAX_SETTLING_TIME: Duration = Duration::from_secs(30);

/// Time that cleaning a server takes once the workers have nothing else to do.
const MAX_CLEANING_TIME: Duration = Duration::from_millis(100);

/// The number of raw clients; no damage to a message turns it into a player's number.
const RAW_CLIENT: usize = 987_654;

/// Time after a fault during which new requests may still fail, where hosts recover with the network.
const RECOVERY_TIME: Duration = Duration::from_secs(1);

/// Counts of one schedule.
#[derive(Clone, Copy, Default, Debug)]
pub struct Done {
    pub steps: u64,
    /// Faults so far.
    pub faults: u64,
    /// Acknowledged writes that the database has taken back, as it may with those that asked for no more.
    pub taken_back: u64,
    /// Fingerprint of the schedule: the same seed must give the same.
    pub print: u64,
}

/// Upper bounds of what a schedule draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub players: usize,
    /// Connections of each player, one after the other, at most.
    pub lives: u64,
    /// Requests on each connection, at most.
    pub requests: u64,
    /// Whether faults happen.
    pub faults: bool,
    /// Whether there are raw clients.
    pub raw_clients: bool,
    /// Whether the network may be slow and split what it carries.
    pub bad_network: bool,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { players: 8, lives: 4, requests: 24, faults: true, raw_clients: true, bad_network: true }
    }
}

impl shrink::Bounds for Bounds {
    fn tighter(&self) -> Vec<Self> {
        let mut all = Vec::new();
        all.extend(self.faults.then_some(Self { faults: false, ..*self }));
        all.extend(self.raw_clients.then_some(Self { raw_clients: false, ..*self }));
        all.extend(self.bad_network.then_some(Self { bad_network: false, ..*self }));
        for least in [|most: u64| most.div_ceil(2), |most| most - 1] {
            let smaller = |most: u64| Some(least(most)).filter(|less| *less > 0 && *less < most);
            all.extend(smaller(self.players as u64).map(|players| Self { players: players as usize, ..*self }));
            all.extend(smaller(self.lives).map(|lives| Self { lives, ..*self }));
            all.extend(smaller(self.requests).map(|requests| Self { requests, ..*self }));
        }
        all
    }
}

/// How a schedule is played: by its seed, within bounds, with what a raw client says, and with a trace or without.
pub type Play = fn(u64, Bounds, Option<&[u8]>, bool) -> Done;

/// Plays a short schedule in which a raw client says these bytes, for a fuzzer; the first of them are the seed.
///
/// # Panics
/// When anything is not as it must be.
pub fn hear(play: Play, said: &[u8]) {
    let seed = said.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte));
    play(seed, Bounds { players: 1, lives: 1, requests: 3, ..Bounds::default() }, Some(said), false);
}

/// What goes wrong in a schedule, and how often.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// Mean time between faults; `None`: there are none.
    pub every: Option<Duration>,
    /// Only faults happen that no client may notice.
    pub gentle: bool,
    /// In how many of ten thousand steps a worker is held up, as a thread that the kernel does not schedule.
    pub held_up: u64,
    /// When the workers are told to drain although clients still come, if ever.
    pub drain: Option<Duration>,
}

/// Limits that no step may exceed.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Connections to the database.
    servers: usize,
    /// Bytes that wait for a peer.
    unsent: usize,
}

pub struct Simulation<P: Protocol, S: Speech> {
    harness: Harness<P>,
    network: Network,
    site: Site<S::Database>,
    players: Vec<Player<S>>,
    raw_clients: Vec<RawClient>,
    extra_clients: Vec<Box<dyn ExtraClient<S::Database>>>,
    rng: Rng,
    now: Time,
    /// Ends to which something has happened.
    news: BTreeSet<EndId>,
    chaos: Chaos,
    next_fault: Option<Time>,
    last_fault: Option<Time>,
    /// When the hosts of the database recover, and a pause ends.
    recovery: Option<Time>,
    /// A worker that takes no step before this time.
    held_up: Option<(usize, Time)>,
    /// The workers have been told to drain.
    drained: bool,
    limits: Limits,
    /// Servers are so few, and waits so short, that any request may fail for want of a server.
    scarce: bool,
    /// Time after a fault during which new requests may still fail.
    recovery_time: Duration,
    /// Time after all clients have left by which the database holds none of their leftovers.
    max_cleaning_time: Duration,
    done: Done,
    trace: bool,
}

impl<P: Protocol, S: Speech> Simulation<P, S> {
    /// A simulation before its first step.
    fn new(
        (harness, network, site): (Harness<P>, Network, Site<S::Database>),
        (players, raw_clients): (Vec<Player<S>>, Vec<RawClient>),
        chaos: Chaos,
        limits: Limits,
        rng: Rng,
        trace: bool,
    ) -> Self {
        Self {
            harness,
            network,
            site,
            players,
            raw_clients,
            extra_clients: Vec::new(),
            rng,
            now: Time(0),
            news: BTreeSet::new(),
            chaos,
            next_fault: None,
            last_fault: None,
            recovery: None,
            held_up: None,
            drained: false,
            limits,
            scarce: false,
            recovery_time: RECOVERY_TIME,
            max_cleaning_time: MAX_CLEANING_TIME,
            done: Done::default(),
            trace,
        }
    }

    /// Plays until all players have lived, and all has come to rest.
    fn play(mut self, leftovers: impl Fn(&S::Database) -> Vec<String>) -> Done {
        self.plan_fault();
        while !self.all_have_gone() {
            self.step();
        }
        self.next_fault = None;
        self.chaos.every = None;
        self.chaos.drain = None;
        self.chaos.held_up = 0;
        let until = self.now + MAX_SETTLING_TIME;
        while self.now < until && !self.is_at_rest() {
            self.step();
        }
        assert!(self.is_at_rest(), "something is held though all clients have left: {}", self.describe());
        // What holds others up is gone soon after.
        let until = self.now + self.max_cleaning_time;
        while self.now < until {
            self.step();
        }
        let known: u32 = self.harness.handle().snapshot().pools.iter().map(|pool| pool.counts.total).sum();
        assert!(
            self.harness.servers() <= known as usize,
            "there is a connection that no pool knows: {}",
            self.describe()
        );
        self.harness.check_sessions();
        self.done.taken_back = self.site.database.taken_back();
        let left = leftovers(&self.site.database);
        assert!(left.is_empty(), "left in the database: {left:?}");
        self.harness.handle().drain();
        let until = self.now + MAX_SETTLING_TIME;
        while self.now < until && !(self.harness.has_ended() && self.is_alone()) {
            self.step();
        }
        assert!(self.harness.has_ended(), "the workers do not end");
        assert!(self.is_alone(), "a connection outlives the workers: {}", self.describe());
        self.done
    }

    fn all_have_gone(&self) -> bool {
        let extra_clients = self.extra_clients.iter().all(|extra_client| extra_client.is_done());
        extra_clients && self.players.iter().all(Player::is_done) && self.raw_clients.iter().all(RawClient::is_done)
    }

    fn describe(&self) -> String {
        let snapshot = self.harness.handle().snapshot();
        let pools: Vec<_> = snapshot.pools.iter().map(|pool| pool.counts).collect();
        format!("{:?} {pools:?}, sessions: {:?}", snapshot.listeners, self.site)
    }

    /// Whether no connection to the database is left. What drained workers had still to do ends with the process.
    fn is_alone(&self) -> bool {
        self.drained || self.site.database.open().is_empty()
    }

    fn is_at_rest(&self) -> bool {
        if self.harness.has_ended() {
            return self.recovery.is_none();
        }
        let snapshot = self.harness.handle().snapshot();
        let no_clients = snapshot.listeners.iter().all(|l| l.login + l.idle + l.active + l.waiting + l.subscribed == 0);
        // Servers that their own sessions keep, such as monitors, are not held by a client.
        let unused =
            snapshot.pools.iter().all(|pool| pool.counts.waiters == 0 && pool.counts.in_use <= pool.config.min_size);
        no_clients && unused && self.recovery.is_none()
    }

    fn step(&mut self) {
        self.done.steps += 1;
        assert!(self.done.steps < MAX_STEPS, "the schedule does not end");
        if self.rng.per_myriad(100) {
            let some = self.rng.around(Duration::from_micros(20));
            self.pass(self.now + some);
        }
        self.site.accept(&self.network, self.now);
        self.news.extend(self.network.take_changed());
        let workers = self.ready_workers();
        let players: Vec<usize> = (0..self.players.len()).filter(|p| self.players[*p].wake <= self.now).collect();
        let raw_clients: Vec<usize> =
            (0..self.raw_clients.len()).filter(|s| self.raw_clients[*s].wake <= self.now).collect();
        let extra_clients: Vec<usize> =
            (0..self.extra_clients.len()).filter(|g| self.extra_clients[*g].wake() <= self.now).collect();
        let mut choices = workers.len() + players.len() + raw_clients.len() + extra_clients.len() + self.news.len();
        let due = self.site.due().is_some_and(|due| due <= self.now);
        choices += usize::from(due);
        let fault = self.next_fault.is_some_and(|at| at <= self.now) || self.recovery.is_some_and(|at| at <= self.now);
        choices += usize::from(fault);
        let drains = self.is_to_drain();
        choices += usize::from(drains);
        if choices == 0 {
            return self.pass_to_next();
        }
        let mut lot = self.rng.index(choices);
        if let Some(worker) = workers.get(lot) {
            self.note(1, *worker as u64);
            self.harness.step(*worker);
            return self.check();
        }
        lot -= workers.len();
        if let Some(player) = players.get(lot) {
            self.note(2, *player as u64);
            return self.with_player(*player, Player::act);
        }
        lot -= players.len();
        if let Some(raw_client) = raw_clients.get(lot) {
            self.note(6, *raw_client as u64);
            return self.raw_clients[*raw_client].act(&self.network, self.now);
        }
        lot -= raw_clients.len();
        if let Some(extra_client) = extra_clients.get(lot) {
            self.note(7, *extra_client as u64);
            return self.with_extra_client(*extra_client, |extra_client, around| extra_client.act(around));
        }
        lot -= extra_clients.len();
        if let Some(end) = self.news.iter().nth(lot).copied() {
            self.note(3, u64::from(end));
            self.news.remove(&end);
            return self.tell_news(end);
        }
        lot -= self.news.len();
        if due && lot == 0 {
            self.note(4, 0);
            return self.site.tick(&self.network, self.now);
        }
        lot -= usize::from(due);
        if drains && lot == 0 {
            self.note(6, 0);
            return self.drain();
        }
        self.note(5, 0);
        self.break_something();
    }

    /// Something has happened to an end outside of the workers.
    fn tell_news(&mut self, end: EndId) {
        if self.site.has(end) {
            return self.site.listen(&self.network, end, self.now);
        }
        if let Some(player) = self.players.iter().position(|player| player.has(end)) {
            return self.with_player(player, |player, around| player.listen(end, around));
        }
        if let Some(extra_client) = self.extra_clients.iter().position(|extra_client| extra_client.has(end)) {
            return self.with_extra_client(extra_client, |extra_client, around| extra_client.listen(end, around));
        }
        if let Some(raw_client) = self.raw_clients.iter_mut().find(|raw_client| raw_client.has(end)) {
            raw_client.listen(&self.network);
        }
    }

    /// Workers that have something to do, and are not held up.
    fn ready_workers(&mut self) -> Vec<usize> {
        let mut workers = self.harness.ready();
        if !workers.is_empty() && self.held_up.is_none() && self.rng.per_myriad(self.chaos.held_up) {
            let worker = workers[self.rng.index(workers.len())];
            self.held_up = Some((worker, self.now + self.rng.around(Duration::from_micros(300))));
        }
        self.held_up = self.held_up.filter(|(_, until)| *until > self.now);
        if let Some((held_up, _)) = self.held_up {
            workers.retain(|worker| *worker != held_up);
        }
        workers
    }

    /// Whether the workers are to drain now: at the moment in which a client arrives, and no other is there.
    fn is_to_drain(&self) -> bool {
        let due = self.chaos.drain.is_some_and(|at| elapsed(self.now) >= at);
        let here = self.players.iter().filter(|player| player.is_here()).count()
            + self.extra_clients.iter().filter(|extra_client| extra_client.is_here()).count();
        due && self.network.is_knocked() && here == 1
    }

    fn drain(&mut self) {
        self.chaos.drain = None;
        self.drained = true;
        self.done.faults += 1;
        self.players.iter_mut().for_each(Player::retire);
        self.raw_clients.iter_mut().for_each(RawClient::retire);
        self.extra_clients.iter_mut().for_each(|extra_client| extra_client.retire());
        self.harness.handle().drain();
    }

    fn with_player(&mut self, player: usize, f: impl FnOnce(&mut Player<S>, &Around<'_, S::Database>)) {
        let mut called = std::mem::take(&mut self.players);
        f(&mut called[player], &self.around());
        self.players = called;
    }

    fn with_extra_client(
        &mut self,
        extra_client: usize,
        f: impl FnOnce(&mut dyn ExtraClient<S::Database>, &Around<'_, S::Database>),
    ) {
        let mut called = std::mem::take(&mut self.extra_clients);
        f(&mut *called[extra_client], &self.around());
        self.extra_clients = called;
    }

    fn around(&self) -> Around<'_, S::Database> {
        Around {
            network: &self.network,
            real: &self.site.database,
            now: self.now,
            faults: self.done.faults,
            felt: u64::from(
                self.drained
                    || self.scarce
                    || (self.recovery.is_some() && !self.chaos.gentle)
                    || self.last_fault.is_some_and(|at| self.now < at + self.recovery_time),
            ),
            trace: self.trace,
        }
    }

    fn pass(&mut self, to: Time) {
        self.now = to;
        self.harness.set_time(to);
        self.network.advance(to);
    }

    fn pass_to_next(&mut self) {
        let players = self.players.iter().map(|player| player.wake).min().filter(|at| at.0 < u64::MAX);
        let raw_clients = self.raw_clients.iter().map(|raw_client| raw_client.wake).min().filter(|at| at.0 < u64::MAX);
        let extra_clients =
            self.extra_clients.iter().map(|extra_client| extra_client.wake()).min().filter(|at| at.0 < u64::MAX);
        let times = [
            self.network.next_at(),
            self.harness.next_at(),
            players,
            raw_clients,
            extra_clients,
            self.site.due(),
            self.next_fault,
            self.recovery,
        ];
        let freed = self.held_up.map(|(_, until)| until);
        // What a worker that is held up would do now it does later.
        let due = |at: &Time| *at > self.now || !self.is_held_up();
        let next = times.into_iter().flatten().chain(freed).filter(due).min();
        // Where all workers have ended nothing need happen any more.
        let later = self.drained.then(|| self.now + Duration::from_millis(1));
        let next = next.or(later).unwrap_or_else(|| panic!("nothing will ever happen again: {}", self.describe()));
        self.pass(next.max(self.now));
    }

    fn note(&mut self, what: u64, of: u64) {
        let print = &mut self.done.print;
        for value in [what, of, self.now.0] {
            *print = (*print ^ value).wrapping_mul(0x0100_0000_01b3).rotate_left(5);
        }
        if self.trace {
            println!("{:>12.6} {what} {of}", self.now.0 as f64 / 1e9);
        }
    }

    fn check(&self) {
        let servers = self.harness.servers();
        assert!(servers <= self.limits.servers, "{servers} connections where {} are allowed", self.limits.servers);
        // A connection that breaks, or that a silent host does not end, may leave a session behind.
        if self.last_fault.is_none() {
            let sessions = self.site.sessions();
            assert!(sessions <= self.limits.servers, "{sessions} sessions where {} are allowed", self.limits.servers);
        }
        let unsent = self.harness.most_unsent();
        assert!(unsent <= self.limits.unsent, "{unsent} bytes wait for one peer");
    }

    fn is_held_up(&self) -> bool {
        self.held_up.is_some()
    }

    fn plan_fault(&mut self) {
        self.next_fault = self.chaos.every.map(|mean| self.now + self.rng.around(mean));
    }

    fn break_something(&mut self) {
        if self.recovery.take_if(|at| *at <= self.now).is_some() {
            (0..S::Database::PORTS).for_each(|port| self.network.set_host(port, Host::Accepts));
            _ = self.harness.handle().resume(None);
            if !self.chaos.gentle {
                self.last_fault = Some(self.now);
            }
            self.site.speak(&self.network);
            return;
        }
        self.plan_fault();
        if self.chaos.gentle {
            return self.break_gently();
        }
        self.done.faults += 1;
        self.last_fault = Some(self.now);
        if self.disturbs_hosts() {
            return self.site.disturb(&self.network, self.rng.next(), false, self.now);
        }
        let open = self.site.database.open();
        match self.rng.below(10) {
            0..=2 if !open.is_empty() => {
                let (victim, politely) = (open[self.rng.index(open.len())], self.rng.percent(60));
                self.site.kill(&self.network, victim, politely, self.now);
            }
            3..=5 if !open.is_empty() => {
                let victim = open[self.rng.index(open.len())];
                self.site.cut(&self.network, victim);
            }
            6 => open.iter().for_each(|victim| self.site.kill(&self.network, *victim, false, self.now)),
            7 | 8 if self.recovery.is_none() => {
                let how = self.rng.pick(&[Host::Refuses, Host::Silent, Host::Silent, Host::Unreachable]);
                self.set_some_host(how);
                self.recovery = Some(self.now + self.rng.around(Duration::from_millis(200)));
            }
            _ => self.order(),
        }
    }

    /// What no client may feel: none of it touches a request, or nothing of a request that it touches has been carried
    /// out.
    fn break_gently(&mut self) {
        if self.disturbs_hosts() {
            return self.site.disturb(&self.network, self.rng.next(), true, self.now);
        }
        match self.rng.below(4) {
            0 | 1 => self.site.lie_in_wait(),
            2 if self.recovery.is_none() => {
                let how = self.rng.pick(&[Host::Refuses, Host::Unreachable]);
                self.set_some_host(how);
                self.recovery = Some(self.now + self.rng.around(Duration::from_millis(20)));
            }
            _ => self.order(),
        }
    }

    /// Where there are several hosts, most of what goes wrong is between them.
    fn disturbs_hosts(&mut self) -> bool {
        S::Database::HOSTS > 1 && self.rng.percent(60)
    }

    fn set_some_host(&mut self, how: Host) {
        let host = if S::Database::HOSTS > 1 { self.rng.below(S::Database::HOSTS.into()) } else { 0 };
        let ports = (host as u16..S::Database::PORTS).step_by(S::Database::HOSTS.into());
        ports.for_each(|port| self.network.set_host(port, how));
    }

    /// An operator gives an order.
    fn order(&mut self) {
        let handle = self.harness.handle();
        let lot = self.rng.below(5);
        if S::FEELS_REPLACEMENTS && self.chaos.gentle && matches!(lot, 0 | 2) {
            self.done.faults += 1;
            self.last_fault = Some(self.now);
        }
        match lot {
            0 => handle.reconnect(None),
            1 if self.recovery.is_none() => {
                _ = handle.pause(None);
                self.recovery = Some(self.now + self.rng.around(Duration::from_millis(20)));
                return;
            }
            2 => (0..=self.rng.below(3)).for_each(|_| self.harness.reload_with_new_revision()),
            3 => _ = handle.pause(None),
            _ => {}
        }
        if self.recovery.is_none() {
            _ = handle.resume(None);
        }
    }
}
