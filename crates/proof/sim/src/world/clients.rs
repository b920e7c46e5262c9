//! What clients do: come in, ask for a server, hold it, give it back, leave at any moment. They know their pool and the
//! gate.

use std::time::Duration;

use pool::{CheckIn, CheckOut, Grant, Home, Need, ServerId, WaiterId};

use super::{Event, Fault, World, door::Seat, oracle::State};

#[derive(Clone, Copy, Debug)]
enum Doing {
    Outside,
    Idle(Seat),
    Waiting {
        pool: usize,
        waiter: u64,
    },
    Holding {
        pool: usize,
        server: ServerId,
    },
    /// It keeps its server although it does nothing with it just now.
    Pinned {
        pool: usize,
        server: ServerId,
    },
    Gone,
}

#[derive(Clone, Debug)]
pub struct Client {
    doing: Doing,
    home: u8,
    /// Changes whenever it does something else.
    visit: u64,
    /// Check-outs that it still wants.
    pub left: u32,
}

impl Client {
    /// One that has not come yet.
    pub fn new(left: u32) -> Self {
        Self { doing: Doing::Outside, home: 0, visit: 0, left }
    }

    pub fn is_inside(&self) -> bool {
        !matches!(self.doing, Doing::Outside | Doing::Gone)
    }
}

impl World {
    fn becomes(&mut self, client: u32, doing: Doing) -> u64 {
        let client = &mut self.clients[client as usize];
        if let Doing::Pinned { pool, .. } = client.doing {
            self.posts[pool].pins -= 1;
        }
        if let Doing::Pinned { pool, .. } = doing {
            self.posts[pool].pins += 1;
        }
        client.doing = doing;
        client.visit += 1;
        client.visit
    }

    pub(super) fn arrive(&mut self, client: u32) {
        if !matches!(self.clients[client as usize].doing, Doing::Outside) || self.calm {
            return;
        }
        let now = self.now();
        let home = self.rng.below(u64::from(self.plan.homes)) as u8;
        if !self.door.admit() {
            let after = self.rng.around(self.plan.think * 5);
            return self.agenda.after(after, Event::Arrive(client));
        }
        while let Some(evicted) = self.door.evict(home, now) {
            self.becomes(evicted, Doing::Gone);
            self.door.made_room();
        }
        self.clients[client as usize].home = home;
        self.sit(client);
    }

    /// It thinks, and then asks or leaves.
    fn sit(&mut self, client: u32) {
        let seat = self.door.sit(client, self.clients[client as usize].home, self.now());
        let visit = self.becomes(client, Doing::Idle(seat));
        let sleepy = !(client as usize).is_multiple_of(self.posts.len());
        let after = self.rng.around(self.plan.doze.filter(|_| sleepy).unwrap_or(self.plan.think));
        self.agenda.after(after, Event::Ask(client, visit));
    }

    pub(super) fn ask(&mut self, client: u32, visit: u64) {
        let Client { doing: Doing::Idle(seat), home, visit: present, left } = self.clients[client as usize] else {
            return;
        };
        if visit != present {
            return;
        }
        self.door.rise(seat);
        if left == 0 {
            self.becomes(client, Doing::Gone);
            return self.door.leave();
        }
        self.clients[client as usize].left -= 1;
        self.waiters += 1;
        let (waiter, home) = (self.waiters, Home(home));
        // Mostly a client stays with its pool.
        let stays = self.plan.doze.is_some() || self.rng.percent(90);
        let pool = if stays { client as usize } else { self.rng.next() as usize } % self.posts.len();
        self.becomes(client, Doing::Waiting { pool, waiter });
        let clock = self.clock(pool);
        let unused = self.rng.percent(self.plan.unused);
        let answer = match unused {
            false => self.posts[pool].pool.check_out(WaiterId(waiter), home, clock),
            true => self.posts[pool].pool.check_out_for(WaiterId(waiter), home, Need::Unused, clock),
        };
        self.tell(|| format!("client {client} asks pool {pool} as waiter {waiter}: {answer:?}"));
        match answer {
            CheckOut::Granted(grant) => {
                // What was closed on the way was closed before.
                self.pump(pool, None);
                self.posts[pool].oracle.granted_at_once(&grant, waiter, home);
                self.hold(client, pool, grant.server);
            }
            CheckOut::Queued(ticket) => {
                self.posts[pool].oracle.queued(waiter, client, home, ticket, unused);
                self.pump(pool, None);
            }
            CheckOut::Failed(_) => {
                self.pump(pool, None);
                self.sit(client);
            }
        }
    }

    fn hold(&mut self, client: u32, pool: usize, server: ServerId) {
        let visit = self.becomes(client, Doing::Holding { pool, server });
        let mean = self.holding(pool);
        let after = self.rng.around(mean);
        self.agenda.after(after, Event::Done(client, visit));
    }

    /// A grant reaches the client it is for, who may have left.
    pub(super) fn granted(&mut self, pool: usize, grant: Grant) {
        let waiter = grant.waiter.0;
        let wait = self.posts[pool].oracle.waits.remove(&waiter).expect("a grant for somebody who waits");
        let alive = self.posts[pool].oracle.server(grant.server).is_some();
        let waits = matches!(self.clients[wait.client as usize].doing, Doing::Waiting { waiter: w, .. } if w == waiter);
        match (waits, alive) {
            (true, true) => self.hold(wait.client, pool, grant.server),
            (true, false) => self.sit(wait.client),
            (false, true) if self.fault == Fault::KeepServer => {}
            (false, true) => self.check_in(pool, grant.server, grant.home, CheckIn::Clean),
            (false, false) => {}
        }
    }

    /// A failure reaches the client it is for, who may have left.
    pub(super) fn failed(&mut self, pool: usize, waiter: u64) {
        let wait = self.posts[pool].oracle.waits.remove(&waiter).expect("a failure for somebody who waits");
        if matches!(self.clients[wait.client as usize].doing, Doing::Waiting { waiter: w, .. } if w == waiter) {
            self.sit(wait.client);
        }
    }

    pub(super) fn done(&mut self, client: u32, visit: u64) {
        let Client { doing, visit: present, .. } = self.clients[client as usize];
        let (Doing::Holding { pool, server } | Doing::Pinned { pool, server }) = doing else { return };
        if visit != present {
            return;
        }
        if let Some(until) = self.silent_until(pool) {
            return self.agenda.at(until, Event::Done(client, visit));
        }
        if client < self.plan.keepers && !self.calm {
            self.becomes(client, Doing::Pinned { pool, server });
            return;
        }
        let pinned = matches!(doing, Doing::Pinned { .. });
        if pinned || !self.pin(client, pool, server) {
            let dice = self.rng.below(100);
            let how = match dice {
                d if d < self.plan.discards => CheckIn::Discard,
                d if d < self.plan.discards + self.plan.resets => CheckIn::Reset,
                _ => CheckIn::Clean,
            };
            if !self.withhold(pool, server, how) {
                self.give_back(client, pool, server, how);
            }
            self.sit(client);
        }
    }

    /// The client may have come to need its server for longer than its transaction. True if that is settled: it keeps
    /// it, or is sent away because too many do.
    fn pin(&mut self, client: u32, pool: usize, server: ServerId) -> bool {
        let Some(trouble) = self.plan.trouble.filter(|_| !self.calm) else { return false };
        if !self.trouble_rng.percent(trouble.pins) {
            return false;
        }
        if self.posts[pool].pins >= trouble.max_pinned {
            self.leave(client);
            return true;
        }
        let visit = self.becomes(client, Doing::Pinned { pool, server });
        let after = self.trouble_rng.around(self.plan.think * 20);
        self.agenda.after(after, Event::Done(client, visit));
        if self.fault == Fault::LendPinned {
            self.give_back(client, pool, server, CheckIn::Clean);
        }
        true
    }

    /// Those who keep their servers until the calm are done with them.
    pub(super) fn end_keeping(&mut self) {
        for client in 0..self.plan.keepers {
            let visit = self.clients[client as usize].visit;
            self.agenda.after(Duration::from_nanos(1), Event::Done(client, visit));
        }
    }

    /// Who keeps a server of this pool.
    pub(super) fn pinned_to(&self, pool: usize) -> Vec<u32> {
        let keeps = |c: &Client| matches!(c.doing, Doing::Pinned { pool: p, .. } if p == pool);
        (0..).zip(&self.clients).filter(|c| keeps(c.1)).map(|c| c.0).collect()
    }

    /// Who keeps a server is counted, and really has it.
    pub(super) fn check_pins(&mut self) {
        let Some(trouble) = self.plan.trouble.filter(|w| w.pins > 0) else { return };
        for pool in 0..self.posts.len() {
            let pins = self.posts[pool].pins;
            assert!(pins <= trouble.max_pinned, "{pins} clients keep their servers, of {}", trouble.max_pinned);
        }
        for client in &self.clients {
            if let Doing::Pinned { pool, server } = client.doing {
                let held = self.posts[pool].oracle.server(server).is_some_and(|s| matches!(s.state, State::InUse(_)));
                assert!(held, "a client keeps {server:?}, which it does not have");
            }
        }
    }

    /// A cancel request may be under way that must not hit the next one: then the server comes back when that is over.
    fn withhold(&mut self, pool: usize, server: ServerId, how: CheckIn) -> bool {
        let cancelled = self.plan.trouble.is_some_and(|trouble| self.trouble_rng.percent(trouble.cancels));
        if !cancelled {
            return false;
        }
        let State::InUse(waiter) = self.posts[pool].oracle.server(server).expect("a held server is there").state else {
            panic!("a held server is in use");
        };
        let after = self.trouble_rng.around(self.plan.connect);
        self.agenda.after(after, Event::SideEnds(pool, server, waiter));
        if self.fault == Fault::LendWithheld {
            let home = self.posts[pool].oracle.server(server).expect("just seen").home;
            self.check_in(pool, server, home, how);
        }
        true
    }

    pub(super) fn side_ends(&mut self, pool: usize, server: ServerId, waiter: u64) {
        if let Some(until) = self.silent_until(pool) {
            return self.agenda.at(until, Event::SideEnds(pool, server, waiter));
        }
        let Some(withheld) = self.posts[pool].oracle.server(server) else { return };
        let (home, state) = (withheld.home, withheld.state);
        assert_eq!(state, State::InUse(waiter), "a server with a cancel request under way went to somebody else");
        // A request that was lost may still arrive.
        let how = self.trouble_rng.pick(&[CheckIn::Clean, CheckIn::Clean, CheckIn::Reset, CheckIn::Discard]);
        self.check_in(pool, server, home, how);
    }

    fn give_back(&mut self, client: u32, pool: usize, server: ServerId, how: CheckIn) {
        let home = Home(self.clients[client as usize].home);
        self.check_in(pool, server, home, how);
    }

    fn holder(&self, pool: usize, server: ServerId) -> Option<u32> {
        let holds = |c: &Client| match c.doing {
            Doing::Holding { pool: p, server: s } | Doing::Pinned { pool: p, server: s } => (p, s) == (pool, server),
            _ => false,
        };
        self.clients.iter().position(holds).map(|c| c as u32)
    }

    /// A server is gone; whoever held it holds nothing.
    pub(super) fn server_lost(&mut self, pool: usize, server: ServerId) {
        if let Some(client) = self.holder(pool, server) {
            self.sit(client);
        }
    }

    /// The holder of this server is told that it is to be cut.
    pub(super) fn cut_client(&mut self, pool: usize, server: ServerId) {
        if let Some(client) = self.holder(pool, server) {
            self.give_back(client, pool, server, CheckIn::Clean);
            self.sit(client);
        }
    }

    /// A client leaves in the middle of whatever it is doing.
    pub(super) fn leave(&mut self, client: u32) {
        let doing = self.clients[client as usize].doing;
        self.tell(|| format!("client {client} leaves: {doing:?}"));
        match doing {
            Doing::Outside | Doing::Gone => return,
            Doing::Idle(seat) => self.door.rise(seat),
            Doing::Waiting { pool, waiter } => {
                let ticket = self.posts[pool].oracle.waits[&waiter].ticket;
                let waiting = self.posts[pool].oracle.cancelled(waiter);
                let now = self.clock(pool);
                let left = self.posts[pool].pool.cancel(ticket, WaiterId(waiter), now).is_some();
                assert_eq!(left, waiting, "waiter {waiter}: pool and world differ about who waits");
                self.cancelled += u64::from(left);
                self.pump(pool, None);
            }
            Doing::Holding { pool, server } | Doing::Pinned { pool, server } => {
                let how = if self.rng.percent(50) { CheckIn::Discard } else { CheckIn::Reset };
                self.give_back(client, pool, server, how);
            }
        }
        self.door.leave();
        if self.rng.percent(70) {
            // It comes back, maybe at another worker.
            self.becomes(client, Doing::Outside);
            let after = self.rng.around(self.plan.think);
            return self.agenda.after(after, Event::Arrive(client));
        }
        self.becomes(client, Doing::Gone);
    }
}
