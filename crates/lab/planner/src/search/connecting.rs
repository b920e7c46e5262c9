//! Whether the given `max_connecting` holds back what is found: connections have to be there before they are needed, or
//! no size is large enough, only because so few are made at a time. Then the sizes are looked for with more, and the
//! fewest are taken that these need. Where it holds nothing back, a few simulations tell, and what was found stays.

use serde::Serialize;

use super::{Candidate, NEARLY_ALL, Search};
use crate::{facts::Facts, sizes::Sizes, upkeep::most_connecting};

/// A size is clearly smaller if it is by this part of it, and by one at least: less may be chance.
const CLEARLY: u32 = 10;

/// What the given `max_connecting` would have led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct HeldBack {
    pub max_connecting: u32,
    /// The one that the recommended sizes were looked for with.
    pub lifted_to: u32,
    /// The smallest sizes with the given one, as far as parts of the loads tell; or the nearest.
    pub sizes: Sizes,
    /// With these all objectives are met.
    pub met: bool,
}

impl Candidate {
    fn rank(&self) -> (bool, bool, u32, u32) {
        (!self.is_met, !self.with_margin, self.sizes.max_size, self.sizes.min_size)
    }
}

impl Search<'_, '_> {
    /// The candidate; or a better one that needs more connections made at a time than are given, and then the loads
    /// have as many.
    pub(super) fn unhindered(&mut self, as_given: Candidate, most: u32) -> (Candidate, Option<HeldBack>) {
        let few = self.loads[0].pool.config.max_connecting;
        let facts = Facts::of(self.question, &self.loads[0]);
        // No more are under way than a pool may have.
        let many = most_connecting(few, &facts).min(most).max(few);
        if self.question.is_sweep || many == few {
            return (as_given, None);
        }
        self.make_at_a_time(many);
        if self.seems_hindered(&as_given, most) {
            let better = self.candidate(most);
            if better.is_met && better.rank() < as_given.rank() {
                let enough = self.enough_at_a_time(&better.sizes, few, many);
                self.make_at_a_time(enough);
                let Candidate { sizes, is_met, .. } = as_given;
                let held_back = HeldBack { max_connecting: few, lifted_to: enough, sizes, met: is_met };
                return (better, Some(held_back));
            }
        }
        self.make_at_a_time(few);
        (as_given, None)
    }

    /// Whether clearly smaller sizes, or the same with the margin, or the nearest ones do, now that more are made at a
    /// time.
    fn seems_hindered(&mut self, as_given: &Candidate, most: u32) -> bool {
        let Sizes { max_size, min_size, .. } = as_given.sizes;
        let mut tried = Vec::new();
        if !as_given.is_met || !as_given.with_margin {
            self.margin = if as_given.is_met { self.question.margin } else { 0.0 };
            // If none is enough, the last one that was too small is the largest that was tried.
            let largest = as_given.too_small.as_ref().map(|(size, _)| *size).filter(|_| !as_given.is_met);
            tried.push(self.full(max_size));
            tried.extend(largest.filter(|size| *size != max_size).map(|size| self.full(size)));
            if tried.drain(..).any(|sizes| self.is_met(&sizes)) {
                return true;
            }
        }
        if !as_given.is_met {
            return false;
        }
        self.margin = if as_given.with_margin { self.question.margin } else { 0.0 };
        let clearly_less = |size: u32| size - (size / CLEARLY).max(1);
        let full = self.full(max_size);
        if min_size > 0 {
            // Where nearly all are kept, all are.
            let nearly_all = (f64::from(max_size) * NEARLY_ALL) as u32;
            tried.push(Sizes { min_size: clearly_less(min_size).min(nearly_all), ..full });
        }
        if clearly_less(max_size) >= self.fewest(most) {
            tried.push(self.full(clearly_less(max_size)));
        }
        tried.into_iter().any(|sizes| self.is_met(&sizes))
    }

    /// The fewest made at a time, above `few`, with which these sizes meet what they meet with `many`.
    fn enough_at_a_time(&mut self, sizes: &Sizes, few: u32, many: u32) -> u32 {
        let (mut below, mut enough) = (few, many);
        while enough - below > 1 {
            let middle = below + (enough - below) / 2;
            self.make_at_a_time(middle);
            if self.is_met(sizes) {
                enough = middle;
            } else {
                below = middle;
            }
        }
        enough
    }

    /// From now on pools make so many connections at a time.
    fn make_at_a_time(&mut self, connections: u32) {
        let loads = self.loads.iter_mut().chain(&mut self.short);
        loads.for_each(|load| load.pool.config.max_connecting = connections);
    }
}
