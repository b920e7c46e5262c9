//! What is done to the world, now and then, by chance: clients and servers die, databases fall silent, go down or slow,
//! descriptors run out, workers are held up, operators pause, drain, reconnect and reload. It knows no bytes.

use std::time::Duration;

use pool::{Clear, Hold, PoolConfig};
use protocol::{ClientTag, Protocol, Refusal, ServerTag, Standing};

use super::{
    Seam,
    app::App,
    connection::State,
    driver::{Call, Event, longest},
    pool_config,
};

/// The most reloads in a row.
const MAX_RELOADS: u64 = 100;
/// How often a pool that is drained is looked after.
const UPKEEP: Duration = Duration::from_micros(300);

impl<P: Protocol> Seam<P> {
    pub(super) fn chaos(&mut self) {
        let driver = &mut self.driver;
        let clients: Vec<ClientTag> = driver.clients.iter().filter(|c| c.1.session.is_some()).map(|c| *c.0).collect();
        let servers: Vec<ServerTag> = driver.servers.keys().copied().collect();
        let pool = driver.rng.index(driver.pools.len());
        match driver.rng.below(21) {
            0 | 1 if !clients.is_empty() => {
                let tag = driver.rng.pick(&clients);
                driver.kill_client(tag);
                self.accept();
            }
            2 | 3 if !servers.is_empty() => {
                let tag = driver.rng.pick(&servers);
                self.cut(tag);
            }
            4 if !clients.is_empty() => {
                let tag = driver.rng.pick(&clients);
                let (serial, idle) = (driver.clients[&tag].serial, driver.clients[&tag].state == State::Idle);
                let why = if idle { Refusal::Evicted } else { Refusal::Killed };
                driver.call(tag.worker(), Call::Refuse(tag, serial, why));
            }
            5 | 6 if driver.plan.cancels && !clients.is_empty() => {
                let tag = driver.rng.pick(&clients);
                if let Some((target, secret)) = driver.clients[&tag].app.key {
                    let secret = secret ^ u64::from(driver.rng.percent(20));
                    driver.accept(|serial, _| App::canceller(serial, target, secret));
                }
            }
            7 => {
                let clear = Clear { fail_waiters: driver.rng.percent(50), interrupt: driver.rng.percent(50) };
                driver.order(pool, |pool, now| pool.clear(clear, now));
            }
            8 => {
                let hold = driver.rng.pick(&[Hold::Waiters, Hold::FailWaiters]);
                let empties = driver.rng.percent(50);
                driver.order(pool, |pool, now| {
                    pool.pause(hold, now);
                    if empties {
                        pool.clear(Clear::default(), now);
                    }
                });
            }
            9 | 10 => self.resume(pool),
            11 if !servers.is_empty() => {
                let tag = driver.rng.pick(&servers);
                let lasting = driver.soon() * 20;
                let conn = driver.servers.get_mut(&tag).expect("just seen");
                conn.frozen_until = conn.frozen_until.max(driver.agenda.now() + lasting);
            }
            12 => self.fall_silent(pool),
            13 => self.go_down(pool),
            14 => {
                let lasting = driver.soon() * 10;
                driver.no_descriptors_until = driver.now() + lasting;
            }
            15 => self.drain(pool),
            16 => {
                let reloads = driver.rng.within(1..=MAX_RELOADS) as u32;
                self.reload(reloads);
            }
            17 | 18 => {
                let worker = driver.rng.below(u64::from(driver.plan.workers)) as u8;
                driver.hold_up(worker);
            }
            _ => self.accept(),
        }
    }

    /// A server's connection is cut: in the middle of a reply, or after all that was sent.
    fn cut(&mut self, tag: ServerTag) {
        if self.driver.rng.percent(50) {
            self.flush(tag);
        }
        self.driver.end_server(tag);
    }

    fn flush(&mut self, tag: ServerTag) {
        for _ in 0..1000 {
            let driver = &mut self.driver;
            let Some(conn) = driver.servers.get_mut(&tag) else { return };
            let moved = driver.plan.cut.receive(&mut conn.upstream.sent, &mut conn.input, &mut driver.rng);
            driver.call(tag.worker(), Call::ServerInput(tag));
            driver.run();
            if moved == 0 {
                return;
            }
        }
    }

    /// As after SIGSTOP, or behind a network that swallows everything: then it goes on, or has died.
    fn fall_silent(&mut self, pool: usize) {
        let until = self.driver.now() + self.driver.soon() * 20;
        let host = &mut self.driver.hosts[pool];
        if !host.down && host.silent_until < until {
            host.silent_until = until;
            self.driver.agenda.at(until, Event::HostBack(pool));
        }
    }

    /// As when the postmaster is killed: all connections end, which workers notice one after the other.
    fn go_down(&mut self, pool: usize) {
        let driver = &mut self.driver;
        if std::mem::replace(&mut driver.hosts[pool].down, true) {
            return;
        }
        driver.tell(|| format!("the database of pool {pool} dies"));
        let ended: Vec<_> = driver.servers.iter().filter(|s| s.1.pool == pool).map(|s| (*s.0, s.1.serial)).collect();
        for (tag, serial) in ended {
            let after = Duration::from_nanos(driver.rng.below(100_000));
            driver.agenda.after(after, Event::Broken(tag, serial));
        }
        let coming = driver.workers.iter_mut().flat_map(|w| w.coming());
        coming.filter(|conn| conn.pool == pool).for_each(|conn| conn.broken = true);
        let lasting = driver.soon() * 10;
        driver.agenda.after(lasting, Event::HostBack(pool));
    }

    pub(super) fn host_back(&mut self, pool: usize) {
        if !std::mem::take(&mut self.driver.hosts[pool].down) && !self.calm && self.driver.rng.percent(40) {
            self.go_down(pool);
        }
    }

    // ---- orders ----

    /// Clients with nothing in progress are to go, and servers with them.
    fn drain(&mut self, pool: usize) {
        if !std::mem::replace(&mut self.driver.hosts[pool].drained, true) {
            self.driver.tell(|| format!("pool {pool} is drained"));
            let config = self.driver.plan.pools[pool].clone();
            self.put_in_force(pool, config);
            self.driver.order(pool, |pool, now| pool.clear(Clear::default(), now));
            self.upkeep(pool);
        }
    }

    /// Ends a pause and a draining.
    pub(super) fn resume(&mut self, pool: usize) {
        if std::mem::take(&mut self.driver.hosts[pool].drained) {
            let config = self.driver.plan.pools[pool].clone();
            self.put_in_force(pool, config);
        }
        if self.driver.pools[pool].is_paused() {
            self.driver.order(pool, |pool, now| pool.ready(now));
        }
    }

    /// Others want a server that clients share.
    pub(super) fn want_back(&mut self) {
        let driver = &mut self.driver;
        let places: Vec<_> = driver.muxes.keys().copied().collect();
        if !places.is_empty() {
            let (worker, pool) = driver.rng.pick(&places);
            driver.call(worker, Call::Yield(pool));
        }
        let after = driver.rng.around(driver.plan.yields);
        driver.agenda.after(after, Event::Yield);
    }

    pub(super) fn upkeep(&mut self, pool: usize) {
        let driver = &mut self.driver;
        if !driver.hosts[pool].drained {
            return;
        }
        let idle = |c: &(&ClientTag, &super::connection::ClientConn<P::Client>)| {
            c.1.pool == pool && c.1.state == State::Idle && c.1.standing == Standing::Idle
        };
        let idle: Vec<_> = driver.clients.iter().filter(idle).map(|c| (*c.0, c.1.serial)).collect();
        for (tag, serial) in idle {
            self.driver.call(tag.worker(), Call::Refuse(tag, serial, Refusal::Drained));
            self.accept();
        }
        let driver = &mut self.driver;
        if driver.pools[pool].counts().idle > 0 {
            driver.operate(driver.caretaker(pool), pool, |pool, now| pool.clear(Clear::default(), now));
        }
        driver.agenda.after(UPKEEP, Event::Upkeep(pool));
    }

    pub(super) fn reload(&mut self, left: u32) {
        if self.calm {
            return;
        }
        for pool in 0..self.driver.pools.len() {
            let config = pool_config(&mut self.driver.rng);
            self.put_in_force(pool, config);
        }
        if left > 1 {
            let after = self.driver.rng.around(Duration::from_micros(10));
            self.driver.agenda.after(after, Event::Reload(left - 1));
        }
    }

    fn put_in_force(&mut self, pool: usize, config: PoolConfig) {
        let driver = &mut self.driver;
        driver.plan.pools[pool] = config.clone();
        let min_size = if driver.hosts[pool].drained { 0 } else { config.min_size };
        let config = PoolConfig { min_size, ..config };
        driver.longest[pool] = driver.longest[pool].max(longest(&config));
        driver.books.reconfigured(pool, &config, driver.pools[pool].counts().total);
        driver.order(pool, |pool, now| pool.reconfigure(config, now));
    }
}
