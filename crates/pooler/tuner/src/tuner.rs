//! When a size is tried, and what follows: the search for the best size, the watch over the size that was found, and
//! the way back when errors rise or the pool does not work. It is shown samples and returns a size. It knows neither
//! clock nor pool.

mod finding;

use std::time::Duration;

use pool::Time;

pub use finding::Finding;

use crate::{
    evidence::{Evidence, Reason, Step},
    limits::Limits,
    ranks,
    search::Search,
    trial::Trial,
    window::{Gauge, Sample, Window},
};

/// Once a size is found: the time of a window, and the shortest time between two changes.
pub const WATCH_WINDOW: Duration = Duration::from_secs(60);
/// Once a size is found: the time after which its neighbours are tried, at first.
const MIN_REST: Duration = Duration::from_secs(10 * 60);
/// The same after neighbours that were not better. It doubles each time up to this.
const MAX_REST: Duration = Duration::from_secs(30 * 60);
/// The most pairs of a trial of a neighbour.
const MAX_PROBE_PAIRS: usize = 14;
/// The ratio of the neighbour to the size that was found.
const NEIGHBOUR_RATIO: f64 = 1.25;
/// If throughput is higher or lower by this ratio, it has changed since the size was found.
const CHANGE_RATIO: f64 = 1.25;
/// Successive windows with changed throughput after which the search begins again; but not within half of the rest
/// after the size was found.
const CHANGE_WINDOWS: u32 = 3;
/// Errors have risen if they are more than this fraction, and twice what they were.
const MIN_RISEN_ERRORS: f64 = 0.01;
/// Successive windows with risen errors, of the watch or of the size that was found beside a neighbour, after which
/// more servers are given back.
const RISEN_ERRORS_WINDOWS: u32 = 2;
/// A size that was found, or was last better than its neighbours, longer ago than this is no longer taken for the best.
/// It is three times the longest rest. With demand, neighbours are tried after a rest of 30 minutes, in two trials of
/// [`MAX_PROBE_PAIRS`] pairs of windows of a minute, which take half an hour each. So an older size had no demand, or
/// its trials did not end, as when transactions take minutes.
const MAX_AGE: Duration = Duration::from_secs(3 * MAX_REST.as_secs());
/// A change settles for the time of a window divided by this: servers have to be connected or closed.
const SETTLE_DIVISOR: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TunerState {
    /// The pool is paused, or its database cannot be reached.
    Unfit,
    /// No client waits for a server, so nothing can be measured.
    NoDemand,
    Searching,
    /// It has found a size, and watches.
    Found,
    /// It has found a size, and tries a neighbour.
    Probing,
}

impl TunerState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unfit => "unfit",
            Self::NoDemand => "no_demand",
            Self::Searching => "searching",
            Self::Found => "found",
            Self::Probing => "probing",
        }
    }
}

/// The controller of one pool.
#[derive(Clone, Debug)]
pub struct Tuner {
    limits: Limits,
    /// The limits, with a minimum above the pinned servers.
    usable: Limits,
    size: u32,
    stage: Stage,
    trial: Option<Trial>,
    gauge: Gauge,
    is_working: bool,
    /// Whether the last window had demand.
    demand: bool,
    /// The time for which the size that was found is left alone.
    rest: Duration,
    changes: u64,
    steps: [u64; Reason::ALL.len()],
    last: Option<Step>,
}

#[derive(Clone, Debug)]
enum Stage {
    Searching(Box<Searching>),
    Found(Found),
}

#[derive(Clone, Debug)]
struct Searching {
    search: Search,
    before: Baseline,
    /// The evidence for the smallest size that does as much as the best one.
    alike: Option<Evidence>,
    /// A trial that was broken off because no client waited any more, or no hold ended.
    paused: Option<Trial>,
}

impl Stage {
    fn searching(search: Search, before: Baseline) -> Self {
        Self::Searching(Box::new(Searching { search, before, alike: None, paused: None }))
    }
}

/// The pool before a search, or before the first of several that led from one size to the next.
#[derive(Clone, Copy, Debug)]
struct Baseline {
    size: u32,
    errors: f64,
}

/// A size that was found.
#[derive(Clone, Debug)]
struct Found {
    since: Time,
    /// How long it was known before: another tuner had found it.
    age_at_start: Duration,
    /// When its neighbours were last tried, and none was better.
    confirmed: Option<Time>,
    before: Baseline,
    /// The mean hold with it, as another tuner has measured it.
    hold: Option<Duration>,
    /// The first window of the watch.
    first_window: Option<Window>,
    /// Successive windows with a higher throughput than that; with a lower one, or with longer holds than the other
    /// tuner's.
    higher: u32,
    lower: u32,
    /// Successive windows with too many errors.
    error_windows: u32,
    /// When a neighbour is tried next, and whether it is the smaller one, which comes after the larger one.
    probe_at: Time,
    probe_fewer: bool,
}

impl Found {
    /// A size was found now, and is left alone for this long.
    fn new(before: Baseline, now: Time, rest: Duration) -> Self {
        Self {
            since: now,
            age_at_start: Duration::ZERO,
            confirmed: None,
            before,
            hold: None,
            first_window: None,
            higher: 0,
            lower: 0,
            error_windows: 0,
            probe_at: now + rest,
            probe_fewer: false,
        }
    }

    fn known_for(&self, now: Time) -> Duration {
        self.age_at_start.saturating_add(now - self.since)
    }

    /// The time since it was last better than its neighbours.
    fn age(&self, now: Time) -> Duration {
        self.confirmed.map_or(self.known_for(now), |confirmed| now - confirmed)
    }
}

impl Tuner {
    /// A tuner that begins at this size, or at the nearest one within the limits.
    pub fn new(limits: Limits, size: u32) -> Self {
        let size = limits.clamp(size);
        Self {
            limits,
            usable: limits,
            size,
            stage: Stage::searching(Search::new(limits, size), Baseline { size, errors: 0.0 }),
            trial: None,
            gauge: Gauge::default(),
            is_working: true,
            demand: false,
            rest: MIN_REST,
            changes: 0,
            steps: [0; Reason::ALL.len()],
            last: None,
        }
    }

    /// The size that the pool is to have now.
    pub fn size(&self) -> u32 {
        self.size
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The candidate, and the size that it is compared with.
    pub fn trial(&self) -> Option<(u32, u32)> {
        self.trial.as_ref().map(|trial| (trial.candidate(), trial.present()))
    }

    /// The number of changes of the size, each turn of a trial included.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of decisions, by reason.
    pub fn steps(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().zip(self.steps)
    }

    /// The last decision that rests on a measurement.
    pub fn last(&self) -> Option<&Step> {
        self.last.as_ref()
    }

    pub fn state(&self) -> TunerState {
        match (&self.stage, &self.trial) {
            _ if !self.is_working => TunerState::Unfit,
            (Stage::Found(_), None) => TunerState::Found,
            (Stage::Found(_), Some(_)) => TunerState::Probing,
            (Stage::Searching(..), None) if !self.demand => TunerState::NoDemand,
            (Stage::Searching(..), _) => TunerState::Searching,
        }
    }

    /// Takes a sample of the pool, several times a window. Returns the decision, if there is one.
    pub fn observe(&mut self, sample: &Sample, now: Time) -> Option<Step> {
        let step = self.decide(sample, now)?;
        Some(self.record(step))
    }

    /// Sets other limits. The search begins again from the best known size, which is not one that is only being tried.
    pub fn set_limits(&mut self, limits: Limits, now: Time) -> Step {
        (self.limits, self.usable) = (limits, limits);
        let from = self.best_known_size();
        let to = limits.clamp(from);
        self.restart_search(to, now);
        self.record(Step { from, to, tries: None, reason: Reason::Bounds, evidence: None })
    }

    /// The present size; during a trial, the one that the candidate is compared with.
    fn best_known_size(&self) -> u32 {
        self.trial.as_ref().map_or(self.size, Trial::present)
    }

    fn record(&mut self, step: Step) -> Step {
        self.steps[step.reason as usize] += 1;
        if step.evidence.is_some() {
            self.last = Some(step.clone());
        }
        step
    }
}

impl Tuner {
    fn decide(&mut self, sample: &Sample, now: Time) -> Option<Step> {
        if !sample.is_working {
            return self.suspend(sample.stopped_by_order, now);
        }
        self.is_working = true;
        let floor = self.limits.clamp(sample.pinned.saturating_add(1));
        self.usable = Limits { min: floor, ..self.limits };
        if self.size < floor {
            let from = self.best_known_size();
            let to = from.max(floor);
            self.restart_search(to, now);
            return Some(Step { from, to, tries: None, reason: Reason::Bounds, evidence: None });
        }
        let (long, waits_for_returns) = match (&self.trial, &self.stage) {
            (Some(trial), _) => (trial.window(), trial.waits_for_returns()),
            (None, Stage::Searching(..)) => (self.limits.window, false),
            (None, Stage::Found(_)) => (WATCH_WINDOW, false),
        };
        let window = self.gauge.observe(sample, long, waits_for_returns, now)?;
        if self.trial.is_none() {
            self.demand = window.has_demand();
        }
        // More servers can cause errors without demand, and while another size is tried beside them.
        let is_present = self.trial.as_ref().is_none_or(|trial| trial.size() == trial.present());
        if let Some(step) = is_present.then(|| self.revert_on_errors(&window, now)).flatten() {
            return Some(step);
        }
        if let Some(trial) = &mut self.trial {
            return match trial.take(window) {
                Some(outcome) => self.end_trial(outcome, now),
                None => {
                    let size = trial.size();
                    self.set_size(size, now);
                    None
                }
            };
        }
        match self.stage {
            _ if !self.demand => None,
            Stage::Searching(..) => self.next_trial(&window, now),
            Stage::Found(_) => self.watch(&window, now),
        }
    }

    /// The pool does not work, so nothing can be measured. Unless that was ordered, more servers that were being tried
    /// may be the cause.
    fn suspend(&mut self, by_order: bool, now: Time) -> Option<Step> {
        let was_working = std::mem::replace(&mut self.is_working, false);
        self.gauge.begin_at(now + self.limits.window / SETTLE_DIVISOR);
        let trial = self.trial.as_ref().filter(|_| was_working)?;
        let more = !by_order && self.size == trial.candidate() && trial.candidate() > trial.present();
        self.end_trial(if more { Reason::Errors } else { Reason::Unfit }, now)
    }

    /// Begins the next trial of a search, or ends the search.
    fn next_trial(&mut self, window: &Window, now: Time) -> Option<Step> {
        let Stage::Searching(searching) = &mut self.stage else { unreachable!("it searches") };
        let Searching { search, before, alike, paused } = &mut **searching;
        if let Some(candidate) = search.next() {
            if search.trials() == 0 && before.size == self.size {
                before.errors = window.error_fraction();
            }
            let is_same = |trial: &Trial| (trial.present(), trial.candidate()) == (self.size, candidate);
            let Some(trial) = paused.take().filter(is_same) else {
                return Some(self.start_trial(candidate, (self.limits.window, window), ranks::MAX_DIFFERENCES));
            };
            self.trial = Some(trial.resumed(window));
            let (from, to) = (self.size, self.size);
            return Some(Step { from, to, tries: Some(candidate), reason: Reason::Tries, evidence: None });
        }
        let (from, to, before, evidence) = (self.size, search.result(), *before, alike.take());
        if to != before.size {
            self.rest = MIN_REST;
        }
        self.stage = Stage::Found(Found::new(before, now, self.rest));
        self.set_size(to, now);
        let reason = if to < from { Reason::Fewer } else { Reason::Found };
        Some(Step { from, to, tries: None, reason, evidence: evidence.filter(|_| to < from) })
    }

    fn start_trial(&mut self, candidate: u32, window: (Duration, &Window), max_pairs: usize) -> Step {
        self.trial = Some(Trial::new(self.size, candidate, window, max_pairs));
        Step { from: self.size, to: self.size, tries: Some(candidate), reason: Reason::Tries, evidence: None }
    }

    /// Ends a trial with this outcome.
    fn end_trial(&mut self, outcome: Reason, now: Time) -> Option<Step> {
        let trial = self.trial.take().expect("a trial that ends");
        let (present, candidate, evidence) = (trial.present(), trial.candidate(), trial.evidence());
        match &mut self.stage {
            Stage::Searching(searching) => {
                if outcome == Reason::NoDemand && trial.has_progressed() {
                    searching.paused = Some(trial.paused());
                } else {
                    searching.search.record(candidate, outcome);
                }
                if outcome == Reason::Alike && searching.search.result() == candidate {
                    searching.alike = Some(evidence.clone());
                }
                let anchor = searching.search.anchor();
                self.set_size(anchor, now);
            }
            Stage::Found(found) if outcome == Reason::Better => {
                let before = Baseline { size: present, ..found.before };
                self.rest = MIN_REST;
                self.stage = Stage::searching(Search::after(self.usable, candidate, present), before);
                self.set_size(candidate, now);
            }
            Stage::Found(found) => {
                let cut_short = outcome == Reason::NoDemand || outcome == Reason::Unfit;
                found.probe_fewer = !cut_short && candidate > present;
                if found.probe_fewer {
                    found.probe_at = now;
                } else {
                    self.rest = if cut_short { self.rest } else { (self.rest * 2).min(MAX_REST) };
                    found.confirmed = if cut_short { found.confirmed } else { Some(now) };
                    found.probe_at = now + self.rest;
                }
                self.set_size(present, now);
            }
        }
        let evidence = (evidence.pairs > 0).then_some(evidence);
        Some(Step { from: present, to: self.size, tries: None, reason: outcome, evidence })
    }

    /// Gives back the servers that the last search has added, if errors have risen since. That ends a trial of a
    /// neighbour.
    fn revert_on_errors(&mut self, window: &Window, now: Time) -> Option<Step> {
        let Stage::Found(found) = &mut self.stage else { return None };
        let too_many = window.error_fraction() > MIN_RISEN_ERRORS.max(2.0 * found.before.errors);
        found.error_windows = if too_many { found.error_windows + 1 } else { 0 };
        if found.error_windows < RISEN_ERRORS_WINDOWS || self.size <= found.before.size {
            return None;
        }
        let (from, to) = (self.size, found.before.size);
        (found.hold, found.first_window, found.error_windows, found.probe_at) = (None, None, 0, now + self.rest);
        (found.higher, found.lower) = (0, 0);
        self.trial = None;
        self.set_size(to, now);
        Some(Step { from, to, tries: None, reason: Reason::Errors, evidence: None })
    }

    /// Takes a window of the watch over the size that was found.
    fn watch(&mut self, window: &Window, now: Time) -> Option<Step> {
        let Stage::Found(found) = &mut self.stage else { unreachable!("it has found something") };
        let level = found.first_window.get_or_insert(*window).throughput();
        let ratio = window.throughput() / level.max(1e-9);
        found.higher = if ratio > CHANGE_RATIO { found.higher + 1 } else { 0 };
        let longer = found.hold.is_some_and(|hold| window.mean_hold() > hold.mul_f64(CHANGE_RATIO));
        found.lower = if longer || ratio * CHANGE_RATIO < 1.0 { found.lower + 1 } else { 0 };
        // This tuner knows throughput only since it began.
        let seen = if longer { found.known_for(now) } else { now - found.since };
        if found.higher.max(found.lower) >= CHANGE_WINDOWS && seen >= self.rest / 2 {
            let size = self.size;
            self.rest = (self.rest * 2).min(MAX_REST);
            self.restart_search(size, now);
            return Some(Step { from: size, to: size, tries: None, reason: Reason::Changed, evidence: None });
        }
        if now < found.probe_at {
            return None;
        }
        let (size, limits) = (f64::from(self.size), self.usable);
        let more = limits.clamp(((size * NEIGHBOUR_RATIO) as u32).max(self.size + 1));
        let fewer = limits.clamp(((size / NEIGHBOUR_RATIO).ceil() as u32).min(self.size - 1));
        let candidate = if found.probe_fewer || more == self.size { fewer } else { more };
        if candidate == self.size {
            (found.confirmed, found.probe_fewer, found.probe_at) = (Some(now), false, now + self.rest);
            return None;
        }
        Some(self.start_trial(candidate, (WATCH_WINDOW.max(limits.window), window), MAX_PROBE_PAIRS))
    }

    fn restart_search(&mut self, size: u32, now: Time) {
        let before = Baseline { size, errors: 0.0 };
        self.stage = Stage::searching(Search::new(self.usable, size), before);
        self.trial = None;
        self.set_size(size, now);
    }

    /// Changes the size, and begins the next window when that has settled. With the same size, the window goes on.
    fn set_size(&mut self, size: u32, now: Time) {
        if size != self.size {
            self.size = size;
            self.changes += 1;
            self.gauge.begin_at(now + self.limits.window / SETTLE_DIVISOR);
        }
    }
}

#[cfg(test)]
mod tests;
