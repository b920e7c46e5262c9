//! Confirms the answer with the whole loads and with other seeds, and raises the sizes if the shortened loads were not
//! representative.

use super::{EXTRA_SEEDS, Missed, Outcome, Search, Sizes, TooSmall, Until, has_pool_wait, run};

/// Number of small raises of the size with the whole loads. Larger raises follow.
const MAX_SMALL_RAISES: u32 = 8;

impl Search<'_, '_> {
    /// Confirms sizes with the whole loads and other seeds, or raises them. If only the min size is too small, it is
    /// sought again with the whole loads. `too_small` is updated with sizes found too small.
    pub(super) fn confirm(
        &mut self,
        mut sizes: Sizes,
        most: u32,
        too_small: &mut TooSmall,
    ) -> (Sizes, Vec<Outcome>, Vec<Missed>) {
        let is_hopeless = !self.is_met(&sizes);
        let mut raises = 0;
        loop {
            let (outcomes, missed_with_margin) = self.judge_whole_loads(&sizes);
            let all_kept = self.all_kept(sizes.max_size);
            let larger = |part: u32| (sizes.max_size + (sizes.max_size / part).max(1)).min(most);
            let (next, leap) = (larger(20), larger(4));
            if is_hopeless || (missed_with_margin.is_empty() && self.meets_with_other_seeds(&sizes)) {
                let has_raised_to_all_kept = sizes == all_kept && raises > 0;
                let (sizes, outcomes) =
                    if has_raised_to_all_kept { self.lower(sizes, outcomes, too_small) } else { (sizes, outcomes) };
                let missed = self.missed(&outcomes, 0.0);
                return (sizes, outcomes, missed);
            }
            if sizes != all_kept && self.is_shortened() && self.judge_whole_loads(&all_kept).1.is_empty() {
                self.short.clone_from(&self.loads);
                sizes = self.shrink(all_kept);
            } else if sizes != all_kept && raises < MAX_SMALL_RAISES && next > sizes.max_size {
                raises += 1;
                let min_size = sizes.min_size + next - sizes.max_size;
                sizes = Sizes { max_size: next, min_size: min_size.min(self.all_kept(next).min_size), ..sizes };
            } else if sizes != all_kept {
                sizes = all_kept;
            } else if next > sizes.max_size
                && outcomes.iter().any(has_pool_wait)
                && outcomes.iter().all(|one| one.is_complete)
            {
                *too_small = Some((sizes.max_size, missed_with_margin));
                sizes = self.all_kept(if raises < MAX_SMALL_RAISES { next } else { leap });
                raises += 1;
            } else {
                let missed = self.missed(&outcomes, 0.0);
                return (sizes, outcomes, missed);
            }
        }
    }

    /// The smallest sufficient max size above one too small, by bisection with the whole loads and other seeds, if all
    /// connections are kept.
    fn lower(&mut self, mut sizes: Sizes, mut outcomes: Vec<Outcome>, low: &mut TooSmall) -> (Sizes, Vec<Outcome>) {
        while let Some(below) = low.as_ref().map(|(size, _)| *size).filter(|below| sizes.max_size > below + 1) {
            let middle = self.all_kept(below + (sizes.max_size - below) / 2);
            let (all, missed_with_margin) = self.judge_whole_loads(&middle);
            if missed_with_margin.is_empty() && self.meets_with_other_seeds(&middle) {
                (sizes, outcomes) = (middle, all);
            } else {
                *low = Some((middle.max_size, missed_with_margin));
            }
        }
        (sizes, outcomes)
    }

    /// Simulates the whole loads. Returns the outcomes and the objectives missed with the margin.
    pub(super) fn judge_whole_loads(&mut self, sizes: &Sizes) -> (Vec<Outcome>, Vec<Missed>) {
        (self.progress)(self.simulations, sizes);
        let outcomes: Vec<Outcome> = self.plans(sizes, 0).iter().map(|plan| run(plan, self.spec)).collect();
        self.simulations += outcomes.len() as u32;
        let missed_with_margin = self.missed(&outcomes, self.margin);
        (outcomes, missed_with_margin)
    }

    /// Whether candidates are judged by a part of a load.
    fn is_shortened(&self) -> bool {
        self.short.iter().zip(&self.loads).any(|(short, load)| short.shape != load.shape)
    }

    fn meets_with_other_seeds(&mut self, sizes: &Sizes) -> bool {
        (1..=EXTRA_SEEDS).all(|seed| {
            self.short_plans(sizes, seed).iter().all(|plan| {
                self.simulations += 1;
                self.missed(&[self.simulate(plan, Until::CertainMiss(0.0))], 0.0).is_empty()
            })
        })
    }

    pub(super) fn run_other_seeds(&mut self, sizes: &Sizes) -> (Vec<[f64; 3]>, u64) {
        let (mut spread, mut met) = (Vec::new(), 0);
        for seed in 1..=EXTRA_SEEDS {
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
