//! When something is tried, and what follows from it: the search for the best size, the watch over what was found, and the way back when
//! errors rise or the pool is out of order. It is shown looks and tells a size; it knows neither clock nor pool.

mod known;

use std::time::Duration;

use pool::Time;

pub use known::Known;

use crate::{
    evidence::{Evidence, Reason, Step},
    limits::Limits,
    ranks,
    search::Search,
    trial::Trial,
    window::{Gauge, Look, Window},
};

/// Once the best size is found: the pace of the watch, and the shortest time between two changes.
pub const PACE: Duration = Duration::from_secs(60);
/// Once it is found: after how long its neighbours are tried again, at first and, if that changes nothing, at last.
const REST: (Duration, Duration) = (Duration::from_secs(10 * 60), Duration::from_secs(30 * 60));
/// The most pairs of such a trial.
const PROBE_PAIRS: usize = 14;
/// The ratio of the neighbour to the size that was found.
const NEIGHBOUR: f64 = 1.25;
/// Throughput that is higher or lower by this ratio for so many windows of the watch is no longer that of what was found.
/// Not within half of the rest after it was found.
const CHANGED: (f64, u32) = (1.25, 3);
/// Errors are taken to have risen when they are more than this part, and twice what they were, in so many windows of the watch.
const RISEN: (f64, u32) = (0.01, 2);
/// What part of a window a change gets to settle: servers have to be opened or closed.
const SETTLE: u32 = 4;

/// What a tuner is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// The pool is paused, or its database out of reach.
    Unfit,
    /// Nobody waits for a server, so that nothing can be learned.
    NoDemand,
    /// It searches for the best size.
    Searching,
    /// It has found it, and watches.
    Found,
    /// It has found it, and tries a neighbour all the same.
    Probing,
}

impl Standing {
    /// In a word.
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

/// The controller of one pool. See the module.
#[derive(Clone, Debug)]
pub struct Tuner {
    limits: Limits,
    /// The same without the servers that clients keep.
    usable: Limits,
    size: u32,
    stage: Stage,
    trial: Option<Trial>,
    gauge: Gauge,
    fit: bool,
    /// Whether the last window showed somebody who waits.
    demand: bool,
    /// How long what was found is left alone.
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

/// A search under way.
#[derive(Clone, Debug)]
struct Searching {
    search: Search,
    before: Before,
    /// What the smallest size rests on that does as much as the best one.
    alike: Option<Evidence>,
    /// A trial that was broken off because nobody waited any more.
    paused: Option<Trial>,
}

impl Stage {
    fn searching(search: Search, before: Before) -> Self {
        Self::Searching(Box::new(Searching { search, before, alike: None, paused: None }))
    }
}

/// The pool before a search.
#[derive(Clone, Copy, Debug)]
struct Before {
    size: u32,
    /// The part of errors.
    errors: f64,
}

/// What is known of a size that was found.
#[derive(Clone, Debug)]
struct Found {
    since: Time,
    before: Before,
    /// The first window of the watch.
    level: Option<Window>,
    /// Windows in a row with a throughput that is higher, or lower, than that.
    higher: u32,
    lower: u32,
    /// Windows in a row with too many errors.
    bad: u32,
    /// When a neighbour is tried next, and whether that is the smaller one: it comes after the larger one.
    probe_at: Time,
    probe_fewer: bool,
}

impl Found {
    /// Something was found now, and is left alone for so long.
    fn new(before: Before, now: Time, rest: Duration) -> Self {
        let (higher, lower, bad) = (0, 0, 0);
        Self { since: now, before, level: None, higher, lower, bad, probe_at: now + rest, probe_fewer: false }
    }
}

impl Tuner {
    /// Begins at this size, or at the nearest one within the limits.
    pub fn new(limits: Limits, size: u32) -> Self {
        let size = limits.clamp(size);
        Self {
            limits,
            usable: limits,
            size,
            stage: Stage::searching(Search::new(limits, size), Before { size, errors: 0.0 }),
            trial: None,
            gauge: Gauge::default(),
            fit: true,
            demand: false,
            rest: REST.0,
            changes: 0,
            steps: [0; Reason::ALL.len()],
            last: None,
        }
    }

    /// The size that the pool is to have now.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// What it may do.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The size that is being tried, and the one beside it.
    pub fn trial(&self) -> Option<(u32, u32)> {
        self.trial.as_ref().map(|trial| (trial.candidate(), trial.present()))
    }

    /// How often the size has changed, each turn of a trial included.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What was decided, by reason, and how often.
    pub fn steps(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().zip(self.steps)
    }

    /// The last decision that rests on a measurement.
    pub fn last(&self) -> Option<&Step> {
        self.last.as_ref()
    }

    /// What it is doing.
    pub fn standing(&self) -> Standing {
        match (&self.stage, &self.trial) {
            _ if !self.fit => Standing::Unfit,
            (Stage::Found(_), None) => Standing::Found,
            (Stage::Found(_), Some(_)) => Standing::Probing,
            (Stage::Searching(..), None) if !self.demand => Standing::NoDemand,
            (Stage::Searching(..), _) => Standing::Searching,
        }
    }

    /// Takes a look at the pool, about four times a window. Tells what was decided, if something was.
    pub fn look(&mut self, look: &Look, now: Time) -> Option<Step> {
        let step = self.decide(look, now)?;
        self.steps[step.reason as usize] += 1;
        if step.evidence.is_some() {
            self.last = Some(step.clone());
        }
        Some(step)
    }

    /// Puts other limits in force. The search begins anew.
    pub fn set_limits(&mut self, limits: Limits, now: Time) {
        (self.limits, self.usable) = (limits, limits);
        self.search_from(limits.clamp(self.size), now);
    }
}

impl Tuner {
    fn decide(&mut self, look: &Look, now: Time) -> Option<Step> {
        if !look.fit {
            return self.hold_still(now);
        }
        self.fit = true;
        let floor = self.limits.clamp(look.kept.saturating_add(1));
        self.usable = Limits { least: floor, ..self.limits };
        if self.size < floor {
            let from = self.size;
            self.search_from(floor, now);
            return Some(Step { from, to: floor, tries: None, reason: Reason::Bounds, evidence: None });
        }
        let long = match (&self.trial, &self.stage) {
            (Some(trial), _) => trial.window(),
            (None, Stage::Searching(..)) => self.limits.window,
            (None, Stage::Found(_)) => PACE,
        };
        let window = self.gauge.look(look, long, now)?;
        if let Some(trial) = &mut self.trial {
            return match trial.take(window) {
                Some(outcome) => self.conclude(outcome, now),
                None => {
                    let size = trial.size();
                    self.change(size, now);
                    None
                }
            };
        }
        self.demand = window.has_demand();
        match self.stage {
            _ if !self.demand => None,
            Stage::Searching(..) => self.go_on(&window, now),
            Stage::Found(_) => self.watch(&window, now),
        }
    }

    /// The pool is out of order: what is seen now says nothing about its size. More servers that were just being tried may be the cause.
    fn hold_still(&mut self, now: Time) -> Option<Step> {
        let was_fit = std::mem::replace(&mut self.fit, false);
        self.gauge.begin_at(now + self.limits.window / SETTLE);
        let trial = self.trial.as_ref().filter(|_| was_fit)?;
        let more = self.size == trial.candidate() && trial.candidate() > trial.present();
        self.conclude(if more { Reason::Errors } else { Reason::Unfit }, now)
    }

    /// The next trial of a search, or its end.
    fn go_on(&mut self, window: &Window, now: Time) -> Option<Step> {
        let Stage::Searching(searching) = &mut self.stage else { unreachable!("it searches") };
        let Searching { search, before, alike, paused } = &mut **searching;
        if let Some(candidate) = search.next() {
            if search.trials() == 0 {
                before.errors = window.errors_part();
            }
            let is_same = |trial: &Trial| (trial.present(), trial.candidate()) == (self.size, candidate);
            let Some(trial) = paused.take().filter(is_same) else {
                return Some(self.try_out(candidate, self.limits.window, ranks::MOST));
            };
            self.trial = Some(trial);
            let (from, to) = (self.size, self.size);
            return Some(Step { from, to, tries: Some(candidate), reason: Reason::Tries, evidence: None });
        }
        let (from, to, before, evidence) = (self.size, search.result(), *before, alike.take());
        if to != before.size {
            self.rest = REST.0;
        }
        self.stage = Stage::Found(Found::new(before, now, self.rest));
        self.change(to, now);
        let reason = if to < from { Reason::Fewer } else { Reason::Found };
        Some(Step { from, to, tries: None, reason, evidence: evidence.filter(|_| to < from) })
    }

    fn try_out(&mut self, candidate: u32, window: Duration, most: usize) -> Step {
        self.trial = Some(Trial::new(self.size, candidate, window, most));
        Step { from: self.size, to: self.size, tries: Some(candidate), reason: Reason::Tries, evidence: None }
    }

    /// A trial has an outcome.
    fn conclude(&mut self, outcome: Reason, now: Time) -> Option<Step> {
        let trial = self.trial.take().expect("a trial that ends");
        let (present, candidate, evidence) = (trial.present(), trial.candidate(), trial.evidence());
        match &mut self.stage {
            Stage::Searching(searching) => {
                if outcome == Reason::NoDemand && trial.has_progressed() {
                    searching.paused = Some(trial.paused());
                } else {
                    searching.search.tell(candidate, outcome);
                }
                if outcome == Reason::Alike {
                    searching.alike = Some(evidence.clone());
                }
                let anchor = searching.search.anchor();
                self.change(anchor, now);
            }
            Stage::Found(found) if outcome == Reason::Better => {
                let before = Before { size: present, ..found.before };
                self.rest = REST.0;
                self.stage = Stage::searching(Search::after(self.usable, candidate, present), before);
                self.change(candidate, now);
            }
            Stage::Found(found) => {
                let cut_short = outcome == Reason::NoDemand || outcome == Reason::Unfit;
                found.probe_fewer = !cut_short && candidate > present;
                if found.probe_fewer {
                    found.probe_at = now;
                } else {
                    self.rest = if cut_short { self.rest } else { (self.rest * 2).min(REST.1) };
                    found.probe_at = now + self.rest;
                }
                self.change(present, now);
            }
        }
        let evidence = (evidence.pairs > 0).then_some(evidence);
        Some(Step { from: present, to: self.size, tries: None, reason: outcome, evidence })
    }

    /// A window of the watch over what was found.
    fn watch(&mut self, window: &Window, now: Time) -> Option<Step> {
        let Stage::Found(found) = &mut self.stage else { unreachable!("it has found something") };
        let too_many = window.errors_part() > RISEN.0.max(2.0 * found.before.errors);
        found.bad = if too_many { found.bad + 1 } else { 0 };
        if found.bad >= RISEN.1 && self.size > found.before.size {
            let (from, to) = (self.size, found.before.size);
            (found.level, found.bad, found.probe_at) = (None, 0, now + self.rest);
            self.change(to, now);
            return Some(Step { from, to, tries: None, reason: Reason::Errors, evidence: None });
        }
        let level = found.level.get_or_insert(*window).throughput();
        let ratio = window.throughput() / level.max(1e-9);
        found.higher = if ratio > CHANGED.0 { found.higher + 1 } else { 0 };
        found.lower = if ratio * CHANGED.0 < 1.0 { found.lower + 1 } else { 0 };
        if found.higher.max(found.lower) >= CHANGED.1 && now - found.since >= self.rest / 2 {
            let size = self.size;
            self.rest = (self.rest * 2).min(REST.1);
            self.search_from(size, now);
            return Some(Step { from: size, to: size, tries: None, reason: Reason::Changed, evidence: None });
        }
        if now < found.probe_at {
            return None;
        }
        let (size, limits) = (f64::from(self.size), self.usable);
        let more = limits.clamp(((size * NEIGHBOUR) as u32).max(self.size + 1));
        let fewer = limits.clamp(((size / NEIGHBOUR).ceil() as u32).min(self.size - 1));
        let candidate = if found.probe_fewer || more == self.size { fewer } else { more };
        if candidate == self.size {
            (found.probe_fewer, found.probe_at) = (false, now + self.rest);
            return None;
        }
        Some(self.try_out(candidate, PACE.max(limits.window), PROBE_PAIRS))
    }

    fn search_from(&mut self, size: u32, now: Time) {
        let before = Before { size, errors: 0.0 };
        self.stage = Stage::searching(Search::new(self.usable, size), before);
        self.trial = None;
        self.change(size, now);
    }

    /// Puts a size in force, and begins the next window when that has settled. The same size: goes on measuring.
    fn change(&mut self, size: u32, now: Time) {
        if size != self.size {
            self.size = size;
            self.changes += 1;
            self.gauge.begin_at(now + self.limits.window / SETTLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { least: 1, most: 60, window: Duration::from_secs(4) };
    const SECOND: u64 = 1_000_000_000;

    /// A pool without noise that clients always wait for, and its tuner, second by second.
    struct Course {
        tuner: Tuner,
        now: u64,
        look: Look,
        waiting: u32,
    }

    impl Course {
        fn new(size: u32) -> Self {
            let look = Look { fit: true, ..Look::default() };
            Self { tuner: Tuner::new(LIMITS, size), now: 0, look, waiting: 30 }
        }

        fn second(&mut self, throughput: impl Fn(u32) -> u64) -> Option<Step> {
            self.now += SECOND;
            let size = self.tuner.size();
            self.look.completed += throughput(size);
            self.look.held += Duration::from_secs(size.into());
            (self.look.in_use, self.look.waiters) = (size, self.waiting);
            self.tuner.look(&self.look, Time(self.now))
        }

        fn until(&mut self, reason: Reason, throughput: impl Fn(u32) -> u64) -> Step {
            for _ in 0..100_000 {
                if let Some(step) = self.second(&throughput).filter(|step| step.reason == reason) {
                    return step;
                }
            }
            panic!("never {reason:?}: {:?}", self.tuner);
        }
    }

    fn knee(size: u32) -> u64 {
        1000 * u64::from(size.min(8))
    }

    #[test]
    fn it_finds_the_knee_and_then_changes_at_most_once_a_minute() {
        let mut course = Course::new(20);
        let step = course.until(Reason::Fewer, knee);
        assert!((8..=10).contains(&step.to) && step.evidence.is_some(), "{step:?}");
        assert_eq!(course.tuner.standing(), Standing::Found);
        let (mut last, mut changes) = (course.now, 0);
        for _ in 0..24 * 3600 {
            let before = course.tuner.size();
            course.second(knee);
            if course.tuner.size() != before {
                assert!(course.now - last >= 60 * SECOND, "two changes within a minute");
                (last, changes) = (course.now, changes + 1);
            }
        }
        assert!((8..=12).contains(&course.tuner.size()) && changes < 700, "{changes} changes");
    }

    #[test]
    fn without_demand_it_leaves_the_pool_alone() {
        let mut course = Course::new(20);
        course.waiting = 0;
        assert!((0..3600).all(|_| course.second(knee).is_none()));
        assert_eq!((course.tuner.size(), course.tuner.changes(), course.tuner.standing()), (20, 0, Standing::NoDemand));
    }

    #[test]
    fn when_nobody_waits_any_more_a_trial_is_broken_off() {
        let mut course = Course::new(20);
        course.until(Reason::Tries, knee);
        for _ in 0..6 {
            course.second(knee);
        }
        assert_eq!(course.tuner.size(), 16);
        course.waiting = 0;
        course.until(Reason::NoDemand, knee);
        assert_eq!((course.tuner.size(), course.tuner.trial()), (20, None));
    }

    #[test]
    fn a_trial_goes_on_where_clients_wait_only_now_and_then() {
        let mut course = Course::new(20);
        let outcome = (0..1200).find_map(|second| {
            course.waiting = if second % 50 < 30 { 30 } else { 0 };
            course.second(knee).filter(|step| step.reason == Reason::Alike)
        });
        let evidence = outcome.and_then(|step| step.evidence).expect("an outcome within 20 minutes");
        assert_eq!((evidence.candidate, evidence.pairs), (16, 7));
        assert!(course.tuner.steps().any(|(reason, count)| reason == Reason::NoDemand && count > 1));
    }

    #[test]
    fn a_pool_that_is_out_of_order_is_left_alone_and_gets_back_what_it_had() {
        let mut course = Course::new(20);
        course.until(Reason::Tries, knee);
        for _ in 0..6 {
            course.second(knee);
        }
        assert_eq!(course.tuner.size(), 16);
        course.look.fit = false;
        let step = course.second(knee).unwrap();
        assert_eq!((step.reason, step.to, course.tuner.standing()), (Reason::Unfit, 20, Standing::Unfit));
        assert!((0..600).all(|_| course.second(|_| 0).is_none()));
        course.look.fit = true;
        course.until(Reason::Fewer, knee);
    }

    #[test]
    fn more_servers_with_which_the_database_fails_are_given_back() {
        let grows = |size: u32| 100 * u64::from(size);
        let mut course = Course::new(20);
        while course.tuner.size() <= 20 {
            course.second(grows);
        }
        course.look.fit = false;
        let step = course.second(grows).unwrap();
        assert_eq!((step.reason, step.to), (Reason::Errors, 20));
        course.look.fit = true;
        let found = course.until(Reason::Found, grows);
        assert!(found.to < 26, "{found:?}");
    }

    #[test]
    fn errors_that_rise_once_more_servers_are_in_use_take_them_back() {
        let grows = |size: u32| 1000 * u64::from(size.min(40));
        let mut course = Course::new(20);
        let found = course.until(Reason::Found, grows);
        assert!(found.to >= 36, "{found:?}");
        let step = (0..400).find_map(|_| {
            course.look.errors += 900;
            course.second(grows)
        });
        assert_eq!(step.map(|step| (step.reason, step.to)), Some((Reason::Errors, 20)));
    }

    #[test]
    fn a_database_that_has_changed_is_searched_again() {
        let mut course = Course::new(20);
        course.until(Reason::Fewer, knee);
        for _ in 0..120 {
            course.second(knee);
        }
        let wide = |size: u32| 300 * u64::from(size.min(30));
        course.until(Reason::Changed, wide);
        let found = course.until(Reason::Found, wide);
        assert!((30..=38).contains(&found.to), "{found:?}");
    }

    #[test]
    fn servers_that_clients_keep_are_not_taken_into_account() {
        let mut course = Course::new(20);
        course.until(Reason::Fewer, knee);
        course.look.kept = 30;
        let step = course.second(knee).unwrap();
        assert_eq!((step.reason, step.to), (Reason::Bounds, 31));
        course.until(Reason::Found, knee);
        assert!(course.tuner.size() >= 31);
    }

    #[test]
    fn another_one_goes_on_with_what_was_found_and_does_not_search_again() {
        let mut course = Course::new(20);
        course.until(Reason::Tries, knee);
        assert_eq!(course.tuner.known(), Known { size: 20, found: false });
        let found = course.until(Reason::Fewer, knee).to;
        // The minute in which a neighbour is tried does not count.
        while course.tuner.standing() != Standing::Probing || course.tuner.size() == found {
            course.second(knee);
        }
        let known = course.tuner.known();
        assert_eq!(known, Known { size: found, found: true });
        let mut next = Course { tuner: Tuner::resumed(LIMITS, known, Time(0)), ..Course::new(20) };
        assert_eq!((next.tuner.size(), next.tuner.standing()), (found, Standing::Found));
        assert!((0..9 * 60).all(|_| next.second(knee).is_none()), "it watches for ten minutes");
        // What was found is not to be had any more, and what was not found is searched for from there on.
        let narrow = Tuner::resumed(Limits { most: 5, ..LIMITS }, known, Time(0));
        assert_eq!((narrow.size(), narrow.known().found), (5, false));
        let open = Tuner::resumed(LIMITS, Known { size: 12, found: false }, Time(0));
        assert_eq!((open.size(), open.standing()), (12, Standing::NoDemand));
    }

    #[test]
    fn other_limits_are_kept_at_once() {
        let mut course = Course::new(20);
        course.second(knee);
        course.tuner.set_limits(Limits { least: 2, most: 5, ..LIMITS }, Time(course.now));
        assert_eq!(course.tuner.size(), 5);
        assert!((0..20_000).all(|_| {
            course.second(knee);
            (2..=5).contains(&course.tuner.size())
        }));
    }
}
