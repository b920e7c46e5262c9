//! The controller beside pools without noise, second by second.

use super::*;

const LIMITS: Limits = Limits { min: 1, max: 60, window: Duration::from_secs(4) };
const SECOND: u64 = 1_000_000_000;

/// A pool without noise that clients always wait for, and its tuner, second by second.
struct Course {
    tuner: Tuner,
    now: u64,
    sample: Sample,
    waiting: u32,
}

impl Course {
    fn new(size: u32) -> Self {
        let sample = Sample { is_working: true, ..Sample::default() };
        Self { tuner: Tuner::new(LIMITS, size), now: 0, sample, waiting: 30 }
    }

    /// A course whose tuner resumes with what another one knew.
    fn resumed(finding: Finding) -> Self {
        Self { tuner: Tuner::resumed(LIMITS, finding, Time(0)), ..Self::new(20) }
    }

    /// What another tuner could resume with now.
    fn finding(&self) -> Finding {
        self.tuner.finding(Time(self.now))
    }

    fn second(&mut self, throughput: impl Fn(u32) -> u64) -> Option<Step> {
        self.now += SECOND;
        let size = self.tuner.size();
        self.sample.completed += throughput(size);
        self.sample.held += Duration::from_secs(size.into());
        (self.sample.in_use, self.sample.waiters) = (size, self.waiting);
        self.tuner.observe(&self.sample, Time(self.now))
    }

    fn until(&mut self, reason: Reason, throughput: impl Fn(u32) -> u64) -> Step {
        for _ in 0..100_000 {
            if let Some(step) = self.second(&throughput).filter(|step| step.reason == reason) {
                return step;
            }
        }
        panic!("never {reason:?}: {:?}", self.tuner);
    }

    fn run_while(&mut self, throughput: impl Fn(u32) -> u64, goes_on: impl Fn(&Tuner) -> bool) {
        while goes_on(&self.tuner) {
            self.second(&throughput);
        }
    }

    /// The first decision within this many seconds in which a tenth and more of the holds fail.
    fn with_errors(&mut self, seconds: u32) -> Option<(Reason, u32)> {
        let step = (0..seconds).find_map(|_| {
            self.sample.errors += 900;
            self.second(late_knee)
        });
        step.map(|step| (step.reason, step.to))
    }
}

fn knee(size: u32) -> u64 {
    1000 * u64::from(size.min(8))
}

fn late_knee(size: u32) -> u64 {
    1000 * u64::from(size.min(40))
}

/// Throughput that grows with each server.
fn grows(size: u32) -> u64 {
    100 * u64::from(size)
}

#[test]
fn the_knee_is_found_and_then_the_size_changes_at_most_once_a_minute() {
    let mut course = Course::new(20);
    let step = course.until(Reason::Fewer, knee);
    assert!((8..=10).contains(&step.to), "{step:?}");
    assert_eq!(step.evidence.map(|evidence| (evidence.candidate, evidence.present)), Some((step.to, 20)));
    assert_eq!(course.tuner.state(), TunerState::Found);
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
fn without_demand_the_pool_is_left_alone() {
    let mut course = Course::new(20);
    course.waiting = 0;
    assert!((0..3600).all(|_| course.second(knee).is_none()));
    assert_eq!((course.tuner.size(), course.tuner.changes(), course.tuner.state()), (20, 0, TunerState::NoDemand));
}

#[test]
fn a_trial_is_broken_off_when_no_client_waits_any_more() {
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
fn a_trial_is_resumed_when_clients_wait_again() {
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
fn minutes_without_ended_holds_give_no_decision() {
    let mut course = Course::new(20);
    course.until(Reason::Tries, grows);
    for _ in 0..900 {
        let step = course.second(|_| 0);
        assert!(step.is_none_or(|step| step.to == 20 && step.evidence.is_none()), "{:?}", course.tuner);
    }
    assert_eq!(course.until(Reason::Found, grows).to, 60);
}

#[test]
fn a_pool_that_does_not_work_is_left_alone_and_gets_its_size_back() {
    let mut course = Course::new(20);
    course.until(Reason::Tries, knee);
    for _ in 0..6 {
        course.second(knee);
    }
    assert_eq!(course.tuner.size(), 16);
    course.sample.is_working = false;
    let step = course.second(knee).unwrap();
    assert_eq!((step.reason, step.to, course.tuner.state()), (Reason::Unfit, 20, TunerState::Unfit));
    assert!((0..600).all(|_| course.second(|_| 0).is_none()));
    course.sample.is_working = true;
    course.until(Reason::Fewer, knee);
}

#[test]
fn a_pause_while_more_servers_are_tried_does_not_reject_them() {
    let mut course = Course::new(20);
    course.run_while(grows, |tuner| tuner.size() <= 20);
    (course.sample.is_working, course.sample.stopped_by_order) = (false, true);
    let step = course.second(grows).unwrap();
    assert_eq!((step.reason, step.to), (Reason::Unfit, 20));
    (course.sample.is_working, course.sample.stopped_by_order) = (true, false);
    let found = course.until(Reason::Found, grows);
    assert_eq!(found.to, 60, "they are tried again");
}

#[test]
fn more_servers_with_which_the_database_fails_are_given_back() {
    let mut course = Course::new(20);
    course.run_while(grows, |tuner| tuner.size() <= 20);
    course.sample.is_working = false;
    let step = course.second(grows).unwrap();
    assert_eq!((step.reason, step.to), (Reason::Errors, 20));
    course.sample.is_working = true;
    let found = course.until(Reason::Found, grows);
    assert!(found.to < 26, "{found:?}");
}

#[test]
fn risen_errors_take_back_more_servers() {
    let mut course = Course::new(20);
    let found = course.until(Reason::Found, late_knee);
    assert!(found.to >= 36, "{found:?}");
    assert_eq!(course.with_errors(400), Some((Reason::Errors, 20)));
}

#[test]
fn errors_count_also_without_demand() {
    let mut course = Course::new(20);
    course.until(Reason::Found, late_knee);
    course.waiting = 0;
    assert_eq!(course.with_errors(400), Some((Reason::Errors, 20)));
    // That was all that had been added.
    assert_eq!(course.with_errors(400), None);
}

#[test]
fn risen_errors_take_back_more_servers_during_a_trial_too() {
    let mut course = Course::new(20);
    course.until(Reason::Found, late_knee);
    course.run_while(late_knee, |tuner| tuner.state() != TunerState::Probing);
    assert_eq!(course.with_errors(600), Some((Reason::Errors, 20)));
    assert_eq!((course.tuner.size(), course.tuner.state()), (20, TunerState::Found));
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
    course.sample.pinned = 30;
    let step = course.second(knee).unwrap();
    assert_eq!((step.reason, step.to), (Reason::Bounds, 31));
    course.until(Reason::Found, knee);
    assert!(course.tuner.size() >= 31);
}

#[test]
fn servers_that_clients_keep_end_a_trial_of_fewer() {
    let mut course = Course::new(20);
    course.run_while(knee, |tuner| tuner.size() == 20);
    assert_eq!(course.tuner.size(), 16);
    course.sample.pinned = 16;
    let step = course.second(knee).unwrap();
    assert_eq!((step.reason, step.from, step.to), (Reason::Bounds, 20, 20));
    assert_eq!((course.tuner.size(), course.tuner.trial()), (20, None));
}

#[test]
fn a_resumed_tuner_does_not_search_again() {
    let mut course = Course::new(20);
    course.until(Reason::Tries, knee);
    assert_eq!((course.finding().size, course.finding().found), (20, false));
    let found = course.until(Reason::Fewer, knee).to;
    let found_at = course.now;
    // The minute in which a neighbour is tried does not count.
    course.run_while(knee, |tuner| tuner.state() != TunerState::Probing || tuner.size() == found);
    let finding = course.finding();
    assert_eq!((finding.size, finding.found, finding.before), (found, true, 20));
    assert_eq!(finding.age, Duration::from_nanos(course.now - found_at));
    let mut next = Course::resumed(finding);
    assert_eq!((next.tuner.size(), next.tuner.state()), (found, TunerState::Found));
    assert!((0..10 * 60).all(|_| next.second(knee).is_none()), "it watches for ten minutes");
    assert!((0..2 * 60).any(|_| next.second(knee).is_some_and(|step| step.reason == Reason::Tries)));
    // What was found is not to be had any more, and what was not found is searched for from there on.
    let narrow = Tuner::resumed(Limits { max: 5, ..LIMITS }, finding, Time(0));
    assert_eq!((narrow.size(), narrow.finding(Time(0)).found), (5, false));
    let open = Tuner::resumed(LIMITS, Finding { size: 12, found: false, ..finding }, Time(0));
    assert_eq!((open.size(), open.state()), (12, TunerState::NoDemand));
}

#[test]
fn a_resumed_tuner_gives_back_more_servers_if_errors_rise() {
    let mut course = Course::new(20);
    course.until(Reason::Found, late_knee);
    let finding = course.finding();
    let with_errors = |finding: Finding| {
        let mut next = Course::resumed(finding);
        next.with_errors(500)
    };
    assert_eq!(with_errors(finding), Some((Reason::Errors, 20)));
    assert_eq!(with_errors(Finding { errors: 0.03, ..finding }), None, "there were as many before");
    assert_eq!(with_errors(Finding { before: finding.size, ..finding }), None, "there was nothing before");
}

#[test]
fn a_resumed_search_knows_the_size_before() {
    let mut course = Course::new(20);
    let better = course.until(Reason::Better, late_knee).to;
    let finding = course.finding();
    assert_eq!((finding.size, finding.found, finding.before), (better, false, 20));
    let mut next = Course::resumed(finding);
    next.run_while(late_knee, |tuner| tuner.state() != TunerState::Found);
    assert_eq!(next.with_errors(400), Some((Reason::Errors, 20)));
}

#[test]
fn a_resumed_tuner_with_longer_holds_searches_again_at_once() {
    let mut course = Course::new(20);
    course.until(Reason::Fewer, knee);
    for _ in 0..6 * 60 {
        course.second(knee);
    }
    let finding = course.finding();
    let outcome = |finding: Finding| {
        let mut next = Course::resumed(finding);
        (0..500).find_map(|_| next.second(|size| knee(size) / 2)).map(|step| step.reason)
    };
    assert_eq!(outcome(finding), Some(Reason::Changed));
    assert_eq!(outcome(Finding { hold: None, ..finding }), None, "their duration is not known");
}

#[test]
fn an_old_size_is_searched_for_again() {
    let finding = Finding { size: 9, found: true, before: 5, errors: 0.0, hold: None, age: MAX_AGE };
    let begun = |finding: Finding| {
        let tuner = Tuner::resumed(LIMITS, finding, Time(0));
        (tuner.size(), tuner.finding(Time(0)).found, tuner.finding(Time(0)).before)
    };
    assert_eq!(begun(finding), (9, true, 5));
    assert_eq!(begun(Finding { age: MAX_AGE + Duration::from_secs(1), ..finding }), (9, false, 9));
    // Its age goes on with the tuner that has it, and no client waits that could show that it is still the best.
    let mut next = Course::resumed(Finding { age: MAX_AGE / 2, ..finding });
    next.waiting = 0;
    for _ in 0..MAX_AGE.as_secs() / 2 + 60 {
        next.second(knee);
    }
    assert_eq!((next.tuner.state(), next.finding().age), (TunerState::Found, MAX_AGE + Duration::from_secs(60)));
    assert!(!begun(next.finding()).1);
}

#[test]
fn with_demand_no_size_grows_that_old() {
    let mut course = Course::new(20);
    course.until(Reason::Fewer, knee);
    let mut oldest = Duration::ZERO;
    for _ in 0..12 * 3600 {
        course.second(knee);
        let finding = course.finding();
        oldest = oldest.max(if finding.found { finding.age } else { Duration::ZERO });
    }
    assert!(oldest > MAX_REST && oldest <= MAX_AGE, "{oldest:?}");
}

#[test]
fn with_other_limits_the_search_begins_at_the_known_size() {
    let mut course = Course::new(20);
    course.run_while(knee, |tuner| tuner.size() == 20);
    assert_eq!(course.tuner.size(), 16);
    course.tuner.set_limits(Limits { max: 50, ..LIMITS }, Time(course.now));
    assert_eq!((course.tuner.size(), course.tuner.trial()), (20, None));
}

#[test]
fn other_limits_apply_at_once() {
    let mut course = Course::new(20);
    course.second(knee);
    let step = course.tuner.set_limits(Limits { min: 2, max: 5, ..LIMITS }, Time(course.now));
    assert_eq!((step.reason, step.from, step.to), (Reason::Bounds, 20, 5));
    assert!(course.tuner.steps().any(|counted| counted == (Reason::Bounds, 1)));
    assert_eq!(course.tuner.size(), 5);
    assert!((0..20_000).all(|_| {
        course.second(knee);
        (2..=5).contains(&course.tuner.size())
    }));
}
