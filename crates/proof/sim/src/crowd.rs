//! Crowds of clients at a listener's limits, in virtual time: real workers, and clients that come in bursts, ramps,
//! waves and trickles, ask a few times, and then leave, stay idle, stay in a transaction, or have never logged in.
//! There is no database: a client's letters say in which state it is.
//!
//! Clients log in to several databases as several users. Some of these have limits, which reloads change.
//!
//! Checked: the number of clients inside never exceeds `hard_limit`; no client is evicted that is busy or was idle for
//! less than `evict_min_idle`, and only as many as exceed the soft limit; no newcomer is refused while there is a
//! place, or while a client that may be evicted has been idle for longer than that and a few ticks, unless other
//! newcomers have just got places. The same holds for each tenant (a database or a user) with limits, among its own
//! clients. When all clients have left, the listener counts none.

mod letter_protocol;
mod tenants;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use driver::{DriverConfig, TenantLimits, Timeouts};
use pool::{GateConfig, Time};

pub use self::letter_protocol::LetterProtocol;
use self::tenants::{DATABASES, Limits, TenantIndex, USERS};
use crate::{
    harness::{Harness, Rules},
    network::{Conditions, EndId, Network},
    random::Rng,
};

/// Steps after which a schedule counts as endless.
const MAX_STEPS: u64 = 2_000_000;
/// The longest that a worker sleeps; what follows from it takes one more tick.
const TICK: Duration = Duration::from_millis(20);
/// Time after a reload by which all workers apply its limits to all clients.
const RELOAD_TIME: Duration = Duration::from_millis(500);
/// The longest that sent bytes take.
const MAX_DELIVERY_TIME: Duration = Duration::from_millis(10);
/// Time after the last client has left by which the listener counts none.
const MAX_SETTLING_TIME: Duration = Duration::from_secs(30);

/// What a client does after its last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LastAction {
    Leaves,
    StaysIdle,
    StaysInTransaction,
    Subscribes,
}

/// The state of a client, as its received bytes show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ClientState {
    Disconnected,
    /// Connected, and not answered yet.
    Connecting,
    RequestSent,
    /// Idle at least since this time.
    Idle(Time),
    /// In a transaction, or subscribed.
    Busy,
}

struct Client {
    end: Option<EndId>,
    /// Its database and its user.
    login: [TenantIndex; 2],
    /// The database and user of its pending change.
    pending_login: Option<[TenantIndex; 2]>,
    /// When it was last evicted, or refused for the limit of a tenant.
    turned_away_at: Option<Time>,
    /// When it acts next by itself.
    wake: Time,
    state: ClientState,
    /// It connects, and never logs in.
    silent: bool,
    requests: u64,
    last: LastAction,
    /// Letters without an answer yet.
    sent: VecDeque<u8>,
    /// Times that it connects again after it was evicted or refused.
    reconnects: u64,
}

impl Client {
    /// Whether it has logged in, as its received bytes show.
    fn is_logged_in(&self) -> bool {
        matches!(self.state, ClientState::Idle(_) | ClientState::RequestSent | ClientState::Busy)
    }

    /// Whether it was turned away so recently that the pooler may still count it.
    fn was_turned_away_lately(&self, now: Time) -> bool {
        self.turned_away_at.is_some_and(|at| now - at < TICK * 3)
    }

    /// Whether it counts for a tenant, both before and after its pending change.
    fn counts_for(&self, tenant: TenantIndex) -> bool {
        self.login.contains(&tenant) && self.pending_login.is_none_or(|to| to.contains(&tenant))
    }

    /// Whether it may count for a tenant.
    fn may_count_for(&self, tenant: TenantIndex) -> bool {
        self.login.contains(&tenant) || self.pending_login.is_some_and(|to| to.contains(&tenant))
    }
}

/// The letter that logs a client in.
fn digit(login: [TenantIndex; 2]) -> u8 {
    b'0' + (login[0] * USERS + login[1] - DATABASES) as u8
}

/// Counts of a schedule.
#[derive(Clone, Copy, Default, Debug)]
pub struct Outcome {
    pub steps: u64,
    /// Clients that got a place, that were evicted, and that were refused.
    pub counts: [u64; 3],
}

struct Crowd {
    harness: Harness<LetterProtocol>,
    network: Network,
    rng: Rng,
    now: Time,
    gate: GateConfig,
    /// The most clients of the listener: its hard limit, or that of all listeners.
    most_clients: u32,
    limits: Limits,
    /// By tenant: the most clients allowed now. A lowered limit takes effect when the excess clients have left.
    most: [u32; DATABASES + USERS],
    /// When limits were last changed; 0: never.
    last_reload: Time,
    next_reload: Time,
    pause: Duration,
    clients: Vec<Client>,
    /// When a newcomer last got a place.
    progress: Time,
    /// When a client last left, by itself or not.
    last_departure: Time,
    last_departure_by_itself: Time,
    outcome: Outcome,
    trace: bool,
}

/// Plays the schedule of a seed.
///
/// # Panics
/// If an invariant does not hold.
pub fn play(seed: u64, trace: bool) -> Outcome {
    let mut crowd = Crowd::new(seed, trace);
    crowd.trace(|| format!("{:?}, {:?}", crowd.gate, [0, 1, 2, 3, 4, 5].map(|tenant| crowd.limits.of(tenant))));
    while crowd.clients.iter().any(|client| client.state != ClientState::Disconnected || client.wake != Time::NEVER) {
        crowd.step();
    }
    let until = crowd.now + MAX_SETTLING_TIME;
    while crowd.now < until && crowd.inside() > 0 {
        crowd.step();
    }
    assert_eq!(crowd.inside(), 0, "the listener counts clients though all have left");
    for tenant in crowd.harness.handle().snapshot().tenants {
        assert_eq!((tenant.clients, tenant.waiting), (0, 0), "{} counts clients though all have left", tenant.tenant);
    }
    crowd.outcome
}

impl Crowd {
    fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(seed);
        let hard_limit = rng.pick(&[2, 5, 10, 30]) as u32;
        let soft_limit = (hard_limit * rng.pick(&[50, 80, 80, 100]) as u32 / 100).max(1);
        let evict_min_idle = Duration::from_millis(rng.pick(&[50, 200, 1_000]));
        let wait = evict_min_idle + Duration::from_millis(rng.pick(&[100, 500, 5_000]));
        let gate = GateConfig { soft_limit, hard_limit, evict_min_idle };
        let conditions = Conditions {
            delay: Duration::from_micros(rng.pick(&[1, 300])),
            pieces: 0,
            window: 64 << 10,
            short_reads: 0,
        };
        let network = Network::new(rng.next(), conditions);
        let max_clients = max_clients(seed, hard_limit);
        let rules = Rules {
            driver: DriverConfig {
                workers: 1 + rng.index(3),
                buffer_size: 512,
                max_clients,
                ..DriverConfig::default()
            },
            gate,
            timeouts: Timeouts { newcomer_wait: Some(wait), ..Timeouts::default() },
            proxies: Vec::new(),
        };
        let limits = Limits::default();
        if rng.percent(70) {
            limits.draw(&mut rng, hard_limit);
        }
        let harness = Harness::new(LetterProtocol, Arc::new(limits.clone()), rules, &network, &mut rng);
        let clients = clients(&mut rng, hard_limit);
        let pause = rng.pick(&[Duration::from_millis(1), evict_min_idle / 2, evict_min_idle * 2]);
        let (now, outcome) = (Time(0), Outcome::default());
        let next_reload = if rng.percent(30) { now + rng.exponential(Duration::from_secs(1)) } else { Time::NEVER };
        let most = std::array::from_fn(|tenant| limits.of(tenant).map_or(u32::MAX, |limits| limits.hard_limit));
        Self {
            harness,
            network,
            rng,
            now,
            gate,
            most_clients: if max_clients > 0 { max_clients } else { hard_limit },
            limits,
            most,
            last_reload: now,
            next_reload,
            pause,
            clients,
            progress: now,
            last_departure: now,
            last_departure_by_itself: now,
            outcome,
            trace,
        }
    }

    /// Reloads with other limits.
    fn reload(&mut self) {
        self.limits.draw(&mut self.rng, self.gate.hard_limit);
        self.harness.reload();
        let again = self.now + self.rng.exponential(Duration::from_secs(2));
        self.last_reload = self.now;
        self.next_reload = if self.rng.percent(50) { again } else { Time::NEVER };
        for (tenant, most) in self.most.iter_mut().enumerate() {
            *most = (*most).max(self.limits.of(tenant).map_or(u32::MAX, |limits| limits.hard_limit));
        }
    }

    /// Number of clients that the workers count, without refused ones.
    fn inside(&self) -> u64 {
        let listener = self.harness.handle().snapshot().listeners.remove(0);
        listener.login + listener.idle + listener.waiting + listener.active + listener.subscribed
    }

    fn step(&mut self) {
        self.outcome.steps += 1;
        assert!(self.outcome.steps < MAX_STEPS, "the schedule does not end");
        if self.now >= self.next_reload {
            self.reload();
        }
        for end in self.network.take_changed() {
            if let Some(number) = self.clients.iter().position(|client| client.end == Some(end)) {
                self.receive(number, end);
            }
        }
        let workers = self.harness.ready();
        let awake: Vec<usize> = (0..self.clients.len()).filter(|n| self.clients[*n].wake <= self.now).collect();
        let choices = workers.len() + awake.len();
        if choices == 0 {
            return self.advance_time();
        }
        let lot = self.rng.index(choices);
        match workers.get(lot) {
            Some(worker) => self.harness.step(*worker),
            None => self.act(awake[lot - workers.len()]),
        }
        self.check();
    }

    fn advance_time(&mut self) {
        let wakes = self.clients.iter().map(|client| client.wake);
        let next = wakes
            .chain([self.next_reload])
            .chain(self.network.next_at())
            .chain(self.harness.next_wake())
            .min()
            .expect("workers wake");
        self.now = next.max(self.now);
        self.harness.set_time(self.now);
        self.network.advance(self.now);
    }

    fn act(&mut self, number: usize) {
        let pause = self.rng.exponential(self.pause);
        let (now, client) = (self.now, &mut self.clients[number]);
        client.wake = Time::NEVER;
        let Some(end) = client.end else {
            client.end = Some(self.network.connect());
            client.state = ClientState::Connecting;
            // A silent client leaves by itself. One that logs in is answered when it has a place.
            client.wake = if client.silent { now + pause * 4 } else { now };
            client.requests += u64::from(!client.silent);
            return;
        };
        match client.state {
            ClientState::Connecting if client.silent => self.leave(number),
            ClientState::Idle(_) if client.requests > 0 && self.rng.percent(10) => {
                let to = [self.rng.index(DATABASES), DATABASES + self.rng.index(USERS)];
                (client.pending_login, client.state) = (Some(to), ClientState::RequestSent);
                client.sent.push_back(digit(to));
                self.network.send(end, &[digit(to)]);
            }
            ClientState::Connecting | ClientState::Idle(_) if client.requests > 0 => {
                client.requests -= 1;
                let is_last = client.requests == 0;
                let letter = match client.last {
                    LastAction::StaysInTransaction if is_last => b't',
                    LastAction::Subscribes if is_last => b's',
                    _ => b'i',
                };
                client.sent.push_back(letter);
                let login = [digit(client.login)];
                let first: &[u8] = if client.state == ClientState::Connecting { &login } else { &[] };
                if client.state != ClientState::Connecting {
                    client.state = ClientState::RequestSent;
                }
                self.network.send(end, &[first, &[letter]].concat());
            }
            _ => self.leave(number),
        }
    }

    fn leave(&mut self, number: usize) {
        (self.last_departure, self.last_departure_by_itself) = (self.now, self.now);
        self.disconnect(number);
    }

    fn disconnect(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if let Some(end) = client.end.take() {
            self.network.close(end);
        }
        (client.state, client.wake, client.pending_login) = (ClientState::Disconnected, Time::NEVER, None);
        client.sent.clear();
    }

    /// Handles what a client has received.
    fn receive(&mut self, number: usize, end: EndId) {
        for letter in self.network.receive(end, usize::MAX) {
            let Client { login, state: before, .. } = self.clients[number];
            self.trace(|| format!("client {number} of {login:?}, {before:?}, gets {}", char::from(letter)));
            match letter {
                b'F' => return self.on_refused(number),
                b'T' => return self.on_refused_by_tenant(number),
                b'E' => return self.on_evicted(number, before),
                b'C' | b'L' => return self.reconnect_later(number),
                _ => {}
            }
            let pause = self.rng.exponential(self.pause);
            let (now, client) = (self.now, &mut self.clients[number]);
            assert_eq!(client.sent.pop_front(), Some(letter), "client {number} gets something else");
            if before == ClientState::Connecting {
                self.outcome.counts[0] += 1;
                self.progress = now;
            }
            if letter.is_ascii_digit() {
                // Other clients may have got the places that it has left.
                self.last_departure = now;
                client.login = client.pending_login.take().expect("the client sent a change");
            }
            client.state = if matches!(letter, b't' | b's') { ClientState::Busy } else { ClientState::Idle(now) };
            client.wake = match client.last {
                LastAction::Leaves => now + pause,
                _ if client.requests > 0 => now + pause,
                // A client that stays idle, in a transaction or subscribed leaves after some time, too.
                _ => now + pause * 40,
            };
        }
        if self.clients[number].end == Some(end) && self.network.has_input_ended(end) {
            let state = self.clients[number].state;
            assert_eq!(state, ClientState::Connecting, "client {number} is disconnected without an error");
            self.reconnect_later(number);
        }
    }

    /// Disconnects a client, which may connect again later.
    fn reconnect_later(&mut self, number: usize) {
        self.last_departure = self.now;
        self.disconnect(number);
        let pause = self.rng.exponential(self.pause * 4);
        let client = &mut self.clients[number];
        if client.reconnects > 0 {
            client.reconnects -= 1;
            client.wake = self.now + pause;
        }
    }

    fn on_evicted(&mut self, number: usize, before: ClientState) {
        // A request may have crossed the eviction, so the start of its idle time is unknown.
        let right = match before {
            ClientState::Idle(since) => self.now - since + MAX_DELIVERY_TIME >= self.gate.evict_min_idle,
            ClientState::RequestSent => true,
            ClientState::Connecting | ClientState::Busy | ClientState::Disconnected => false,
        };
        assert!(right, "client {number} is evicted: {before:?}, with {:?}", self.gate);
        self.outcome.counts[1] += 1;
        self.clients[number].turned_away_at = Some(self.now);
        self.reconnect_later(number);
        if self.now - self.last_departure_by_itself <= MAX_DELIVERY_TIME || self.is_reload_recent() {
            return;
        }
        // A client that leaves because of the limit of one tenant has left its listener and its other tenant as well.
        let is_limited = self.is_limited();
        let here = |of: Option<TenantIndex>| {
            let all = self.clients.iter().filter(|client| of.is_none_or(|of| client.may_count_for(of)));
            let counts = |client: &&Client| {
                self.is_open_at_workers(client)
                    || is_limited && (client.end.is_some() || client.was_turned_away_lately(self.now))
            };
            all.filter(counts).count() as u32
        };
        let GateConfig { soft_limit, hard_limit, .. } = self.gate;
        let of_listener = soft_limit < hard_limit && here(None) >= soft_limit;
        let of_tenant = |tenant: &TenantIndex| {
            // A lowered limit may be below the present number of clients.
            let lowered = self.last_reload > Time(0);
            let too_many = |limits: TenantLimits| {
                let here = here(Some(*tenant));
                here >= limits.soft_limit && (limits.soft_limit < limits.hard_limit || lowered)
            };
            self.limits.of(*tenant).is_some_and(too_many)
        };
        let login = self.clients[number].login;
        assert!(
            of_listener || login.iter().any(of_tenant),
            "client {number} of {login:?} is evicted at {:?}; {:?} remain in all, of its database and its user: \
             {:?}, {:?}",
            self.now,
            [here(None), here(Some(login[0])), here(Some(login[1]))],
            self.gate,
            login.map(|tenant| self.limits.of(tenant))
        );
    }

    /// Whether any database or user has limits.
    fn is_limited(&self) -> bool {
        (0..self.most.len()).any(|tenant| self.limits.of(tenant).is_some())
    }

    /// Whether limits were changed just now.
    fn is_reload_recent(&self) -> bool {
        self.last_reload > Time(0) && self.now - self.last_reload < RELOAD_TIME
    }

    /// A tenant has refused a client.
    fn on_refused_by_tenant(&mut self, number: usize) {
        let departure = self.last_departure;
        self.outcome.counts[2] += 1;
        let moved = self.clients[number].pending_login;
        if let Some(to) = moved {
            self.clients[number].login = to;
        }
        self.clients[number].turned_away_at = Some(self.now);
        self.reconnect_later(number);
        if self.is_reload_recent() || self.now - self.progress < TICK * 6 || self.now - departure < TICK * 6 {
            return;
        }
        let long = self.gate.evict_min_idle + TICK * 8;
        let is_full = |tenant: &TenantIndex| {
            let of_tenant = || self.clients.iter().filter(|client| client.may_count_for(*tenant));
            let is_evictable =
                |client: &Client| matches!(client.state, ClientState::Idle(since) if self.now - since > long);
            self.limits.of(*tenant).is_some_and(|limits| {
                // The client that took the last place may not have received its answer yet.
                let may_have_place =
                    |client: &Client| moved.is_some() && client.state == ClientState::Connecting && !client.silent;
                let logged_in =
                    of_tenant().filter(|client| client.is_logged_in() || may_have_place(client)).count() as u32;
                logged_in >= limits.hard_limit
                    && (moved.is_some() || limits.soft_limit >= limits.hard_limit || !of_tenant().any(is_evictable))
            })
        };
        let login = self.clients[number].login;
        assert!(
            login.iter().any(is_full),
            "client {number} is refused at {:?} though its database and its user have places, or clients that may be \
            evicted: \
             {:?}",
            self.now,
            login.map(|tenant| self.limits.of(tenant))
        );
    }

    fn on_refused(&mut self, number: usize) {
        let departure = self.last_departure;
        self.outcome.counts[2] += 1;
        self.reconnect_later(number);
        // Silent clients beyond their share evict no client: they leave by themselves.
        let has_silent = self.clients.iter().any(|client| client.silent && client.state == ClientState::Connecting);
        // So do clients that wait for a place of their tenants.
        let may_have_place = |client: &Client| {
            client.state == ClientState::Connecting && !client.silent || client.was_turned_away_lately(self.now)
        };
        let waiting = self.is_limited() && self.clients.iter().any(may_have_place);
        if has_silent || waiting || self.is_reload_recent() || self.now - self.progress < TICK * 6 {
            return;
        }
        // A client that is being evicted has its place until it is closed.
        let logged_in = self.clients.iter().filter(|client| client.is_logged_in()).count();
        let room = (logged_in as u32) < self.most_clients && self.now - departure > TICK * 6;
        assert!(!room, "client {number} is refused at {:?} with {logged_in} inside: {:?}", self.now, self.gate);
        let long = self.gate.evict_min_idle + TICK * 4;
        let is_evictable =
            |client: &Client| matches!(client.state, ClientState::Idle(since) if self.now - since > long);
        // No client is evicted for the limit of all listeners.
        if self.most_clients == self.gate.hard_limit
            && self.gate.soft_limit < self.gate.hard_limit
            && let Some(idle) = self.clients.iter().position(is_evictable)
        {
            let state = self.clients[idle].state;
            panic!("client {number} is refused at {:?} though client {idle} may be evicted: {state:?}", self.now);
        }
    }

    /// Whether its connection is open at the side of the workers.
    fn is_open_at_workers(&self, client: &Client) -> bool {
        client.end.is_some_and(|end| !self.network.has_peer_left(end))
    }

    /// Clients that have logged in and are still connected.
    fn logged_in_clients(&self) -> usize {
        self.clients.iter().filter(|client| client.is_logged_in() && self.is_open_at_workers(client)).count()
    }

    fn check(&mut self) {
        let inside = self.logged_in_clients();
        assert!(inside as u32 <= self.most_clients, "{inside} are inside, with {:?}", self.gate);
        for tenant in 0..self.most.len() {
            let Some(TenantLimits { hard_limit, .. }) = self.limits.of(tenant) else { continue };
            let of_tenant = self.clients.iter().filter(|client| client.counts_for(tenant));
            let inside =
                of_tenant.filter(|client| client.is_logged_in() && self.is_open_at_workers(client)).count() as u32;
            if inside <= hard_limit && !self.is_reload_recent() {
                self.most[tenant] = hard_limit;
            }
            let most = self.most[tenant];
            assert!(inside <= most, "{inside} of tenant {tenant} are inside, {most} may be");
        }
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12.6}   {}", self.now.0 as f64 / 1e9, what());
        }
    }
}

/// The most clients of all listeners in a schedule; 0: no limit. It is drawn apart, so that the others of a seed
/// do not depend on it.
fn max_clients(seed: u64, hard_limit: u32) -> u32 {
    let mut rng = Rng::new(!seed);
    let drawn = 1 + rng.below(u64::from(hard_limit)) as u32;
    if rng.percent(20) { drawn } else { 0 }
}

fn clients(rng: &mut Rng, hard_limit: u32) -> Vec<Client> {
    let count = 1 + rng.index(hard_limit as usize * 4);
    let span = Duration::from_millis(rng.pick(&[1, 300, 3_000]));
    let waves = 1 + rng.below(4);
    let shape = rng.below(4);
    let (silent_percent, busy_percent) = (rng.pick(&[0, 0, 20, 60]), rng.pick(&[0, 10, 40]));
    let client = |number: usize| {
        let at = match shape {
            // A burst, waves, a ramp, a trickle.
            0 => Duration::ZERO,
            1 => span * (number as u32 % waves as u32),
            2 => span.mul_f64((number as f64 / count as f64).sqrt()),
            _ => rng.exponential(span * 2),
        };
        let last = match rng.below(100) {
            lot if lot < busy_percent => rng.pick(&[LastAction::StaysInTransaction, LastAction::Subscribes]),
            lot if lot < 80 => LastAction::StaysIdle,
            _ => LastAction::Leaves,
        };
        Client {
            end: None,
            login: [rng.index(DATABASES), DATABASES + rng.index(USERS)],
            pending_login: None,
            turned_away_at: None,
            wake: Time(0) + at,
            state: ClientState::Disconnected,
            silent: rng.percent(silent_percent),
            requests: rng.below(4),
            last,
            sent: VecDeque::new(),
            reconnects: rng.below(3),
        }
    };
    (0..count).map(client).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crowds_are_served_evicted_and_refused() {
        let mut counts = [0; 3];
        for seed in 1..200 {
            let outcome = play(seed, false);
            (0..3).for_each(|n| counts[n] += outcome.counts[n]);
        }
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    }
}
