//! Detects whether the given `max_connecting` makes the found sizes larger than necessary, because connections are made
//! too slowly when they are needed. If so, the search is repeated with a larger `max_connecting`, which is then lowered
//! as far as the better sizes allow. Otherwise a few simulations suffice, and the found sizes stay.

use serde::Serialize;

use super::{Candidate, KEEP_ALL_SHARE, Search};
use crate::{facts::Facts, sizes::Sizes, upkeep::most_connecting};

/// A smaller size counts as a gain if it is smaller by the size divided by this, and at least by one.
const SIZE_GAIN_DIVISOR: u32 = 10;

/// The result with the given `max_connecting`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct HeldBack {
    pub max_connecting: u32,
    /// The `max_connecting` of the recommended sizes.
    pub lifted_to: u32,
    /// The smallest sizes with the given `max_connecting` according to the shortened loads, or the nearest ones.
    pub sizes: Sizes,
    /// All objectives are met with these sizes.
    pub met: bool,
}

impl Candidate {
    fn rank(&self) -> (bool, bool, u32, u32) {
        (!self.is_met, !self.with_margin, self.sizes.max_size, self.sizes.min_size)
    }
}

impl Search<'_, '_> {
    /// Returns a better candidate with a larger `max_connecting`, which the loads then keep; otherwise `as_given`.
    pub(super) fn raise_max_connecting(&mut self, as_given: Candidate, most: u32) -> (Candidate, Option<HeldBack>) {
        let few = self.loads[0].pool.config.max_connecting;
        let facts = Facts::of(self.question, &self.loads[0]);
        // A pool never makes more connections at a time than it may have.
        let many = most_connecting(few, &facts).min(most).max(few);
        if self.question.is_sweep || many == few {
            return (as_given, None);
        }
        self.set_max_connecting(many);
        if self.gains_from_max_connecting(&as_given, most) {
            let better = self.candidate(most);
            if better.is_met && better.rank() < as_given.rank() {
                let enough = self.smallest_max_connecting(&better.sizes, few, many);
                self.set_max_connecting(enough);
                let Candidate { sizes, is_met, .. } = as_given;
                let held_back = HeldBack { max_connecting: few, lifted_to: enough, sizes, met: is_met };
                return (better, Some(held_back));
            }
        }
        self.set_max_connecting(few);
        (as_given, None)
    }

    /// Whether notably smaller sizes, the same sizes with the margin, or the nearest sizes meet the objectives with the
    /// raised `max_connecting`.
    fn gains_from_max_connecting(&mut self, as_given: &Candidate, most: u32) -> bool {
        let Sizes { max_size, min_size, .. } = as_given.sizes;
        let mut tried = Vec::new();
        if !as_given.is_met || !as_given.with_margin {
            self.margin = if as_given.is_met { self.question.margin } else { 0.0 };
            // If no size is sufficient, the last one found too small is the largest that was tried.
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
        let reduced = |size: u32| size - (size / SIZE_GAIN_DIVISOR).max(1);
        let full = self.full(max_size);
        if min_size > 0 {
            // Above this share all connections are kept.
            let nearly_all = (f64::from(max_size) * KEEP_ALL_SHARE) as u32;
            tried.push(Sizes { min_size: reduced(min_size).min(nearly_all), ..full });
        }
        if reduced(max_size) >= self.smallest_size(most) {
            tried.push(self.full(reduced(max_size)));
        }
        tried.into_iter().any(|sizes| self.is_met(&sizes))
    }

    /// The smallest `max_connecting` in `few + 1..=many` with which these sizes meet the objectives, by bisection.
    fn smallest_max_connecting(&mut self, sizes: &Sizes, few: u32, many: u32) -> u32 {
        let (mut below, mut enough) = (few, many);
        while enough - below > 1 {
            let middle = below + (enough - below) / 2;
            self.set_max_connecting(middle);
            if self.is_met(sizes) {
                enough = middle;
            } else {
                below = middle;
            }
        }
        enough
    }

    fn set_max_connecting(&mut self, connections: u32) {
        let loads = self.loads.iter_mut().chain(&mut self.short);
        loads.for_each(|load| load.pool.config.max_connecting = connections);
    }
}
