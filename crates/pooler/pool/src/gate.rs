//! Admission of clients, and how many should go. It counts clients, and knows neither which clients they are nor which
//! of them are idle: [`crate::IdleQueue`] does.
//!
//! While there are more clients than the soft limit, clients should go, whether or not others come. A caller that sends
//! one away [reserves](Gate::reserve_eviction) the eviction before. So several callers at once never send away too
//! many.

use core::time::Duration;

/// The limits of one gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GateConfig {
    /// While there are more clients than this, those that have been idle longest should go. A soft limit that is not
    /// below `hard_limit` has no effect.
    pub soft_limit: u32,
    /// No client is admitted beyond this number.
    pub hard_limit: u32,
    /// A client that was idle for less time is never evicted.
    pub evict_min_idle: Duration,
}

/// The number of clients, and what follows from it.
#[derive(Clone, Debug)]
pub struct Gate {
    config: GateConfig,
    /// All admitted clients, also clients that were asked to leave.
    clients: u32,
    /// Clients that have not logged in.
    unauthenticated: u32,
    /// Unauthenticated clients that are monitors. They have places of their own.
    monitors: u32,
    /// Clients that are about to go, or whose eviction is reserved.
    leaving: u32,
    rejections: u64,
    evictions: u64,
}

impl Gate {
    /// A gate without clients.
    pub fn new(config: GateConfig) -> Self {
        Self { config, clients: 0, unauthenticated: 0, monitors: 0, leaving: 0, rejections: 0, evictions: 0 }
    }

    /// Admits a client that has not logged in, if there is a place. It counts until [`Gate::left`].
    #[must_use]
    pub fn admit(&mut self) -> bool {
        if !self.has_room() {
            self.rejections += 1;
            return false;
        }
        self.clients += 1;
        self.unauthenticated += 1;
        true
    }

    /// Whether there is a place.
    pub fn has_room(&self) -> bool {
        self.clients < self.config.hard_limit
    }

    /// An admitted client has logged in, or is about to leave without a login.
    pub fn note_login(&mut self) {
        assert!(self.unauthenticated > 0, "a client logged in that was not unauthenticated");
        self.unauthenticated -= 1;
    }

    /// Sets how many unauthenticated clients are monitors.
    pub fn set_monitors(&mut self, monitors: u32) {
        self.monitors = monitors;
    }

    /// A client that has called [`Gate::note_login`] is gone. `leaving`: it was about to go, or its eviction was
    /// reserved.
    pub fn left(&mut self, leaving: bool) {
        assert!(self.clients > self.unauthenticated, "a client left a gate that it was not inside of");
        self.clients -= 1;
        if leaving {
            self.cancel_eviction();
        }
    }

    /// Admits a client, if there is a place, that had [left](Gate::left) to give its place to another one, and has
    /// logged in.
    #[must_use]
    pub fn readmit(&mut self) -> bool {
        let room = self.has_room();
        self.clients += u32::from(room);
        room
    }

    /// Reserves the eviction of one client, if clients should go.
    #[must_use]
    pub fn reserve_eviction(&mut self) -> bool {
        let wanted = self.evictions_wanted() > 0;
        self.leaving += u32::from(wanted);
        wanted
    }

    /// The reserved eviction does not take place.
    pub fn cancel_eviction(&mut self) {
        assert!(self.leaving > 0, "more clients stay than were to go");
        self.leaving -= 1;
    }

    /// A client is about to go whose eviction was not reserved.
    pub fn note_leaving(&mut self) {
        self.leaving += 1;
    }

    /// A reserved eviction has taken place.
    pub fn note_eviction(&mut self) {
        self.evictions += 1;
    }

    /// Sets other limits. Clients above them go as [`Gate::evictions_wanted`] says.
    pub fn reconfigure(&mut self, config: GateConfig) {
        self.config = config;
    }

    pub fn config(&self) -> &GateConfig {
        &self.config
    }

    /// The number of admitted clients.
    pub fn clients(&self) -> u32 {
        self.clients
    }

    /// How many more clients should go. Of clients that have not logged in, only as many count as there are places
    /// between the limits: more of them cause no evictions.
    pub fn evictions_wanted(&self) -> u32 {
        let soft = self.config.soft_limit.min(self.config.hard_limit);
        let share = self.config.hard_limit - soft;
        let beyond = self.unauthenticated.saturating_sub(self.monitors).saturating_sub(share);
        (self.clients - beyond).saturating_sub(self.leaving).saturating_sub(soft)
    }

    /// The number of clients that were rejected.
    pub fn rejections(&self) -> u64 {
        self.rejections
    }

    /// The number of clients that were evicted.
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

    /// A gate with this number of clients, all logged in.
    fn with(soft_limit: u32, hard_limit: u32, clients: u32) -> Gate {
        let mut gate = gate(soft_limit, hard_limit);
        for _ in 0..clients {
            assert!(gate.admit());
            gate.note_login();
        }
        gate
    }

    #[test]
    fn above_the_soft_limit_clients_should_go_and_the_hard_limit_admits_no_more() {
        let mut gate = gate(2, 4);
        let answers: [(bool, u32); 6] = core::array::from_fn(|_| {
            let admitted = gate.admit();
            if admitted {
                gate.note_login();
            }
            (admitted, gate.evictions_wanted())
        });
        assert_eq!(answers, [(true, 0), (true, 0), (true, 1), (true, 2), (false, 2), (false, 2)]);
        assert_eq!((gate.clients(), gate.rejections()), (4, 2));
    }

    #[test]
    fn no_more_evictions_are_reserved_than_are_wanted() {
        let mut gate = with(40, 50, 50);
        assert_eq!((0..20).filter(|_| gate.reserve_eviction()).count(), 10);
        assert_eq!((gate.clients(), gate.evictions_wanted()), (50, 0), "they count until they are gone");
        gate.cancel_eviction();
        assert!(gate.reserve_eviction() && !gate.reserve_eviction(), "one stayed, so another is to go");
        gate.left(false);
        assert_eq!(gate.evictions_wanted(), 0, "one more has left than should");
        (0..10).for_each(|_| gate.left(true));
        assert_eq!((gate.clients(), gate.evictions_wanted()), (39, 0));
        assert!(gate.admit() && !gate.reserve_eviction());
        assert!(gate.admit() && gate.reserve_eviction());
    }

    #[test]
    fn a_client_that_goes_by_itself_is_not_replaced_by_an_eviction() {
        let mut gate = with(1, 9, 3);
        gate.note_leaving();
        assert_eq!(gate.evictions_wanted(), 1);
        gate.left(true);
        assert_eq!(gate.evictions_wanted(), 1);
    }

    #[test]
    fn unauthenticated_clients_cause_as_many_evictions_as_there_are_places_between_the_limits() {
        let mut gate = with(8, 10, 7);
        assert!(gate.admit() && gate.admit() && gate.admit() && !gate.admit());
        assert_eq!(gate.evictions_wanted(), 1);
        gate.left(false);
        assert!(gate.admit());
        assert_eq!(gate.evictions_wanted(), 0, "four are unauthenticated, two of which count");
        gate.set_monitors(3);
        assert_eq!(gate.evictions_wanted(), 2, "a monitor has a place of its own");
        (0..4).for_each(|_| gate.note_login());
        gate.set_monitors(0);
        assert_eq!(gate.evictions_wanted(), 2);
    }

    #[test]
    fn a_client_is_readmitted_if_there_is_a_place() {
        let mut gate = with(1, 1, 1);
        assert!(!gate.readmit() && gate.clients() == 1);
        gate.left(false);
        assert!(gate.readmit() && gate.clients() == 1 && !gate.admit());
    }

    #[test]
    fn lower_limits_only_raise_the_number_of_wanted_evictions() {
        let mut gate = with(10, 10, 10);
        gate.reconfigure(GateConfig { soft_limit: 9, hard_limit: 4, evict_min_idle: Duration::ZERO });
        assert_eq!((gate.clients(), gate.evictions_wanted()), (10, 6));
        assert!(gate.reserve_eviction());
        gate.note_eviction();
        gate.left(true);
        assert_eq!((gate.evictions(), gate.evictions_wanted()), (1, 5));
        assert!(!gate.admit());
    }

    #[test]
    #[should_panic = "not inside of"]
    fn a_client_that_was_not_admitted_cannot_leave() {
        gate(1, 1).left(false);
    }
}
