//! What befalls the databases and the machine, and what operators order meanwhile: a database that falls silent, dies
//! with all its connections, is slow or out of reach; descriptors that run out; drains, reconnects, and reloads by the
//! hundred. It has a source of chance of its own, so that a world without trouble is the same whatever is added here.

use std::time::Duration;

use pool::{Clear, PauseMode, PoolConfig, ServerId, Time};

use super::{Event, World, oracle::State, plan};

/// The most reloads in a row.
const MAX_RELOADS: u64 = 100;
/// How often a pool that is drained is looked after.
const UPKEEP: Duration = Duration::from_micros(200);

/// How a database is, for all the pools that are of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Health {
    Up,
    /// Nothing is answered, nor refused, until then: neither queries nor connects. Then it goes on, or has died.
    Silent(Time),
    /// It refuses connections.
    Down,
}

#[derive(Clone, Copy, Debug)]
pub struct Host {
    health: Health,
    /// By how much its replies are slower than usual.
    slow: u32,
}

impl Host {
    pub fn new() -> Self {
        Self { health: Health::Up, slow: 1 }
    }
}

impl World {
    pub(super) fn trouble(&mut self) {
        let Some(trouble) = self.plan.trouble.filter(|_| !self.calm) else { return };
        let pool = self.trouble_rng.index(self.posts.len());
        let host = self.posts[pool].host;
        match self.trouble_rng.below(if self.plan.changes { 13 } else { 12 }) {
            0 | 1 => self.fall_silent(host),
            2 | 3 => self.go_down(host),
            4 => {
                self.hosts[host].slow = self.trouble_rng.pick(&[1, 5, 30]);
            }
            5 => {
                let lasting = self.lasting();
                self.tell(|| format!("descriptors run out for {lasting:?}"));
                self.no_descriptors_until = self.now() + lasting;
            }
            6 | 7 => self.drain(pool),
            8 => {
                self.tell(|| format!("pool {pool} is held and emptied"));
                self.pause(pool, PauseMode::HoldWaiters);
                self.make_stale(pool);
            }
            9 => self.resume(pool),
            10 => self.make_stale(pool),
            11 => {
                self.tell(|| format!("pool {pool} has an errand"));
                let now = self.clock(pool);
                self.posts[pool].oracle.errand = true;
                self.posts[pool].pool.request_reset(now);
                self.pump(pool, None);
            }
            _ => {
                let reloads = self.trouble_rng.within(2..=MAX_RELOADS) as u32;
                self.reload(reloads);
            }
        }
        let after = self.trouble_rng.around(trouble.every);
        self.agenda.after(after, Event::Trouble);
    }

    fn lasting(&mut self) -> Duration {
        self.trouble_rng.around(self.plan.connect * 8).min(Duration::from_millis(20))
    }

    /// As after SIGSTOP, or behind a network that swallows everything.
    fn fall_silent(&mut self, host: usize) {
        if self.hosts[host].health == Health::Up {
            let until = self.now() + self.lasting();
            self.tell(|| format!("database {host} falls silent until {until:?}"));
            self.hosts[host].health = Health::Silent(until);
            self.agenda.at(until, Event::HostBack(host));
        }
    }

    /// As when the postmaster is killed: all connections end, which is noticed one after the other.
    fn go_down(&mut self, host: usize) {
        if self.hosts[host].health == Health::Up {
            self.die(host);
        }
    }

    fn die(&mut self, host: usize) {
        self.tell(|| format!("database {host} dies"));
        self.hosts[host].health = Health::Down;
        for pool in (0..self.posts.len()).filter(|&p| self.posts[p].host == host) {
            let up = |state: State| !matches!(state, State::Connecting | State::Closing);
            let servers: Vec<_> = self.posts[pool].oracle.servers().filter(|s| up(s.state)).map(|s| s.id).collect();
            for server in servers {
                let after = Duration::from_nanos(self.trouble_rng.below(20_000));
                self.agenda.after(after, Event::Lost(pool, server));
            }
        }
        let lasting = self.lasting();
        self.agenda.after(lasting, Event::HostBack(host));
    }

    pub(super) fn host_back(&mut self, host: usize) {
        let silent = matches!(self.hosts[host].health, Health::Silent(_));
        if silent && !self.calm && self.trouble_rng.percent(40) {
            return self.die(host);
        }
        self.hosts[host].health = Health::Up;
    }

    /// The end of a connection is noticed.
    pub(super) fn lost(&mut self, pool: usize, server: ServerId) {
        if self.posts[pool].oracle.server(server).is_some() {
            self.lose(pool, server);
        }
    }

    /// Until when this pool's database says nothing.
    pub(super) fn silent_until(&self, pool: usize) -> Option<Time> {
        match self.hosts[self.posts[pool].host].health {
            Health::Silent(until) if until > self.now() && !self.calm => Some(until),
            _ => None,
        }
    }

    /// Its database refuses connections.
    pub(super) fn is_down(&self, pool: usize) -> bool {
        self.hosts[self.posts[pool].host].health == Health::Down && !self.calm
    }

    /// A connection cannot even be begun.
    pub(super) fn lacks_descriptors(&self) -> bool {
        self.now() < self.no_descriptors_until && !self.calm
    }

    /// How long a server is held by this pool's clients, on average.
    pub(super) fn holding(&self, pool: usize) -> Duration {
        self.plan.hold * if self.calm { 1 } else { self.hosts[self.posts[pool].host].slow }
    }

    // ---- orders ----

    fn make_stale(&mut self, pool: usize) {
        let now = self.clock(pool);
        self.posts[pool].pool.clear(Clear::default(), now);
        self.pump(pool, None);
    }

    /// No client keeps a server of it for longer than it must, and it keeps none itself.
    fn drain(&mut self, pool: usize) {
        if !std::mem::replace(&mut self.posts[pool].drained, true) {
            self.tell(|| format!("pool {pool} is drained"));
            let config = self.posts[pool].pool.config().clone();
            self.put_in_force(pool, config);
            self.make_stale(pool);
            self.agenda.after(UPKEEP, Event::Upkeep(pool));
        }
    }

    /// Ends a pause and a draining.
    pub(super) fn resume(&mut self, pool: usize) {
        if std::mem::take(&mut self.posts[pool].drained) {
            let min_size = self.posts[pool].least;
            let config = PoolConfig { min_size, ..self.posts[pool].pool.config().clone() };
            self.put_in_force(pool, config);
        }
        if self.posts[pool].pool.is_paused() {
            self.ready(pool);
        }
    }

    pub(super) fn upkeep(&mut self, pool: usize) {
        if !self.posts[pool].drained {
            return;
        }
        if self.posts[pool].pool.counts().idle > 0 {
            self.make_stale(pool);
        }
        for client in self.pinned_to(pool) {
            self.leave(client);
        }
        self.agenda.after(UPKEEP, Event::Upkeep(pool));
    }

    pub(super) fn reload(&mut self, left: u32) {
        if self.calm {
            return;
        }
        for pool in 0..self.posts.len() {
            let config = plan::config(&mut self.trouble_rng, 6, self.plan.endless);
            self.put_in_force(pool, config);
        }
        if left > 1 {
            let after = self.trouble_rng.around(Duration::from_micros(5));
            self.agenda.after(after, Event::Reload(left - 1));
        }
    }

    /// Other options, but that a pool which is to become empty keeps nothing for its own sake.
    pub(super) fn put_in_force(&mut self, pool: usize, mut config: PoolConfig) {
        self.posts[pool].least = config.min_size;
        if self.posts[pool].drained {
            config.min_size = 0;
        }
        self.tell(|| format!("pool {pool} gets other options: {config:?}"));
        let now = self.clock(pool);
        self.posts[pool].oracle.reconfigured(config.clone());
        self.posts[pool].pool.reconfigure(config, now);
        self.pump(pool, None);
    }
}
