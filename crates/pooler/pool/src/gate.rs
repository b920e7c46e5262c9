//! Admission of clients, and how many should go. Counts clients; knows neither who they are nor which of them is idle
//! (that is [`crate::IdleQueue`]'s).
//!
//! To be above the soft limit is a state, not an event: as long as it lasts, clients should go, whether or not others
//! come. Who sends one away [reserves](Gate::reserve) that before, so that several who do so at once never send away
//! more than should go.

use core::time::Duration;

/// The limits of one gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateConfig {
    /// As long as there are more clients than this, those that have been idle longest should go. At `hard_limit` or
    /// above it has no effect.
    pub soft_limit: u32,
    /// At this many clients there is no place for another.
    pub hard_limit: u32,
    /// A client idle for less is never evicted.
    pub evict_min_idle: Duration,
}

/// The number of clients, and what follows from it.
#[derive(Clone, Debug)]
pub struct Gate {
    config: GateConfig,
    /// All that are inside, those that have been told to go included.
    clients: u32,
    /// Those of them that have not logged in.
    strangers: u32,
    /// Those of the strangers that never will, and have places of their own.
    onlookers: u32,
    /// Those of the clients that go, or have been reserved for that.
    leaving: u32,
    rejections: u64,
    evictions: u64,
}

impl Gate {
    /// A gate without clients.
    pub fn new(config: GateConfig) -> Self {
        Self { config, clients: 0, strangers: 0, onlookers: 0, leaving: 0, rejections: 0, evictions: 0 }
    }

    /// A client asks to come in, and has not logged in. If there is a place it counts, until [`Gate::left`].
    #[must_use]
    pub fn admit(&mut self) -> bool {
        if !self.has_room() {
            self.rejections += 1;
            return false;
        }
        self.clients += 1;
        self.strangers += 1;
        true
    }

    /// Whether there is a place.
    pub fn has_room(&self) -> bool {
        self.clients < self.config.hard_limit
    }

    /// A client that came in has logged in, or is about to leave without.
    pub fn known(&mut self) {
        assert!(self.strangers > 0, "a client logged in that was no stranger");
        self.strangers -= 1;
    }

    /// This number of the strangers look on only.
    pub fn set_onlookers(&mut self, onlookers: u32) {
        self.onlookers = onlookers;
    }

    /// A client that is no stranger is gone, for whatever reason. `leaving`: it counted as such.
    pub fn left(&mut self, leaving: bool) {
        assert!(self.clients > self.strangers, "a client left a gate that it was not inside of");
        self.clients -= 1;
        if leaving {
            self.hand_back();
        }
    }

    /// A client that had [left](Gate::left), because another was to have its place, has logged in, and gets a place if
    /// there is one.
    #[must_use]
    pub fn readmit(&mut self) -> bool {
        let room = self.has_room();
        self.clients += u32::from(room);
        room
    }

    /// If clients should go: one of them is about to be told so, and counts as leaving from now on.
    #[must_use]
    pub fn reserve(&mut self) -> bool {
        let wanted = self.evictions_wanted() > 0;
        self.leaving += u32::from(wanted);
        wanted
    }

    /// The reserved client does not go.
    pub fn hand_back(&mut self) {
        assert!(self.leaving > 0, "more clients stay than were to go");
        self.leaving -= 1;
    }

    /// A client goes, and was not reserved for that.
    pub fn leaves(&mut self) {
        self.leaving += 1;
    }

    /// A reserved client has been evicted.
    pub fn evicted(&mut self) {
        self.evictions += 1;
    }

    /// Other limits from now on; they send clients away only through [`Gate::evictions_wanted`].
    pub fn reconfigure(&mut self, config: GateConfig) {
        self.config = config;
    }

    pub fn config(&self) -> &GateConfig {
        &self.config
    }

    /// How many clients are inside.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// How many clients should go that do not go yet. Clients that are to log in count up to the number of places
    /// between the limits: more strangers than that send no other client away.
    pub fn evictions_wanted(&self) -> u32 {
        let soft = self.config.soft_limit.min(self.config.hard_limit);
        let share = self.config.hard_limit - soft;
        let beyond = self.strangers.saturating_sub(self.onlookers).saturating_sub(share);
        (self.clients - beyond).saturating_sub(self.leaving).saturating_sub(soft)
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

    /// A gate through which this number of clients have come and logged in.
    fn with(soft_limit: u32, hard_limit: u32, clients: u32) -> Gate {
        let mut gate = gate(soft_limit, hard_limit);
        for _ in 0..clients {
            assert!(gate.admit());
            gate.known();
        }
        gate
    }

    #[test]
    fn above_the_soft_limit_clients_should_go_and_at_the_hard_one_there_is_no_place() {
        let mut gate = gate(2, 4);
        let answers: [(bool, u32); 6] = core::array::from_fn(|_| {
            let admitted = gate.admit();
            if admitted {
                gate.known();
            }
            (admitted, gate.evictions_wanted())
        });
        assert_eq!(answers, [(true, 0), (true, 0), (true, 1), (true, 2), (false, 2), (false, 2)]);
        assert_eq!((gate.clients(), gate.rejections()), (4, 2));
    }

    #[test]
    fn a_client_that_left_makes_room() {
        let mut gate = with(1, 1, 1);
        assert!(!gate.admit());
        gate.left(false);
        assert!(gate.admit());
    }

    #[test]
    fn no_more_clients_are_reserved_than_should_go() {
        let mut gate = with(40, 50, 50);
        assert_eq!((0..20).filter(|_| gate.reserve()).count(), 10);
        assert_eq!((gate.clients(), gate.evictions_wanted()), (50, 0), "they count until they are gone");
        gate.hand_back();
        assert!(gate.reserve() && !gate.reserve(), "one stayed, so another is to go");
        gate.left(false);
        assert_eq!(gate.evictions_wanted(), 0, "one more has left than should");
        (0..10).for_each(|_| gate.left(true));
        assert_eq!((gate.clients(), gate.evictions_wanted()), (39, 0));
        assert!(gate.admit() && !gate.reserve());
        assert!(gate.admit() && gate.reserve());
    }

    #[test]
    fn who_goes_by_itself_is_not_replaced_by_another() {
        let mut gate = with(1, 9, 3);
        gate.leaves();
        assert_eq!(gate.evictions_wanted(), 1);
        gate.left(true);
        assert_eq!(gate.evictions_wanted(), 1);
    }

    #[test]
    fn strangers_send_away_as_many_as_there_are_places_between_the_limits() {
        let mut gate = with(8, 10, 7);
        assert!(gate.admit() && gate.admit() && gate.admit() && !gate.admit());
        assert_eq!(gate.evictions_wanted(), 1);
        gate.left(false);
        assert!(gate.admit());
        assert_eq!(gate.evictions_wanted(), 0, "four strangers, two of which count");
        gate.set_onlookers(3);
        assert_eq!(gate.evictions_wanted(), 2, "who looks on has a place of its own");
        (0..4).for_each(|_| gate.known());
        gate.set_onlookers(0);
        assert_eq!(gate.evictions_wanted(), 2);
    }

    #[test]
    fn a_client_whose_place_another_has_got_stays_if_there_is_another_place() {
        let mut gate = with(1, 1, 1);
        assert!(!gate.readmit() && gate.clients() == 1);
        gate.left(false);
        assert!(gate.readmit() && gate.clients() == 1 && !gate.admit());
    }

    #[test]
    fn lower_limits_ask_for_evictions_and_send_no_client_away() {
        let mut gate = with(10, 10, 10);
        gate.reconfigure(GateConfig { soft_limit: 9, hard_limit: 4, evict_min_idle: Duration::ZERO });
        assert_eq!((gate.clients(), gate.evictions_wanted()), (10, 6));
        assert!(gate.reserve());
        gate.evicted();
        gate.left(true);
        assert_eq!((gate.evictions(), gate.evictions_wanted()), (1, 5));
        assert!(!gate.admit());
    }

    #[test]
    #[should_panic = "not inside of"]
    fn more_leaving_than_came_is_our_own_mistake() {
        gate(1, 1).left(false);
    }
}
