//! Search for the best settings: the smallest max size, then the smallest min size, then the shortest idle time with
//! which all objectives are met with a margin. Each candidate is simulated; sizes below a candidate that failed are
//! skipped. Settings derived by rules are simulated last, and kept only if the objectives are still met.

mod confirming;
mod loads;

use std::time::Duration;

use ::report::{comparison::Comparison, result::Measured};
use load::plan::{MAX_CONNECTIONS, Plan, Shape};

use crate::{
    facts::Facts,
    front::client_hard_limit,
    question::{Missed, Question},
    run::{Outcome, front_with_exclusive_leases, max_pool_connections, run, run_until},
    server::Spec,
    sizes::Sizes,
    upkeep::Upkeep,
};
use loads::{highest_rate, max_operations, shortened, with_advised_settings, with_sizes};

/// Candidate idle times in seconds of the real service.
const CANDIDATE_IDLE_TIMES_S: [u64; 8] = [10, 30, 60, 2 * 60, 5 * 60, 10 * 60, 30 * 60, 60 * 60];
/// Factor between successive candidate sizes until one is large enough.
const SIZE_GROWTH_FACTOR: f64 = 1.25;
/// If more than this share of the connections has to be kept, all are kept.
const KEEP_ALL_SHARE: f64 = 0.9;
/// A shorter wait does not count: results have a resolution of microseconds.
const MIN_WAIT: Duration = Duration::from_nanos(500);
/// Number of other seeds with which the answer is simulated to estimate its uncertainty.
const EXTRA_SEEDS: u64 = 4;
/// Factor by which the share of failed operations may rise by chance when settings are changed.
const FAILURE_TOLERANCE: f64 = 1.1;

/// The result of the search.
#[derive(Clone, Debug)]
pub struct Found {
    pub sizes: Sizes,
    /// The other settings: derived by rules if the objectives allow it, otherwise as given.
    pub upkeep: Upkeep,
    /// Rejected settings derived by rules, and the objectives they miss.
    pub rejected: Option<(Upkeep, Vec<Missed>)>,
    /// The outcome of each load of the question with these settings.
    pub outcomes: Vec<Outcome>,
    /// Objectives that are not met.
    pub missed: Vec<Missed>,
    /// The objectives are met with the margin.
    pub with_margin: bool,
    /// The largest size found too small. `None` if the smallest candidate was large enough.
    pub too_small: Option<(u32, Vec<Missed>)>,
    /// Percentiles with other seeds: p50, p95, p99 in milliseconds, of the first load.
    pub spread: Vec<[f64; 3]>,
    /// Number of other seeds with which all objectives were met.
    pub seeds_that_met: u64,
    /// Number of simulations run.
    pub simulations: u32,
    /// The largest size allowed, and what bounds it.
    pub max_allowed: (u32, Bound),
}

/// What bounds the size of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bound {
    /// The server's limit, shared by the instances.
    Server,
    /// The hard limit of the Poolhouse in front, shared by the instances.
    Gate,
    /// The concurrency up to which the server was measured.
    Measured,
    /// The concurrency up to which the measurement is reliable, or the last but one measured.
    Safe,
    /// The limit that all pools share.
    Budget,
    /// The greatest number of concurrent operations.
    Operations,
}

/// Limits on the connections of all instances together.
pub fn limits(load: &Plan, spec: &Spec) -> impl Iterator<Item = (u32, Bound)> {
    let gate = load.poolhouse.as_ref().map(client_hard_limit);
    // Behind these pools, the pool of a Poolhouse in front may decide how many connections reach the server.
    let room = max_pool_connections(load, spec).filter(|_| front_with_exclusive_leases(load).is_none());
    let limits = [(gate, Bound::Gate), (room, Bound::Server)].into_iter();
    limits.filter_map(|(limit, bound)| Some((limit?, bound))).filter(|(limit, _)| !is_enforced_by_budget(spec, *limit))
}

/// Whether the pools' shared budget already enforces a limit.
fn is_enforced_by_budget(spec: &Spec, limit: u32) -> bool {
    spec.budget.is_some_and(|budget| budget <= limit)
}

/// Receives the number of simulations run, and the candidate that is simulated next.
pub type Progress<'p> = &'p mut dyn FnMut(u32, &Sizes);

/// Finds the best settings. `None` if no load of the question has a pool, or the limits allow fewer than one connection
/// for each instance.
pub fn search(question: &Question, progress: Progress<'_>) -> Option<Found> {
    Search::new(question, progress)?.run()
}

/// The evaluation of a candidate.
#[derive(Default)]
struct JudgedCandidate {
    /// Objectives that are missed with the margin.
    missed_with_margin: Vec<Missed>,
    /// Objectives that are missed without a margin.
    missed: Vec<Missed>,
    /// In a load that misses an objective with the margin, an operation waited for a connection of the pools whose size
    /// is sought.
    has_pool_wait: bool,
    /// The simulation ran to its end. If it did not, it does not with larger pools either.
    is_complete: bool,
    /// The share of the last load's operations that failed.
    failed_share: f64,
    /// The 99th percentile of the last load's response time in milliseconds. Infinite if no operation was answered.
    p99: f64,
    /// Connections made in all simulated loads.
    created: u64,
}

/// When the simulation of a candidate ends.
#[derive(Clone, Copy)]
enum Until {
    End,
    /// When it is certain to miss an objective with this margin, and an operation has waited for a connection.
    CertainMiss(f64),
}

/// The largest size found too small, with the objectives it misses.
type TooSmall = Option<(u32, Vec<Missed>)>;

struct Search<'q, 'p> {
    question: &'q Question,
    spec: &'q Spec,
    /// The distinct loads, all with the same kind of pools.
    loads: Vec<Plan>,
    /// The loads, shortened to judge candidates quickly.
    short: Vec<Plan>,
    margin: f64,
    simulations: u32,
    progress: Progress<'p>,
}

impl<'q, 'p> Search<'q, 'p> {
    fn new(question: &'q Question, progress: Progress<'p>) -> Option<Self> {
        let first = question.first_pooled()?;
        let mut loads: Vec<Plan> = Vec::new();
        for load in &question.loads {
            let alike =
                load.pool.reuse && load.pool.instances == first.pool.instances && load.poolhouse == first.poolhouse;
            let same =
                |other: &Plan| (&other.shape, &other.faults, other.freeze) == (&load.shape, &load.faults, load.freeze);
            if alike && !loads.iter().any(same) {
                loads.push(with_advised_settings(question, first, load));
            }
        }
        // A count is smaller in a part of a load than in the whole.
        let counts = question.objectives.iter().any(Comparison::is_count);
        let short = loads.iter().map(|load| if counts { load.clone() } else { shortened(load) }).collect();
        Some(Self { question, spec: &question.spec, loads, short, margin: question.margin, simulations: 0, progress })
    }

    fn run(mut self) -> Option<Found> {
        let (most, bound) = self.max_allowed_size()?;
        let (max_size, with_margin, mut too_small) = self.max_size(most);
        self.margin = if with_margin { self.question.margin } else { 0.0 };
        let all_kept = self.all_kept(max_size);
        // The clients of a sweep use all connections all the time.
        let sizes = if self.is_met(&all_kept) && !self.question.is_sweep { self.shrink(all_kept) } else { all_kept };
        let (sizes, outcomes, missed) = self.confirm(sizes, most, &mut too_small);
        // A simulation that does not run to its end tells nothing, with any seed.
        let is_complete = outcomes.iter().all(|outcome| outcome.is_complete);
        let (spread, seeds_that_met) = if is_complete { self.run_other_seeds(&sizes) } else { (Vec::new(), 0) };
        let with_margin = with_margin && self.missed(&outcomes, self.question.margin).is_empty();
        let found = Found {
            sizes,
            upkeep: Upkeep::given(&self.loads[0].pool.config),
            rejected: None,
            outcomes,
            missed,
            with_margin,
            too_small,
            spread,
            seeds_that_met,
            simulations: self.simulations,
            max_allowed: (most, bound),
        };
        let found = if is_complete { self.apply_rules(found) } else { found };
        Some(Found { simulations: self.simulations, ..found })
    }

    /// Applies the settings derived by rules if the objectives are still met.
    fn apply_rules(&mut self, found: Found) -> Found {
        let facts = Facts::of(self.question, &self.loads[0]);
        let by_rule = found.upkeep.by_rule(self.question.compression, &facts, &found.sizes, &found.outcomes);
        if by_rule == found.upkeep {
            return found;
        }
        self.loads.iter_mut().chain(&mut self.short).for_each(|load| by_rule.apply_to(&mut load.pool.config));
        match self.with_upkeep(by_rule, &found) {
            Ok(better) => better,
            Err(missed) => Found { rejected: Some((by_rule, missed)), ..found },
        }
    }

    /// The result with these settings besides.
    ///
    /// # Errors
    /// The objectives that only these settings miss. Empty if the settings are worse in another respect.
    fn with_upkeep(&mut self, upkeep: Upkeep, found: &Found) -> Result<Found, Vec<Missed>> {
        let (outcomes, _) = self.judge_whole_loads(&found.sizes);
        let margin = if found.with_margin { self.question.margin } else { 0.0 };
        let (missed, missed_with_margin) = (self.missed(&outcomes, 0.0), self.missed(&outcomes, margin));
        let no_worse =
            if found.missed.is_empty() { missed_with_margin.is_empty() } else { missed.len() <= found.missed.len() };
        let fails_more = max_failed_share(&outcomes) > max_failed_share(&found.outcomes) * FAILURE_TOLERANCE;
        if !no_worse || fails_more || outcomes.iter().any(|outcome| !outcome.is_complete) {
            let is_new = |miss: &Missed| found.missed.iter().all(|known| known.objective != miss.objective);
            return Err(missed_with_margin.into_iter().filter(is_new).collect());
        }
        let (spread, seeds_that_met) = self.run_other_seeds(&found.sizes);
        if seeds_that_met < found.seeds_that_met {
            return Err(Vec::new());
        }
        Ok(Found { upkeep, outcomes, missed, spread, seeds_that_met, ..found.clone() })
    }

    /// The largest useful size within the limits, and what bounds it. `None` if the limits allow no connection.
    fn max_allowed_size(&self) -> Option<(u32, Bound)> {
        let load = &self.loads[0];
        let instances = load.pool.instances;
        let at_once = self.loads.iter().map(|load| match load.shape {
            Shape::Closed { clients, .. } => clients.div_ceil(instances),
            Shape::Open { max_in_flight, .. } => max_in_flight,
            Shape::Burst { at_once, .. } => at_once,
        });
        let operations = at_once.max().unwrap_or(1).min(MAX_CONNECTIONS / instances).max(1);
        let mut most = (operations, Bound::Operations);
        if let Some(budget) = self.spec.budget.filter(|budget| *budget < operations) {
            most = (budget, Bound::Budget);
        }
        for (limit, bound) in limits(load, self.spec) {
            let share = limit / instances;
            most = if share < most.0 { (share, bound) } else { most };
        }
        if most.0 == 0 {
            return None;
        }
        // Behind a Poolhouse with its own pool, the size does not decide the concurrency at the server.
        let curve = self.spec.curve.as_ref().filter(|_| front_with_exclusive_leases(load).is_none());
        let known = curve.and_then(|curve| curve.measured_until()).map(|until| (until, Bound::Measured));
        let relied = curve.and_then(|curve| curve.searched_range()).map(|(_, to)| (to, Bound::Safe));
        let measured = known.into_iter().chain(relied);
        for (limit, bound) in measured.filter(|(limit, _)| !is_enforced_by_budget(self.spec, *limit)) {
            // Each instance has at least one connection.
            let share = (limit / instances).max(1);
            most = if share < most.0 { (share, bound) } else { most };
        }
        Some(most)
    }

    /// The smallest candidate size. Below it, the measured throughput is unreliable.
    fn smallest_size(&self, most: u32) -> u32 {
        let least = self.spec.curve.as_ref().map_or(1, |curve| curve.least());
        least.div_ceil(self.loads[0].pool.instances).clamp(1, most)
    }

    /// The smallest size with which the objectives are met if all connections exist from the start, whether with the
    /// margin, and the largest size found too small. If no size is large enough: the size with the fewest missed
    /// objectives, then the fewest failures, then the shortest p99; or, if the server is overloaded, the size with the
    /// highest throughput.
    fn max_size(&mut self, most: u32) -> (u32, bool, TooSmall) {
        let mut tried: Vec<(u32, JudgedCandidate)> = Vec::new();
        let fewest = self.smallest_size(most);
        let mut size = self.min_size_by_littles_law().min(most).max(fewest);
        // Candidates run to their end, to rank the ones that are too small. With an overloaded server no ranking is
        // needed.
        let saturation_size = self.saturation_size();
        let until = if saturation_size.is_some() { Until::CertainMiss(0.0) } else { Until::End };
        loop {
            let judged = self.judge(&self.all_kept(size), until);
            // If no operation waited for a connection, a larger pool changes nothing.
            let last =
                judged.missed_with_margin.is_empty() || !judged.has_pool_wait || !judged.is_complete || size >= most;
            tried.push((size, judged));
            if last {
                break;
            }
            size = ((f64::from(size) * SIZE_GROWTH_FACTOR).ceil() as u32).max(size + 1).min(most);
        }
        for (margin, missed) in
            [(self.margin, (|j| &j.missed_with_margin) as fn(&JudgedCandidate) -> &Vec<Missed>), (0.0, |j| &j.missed)]
        {
            let Some(enough) = tried.iter().position(|(_, judged)| missed(judged).is_empty()) else { continue };
            let too_small = enough.checked_sub(1).map(|at| (tried[at].0, missed(&tried[at].1).clone()));
            let with_margin = margin >= self.margin;
            self.margin = margin;
            let (size, too_small) = self.bisect_size(fewest, too_small, tried[enough].0);
            return (size, with_margin, too_small);
        }
        if let Some(enough) = saturation_size {
            return (enough.clamp(fewest, most), false, None);
        }
        let last = tried.last().map(|(size, judged)| (*size, judged.missed.clone()));
        let nearest = tried.iter().min_by(|(one, a), (other, b)| {
            // A candidate with which no operation succeeds comes last.
            let none_succeeds = (a.failed_share >= 1.0).cmp(&(b.failed_share >= 1.0));
            let fewer = none_succeeds.then(a.missed.len().cmp(&b.missed.len()));
            fewer.then(a.failed_share.total_cmp(&b.failed_share)).then(a.p99.total_cmp(&b.p99)).then(one.cmp(other))
        });
        let nearest = nearest.map_or(most, |(size, _)| *size);
        (nearest, false, last)
    }

    /// The size with which the server reaches its highest throughput, if the load exceeds that throughput at some time.
    /// By Little's law it covers the operations in the server and those in the network or a pause. With larger pools
    /// fewer operations fail while the load lasts, but they pile up in the server.
    fn saturation_size(&self) -> Option<u32> {
        let load = &self.loads[0];
        let (does, at_once) =
            Facts::of(self.question, load).server_best.filter(|_| front_with_exclusive_leases(load).is_none())?;
        let peaks = self.loads.iter().filter_map(|load| Facts::of(self.question, load).peak_rate);
        let too_much = peaks.into_iter().any(|rate| rate > does);
        let elsewhere = self.spec.mean_hold_time(&load.faults).saturating_sub(self.spec.service.mean());
        let connections = f64::from(at_once) + does * elsewhere.as_secs_f64();
        too_much.then(|| (connections / f64::from(load.pool.instances)).ceil() as u32)
    }

    /// The smallest sufficient size, by bisection above one too small, or from the smallest candidate on.
    fn bisect_size(&mut self, fewest: u32, mut low: TooSmall, mut high: u32) -> (u32, TooSmall) {
        let mut below = low.as_ref().map_or(fewest - 1, |(size, _)| *size);
        while high - below > 1 {
            let middle = below + (high - below) / 2;
            let missed = self.judge(&self.all_kept(middle), Until::CertainMiss(self.margin)).missed_with_margin;
            if missed.is_empty() {
                high = middle;
            } else {
                below = middle;
                low = Some((middle, missed));
            }
        }
        (high, low)
    }

    /// A lower bound of the size by Little's law, from the highest mean rate of the loads.
    fn min_size_by_littles_law(&self) -> u32 {
        let need = self.loads.iter().map(|load| match highest_rate(load) {
            Some(rate) => {
                // Without stalls. Halved, because objectives may allow some operations to fail.
                rate * self.spec.mean_hold_time(&load.faults).as_secs_f64() / f64::from(load.pool.instances) / 2.0
            }
            None => 1.0,
        });
        need.fold(1.0, f64::max).floor() as u32
    }

    /// Sizes with all connections made at the start, as far as the shared budget allows.
    fn all_kept(&self, max_size: u32) -> Sizes {
        let pool = &self.loads[0].pool;
        let each = self.spec.budget.map_or(max_size, |budget| budget / pool.instances);
        Sizes { max_size, min_size: max_size.min(each), max_idle_time: pool.config.max_idle_time }
    }

    /// Lowers the min size, then the idle time as far as no additional connections are made.
    fn shrink(&mut self, all_kept: Sizes) -> Sizes {
        let (mut low, mut high) = (0, all_kept.min_size);
        // 0 is tried first: it is often sufficient.
        while low < high {
            let middle = if low == 0 && high == all_kept.min_size { 0 } else { low + (high - low) / 2 };
            if self.is_met(&Sizes { min_size: middle, ..all_kept }) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if f64::from(high) > f64::from(all_kept.max_size) * KEEP_ALL_SHARE {
            // Closing the few remaining connections when idle would save too little.
            return all_kept;
        }
        let sizes = Sizes { min_size: high, ..all_kept };
        let compression = self.question.compression;
        let times = CANDIDATE_IDLE_TIMES_S.iter().map(|seconds| Duration::from_secs_f64(*seconds as f64 / compression));
        let shorter = times.filter(|time| sizes.max_idle_time.is_none_or(|given| *time < given));
        let created = self.judge(&sizes, Until::End).created;
        for time in shorter.collect::<Vec<_>>() {
            let shorter = Sizes { max_idle_time: Some(time), ..sizes };
            let judged = self.judge(&shorter, Until::CertainMiss(self.margin));
            if judged.missed_with_margin.is_empty() && judged.created <= created {
                return shorter;
            }
        }
        sizes
    }

    fn is_met(&mut self, sizes: &Sizes) -> bool {
        self.judge(sizes, Until::CertainMiss(self.margin)).missed_with_margin.is_empty()
    }

    fn simulate(&self, plan: &Plan, until: Until) -> Outcome {
        let Until::CertainMiss(margin) = until else { return run(plan, self.spec) };
        let most = max_operations(plan);
        run_until(plan, self.spec, &mut |engine, now| {
            is_pool_wait(engine.longest_wait()) && self.question.is_certain_to_miss(&engine.result(now), most, margin)
        })
    }

    /// Simulates the shortened loads with these sizes, up to the first load that misses an objective: with the margin
    /// of `until`, since a candidate that does without a margin has to do so with each load.
    fn judge(&mut self, sizes: &Sizes, until: Until) -> JudgedCandidate {
        let mut judged = JudgedCandidate { is_complete: true, ..JudgedCandidate::default() };
        let margin = match until {
            Until::End => 0.0,
            Until::CertainMiss(margin) => margin,
        };
        for plan in self.short_plans(sizes, 0) {
            (self.progress)(self.simulations, sizes);
            self.simulations += 1;
            let outcomes = [self.simulate(&plan, until)];
            let outcome = &outcomes[0];
            let total = &outcome.result.total;
            let missed_with_margin = self.missed(&outcomes, self.margin);
            // A larger pool does not help a load that meets its objectives.
            judged.has_pool_wait |= !missed_with_margin.is_empty() && has_pool_wait(outcome);
            judged.is_complete &= outcome.is_complete || outcome.stopped_early;
            judged.missed_with_margin.extend(missed_with_margin);
            judged.missed.extend(self.missed(&outcomes, 0.0));
            judged.failed_share = failed_share(total);
            judged.p99 = total.response_ms.as_ref().map_or(f64::INFINITY, |response| response.p99);
            judged.created += total.connections.created;
            if !self.missed(&outcomes, margin).is_empty() {
                break;
            }
        }
        judged
    }

    fn missed(&self, outcomes: &[Outcome], margin: f64) -> Vec<Missed> {
        outcomes.iter().flat_map(|outcome| self.question.missed(&outcome.result, margin)).collect()
    }

    fn plans(&self, sizes: &Sizes, seed: u64) -> Vec<Plan> {
        self.loads.iter().map(|load| with_sizes(load, sizes, seed)).collect()
    }

    fn short_plans(&self, sizes: &Sizes, seed: u64) -> Vec<Plan> {
        self.short.iter().map(|load| with_sizes(load, sizes, seed)).collect()
    }
}

/// Whether an operation waited for a connection of the pools whose size is sought.
fn has_pool_wait(outcome: &Outcome) -> bool {
    is_pool_wait(outcome.longest_wait)
}

/// Whether the longest wait counts as one. `None`: no operation got a connection.
fn is_pool_wait(longest: Option<Duration>) -> bool {
    longest.is_none_or(|longest| longest >= MIN_WAIT)
}

/// The largest share of a load's operations that failed.
fn max_failed_share(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|outcome| failed_share(&outcome.result.total)).fold(0.0, f64::max)
}

/// The share of operations that failed; 1 if none ended.
fn failed_share(total: &Measured) -> f64 {
    let errors = total.errors.values().sum::<u64>() as f64;
    let ended = total.requests as f64 + errors;
    if ended > 0.0 { errors / ended } else { 1.0 }
}

#[cfg(test)]
mod tests;
