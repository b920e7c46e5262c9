//! Admission of clients: accept, accept and evict somebody idle, or reject. Counts clients; knows neither who they are
//! nor which of them is idle (that is [`crate::IdleQueue`]'s).

use core::time::Duration;

/// The limits of one gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateConfig {
    /// From this many clients on, each new one asks for an eviction. Above `hard_limit` it has no effect.
    pub soft_limit: u32,
    /// At this many clients new ones are rejected.
    pub hard_limit: u32,
    /// A client idle for less is never evicted.
    pub evict_min_idle: Duration,
}

/// The answer to a client at the gate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use]
pub enum Admission {
    /// Come in.
    Accept,
    /// Come in; and the client that has been idle longest should go, if it has been idle long enough.
    AcceptAndEvict,
    /// No room.
    Reject,
}

/// The number of clients, and what that means for the next one.
#[derive(Clone, Debug)]
pub struct Gate {
    config: GateConfig,
    clients: u32,
    rejections: u64,
    evictions: u64,
}

impl Gate {
    /// A gate with nobody inside.
    pub fn new(config: GateConfig) -> Self {
        Self { config, clients: 0, rejections: 0, evictions: 0 }
    }

    /// A client asks to come in. Unless it is rejected it counts, until [`Gate::left`].
    pub fn admit(&mut self) -> Admission {
        if self.clients >= self.config.hard_limit {
            self.rejections += 1;
            return Admission::Reject;
        }
        self.clients += 1;
        if self.clients > self.config.soft_limit { Admission::AcceptAndEvict } else { Admission::Accept }
    }

    /// A client that came in is gone, for whatever reason.
    pub fn left(&mut self) {
        assert!(self.clients > 0, "a client left a gate that nobody is inside of");
        self.clients -= 1;
    }

    /// A client that had [left](Gate::left), because another was to have its place, stays after all, whatever the limits are.
    pub fn readmit(&mut self) {
        self.clients += 1;
    }

    /// A client has been told to go (it still counts, until [`Gate::left`]).
    pub fn evicted(&mut self) {
        self.evictions += 1;
    }

    /// Other limits from now on; nobody inside is sent away by them but through [`Gate::evictions_wanted`].
    pub fn reconfigure(&mut self, config: GateConfig) {
        self.config = config;
    }

    /// The limits.
    pub fn config(&self) -> &GateConfig {
        &self.config
    }

    /// How many clients are inside.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// How many clients are inside above the soft limit.
    pub fn evictions_wanted(&self) -> u32 {
        self.clients.saturating_sub(self.config.soft_limit.min(self.config.hard_limit))
    }

    /// How many clients have ever been rejected.
    pub fn rejections(&self) -> u64 {
        self.rejections
    }

    /// How many clients have ever been evicted.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(soft_limit: u32, hard_limit: u32) -> Gate {
        Gate::new(GateConfig { soft_limit, hard_limit, evict_min_idle: Duration::from_secs(5) })
    }

    #[test]
    fn below_the_soft_limit_all_are_accepted_then_each_asks_for_an_eviction_then_all_are_rejected() {
        let mut gate = gate(2, 4);
        let answers: [Admission; 6] = core::array::from_fn(|_| gate.admit());
        use Admission::{Accept, AcceptAndEvict, Reject};
        assert_eq!(answers, [Accept, Accept, AcceptAndEvict, AcceptAndEvict, Reject, Reject]);
        assert_eq!((gate.clients(), gate.evictions_wanted(), gate.rejections()), (4, 2, 2));
    }

    #[test]
    fn a_client_that_left_makes_room() {
        let mut gate = gate(1, 1);
        assert_eq!(gate.admit(), Admission::Accept);
        assert_eq!(gate.admit(), Admission::Reject);
        gate.left();
        assert_eq!(gate.admit(), Admission::Accept);
    }

    #[test]
    fn a_client_that_stays_though_another_has_its_place_counts_beyond_all_limits() {
        let mut gate = gate(1, 1);
        assert_eq!(gate.admit(), Admission::Accept);
        gate.readmit();
        gate.left();
        assert_eq!((gate.clients(), gate.admit()), (1, Admission::Reject));
        gate.left();
        assert_eq!(gate.admit(), Admission::Accept);
    }

    #[test]
    fn lower_limits_ask_for_evictions_and_send_nobody_away() {
        let mut gate = gate(10, 10);
        for _ in 0..10 {
            assert_eq!(gate.admit(), Admission::Accept);
        }
        gate.reconfigure(GateConfig { soft_limit: 9, hard_limit: 4, evict_min_idle: Duration::ZERO });
        assert_eq!((gate.clients(), gate.evictions_wanted()), (10, 6));
        gate.evicted();
        gate.left();
        assert_eq!((gate.evictions(), gate.evictions_wanted()), (1, 5));
        assert_eq!(gate.admit(), Admission::Reject);
    }

    #[test]
    #[should_panic = "nobody is inside"]
    fn more_leaving_than_came_is_our_own_mistake() {
        gate(1, 1).left();
    }
}
