//! For how long a simulation goes on: how often something may happen before something has come of it, and when it is
//! asked whether enough has been played. Counts moments, which are times at which something happens; knows no world.

use std::time::Duration;

use load::engine::Engine;
use pool::Time;

/// Moments at which something happens before the load begins: with more of them than this, and this many for each
/// connection that is to be there, the pools are never filled. Filling takes about three for each.
const MOMENTS: u64 = 10_000;
const MOMENTS_EACH: u64 = 100;
/// The same while the load lasts: after each so many of them, an operation must have ended for every [`MOMENTS_EACH`]
/// of these, or all that happens is that connections come and go, and the simulation ends there. An operation takes two
/// to ten.
const MOMENTS_LOADED: u64 = 500_000;
/// Unless these took so long at least: then the rest is soon played, too, if it is not years of it.
const PACE: Duration = Duration::from_secs(60);
const MOMENTS_SLOW: u64 = 1_000_000_000;
/// Where clients come again as soon as they have failed: after each so many times as many, an operation must have ended
/// well for every [`MOMENTS_SERVED`] of these, or all that happens is that operations fail.
const ROUNDS_LOADED: u64 = 4;
const MOMENTS_SERVED: u64 = 1_000;
/// After so many moments under load it is asked for the first time whether enough has been played, and then each time
/// that twice as many have passed as before.
pub const FIRST_LOOK: u64 = 10_000;

pub struct Patience {
    /// Whoever fails comes again.
    comes_again: bool,
    /// How often something has happened.
    moments: u64,
    /// How often something may happen before it is asked what has come of it.
    until: u64,
    /// How often it was asked since the load began, and when last.
    asked: u64,
    checked: Time,
    /// Operations that had ended when it was asked last.
    ended: u64,
    /// Operations that had ended well when it was asked for those last.
    served: u64,
    /// When it is asked next whether enough has been played, and how long after the time before.
    look: u64,
    pause: u64,
}

impl Patience {
    /// Before so many connections are made that are to be there. `comes_again`: whoever fails does.
    pub fn new(wanted: u64, comes_again: bool) -> Self {
        Self {
            comes_again,
            moments: 0,
            until: MOMENTS + MOMENTS_EACH * wanted,
            asked: 0,
            checked: Time(0),
            ended: 0,
            served: 0,
            look: u64::MAX,
            pause: FIRST_LOOK,
        }
    }

    /// From now on operations are to end.
    pub fn load_begins(&mut self) {
        self.until = self.moments + MOMENTS_LOADED;
        self.look = self.moments + FIRST_LOOK;
    }

    /// How often something has happened.
    pub fn moments(&self) -> u64 {
        self.moments
    }

    /// Whether it is time to ask whether enough has been played.
    #[inline]
    pub fn is_look_due(&mut self) -> bool {
        let due = self.moments >= self.look;
        if due {
            self.pause *= 2;
            self.look += self.pause;
        }
        due
    }

    /// Whether too much has happened for what has come of it. Something will happen next.
    #[inline]
    pub fn is_over(&mut self, engine: &Engine, has_begun: bool, now: Time) -> bool {
        if self.moments < self.until {
            self.moments += 1;
            return false;
        }
        !has_begun || self.is_fruitless(engine, now)
    }

    #[cold]
    fn is_fruitless(&mut self, engine: &Engine, now: Time) -> bool {
        let progress = engine.progress(now);
        let ended = progress.done + progress.errors + progress.dropped;
        let newly = ended - std::mem::replace(&mut self.ended, ended);
        self.until = self.moments + MOMENTS_LOADED;
        self.asked += 1;
        let is_slow = now - std::mem::replace(&mut self.checked, now) >= PACE;
        if is_slow && self.moments < MOMENTS_SLOW {
            return false;
        }
        if !self.comes_again || !self.asked.is_multiple_of(ROUNDS_LOADED) {
            return newly * MOMENTS_EACH < MOMENTS_LOADED;
        }
        let served = progress.done - std::mem::replace(&mut self.served, progress.done);
        newly * MOMENTS_EACH < MOMENTS_LOADED || served * MOMENTS_SERVED < ROUNDS_LOADED * MOMENTS_LOADED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::plan::{Plan, PoolWishes, Shape, Target};

    #[test]
    fn what_goes_on_slowly_and_comes_to_nothing_has_an_end_too() {
        let shape = Shape::Closed { clients: 1, think: PACE, duration: PACE, operations: None };
        let plan = Plan {
            name: String::new(),
            target: Target::nowhere(),
            pool: PoolWishes::default().pool(&shape),
            shape,
            faults: Vec::new(),
            warmup: Duration::ZERO,
            timeout: PACE,
            seed: 1,
            fail_if: Vec::new(),
            freeze: None,
            poolhouse: None,
        };
        let engine = Engine::new(&plan, Time(0));
        let over = |moments: u64, rounds: u32| {
            Patience { moments, ..Patience::new(0, false) }.is_fruitless(&engine, Time(0) + PACE * rounds)
        };
        assert_eq!([over(0, 0), over(0, 1), over(MOMENTS_SLOW, 1)], [true, false, true]);
    }

    #[test]
    fn it_is_asked_ever_more_seldom_whether_enough_has_been_played() {
        let mut patience = Patience::new(0, false);
        patience.moments = 500;
        assert!(!patience.is_look_due(), "the load has not begun");
        patience.load_begins();
        let due = (0..100 * FIRST_LOOK).filter(|_| {
            patience.moments += 1;
            patience.is_look_due()
        });
        let at: Vec<u64> = due.map(|n| (n + 1) / FIRST_LOOK).collect();
        assert_eq!(at, [1, 3, 7, 15, 31, 63]);
    }
}
