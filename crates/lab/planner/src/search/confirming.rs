//! The answer, judged by all operations of the loads and by other seeds, and raised where parts of the loads were too
//! few to tell. Knows candidates as sizes; which is tried first is its parent's to say.

use super::{MORE_SEEDS, Missed, Outcome, Search, Sizes, TooSmall, Until, has_waited, run};

/// When all operations are looked at, the answer is raised in so many small steps, and then in larger ones.
const MAX_RAISES: u32 = 8;

impl Search<'_, '_> {
    /// The answer, judged by all operations and other seeds; raised where those that were looked at before were too
    /// few. Where a part of the load has not shown what a smaller minimum does, it is looked for again by the whole.
    /// `too_small` learns of sizes that were.
    pub(super) fn confirmed(
        &mut self,
        mut sizes: Sizes,
        most: u32,
        too_small: &mut TooSmall,
    ) -> (Sizes, Vec<Outcome>, Vec<Missed>) {
        let hopeless = !self.is_met(&sizes);
        let mut raises = 0;
        loop {
            let (outcomes, tight) = self.judged_by_all(&sizes);
            let full = self.full(sizes.max_size);
            let larger = |part: u32| (sizes.max_size + (sizes.max_size / part).max(1)).min(most);
            let (next, leap) = (larger(20), larger(4));
            if hopeless || (tight.is_empty() && self.holds_with_other_seeds(&sizes)) {
                let leapt = sizes == full && raises > 0;
                let (sizes, outcomes) =
                    if leapt { self.lowered(sizes, outcomes, too_small) } else { (sizes, outcomes) };
                let missed = self.missed(&outcomes, 0.0);
                return (sizes, outcomes, missed);
            }
            if sizes != full && self.is_shortened() && self.judged_by_all(&full).1.is_empty() {
                self.short.clone_from(&self.loads);
                sizes = self.shrunk(full);
            } else if sizes != full && raises < MAX_RAISES && next > sizes.max_size {
                raises += 1;
                let min_size = sizes.min_size + next - sizes.max_size;
                sizes = Sizes { max_size: next, min_size: min_size.min(self.full(next).min_size), ..sizes };
            } else if sizes != full {
                sizes = full;
            } else if next > sizes.max_size
                && outcomes.iter().any(has_waited)
                && outcomes.iter().all(|one| one.is_complete)
            {
                *too_small = Some((sizes.max_size, tight));
                sizes = self.full(if raises < MAX_RAISES { next } else { leap });
                raises += 1;
            } else {
                let missed = self.missed(&outcomes, 0.0);
                return (sizes, outcomes, missed);
            }
        }
    }

    /// The smallest between one that was too small and this one, by all operations and other seeds, if all connections
    /// are kept.
    fn lowered(&mut self, mut sizes: Sizes, mut outcomes: Vec<Outcome>, low: &mut TooSmall) -> (Sizes, Vec<Outcome>) {
        while let Some(below) = low.as_ref().map(|(size, _)| *size).filter(|below| sizes.max_size > below + 1) {
            let middle = self.full(below + (sizes.max_size - below) / 2);
            let (all, tight) = self.judged_by_all(&middle);
            if tight.is_empty() && self.holds_with_other_seeds(&middle) {
                (sizes, outcomes) = (middle, all);
            } else {
                *low = Some((middle.max_size, tight));
            }
        }
        (sizes, outcomes)
    }

    /// What all operations of the loads come to, and what is missed with the margin.
    pub(super) fn judged_by_all(&mut self, sizes: &Sizes) -> (Vec<Outcome>, Vec<Missed>) {
        (self.progress)(self.simulations, sizes);
        let outcomes: Vec<Outcome> = self.plans(sizes, 0).iter().map(|plan| run(plan, self.spec)).collect();
        self.simulations += outcomes.len() as u32;
        let tight = self.missed(&outcomes, self.margin);
        (outcomes, tight)
    }

    /// Candidates are judged by a part of a load.
    fn is_shortened(&self) -> bool {
        self.short.iter().zip(&self.loads).any(|(short, load)| short.shape != load.shape)
    }

    fn holds_with_other_seeds(&mut self, sizes: &Sizes) -> bool {
        (1..=MORE_SEEDS).all(|seed| {
            self.short_plans(sizes, seed).iter().all(|plan| {
                self.simulations += 1;
                self.missed(&[self.play(plan, Until::Missed(0.0))], 0.0).is_empty()
            })
        })
    }

    pub(super) fn with_other_seeds(&mut self, sizes: &Sizes) -> (Vec<[f64; 3]>, u64) {
        let (mut spread, mut met) = (Vec::new(), 0);
        for seed in 1..=MORE_SEEDS {
            let outcomes: Vec<Outcome> =
                self.short_plans(sizes, seed).iter().map(|plan| run(plan, self.spec)).collect();
            self.simulations += outcomes.len() as u32;
            (self.progress)(self.simulations, sizes);
            met += u64::from(self.missed(&outcomes, 0.0).is_empty());
            let response = outcomes.first().and_then(|outcome| outcome.result.total.response_ms.as_ref());
            spread.extend(response.map(|response| [response.p50, response.p95, response.p99]));
        }
        (spread, met)
    }
}
