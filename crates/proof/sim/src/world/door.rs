//! Clients at the gate: who may come in, who is evicted, who has been idle for how long. It knows no pools.

use std::collections::BTreeSet;

use pool::{Gate, GateConfig, IdleQueue, IdleTicket, Time};

/// The gate, the idle queues of all workers, and what must be true of them.
pub struct Door {
    gate: Gate,
    queues: Vec<IdleQueue>,
    inside: u32,
    /// By worker: since when, in which order, who.
    idle: Vec<BTreeSet<(Time, u64, u32)>>,
    order: u64,
    rejections: u64,
}

/// A client's place among the idle.
#[derive(Clone, Copy, Debug)]
pub struct Seat {
    ticket: IdleTicket,
    key: (Time, u64, u32),
    home: u8,
}

impl Door {
    /// A door with nobody inside.
    pub fn new(config: GateConfig, homes: u8) -> Self {
        Self {
            gate: Gate::new(config),
            queues: (0..homes).map(|_| IdleQueue::new()).collect(),
            inside: 0,
            idle: vec![BTreeSet::new(); usize::from(homes)],
            order: 0,
            rejections: 0,
        }
    }

    /// A client comes. False: rejected.
    pub fn admit(&mut self) -> bool {
        let hard = self.gate.config().hard_limit;
        if !self.gate.admit() {
            assert!(self.inside >= hard, "rejected with {} of {hard} inside", self.inside);
            self.rejections += 1;
            return false;
        }
        self.gate.known();
        assert!(self.inside < hard, "more than {hard} inside");
        self.inside += 1;
        true
    }

    /// Who at this worker goes to make room, if there are more than the soft limit and one has been idle for long
    /// enough. It is still inside.
    pub fn evict(&mut self, home: u8, now: Time) -> Option<u32> {
        let GateConfig { soft_limit, hard_limit, evict_min_idle: min } = *self.gate.config();
        let wanted = self.gate.reserve();
        assert_eq!(wanted, self.inside > soft_limit.min(hard_limit), "clients go above the soft limit, and only there");
        if !wanted {
            return None;
        }
        let truth = self.idle[usize::from(home)].first().copied().filter(|(since, ..)| now - *since >= min);
        let evicted = self.queues[usize::from(home)].pop_idle_for(min, now);
        assert_eq!(evicted, truth.map(|t| t.2), "not the one idle longest is evicted");
        let Some(truth) = truth else {
            self.gate.hand_back();
            return None;
        };
        self.idle[usize::from(home)].remove(&truth);
        self.gate.evicted();
        evicted
    }

    /// An evicted client is gone.
    pub fn made_room(&mut self) {
        self.inside -= 1;
        self.gate.left(true);
    }

    /// A client has nothing to do.
    pub fn sit(&mut self, client: u32, home: u8, now: Time) -> Seat {
        self.order += 1;
        let key = (now, self.order, client);
        self.idle[usize::from(home)].insert(key);
        Seat { ticket: self.queues[usize::from(home)].push(client, now), key, home }
    }

    /// A client has something to do, or leaves.
    pub fn rise(&mut self, seat: Seat) {
        self.queues[usize::from(seat.home)].remove(seat.ticket);
        assert!(self.idle[usize::from(seat.home)].remove(&seat.key), "who rises was sitting");
    }

    /// A client that came in is gone.
    pub fn leave(&mut self) {
        self.inside -= 1;
        self.gate.left(false);
    }

    pub fn reconfigure(&mut self, config: GateConfig) {
        self.gate.reconfigure(config);
    }

    pub fn check(&self) {
        assert_eq!(self.gate.clients(), self.inside, "the gate counts otherwise");
        assert_eq!(self.gate.rejections(), self.rejections, "the gate counts rejections otherwise");
        for (queue, truth) in self.queues.iter().zip(&self.idle) {
            let truth = truth.first().map(|t| (t.2, t.0));
            assert_eq!(queue.oldest(), truth, "another has been idle longest");
        }
    }
}
