//! Which number of clients is measured next. Coarse first (doubling, upwards, until some way past the knee), then
//! several rounds in random order around the best: each round repeats every point that may still be the best, and
//! halves the gaps beside it. Knows nothing of databases and of time; it is told what was measured.
//!
//! The whole costs at most a quarter of an exhaustive sweep, which measures a grid of up to [`MAX_GRID`] numbers in
//! every round. (Ranges of a few numbers are the exception: see [`visit_budget`].)
//!
//! Call order: [`Chooser::poll_next`], measure it, then [`Chooser::record`] or [`Chooser::record_refusal`]; again until
//! there is no next.

use arrivals::Random;

use super::curve::{CurveEstimate, PointEstimate};
use report::result::sweep::Visit;

/// Points of an exhaustive sweep.
pub const MAX_GRID: usize = 32;
/// Points of one round, the reference included.
const MAX_ROUND_POINTS: usize = 9;
/// Ratio of all rounds to those asked for: there are more while the budget lasts and several points may be the best.
const MAX_ROUNDS_RATIO: u32 = 4;
/// Visits at the end of the budget that only repeat points, so that the last new ones are visited often enough.
const FINAL_REPEATS: u32 = 8;
/// The best points: beside these any gap is halved, and beside others only one with a cliff.
const TOP_POINTS: usize = 2;
/// Ratio of two neighbours that are close enough.
const CLOSE_RATIO: f64 = 1.08;
/// Share of its neighbour's throughput below which a point lies beyond a cliff, unless noise explains it. Neighbours at
/// a cliff must be closer to each other.
const CLIFF_SHARE: f64 = 0.85;
/// Visits that confirm a cliff.
const CLIFF_VISITS: u32 = 2;
/// Visits that confirm the median of a point with outliers.
const OUTLIER_VISITS: u32 = 6;
/// Factor by which a gap with a cliff is more urgent.
const CLIFF_URGENCY: f64 = 10.0;
/// Ratio of two neighbours at a cliff that are close enough.
const CLOSE_RATIO_AT_CLIFF: f64 = 1.03;
/// Share of the best throughput below which two points in a row end the coarse pass.
const COARSE_END_SHARE: f64 = 0.75;
/// Ratio of the clients of the second of these points to those of the best.
const COARSE_END_RATIO: u32 = 4;
/// Points of the coarse pass where the fewest clients are the best: one client may have met a fast minute.
const MIN_COARSE_POINTS: usize = 5;
/// Standard errors below the best from which on a point cannot be the best.
const MAX_STANDARD_ERRORS: f64 = 2.0;
/// Share of the best throughput above which points of the coarse pass are repeated: one measurement may have been
/// unlucky.
const REPEAT_SHARE: f64 = 0.6;
/// Share of the best throughput that the recommendation may lose.
pub const MAX_LOSS: f64 = 0.05;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Next {
    pub clients: u32,
    /// 0: the coarse pass.
    pub round: u32,
}

#[derive(Debug)]
pub struct Chooser {
    rounds: u32,
    budget: u32,
    random: Random,
    /// What is to be measured in this round, the next at the end.
    queue: Vec<u32>,
    round: u32,
    reference: Option<u32>,
    /// The smallest number that was refused.
    ceiling: Option<u32>,
    visits: Vec<Visit>,
    /// What was handed out and has not been reported.
    outstanding: bool,
}

impl Chooser {
    /// For numbers of clients from `from` to `to`.
    ///
    /// # Panics
    /// If the range is empty or begins at 0, or there are no rounds: own mistakes.
    pub fn new(from: u32, to: u32, rounds: u32, seed: u64) -> Self {
        assert!(0 < from && from <= to && rounds > 0, "an empty sweep");
        let mut queue = coarse(from, to);
        queue.reverse();
        Self {
            rounds,
            budget: visit_budget(from, to, rounds),
            random: Random::new(seed),
            queue,
            round: 0,
            reference: None,
            ceiling: None,
            visits: Vec::new(),
            outstanding: false,
        }
    }

    /// What to measure now; `None`: it is over.
    pub fn poll_next(&mut self) -> Option<Next> {
        assert!(!self.outstanding, "the last point has not been reported");
        if self.round == 0 && self.is_well_past() {
            self.queue.clear();
        } else if self.round == 0 && self.queue.is_empty() {
            self.queue.extend(self.below_the_ceiling());
        }
        while self.queue.is_empty() {
            if self.round >= MAX_ROUNDS_RATIO * self.rounds || self.remaining_visits() == 0 || self.visits.is_empty() {
                return None;
            }
            self.round += 1;
            self.queue = self.plan_round();
            if self.queue.is_empty() {
                return None;
            }
        }
        if self.remaining_visits() == 0 {
            return None;
        }
        self.outstanding = true;
        self.queue.pop().map(|clients| Next { clients, round: self.round })
    }

    /// What was measured at the point handed out last.
    pub fn record(&mut self, visit: Visit) {
        assert!(std::mem::take(&mut self.outstanding), "nothing was to be measured");
        self.visits.push(visit);
    }

    /// The database does not let in the clients of the point handed out last. Neither this nor a larger number is
    /// handed out again. The next number of the coarse pass is half way between it and the largest number that was let
    /// in.
    pub fn record_refusal(&mut self, clients: u32) {
        assert!(std::mem::take(&mut self.outstanding), "nothing was to be measured");
        self.queue.retain(|&n| n < clients);
        self.ceiling = Some(self.ceiling.map_or(clients, |ceiling| ceiling.min(clients)));
    }

    /// What was measured, in order.
    pub fn visits(&self) -> &[Visit] {
        &self.visits
    }

    /// The point that each round repeats: the best of the coarse pass.
    pub fn reference(&self) -> Option<u32> {
        self.reference
    }

    /// The most visits this sweep may still make, for a progress bar.
    pub fn remaining_visits(&self) -> u32 {
        self.budget.saturating_sub(u32::try_from(self.visits.len()).expect("visits are few"))
    }

    /// Half way between the largest number that was let in and the smallest that was not.
    fn below_the_ceiling(&self) -> Option<u32> {
        let most = self.visits.iter().map(|v| v.clients).max()?;
        middle((most, self.ceiling?), CLOSE_RATIO)
    }

    /// The coarse pass has seen enough: throughput has fallen well below the best, twice.
    fn is_well_past(&self) -> bool {
        let best = self.visits.iter().max_by(|a, b| a.throughput.total_cmp(&b.throughput));
        let (Some(best), [.., a, b]) = (best, &self.visits[..]) else { return false };
        if best.clients == self.visits[0].clients && self.visits.len() < MIN_COARSE_POINTS {
            return false;
        }
        [a, b].iter().all(|v| v.throughput < COARSE_END_SHARE * best.throughput)
            && b.clients >= COARSE_END_RATIO * best.clients
    }

    /// The points of the next round, in random order.
    fn plan_round(&mut self) -> Vec<u32> {
        let is_allowed = |clients: u32| self.ceiling.is_none_or(|ceiling| clients < ceiling);
        let mut estimate = CurveEstimate::of(&self.visits);
        // Numbers that were let in before the ceiling was met are not measured again.
        estimate.points.retain(|point| is_allowed(point.clients));
        let Some(best) = estimate.highest() else { return Vec::new() };
        let repeats_reference = self.round <= self.rounds && self.reference.is_none_or(is_allowed);
        let reference = *self.reference.get_or_insert(best.clients);
        let rounds_left = self.rounds.saturating_sub(self.round) as usize + 1;
        let share = (self.remaining_visits() as usize).div_ceil(rounds_left).clamp(1, MAX_ROUND_POINTS);
        let wanted = self.wanted(&estimate, best);
        if self.round > self.rounds && wanted.len() < 2 {
            return Vec::new();
        }
        let mut chosen = Vec::from_iter(repeats_reference.then_some(reference));
        for clients in wanted {
            if chosen.len() < share && !chosen.contains(&clients) {
                chosen.push(clients);
            }
        }
        self.random.shuffle(&mut chosen);
        chosen
    }

    /// Candidates for the next measurements, the most important first.
    fn wanted(&self, estimate: &CurveEstimate, best: PointEstimate) -> Vec<u32> {
        let mut wanted = vec![best.clients];
        let adds_points = self.remaining_visits() >= FINAL_REPEATS;
        let mut contenders = contenders(estimate, best);
        contenders.retain(|&clients| clients != best.clients);
        let mut gaps = Vec::new();
        for (rank, clients) in std::iter::once(best.clients).chain(contenders.iter().copied()).enumerate() {
            let at = estimate.points.iter().position(|p| p.clients == clients).expect("one of them");
            let unlucky = unconfirmed_cliffs(&estimate.points, at);
            if unlucky.is_empty() {
                gaps.extend(gaps_beside(estimate, at, adds_points && rank < TOP_POINTS));
            }
            wanted.extend(unlucky);
        }
        gaps.sort_by(|a, b| b.0.total_cmp(&a.0));
        if gaps.first().is_some_and(|gap| gap.0 >= CLIFF_URGENCY) {
            gaps.truncate(1);
        }
        wanted.splice(1..1, gaps.into_iter().map(|(_, middle)| middle));
        if adds_points && self.round > 1 {
            wanted.extend(recommendation_gap(&estimate.points, best));
        }
        if self.round == 1 {
            wanted.extend(coarse_repeats(&estimate.points, best));
        }
        if !adds_points {
            let within = estimate.points.iter().find(|p| p.smoothed >= (1.0 - MAX_LOSS) * best.smoothed);
            wanted.extend(within.map(|p| p.clients));
        }
        wanted.extend(contenders);
        wanted.extend(cliff_neighbours(&estimate.points, best));
        wanted
    }
}

/// The numbers of an exhaustive sweep: up to [`MAX_GRID`] of them from one end to the other, spaced evenly in the
/// logarithm.
pub fn exhaustive_grid(from: u32, to: u32) -> Vec<u32> {
    let mut found = vec![from, to];
    found.dedup();
    // Small numbers coincide when they are rounded, so that more steps are needed than numbers wanted.
    for steps in (MAX_GRID - 1)..(8 * MAX_GRID) {
        let grid = spaced(from, to, u32::try_from(steps).expect("a few hundred"));
        if grid.len() > MAX_GRID {
            break;
        }
        found = grid;
    }
    found
}

/// Visits that a sweep may make: a quarter of the exhaustive sweep's, but enough for the coarse pass and one point in
/// each round.
pub fn visit_budget(from: u32, to: u32, rounds: u32) -> u32 {
    let whole = u32::try_from(exhaustive_grid(from, to).len()).expect("at most MAX_GRID") * rounds;
    let least = u32::try_from(coarse(from, to).len()).expect("a few") + rounds;
    (whole / 4).max(least.min(whole))
}

/// Doubling from one end to the other.
fn coarse(from: u32, to: u32) -> Vec<u32> {
    let mut points: Vec<u32> =
        std::iter::successors(Some(from), |n| n.checked_mul(2)).take_while(|&n| n < to).collect();
    if points.len() > 1 && points.last().is_some_and(|&n| f64::from(to) < 1.3 * f64::from(n)) {
        points.pop();
    }
    points.push(to);
    points
}

fn spaced(from: u32, to: u32, steps: u32) -> Vec<u32> {
    let ratio = f64::from(to) / f64::from(from);
    let mut points: Vec<u32> =
        (0..=steps).map(|i| (f64::from(from) * ratio.powf(f64::from(i) / f64::from(steps))).round() as u32).collect();
    points.dedup();
    points
}

/// The gaps on both sides of a point: how urgent (the ratio of their ends), and their middles; `all`: not only those in
/// which there is a cliff.
fn gaps_beside(estimate: &CurveEstimate, at: usize, all: bool) -> Vec<(f64, u32)> {
    let points = &estimate.points;
    let below = at.checked_sub(1).map(|i| (points[i], points[at]));
    let above = points.get(at + 1).map(|p| (points[at], *p));
    let mut gaps = Vec::new();
    for (low, high) in [below, above].into_iter().flatten() {
        let noise =
            MAX_STANDARD_ERRORS * estimate.standard_error(low.visits).hypot(estimate.standard_error(high.visits));
        let share = CLIFF_SHARE.min(1.0 - noise);
        let falls = low.throughput.min(high.throughput) < share * low.throughput.max(high.throughput);
        let gap = (low.clients, high.clients);
        // The rise towards the knee is steep as well, but it is between wide gaps.
        let cliff = falls && ratio(gap) < 1.5;
        let close = if cliff { CLOSE_RATIO_AT_CLIFF } else { CLOSE_RATIO };
        if all || cliff {
            // What a cliff hides is lost altogether, so it comes first.
            let urgency = if cliff { CLIFF_URGENCY * ratio(gap) } else { ratio(gap) };
            gaps.extend(middle(gap, close).map(|middle| (urgency, middle)));
        }
    }
    gaps
}

/// Points close beside the best that seem to lie beyond a cliff, but were measured once or twice only: they may have
/// been unlucky, and the cliff may be elsewhere.
fn unconfirmed_cliffs(points: &[PointEstimate], at: usize) -> Vec<u32> {
    let low = |p: &&PointEstimate| p.max < CLIFF_SHARE * points[at].throughput && p.visits < CLIFF_VISITS;
    let near = |p: &&PointEstimate| ratio((p.clients.min(points[at].clients), p.clients.max(points[at].clients))) < 1.5;
    beside(points, at).filter(low).filter(near).map(|p| p.clients).collect()
}

/// The neighbours of the best that seem to lie beyond a cliff, until they were measured so often that all of it cannot
/// have been bad luck.
fn cliff_neighbours(points: &[PointEstimate], best: PointEstimate) -> Vec<u32> {
    let Some(at) = points.iter().position(|p| p.clients == best.clients) else { return Vec::new() };
    let low = |p: &&PointEstimate| p.throughput < CLIFF_SHARE * best.throughput && p.visits < OUTLIER_VISITS;
    beside(points, at).filter(low).map(|p| p.clients).collect()
}

fn beside(points: &[PointEstimate], at: usize) -> impl Iterator<Item = &PointEstimate> {
    [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter_map(|i| points.get(i))
}

/// The middle of the gap in which the recommendation lies: between the last point that is not within 5% of the best,
/// and the next.
fn recommendation_gap(points: &[PointEstimate], best: PointEstimate) -> Option<u32> {
    let first = points.iter().position(|p| p.smoothed >= (1.0 - MAX_LOSS) * best.smoothed)?;
    let before = points.get(first.checked_sub(1)?)?;
    middle((before.clients, points[first].clients), CLOSE_RATIO)
}

/// Coarse points that one unlucky measurement may hide, the highest first.
fn coarse_repeats(points: &[PointEstimate], best: PointEstimate) -> Vec<u32> {
    let mut near: Vec<&PointEstimate> =
        points.iter().filter(|p| p.throughput >= REPEAT_SHARE * best.throughput).collect();
    near.sort_by(|a, b| b.throughput.total_cmp(&a.throughput));
    near.into_iter().map(|p| p.clients).collect()
}

/// Points that may still be the best, the most promising first: few visits leave much room, and of two visits one may
/// have been unlucky.
fn contenders(estimate: &CurveEstimate, best: PointEstimate) -> Vec<u32> {
    let promise = |p: &PointEstimate| {
        let doubtful = p.visits < CLIFF_VISITS || (p.visits < OUTLIER_VISITS && estimate.has_outliers(p));
        let value = if doubtful { p.max.max(p.smoothed) } else { p.smoothed };
        value
            * (1.0
                + MAX_STANDARD_ERRORS * estimate.standard_error(p.visits).hypot(estimate.standard_error(best.visits)))
            / best.smoothed
    };
    let mut left: Vec<&PointEstimate> = estimate.points.iter().filter(|p| promise(p) >= 1.0).collect();
    left.sort_by(|a, b| promise(b).total_cmp(&promise(a)));
    left.into_iter().map(|p| p.clients).collect()
}

fn ratio((low, high): (u32, u32)) -> f64 {
    f64::from(high) / f64::from(low)
}

/// The geometric middle; `None`: the gap is narrow enough, or there is no number in it.
fn middle((low, high): (u32, u32), close: f64) -> Option<u32> {
    let middle = (f64::from(low) * f64::from(high)).sqrt().round() as u32;
    (ratio((low, high)) > close && middle > low && middle < high).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a chooser over a curve without noise.
    fn run(mut chooser: Chooser, curve: impl Fn(u32) -> f64) -> Chooser {
        let mut at_s = 0.0;
        while let Some(next) = chooser.poll_next() {
            at_s += 4.0;
            let throughput = curve(next.clients);
            chooser.record(Visit { at_s, round: next.round, clients: next.clients, throughput, ..Visit::default() });
        }
        chooser
    }

    fn usl(alpha: f64, beta: f64) -> impl Fn(u32) -> f64 {
        move |n| super::super::fit::throughput(1000.0, alpha, beta, f64::from(n))
    }

    #[test]
    fn the_exhaustive_grid_has_32_different_numbers_or_all_of_a_smaller_range() {
        for (from, to) in [(1, 256), (1, 97), (1, 1000), (1, 10_000), (10, 400)] {
            let grid = exhaustive_grid(from, to);
            assert_eq!(grid.len(), MAX_GRID, "{from}..{to}: {grid:?}");
            assert!(grid.is_sorted_by(|a, b| a < b) && grid[0] == from && grid[31] == to, "{grid:?}");
        }
        assert_eq!(exhaustive_grid(1, 7), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(exhaustive_grid(5, 5), [5]);
    }

    #[test]
    fn a_sweep_costs_at_most_a_quarter_of_an_exhaustive_one() {
        for (to, rounds) in [(32, 5), (97, 5), (256, 5), (256, 8), (1000, 5), (10_000, 5)] {
            let chooser = run(Chooser::new(1, to, rounds, 7), usl(0.01, 1e-4));
            let whole = exhaustive_grid(1, to).len() * rounds as usize;
            assert!(4 * chooser.visits().len() <= whole, "{} of {whole}", chooser.visits().len());
        }
    }

    #[test]
    fn the_coarse_pass_doubles_upwards_and_ends_at_the_limit() {
        assert_eq!(coarse(1, 97), [1, 2, 4, 8, 16, 32, 64, 97]);
        assert_eq!(coarse(1, 70), [1, 2, 4, 8, 16, 32, 70], "64 and 70 are one point");
        assert_eq!(coarse(3, 3), [3]);
        let chooser = run(Chooser::new(1, 64, 5, 1), usl(0.01, 0.0));
        let first: Vec<_> = chooser.visits().iter().filter(|v| v.round == 0).map(|v| v.clients).collect();
        assert_eq!(first, [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn the_coarse_pass_ends_early_when_throughput_has_fallen_well_below_the_best() {
        let chooser = run(Chooser::new(1, 1024, 5, 1), usl(0.02, 0.01));
        let most = chooser.visits().iter().map(|v| v.clients).max().unwrap();
        assert!(most < 1024, "the peak is near 10, and {most} were tried");
        assert!(most >= 40, "the knee must have been passed by far");
    }

    #[test]
    fn where_the_fewest_are_the_best_some_more_are_looked_at() {
        let chooser = run(Chooser::new(1, 256, 5, 1), |n| if n == 1 { 5000.0 } else { 3000.0 - f64::from(n) });
        let coarse: Vec<_> = chooser.visits().iter().filter(|v| v.round == 0).map(|v| v.clients).collect();
        assert_eq!(coarse, [1, 2, 4, 8, 16]);
    }

    #[test]
    fn without_noise_the_best_is_found_closely_and_visited_several_times() {
        for (alpha, beta) in [(0.02, 1e-2), (0.02, 1e-3), (0.01, 1e-4), (0.0, 3e-5)] {
            let curve = usl(alpha, beta);
            let chooser = run(Chooser::new(1, 256, 5, 9), &curve);
            let estimate = CurveEstimate::of(chooser.visits());
            let best = estimate.best().unwrap();
            let top = (1..=256).map(&curve).fold(0.0, f64::max);
            assert!(curve(best.clients) > 0.995 * top, "{best:?} for {alpha} {beta}");
        }
    }

    #[test]
    fn what_seems_to_lie_beyond_a_cliff_beside_the_best_is_measured_again_and_again() {
        for seed in 0..20 {
            let chooser = run(Chooser::new(1, 256, 7, seed), |n| if n < 41 { 100.0 * f64::from(n) } else { 2000.0 });
            let estimate = CurveEstimate::of(chooser.visits());
            let at = estimate.points.iter().position(|p| p.clients == estimate.best().unwrap().clients).unwrap();
            assert_eq!(estimate.points[at].clients, 40, "seed {seed}");
            let beyond = estimate.points[at + 1];
            assert!(beyond.clients == 41 && beyond.visits >= OUTLIER_VISITS, "seed {seed}: {beyond:?}");
        }
    }

    #[test]
    fn the_reference_is_measured_in_every_round() {
        let chooser = run(Chooser::new(1, 256, 5, 2), usl(0.02, 1e-3));
        let reference = chooser.reference().unwrap();
        for round in 0..=5 {
            assert!(chooser.visits().iter().any(|v| v.round == round && v.clients == reference), "round {round}");
        }
    }

    #[test]
    fn after_a_refusal_the_largest_number_that_is_let_in_is_looked_for() {
        let mut chooser = Chooser::new(1, 256, 5, 3);
        let (mut most, mut refusals) = (0, 0);
        while let Some(next) = chooser.poll_next() {
            if next.clients > 90 {
                refusals += 1;
                chooser.record_refusal(next.clients);
                continue;
            }
            most = most.max(next.clients);
            let throughput = f64::from(next.clients);
            chooser.record(Visit { clients: next.clients, round: next.round, throughput, ..Visit::default() });
        }
        assert!((80..=90).contains(&most) && refusals <= 5, "{most} after {refusals} refusals");
    }

    #[test]
    fn a_number_that_is_refused_in_a_later_round_is_not_asked_for_again() {
        for seed in 0..20 {
            let mut chooser = Chooser::new(1, 64, 5, seed);
            // After the coarse pass others take all connections but 40.
            let mut refusals: Vec<u32> = Vec::new();
            while let Some(next) = chooser.poll_next() {
                let lowest = refusals.iter().min();
                assert!(lowest.is_none_or(|lowest| next.clients < *lowest), "seed {seed}: {next:?} {refusals:?}");
                if next.round > 0 && next.clients > 40 {
                    refusals.push(next.clients);
                    chooser.record_refusal(next.clients);
                    continue;
                }
                let throughput = f64::from(next.clients);
                chooser.record(Visit { clients: next.clients, round: next.round, throughput, ..Visit::default() });
            }
            assert!(!refusals.is_empty(), "seed {seed}");
            let allowed = chooser.visits().iter().filter(|visit| visit.round > 0).count();
            assert!(allowed >= 5, "seed {seed}: the numbers that are let in are measured on, {allowed} times");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_points_and_another_seed_another_order() {
        let order = |seed| {
            let chooser = run(Chooser::new(1, 256, 5, seed), usl(0.02, 1e-3));
            chooser.visits().iter().map(|v| v.clients).collect::<Vec<_>>()
        };
        assert_eq!(order(5), order(5));
        assert!((6..12).any(|seed| order(seed) != order(5)));
    }

    #[test]
    fn a_database_that_does_nothing_at_all_ends_the_sweep_after_the_coarse_pass() {
        let chooser = run(Chooser::new(1, 16, 5, 5), |_| 0.0);
        assert_eq!(chooser.visits().len(), 5);
    }
}
