//! The best settings: the smallest max size, then the smallest min size, then the shortest idle time with which all
//! objectives are met with a margin. Each candidate is simulated; what is smaller than a candidate that failed is not
//! tried. The settings that follow from these by rules are simulated last, and each of them is taken only if what was
//! met still is. Knows no words about the result.

mod confirming;
mod connecting;
mod loads;

use std::time::Duration;

use ::report::{result::Measured, threshold::Threshold};
use load::plan::{MAX_CONNECTIONS, Plan, Shape};

use crate::{
    facts::Facts,
    front::hard_limit,
    question::{Missed, Question},
    run::{Outcome, max_pool_connections, own_pool, run, run_until},
    server::Spec,
    sizes::Sizes,
    upkeep::Upkeep,
};
pub use connecting::HeldBack;
use loads::{advised, highest_rate, most_operations, shortened, with};

/// Idle times that are tried, in the time of the real service.
const IDLE_TIMES: [u64; 8] = [10, 30, 60, 2 * 60, 5 * 60, 10 * 60, 30 * 60, 60 * 60];
/// Sizes beyond the last that was too small grow by this factor until one is large enough.
const GROWTH: f64 = 1.25;
/// Where more than this share has to be kept, all are.
const NEARLY_ALL: f64 = 0.9;
/// Whoever waited for less did not wait: results count in microseconds.
const SHORTEST_WAIT: Duration = Duration::from_nanos(500);
/// Simulations with other seeds that tell how uncertain the answer is.
const MORE_SEEDS: u64 = 4;
/// With other settings a few more may fail by chance, as a factor.
const CHANCE: f64 = 1.1;

/// What the search has found.
#[derive(Clone, Debug)]
pub struct Found {
    pub sizes: Sizes,
    /// The others, by rule as far as the objectives hold with that, and else as given.
    pub upkeep: Upkeep,
    /// What the rules say, and what is missed with it; `None`: that is what was taken.
    pub not_kept: Option<(Upkeep, Vec<Missed>)>,
    /// What all of these settings do to each load of the question.
    pub outcomes: Vec<Outcome>,
    /// Objectives that are not met even so; empty: all are.
    pub missed: Vec<Missed>,
    /// The margin is kept, too.
    pub with_margin: bool,
    /// The largest size that was tried and too small; `None`: the smallest was large enough.
    pub too_small: Option<(u32, Vec<Missed>)>,
    /// What the given `max_connecting` would have led to; `None`: it holds nothing back.
    pub held_back: Option<HeldBack>,
    /// Percentiles with other seeds: p50, p95, p99 in milliseconds, of the first load.
    pub spread: Vec<[f64; 3]>,
    /// How many of these other simulations met all objectives.
    pub seeds_that_met: u64,
    /// Simulations that it took.
    pub simulations: u32,
    /// The most that was allowed, and why.
    pub most: (u32, Bound),
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
    /// The concurrency up to which its measurement can be relied on, or is not at its end.
    Safe,
    /// What the pools may have together: no one can have more.
    Budget,
    /// No more operations can be under way.
    Operations,
}

/// What the connections of all instances together must not exceed.
pub fn limits(load: &Plan, spec: &Spec) -> impl Iterator<Item = (u32, Bound)> {
    let gate = load.poolhouse.as_ref().map(hard_limit);
    // These pools may be the clients of another one, and how many of them reach the server is up to that.
    let room = max_pool_connections(load, spec).filter(|_| own_pool(load).is_none());
    let limits = [(gate, Bound::Gate), (room, Bound::Server)].into_iter();
    limits.filter_map(|(limit, bound)| Some((limit?, bound))).filter(|(limit, _)| !is_kept_together(spec, *limit))
}

/// Whether the pools keep to a limit together, whatever each of them may have, since they share no more.
fn is_kept_together(spec: &Spec, limit: u32) -> bool {
    spec.budget.is_some_and(|budget| budget <= limit)
}

/// How far a search is: simulations done, and what is being tried.
pub type Progress<'p> = &'p mut dyn FnMut(u32, &Sizes);

/// Looks for the best settings; `None`: no load of the question has a pool, or the limits leave no connection for each
/// instance.
pub fn search(question: &Question, progress: Progress<'_>) -> Option<Found> {
    Search::new(question, progress)?.found()
}

#[derive(Default)]
struct Judged {
    tight: Vec<Missed>,
    missed: Vec<Missed>,
    /// Somebody had to wait for a connection of the pools whose size is looked for.
    waited: bool,
    /// It was played to its end. Larger pools are not, where this one was not.
    is_complete: bool,
    /// The share of operations that failed.
    failed: f64,
    /// The 99th percentile of the response time in milliseconds; infinite where nothing was answered.
    p99: f64,
    /// Connections that were made, of all loads that were played.
    created: u64,
}

/// For how long a candidate is played.
#[derive(Clone, Copy)]
enum Until {
    End,
    /// Until it is sure to miss an objective with this margin, and somebody has waited.
    Missed(f64),
}

/// The largest size that was tried and too small, with what it misses.
type TooSmall = Option<(u32, Vec<Missed>)>;

/// The smallest sizes, as far as parts of the loads tell.
struct Candidate {
    sizes: Sizes,
    /// With these, all connections there from the start, all objectives are met.
    is_met: bool,
    with_margin: bool,
    too_small: TooSmall,
}

struct Search<'q, 'p> {
    question: &'q Question,
    spec: &'q Spec,
    /// The loads, each once, all for the same kind of pools.
    loads: Vec<Plan>,
    /// The same, cut so that a candidate is judged quickly.
    short: Vec<Plan>,
    margin: f64,
    simulations: u32,
    progress: Progress<'p>,
}

impl<'q, 'p> Search<'q, 'p> {
    fn new(question: &'q Question, progress: Progress<'p>) -> Option<Self> {
        let first = question.pooled()?;
        let mut loads: Vec<Plan> = Vec::new();
        for case in &question.cases {
            let alike =
                case.pool.reuse && case.pool.instances == first.pool.instances && case.poolhouse == first.poolhouse;
            let same =
                |load: &Plan| (&load.shape, &load.faults, load.freeze) == (&case.shape, &case.faults, case.freeze);
            if alike && !loads.iter().any(same) {
                loads.push(advised(question, first, case));
            }
        }
        // What is counted is less in a part of a load than in the whole.
        let counts = question.objectives.iter().any(Threshold::is_count);
        let short = loads.iter().map(|load| if counts { load.clone() } else { shortened(load) }).collect();
        Some(Self { question, spec: &question.spec, loads, short, margin: question.margin, simulations: 0, progress })
    }

    fn found(mut self) -> Option<Found> {
        let (most, bound) = self.most()?;
        let as_given = self.candidate(most);
        let (candidate, held_back) = self.unhindered(as_given, most);
        let Candidate { sizes, with_margin, mut too_small, .. } = candidate;
        self.margin = if with_margin { self.question.margin } else { 0.0 };
        let (sizes, outcomes, missed) = self.confirmed(sizes, most, &mut too_small);
        // What was not played to its end is not known, by whatever seed.
        let is_complete = outcomes.iter().all(|outcome| outcome.is_complete);
        let (spread, seeds_that_met) = if is_complete { self.with_other_seeds(&sizes) } else { (Vec::new(), 0) };
        let with_margin = with_margin && self.missed(&outcomes, self.question.margin).is_empty();
        let found = Found {
            sizes,
            upkeep: Upkeep::given(&self.loads[0].pool.config),
            not_kept: None,
            outcomes,
            missed,
            with_margin,
            too_small,
            held_back,
            spread,
            seeds_that_met,
            simulations: self.simulations,
            most: (most, bound),
        };
        let found = if is_complete { self.kept_up(found) } else { found };
        Some(Found { simulations: self.simulations, ..found })
    }

    /// The smallest sizes, with as many connections made at a time as the loads have it.
    fn candidate(&mut self, most: u32) -> Candidate {
        self.margin = self.question.margin;
        let (max_size, with_margin, too_small) = self.max_size(most);
        self.margin = if with_margin { self.question.margin } else { 0.0 };
        let full = self.full(max_size);
        let is_met = self.is_met(&full);
        // A sweep's clients use all connections all the time.
        let sizes = if is_met && !self.question.is_sweep { self.shrunk(full) } else { full };
        Candidate { sizes, is_met, with_margin, too_small }
    }

    /// The same with the settings that follow by rules, if what was met is met with them, too; else with as many of
    /// them as that holds for.
    fn kept_up(&mut self, mut found: Found) -> Found {
        let facts = Facts::of(self.question, &self.loads[0]);
        let by_rule = found.upkeep.by_rule(self.question.compression, &facts, &found.sizes, &found.outcomes);
        // Where nothing meets the objectives, not every choice is worth being looked at.
        let worth = if found.missed.is_empty() { usize::MAX } else { 1 };
        for choice in by_rule.choices(found.upkeep).into_iter().take(worth) {
            self.loads.iter_mut().chain(&mut self.short).for_each(|load| choice.set(&mut load.pool.config));
            match self.played(choice, &found) {
                Ok(played) => return played,
                Err(missed) if choice == by_rule => found.not_kept = Some((by_rule, missed)),
                Err(_) => {}
            }
        }
        found
    }

    /// What was found, with these settings besides.
    ///
    /// # Errors
    /// What is missed with them that was met, if it is a matter of objectives.
    fn played(&mut self, upkeep: Upkeep, found: &Found) -> Result<Found, Vec<Missed>> {
        let (outcomes, _) = self.judged_by_all(&found.sizes);
        let margin = if found.with_margin { self.question.margin } else { 0.0 };
        let (missed, tight) = (self.missed(&outcomes, 0.0), self.missed(&outcomes, margin));
        let no_worse = if found.missed.is_empty() { tight.is_empty() } else { missed.len() <= found.missed.len() };
        let fails_more = most_failed(&outcomes) > most_failed(&found.outcomes) * CHANCE;
        if !no_worse || fails_more || outcomes.iter().any(|outcome| !outcome.is_complete) {
            let is_new = |miss: &Missed| found.missed.iter().all(|known| known.objective != miss.objective);
            return Err(tight.into_iter().filter(is_new).collect());
        }
        let (spread, seeds_that_met) = self.with_other_seeds(&found.sizes);
        if seeds_that_met < found.seeds_that_met {
            return Err(Vec::new());
        }
        Ok(Found { upkeep, outcomes, missed, spread, seeds_that_met, ..found.clone() })
    }

    /// The largest size that makes sense and that the limits allow; `None`: they allow none.
    fn most(&self) -> Option<(u32, Bound)> {
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
        // Of a Poolhouse's clients, how many reach the server is up to that.
        let curve = self.spec.curve.as_ref().filter(|_| own_pool(load).is_none());
        let known = curve.and_then(|curve| curve.measured_until()).map(|until| (until, Bound::Measured));
        let relied = curve.and_then(|curve| curve.looked_at()).map(|(_, to)| (to, Bound::Safe));
        let measured = known.into_iter().chain(relied);
        for (limit, bound) in measured.filter(|(limit, _)| !is_kept_together(self.spec, *limit)) {
            // Each instance has a connection at least.
            let share = (limit / instances).max(1);
            most = if share < most.0 { (share, bound) } else { most };
        }
        Some(most)
    }

    /// The smallest size that is looked at: what a server does with fewer operations at once may be chance.
    fn fewest(&self, most: u32) -> u32 {
        let least = self.spec.curve.as_ref().map_or(1, |curve| curve.least());
        least.div_ceil(self.loads[0].pool.instances).clamp(1, most)
    }

    /// The smallest size with which the objectives are met if all connections are there from the start, whether with
    /// the margin, and the largest that was too small. If none is large enough, the one with which the fewest are
    /// missed, of several that which fails least, of these the fastest; or, if no pool can help, the one with which the
    /// server does most.
    fn max_size(&mut self, most: u32) -> (u32, bool, TooSmall) {
        let mut tried: Vec<(u32, Judged)> = Vec::new();
        let fewest = self.fewest(most);
        let mut size = self.least().min(most).max(fewest);
        // Which of those that are too small is nearest, the whole of each tells, and is not asked where no pool can
        // help.
        let does_most = self.does_most();
        let until = if does_most.is_some() { Until::Missed(0.0) } else { Until::End };
        loop {
            let judged = self.look(&self.full(size), until);
            // Where nobody has waited for a connection, more of them change nothing.
            let last = judged.tight.is_empty() || !judged.waited || !judged.is_complete || size >= most;
            tried.push((size, judged));
            if last {
                break;
            }
            size = ((f64::from(size) * GROWTH).ceil() as u32).max(size + 1).min(most);
        }
        for (margin, missed) in [(self.margin, (|j| &j.tight) as fn(&Judged) -> &Vec<Missed>), (0.0, |j| &j.missed)] {
            let Some(enough) = tried.iter().position(|(_, judged)| missed(judged).is_empty()) else { continue };
            let too_small = enough.checked_sub(1).map(|at| (tried[at].0, missed(&tried[at].1).clone()));
            let with_margin = margin >= self.margin;
            self.margin = margin;
            let (size, too_small) = self.between(fewest, too_small, tried[enough].0);
            return (size, with_margin, too_small);
        }
        if let Some(enough) = does_most {
            return (enough.clamp(fewest, most), false, None);
        }
        let last = tried.last().map(|(size, judged)| (*size, judged.missed.clone()));
        let nearest = tried.iter().min_by(|(one, a), (other, b)| {
            // Whatever is missed: where nothing succeeds, nothing is near.
            let nothing = (a.failed >= 1.0).cmp(&(b.failed >= 1.0));
            let fewer = nothing.then(a.missed.len().cmp(&b.missed.len()));
            fewer.then(a.failed.total_cmp(&b.failed)).then(a.p99.total_cmp(&b.p99)).then(one.cmp(other))
        });
        let nearest = nearest.map_or(most, |(size, _)| *size);
        (nearest, false, last)
    }

    /// The size with which the server does the most it can, where more arrives than that at some time; `None`: so much
    /// does not arrive. By Little's law that is as many as the server then works on, and as many as are held on the way
    /// and in pauses. Larger pools fail less while the load lasts, since operations pile up in the server, and would be
    /// its end.
    fn does_most(&self) -> Option<u32> {
        let load = &self.loads[0];
        let (does, at_once) = Facts::of(self.question, load).server_best.filter(|_| own_pool(load).is_none())?;
        let peaks = self.loads.iter().filter_map(|load| Facts::of(self.question, load).peak_rate);
        let too_much = peaks.into_iter().any(|rate| rate > does);
        let elsewhere = self.spec.mean_hold_time(&load.faults).saturating_sub(self.spec.service.mean());
        let connections = f64::from(at_once) + does * elsewhere.as_secs_f64();
        too_much.then(|| (connections / f64::from(load.pool.instances)).ceil() as u32)
    }

    /// The smallest between one that was too small, or the fewest that are looked at, and one that is large enough.
    fn between(&mut self, fewest: u32, mut low: TooSmall, mut high: u32) -> (u32, TooSmall) {
        let mut below = low.as_ref().map_or(fewest - 1, |(size, _)| *size);
        while high - below > 1 {
            let middle = below + (high - below) / 2;
            let missed = self.look(&self.full(middle), Until::Missed(self.margin)).tight;
            if missed.is_empty() {
                high = middle;
            } else {
                below = middle;
                low = Some((middle, missed));
            }
        }
        (high, low)
    }

    /// By Little's law, of the load's highest mean rate: fewer cannot be enough.
    fn least(&self) -> u32 {
        let need = self.loads.iter().map(|load| match highest_rate(load) {
            Some(rate) => {
                // Of what is answered while nothing stalls; half, because objectives may allow a few to fail.
                rate * self.spec.mean_hold_time(&load.faults).as_secs_f64() / f64::from(load.pool.instances) / 2.0
            }
            None => 1.0,
        });
        need.fold(1.0, f64::max).floor() as u32
    }

    /// All connections there from the start, or as many as all pools can keep.
    fn full(&self, max_size: u32) -> Sizes {
        let pool = &self.loads[0].pool;
        let each = self.spec.budget.map_or(max_size, |budget| budget / pool.instances);
        Sizes { max_size, min_size: max_size.min(each), max_idle_time: pool.config.max_idle_time }
    }

    /// Fewer that are kept, and for less long; but not so that what was closed is made again.
    fn shrunk(&mut self, full: Sizes) -> Sizes {
        let (mut low, mut high) = (0, full.min_size);
        // None first: often that is enough.
        while low < high {
            let middle = if low == 0 && high == full.min_size { 0 } else { low + (high - low) / 2 };
            if self.is_met(&Sizes { min_size: middle, ..full }) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        if f64::from(high) > f64::from(full.max_size) * NEARLY_ALL {
            // Nothing is ever closed for being idle, and the few that could be are not worth it.
            return full;
        }
        let sizes = Sizes { min_size: high, ..full };
        let compression = self.question.compression;
        let times = IDLE_TIMES.iter().map(|seconds| Duration::from_secs_f64(*seconds as f64 / compression));
        let shorter = times.filter(|time| sizes.max_idle_time.is_none_or(|given| *time < given));
        let created = self.look(&sizes, Until::End).created;
        for time in shorter.collect::<Vec<_>>() {
            let shorter = Sizes { max_idle_time: Some(time), ..sizes };
            let judged = self.look(&shorter, Until::Missed(self.margin));
            if judged.tight.is_empty() && judged.created <= created {
                return shorter;
            }
        }
        sizes
    }

    fn is_met(&mut self, sizes: &Sizes) -> bool {
        self.look(sizes, Until::Missed(self.margin)).tight.is_empty()
    }

    /// Plays a plan for so long.
    fn play(&self, plan: &Plan, until: Until) -> Outcome {
        let Until::Missed(margin) = until else { return run(plan, self.spec) };
        let most = most_operations(plan);
        run_until(plan, self.spec, &mut |engine, now| {
            is_wait(engine.longest_wait()) && self.question.is_lost(&engine.result(now), most, margin)
        })
    }

    /// What is missed with these settings, up to the first load that misses anything.
    fn look(&mut self, sizes: &Sizes, until: Until) -> Judged {
        let mut judged = Judged::default();
        for plan in self.short_plans(sizes, 0) {
            (self.progress)(self.simulations, sizes);
            self.simulations += 1;
            let outcomes = [self.play(&plan, until)];
            judged = Judged {
                tight: self.missed(&outcomes, self.margin),
                missed: self.missed(&outcomes, 0.0),
                waited: has_waited(&outcomes[0]),
                is_complete: outcomes[0].is_complete || outcomes[0].stopped_early,
                failed: failed(&outcomes[0].result.total),
                p99: outcomes[0].result.total.response_ms.as_ref().map_or(f64::INFINITY, |response| response.p99),
                created: judged.created + outcomes[0].result.total.connections.created,
            };
            if !judged.tight.is_empty() {
                break;
            }
        }
        judged
    }

    fn missed(&self, outcomes: &[Outcome], margin: f64) -> Vec<Missed> {
        outcomes.iter().flat_map(|outcome| self.question.missed(&outcome.result, margin)).collect()
    }

    fn plans(&self, sizes: &Sizes, seed: u64) -> Vec<Plan> {
        self.loads.iter().map(|load| with(load, sizes, seed)).collect()
    }

    fn short_plans(&self, sizes: &Sizes, seed: u64) -> Vec<Plan> {
        self.short.iter().map(|load| with(load, sizes, seed)).collect()
    }
}

/// Somebody had to wait for a connection of the pools themselves.
fn has_waited(outcome: &Outcome) -> bool {
    is_wait(outcome.longest_wait)
}

/// The same of the longest wait; `None`: nobody has got a connection.
fn is_wait(longest: Option<Duration>) -> bool {
    longest.is_none_or(|longest| longest >= SHORTEST_WAIT)
}

/// The largest share of a load's operations that failed.
fn most_failed(outcomes: &[Outcome]) -> f64 {
    outcomes.iter().map(|outcome| failed(&outcome.result.total)).fold(0.0, f64::max)
}

/// The share of operations that failed; all where none ended.
fn failed(total: &Measured) -> f64 {
    let errors = total.errors.values().sum::<u64>() as f64;
    let ended = total.requests as f64 + errors;
    if ended > 0.0 { errors / ended } else { 1.0 }
}

#[cfg(test)]
mod tests;
