//! Crowds of clients at a listener's limits, in virtual time: real workers, and clients that come in bursts, ramps,
//! waves and trickles, ask a few times, and then leave, stay idle, stay in a transaction, or have never logged in.
//! Knows no database: a client's words say how it stands.
//!
//! They come to several databases as several users, some of which have limits, which reloads change.
//!
//! Checked: there are never more clients inside than `hard_limit`; no client is evicted that is busy or was idle for
//! less than `evict_min_idle`, and no more than are above the soft limit; no newcomer is refused while there is a
//! place, or while a client that may go has been idle for longer than that and a few ticks, unless others have just got
//! places. The same holds for each database and each user that has limits, among its own clients: one that is evicted
//! is one too many of its listener, its database or its user. In the end, when all have left, the listener counts none.

mod letter_protocol;
mod tenants;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use driver::{DriverConfig, TenantLimits, Timeouts};
use pool::{GateConfig, Time};

pub use self::letter_protocol::LetterProtocol;
use self::tenants::{DATABASES, Limits, Number, USERS};
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

/// What a client does when it has asked as often as it wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    Leaves,
    Freezes,
    StaysInTransaction,
    Subscribes,
}

/// How a client stands, as far as it knows itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    /// It has not come, or has gone.
    Outside,
    /// It has said nothing, or was not answered yet.
    Coming,
    /// It waits for an answer.
    Asks,
    /// It has been idle since then at least.
    Idle(Time),
    /// It is in a transaction, or waits for what others send.
    Busy,
}

struct Client {
    end: Option<EndId>,
    /// Its database and its user.
    login: [Number; 2],
    /// Those that it has asked to have instead.
    moves_to: Option<[Number; 2]>,
    /// When it was last evicted, or refused by its database or its user.
    sent_away: Option<Time>,
    /// When it does something by itself.
    wake: Time,
    stands: Stands,
    /// It says nothing until then, if it never logs in.
    silent: bool,
    requests: u64,
    last: Last,
    said: VecDeque<u8>,
    /// It comes again when it has been sent away or refused.
    again: u64,
}

impl Client {
    /// It has logged in, as far as it knows.
    fn is_known(&self) -> bool {
        matches!(self.stands, Stands::Idle(_) | Stands::Asks | Stands::Busy)
    }

    /// It was sent away a moment ago: what came of its place before may be heard yet.
    fn was_here(&self, now: Time) -> bool {
        self.sent_away.is_some_and(|at| now - at < TICK * 3)
    }

    /// Whether it counts for a tenant, wherever it is on its way from one to another.
    fn is_of(&self, tenant: Number) -> bool {
        self.login.contains(&tenant) && self.moves_to.is_none_or(|to| to.contains(&tenant))
    }

    /// Whether it may count for a tenant.
    fn may_be_of(&self, tenant: Number) -> bool {
        self.login.contains(&tenant) || self.moves_to.is_some_and(|to| to.contains(&tenant))
    }
}

/// What a client says to log in.
fn digit(login: [Number; 2]) -> u8 {
    b'0' + (login[0] * USERS + login[1] - DATABASES) as u8
}

/// What a schedule has come to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Done {
    /// Steps of workers and clients.
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
    limits: Limits,
    /// By database and user: how many clients it may have by now; more than its limit while a reload has lowered that.
    most: [u32; DATABASES + USERS],
    /// When limits were last changed, and when they are to be changed next.
    reloads: [Time; 2],
    pause: Duration,
    clients: Vec<Client>,
    /// When a newcomer last got a place.
    progress: Time,
    /// When a client last left, by itself or not; and when by itself.
    departures: [Time; 2],
    done: Done,
    trace: bool,
}

/// Plays the schedule of a seed.
///
/// # Panics
/// When anything is not as it must be.
pub fn play(seed: u64, trace: bool) -> Done {
    let mut crowd = Crowd::new(seed, trace);
    crowd.tell(|| format!("{:?}, {:?}", crowd.gate, [0, 1, 2, 3, 4, 5].map(|tenant| crowd.limits.of(tenant))));
    while crowd.clients.iter().any(|client| client.stands != Stands::Outside || client.wake != Time::NEVER) {
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
    crowd.done
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
        let rules = Rules {
            driver: DriverConfig { workers: 1 + rng.index(3), buffer_size: 512, ..DriverConfig::default() },
            gate,
            timeouts: Timeouts { newcomer_wait: Some(wait), ..Timeouts::default() },
        };
        let limits = Limits::default();
        if rng.percent(70) {
            limits.draw(&mut rng, hard_limit);
        }
        let harness = Harness::new(LetterProtocol, Arc::new(limits.clone()), rules, &network, &mut rng);
        let clients = clients(&mut rng, hard_limit);
        let pause = rng.pick(&[Duration::from_millis(1), evict_min_idle / 2, evict_min_idle * 2]);
        let (now, done) = (Time(0), Done::default());
        let departures = [now; 2];
        let next = if rng.percent(30) { now + rng.around(Duration::from_secs(1)) } else { Time::NEVER };
        let most = std::array::from_fn(|number| limits.of(number).map_or(u32::MAX, |limits| limits.hard_limit));
        let (progress, reloads) = (now, [now, next]);
        Self {
            harness,
            network,
            rng,
            now,
            gate,
            limits,
            most,
            reloads,
            pause,
            clients,
            progress,
            departures,
            done,
            trace,
        }
    }

    /// Other limits are put in force.
    fn reload(&mut self) {
        self.limits.draw(&mut self.rng, self.gate.hard_limit);
        self.harness.reload();
        let again = self.now + self.rng.around(Duration::from_secs(2));
        self.reloads = [self.now, if self.rng.percent(50) { again } else { Time::NEVER }];
        for (number, most) in self.most.iter_mut().enumerate() {
            *most = (*most).max(self.limits.of(number).map_or(u32::MAX, |limits| limits.hard_limit));
        }
    }

    /// Clients that the workers count as inside, those that are refused excluded.
    fn inside(&self) -> u64 {
        let listener = self.harness.handle().snapshot().listeners.remove(0);
        listener.login + listener.idle + listener.waiting + listener.active + listener.subscribed
    }

    fn step(&mut self) {
        self.done.steps += 1;
        assert!(self.done.steps < MAX_STEPS, "the schedule does not end");
        if self.now >= self.reloads[1] {
            self.reload();
        }
        for end in self.network.take_changed() {
            if let Some(number) = self.clients.iter().position(|client| client.end == Some(end)) {
                self.hear(number, end);
            }
        }
        let workers = self.harness.ready();
        let awake: Vec<usize> = (0..self.clients.len()).filter(|n| self.clients[*n].wake <= self.now).collect();
        let choices = workers.len() + awake.len();
        if choices == 0 {
            return self.pass();
        }
        let lot = self.rng.index(choices);
        match workers.get(lot) {
            Some(worker) => self.harness.step(*worker),
            None => self.act(awake[lot - workers.len()]),
        }
        self.check();
    }

    fn pass(&mut self) {
        let wakes = self.clients.iter().map(|client| client.wake);
        let next = wakes
            .chain([self.reloads[1]])
            .chain(self.network.next_at())
            .chain(self.harness.next_at())
            .min()
            .expect("workers wake");
        self.now = next.max(self.now);
        self.harness.set_time(self.now);
        self.network.advance(self.now);
    }

    /// A client does what it wants to do by itself.
    fn act(&mut self, number: usize) {
        let pause = self.rng.around(self.pause);
        let (now, client) = (self.now, &mut self.clients[number]);
        client.wake = Time::NEVER;
        let Some(end) = client.end else {
            client.end = Some(self.network.connect());
            client.stands = Stands::Coming;
            // A stranger is gone some time; who logs in is not answered before it has a place.
            client.wake = if client.silent { now + pause * 4 } else { now };
            client.requests += u64::from(!client.silent);
            return;
        };
        match client.stands {
            Stands::Coming if client.silent => self.leave(number),
            Stands::Idle(_) if client.requests > 0 && self.rng.percent(10) => {
                let to = [self.rng.index(DATABASES), DATABASES + self.rng.index(USERS)];
                (client.moves_to, client.stands) = (Some(to), Stands::Asks);
                client.said.push_back(digit(to));
                self.network.send(end, &[digit(to)]);
            }
            Stands::Coming | Stands::Idle(_) if client.requests > 0 => {
                client.requests -= 1;
                let last = client.requests == 0;
                let letter = match client.last {
                    Last::StaysInTransaction if last => b't',
                    Last::Subscribes if last => b's',
                    _ => b'i',
                };
                client.said.push_back(letter);
                let login = [digit(client.login)];
                let said: &[u8] = if client.stands == Stands::Coming { &login } else { &[] };
                if client.stands != Stands::Coming {
                    client.stands = Stands::Asks;
                }
                self.network.send(end, &[said, &[letter]].concat());
            }
            _ => self.leave(number),
        }
    }

    fn leave(&mut self, number: usize) {
        self.departures = [self.now; 2];
        self.forget(number);
    }

    /// Its connection is over.
    fn forget(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if let Some(end) = client.end.take() {
            self.network.close(end);
        }
        (client.stands, client.wake, client.moves_to) = (Stands::Outside, Time::NEVER, None);
        client.said.clear();
    }

    /// What came for a client.
    fn hear(&mut self, number: usize, end: EndId) {
        for letter in self.network.receive(end, usize::MAX) {
            let Client { login, stands: before, .. } = self.clients[number];
            self.tell(|| format!("client {number} of {login:?}, {before:?}, hears {}", char::from(letter)));
            match letter {
                b'F' => return self.refused(number),
                b'T' => return self.full(number),
                b'E' => return self.evicted(number, before),
                b'C' | b'L' => return self.come_back(number),
                _ => {}
            }
            let pause = self.rng.around(self.pause);
            let (now, client) = (self.now, &mut self.clients[number]);
            assert_eq!(client.said.pop_front(), Some(letter), "client {number} hears something else");
            if before == Stands::Coming {
                self.done.counts[0] += 1;
                self.progress = now;
            }
            if letter.is_ascii_digit() {
                // The places that it has left others may have got.
                self.departures[0] = now;
                client.login = client.moves_to.take().expect("it asked for that");
            }
            client.stands = if matches!(letter, b't' | b's') { Stands::Busy } else { Stands::Idle(now) };
            client.wake = match client.last {
                Last::Leaves => now + pause,
                _ if client.requests > 0 => now + pause,
                // Functions that froze end some time, too.
                _ => now + pause * 40,
            };
        }
        if self.clients[number].end == Some(end) && self.network.is_over(end) {
            let stands = self.clients[number].stands;
            assert_eq!(stands, Stands::Coming, "client {number} is disconnected without a word");
            self.come_back(number);
        }
    }

    /// It was sent away, and comes again, some time.
    fn come_back(&mut self, number: usize) {
        self.departures[0] = self.now;
        self.forget(number);
        let pause = self.rng.around(self.pause * 4);
        let client = &mut self.clients[number];
        if client.again > 0 {
            client.again -= 1;
            client.wake = self.now + pause;
        }
    }

    fn evicted(&mut self, number: usize, before: Stands) {
        // What it has said may have crossed the eviction. Then it is not known since when it was idle.
        let right = match before {
            Stands::Idle(since) => self.now - since + MAX_DELIVERY_TIME >= self.gate.evict_min_idle,
            Stands::Asks => true,
            Stands::Coming | Stands::Busy | Stands::Outside => false,
        };
        assert!(right, "client {number} is evicted: {before:?}, with {:?}", self.gate);
        self.done.counts[1] += 1;
        self.clients[number].sent_away = Some(self.now);
        self.come_back(number);
        if self.now - self.departures[1] <= MAX_DELIVERY_TIME || self.is_new() {
            return;
        }
        // What goes for its database or its user, or finds no place there, is no longer there for its listener, and the
        // other way round.
        let is_limited = self.is_limited();
        let here = |of: Option<Number>| {
            let all = self.clients.iter().filter(|client| of.is_none_or(|of| client.may_be_of(of)));
            let counts = |client: &&Client| {
                self.is_here(client) || is_limited && (client.end.is_some() || client.was_here(self.now))
            };
            all.filter(counts).count() as u32
        };
        let GateConfig { soft_limit, hard_limit, .. } = self.gate;
        let of_listener = soft_limit < hard_limit && here(None) >= soft_limit;
        let of_tenant = |tenant: &Number| {
            // A reload may have left more than there may be.
            let lowered = self.reloads[0] > Time(0);
            let too_many = |limits: TenantLimits| {
                let here = here(Some(*tenant));
                here >= limits.soft_limit && (limits.soft_limit < limits.hard_limit || lowered)
            };
            self.limits.of(*tenant).is_some_and(too_many)
        };
        let login = self.clients[number].login;
        assert!(
            of_listener || login.iter().any(of_tenant),
            "client {number} of {login:?} is evicted at {:?}, and {:?} are left in all, of its database and its user: \
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
    fn is_new(&self) -> bool {
        self.reloads[0] > Time(0) && self.now - self.reloads[0] < RELOAD_TIME
    }

    /// There is no place for a client with its database or its user.
    fn full(&mut self, number: usize) {
        let departure = self.departures[0];
        self.done.counts[2] += 1;
        let moved = self.clients[number].moves_to;
        if let Some(to) = moved {
            self.clients[number].login = to;
        }
        self.clients[number].sent_away = Some(self.now);
        self.come_back(number);
        if self.is_new() || self.now - self.progress < TICK * 6 || self.now - departure < TICK * 6 {
            return;
        }
        let long = self.gate.evict_min_idle + TICK * 8;
        let is_full = |tenant: &Number| {
            let of_tenant = || self.clients.iter().filter(|client| client.may_be_of(*tenant));
            let may_go = |client: &Client| matches!(client.stands, Stands::Idle(since) if self.now - since > long);
            self.limits.of(*tenant).is_some_and(|limits| {
                // Who was refused at once may have come a moment after another, which has not heard yet that it is
                // inside.
                let comes = |client: &Client| moved.is_some() && client.stands == Stands::Coming && !client.silent;
                let known = of_tenant().filter(|client| client.is_known() || comes(client)).count() as u32;
                known >= limits.hard_limit
                    && (moved.is_some() || limits.soft_limit >= limits.hard_limit || !of_tenant().any(may_go))
            })
        };
        let login = self.clients[number].login;
        assert!(
            login.iter().any(is_full),
            "client {number} is refused at {:?} though its database and its user have places, or clients that may go: \
             {:?}",
            self.now,
            login.map(|tenant| self.limits.of(tenant))
        );
    }

    fn refused(&mut self, number: usize) {
        let departure = self.departures[0];
        self.done.counts[2] += 1;
        self.come_back(number);
        // Strangers beyond their share send no client away: they go by themselves when they take too long.
        let strangers = self.clients.iter().any(|client| client.silent && client.stands == Stands::Coming);
        // So do those who wait for a place with their database or their user.
        let comes = |client: &Client| client.stands == Stands::Coming && !client.silent || client.was_here(self.now);
        let waiting = self.is_limited() && self.clients.iter().any(comes);
        if strangers || waiting || self.is_new() || self.now - self.progress < TICK * 6 {
            return;
        }
        // One that is evicted at this moment has its place until it is gone.
        let known = self.clients.iter().filter(|client| client.is_known()).count();
        let room = (known as u32) < self.gate.hard_limit && self.now - departure > TICK * 6;
        assert!(!room, "client {number} is refused at {:?} with {known} inside: {:?}", self.now, self.gate);
        let long = self.gate.evict_min_idle + TICK * 4;
        let may_go = |client: &Client| matches!(client.stands, Stands::Idle(since) if self.now - since > long);
        if self.gate.soft_limit < self.gate.hard_limit
            && let Some(idle) = self.clients.iter().position(may_go)
        {
            let stands = self.clients[idle].stands;
            panic!("client {number} is refused at {:?} though client {idle} may go: {stands:?}", self.now);
        }
    }

    /// Whether the workers have not closed its connection.
    fn is_here(&self, client: &Client) -> bool {
        client.end.is_some_and(|end| !self.network.has_peer_left(end))
    }

    /// Clients that have logged in and are there.
    fn known(&self) -> usize {
        self.clients.iter().filter(|client| client.is_known() && self.is_here(client)).count()
    }

    fn check(&mut self) {
        let inside = self.known();
        assert!(inside as u32 <= self.gate.hard_limit, "{inside} are inside, with {:?}", self.gate);
        for tenant in 0..self.most.len() {
            let Some(TenantLimits { hard_limit, .. }) = self.limits.of(tenant) else { continue };
            let of_tenant = self.clients.iter().filter(|client| client.is_of(tenant));
            let inside = of_tenant.filter(|client| client.is_known() && self.is_here(client)).count() as u32;
            if inside <= hard_limit && !self.is_new() {
                self.most[tenant] = hard_limit;
            }
            let most = self.most[tenant];
            assert!(inside <= most, "{inside} of tenant {tenant} are inside, {most} may be");
        }
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12.6}   {}", self.now.0 as f64 / 1e9, what());
        }
    }
}

fn clients(rng: &mut Rng, hard_limit: u32) -> Vec<Client> {
    let count = 1 + rng.index(hard_limit as usize * 4);
    let span = Duration::from_millis(rng.pick(&[1, 300, 3_000]));
    let waves = 1 + rng.below(4);
    let shape = rng.below(4);
    let (silent, last) = (rng.pick(&[0, 0, 20, 60]), rng.pick(&[0, 10, 40]));
    let client = |number: usize| {
        let at = match shape {
            // A burst, waves, a ramp, a trickle.
            0 => Duration::ZERO,
            1 => span * (number as u32 % waves as u32),
            2 => span.mul_f64((number as f64 / count as f64).sqrt()),
            _ => rng.around(span * 2),
        };
        let last = match rng.below(100) {
            lot if lot < last => rng.pick(&[Last::StaysInTransaction, Last::Subscribes]),
            lot if lot < 80 => Last::Freezes,
            _ => Last::Leaves,
        };
        Client {
            end: None,
            login: [rng.index(DATABASES), DATABASES + rng.index(USERS)],
            moves_to: None,
            sent_away: None,
            wake: Time(0) + at,
            stands: Stands::Outside,
            silent: rng.percent(silent),
            requests: rng.below(4),
            last,
            said: VecDeque::new(),
            again: rng.below(3),
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
            let done = play(seed, false);
            (0..3).for_each(|n| counts[n] += done.counts[n]);
        }
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    }
}
