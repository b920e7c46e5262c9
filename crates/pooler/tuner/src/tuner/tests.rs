//! The controller beside pools without noise, second by second.

use super::*;

const LIMITS: Limits = Limits { min: 1, max: 60, window: Duration::from_secs(4) };
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

    /// A course whose tuner resumes with what another one knew.
    fn resumed(known: Known) -> Self {
        Self { tuner: Tuner::resumed(LIMITS, known, Time(0)), ..Self::new(20) }
    }

    /// What another tuner could resume with now.
    fn known(&self) -> Known {
        self.tuner.known(Time(self.now))
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
fn the_knee_is_found_and_then_the_size_changes_at_most_once_a_minute() {
    let mut course = Course::new(20);
    let step = course.until(Reason::Fewer, knee);
    assert!((8..=10).contains(&step.to), "{step:?}");
    assert_eq!(step.evidence.map(|evidence| (evidence.candidate, evidence.present)), Some((step.to, 20)));
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
fn without_demand_the_pool_is_left_alone() {
    let mut course = Course::new(20);
    course.waiting = 0;
    assert!((0..3600).all(|_| course.second(knee).is_none()));
    assert_eq!((course.tuner.size(), course.tuner.changes(), course.tuner.standing()), (20, 0, Standing::NoDemand));
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
    let grows = |size: u32| 100 * u64::from(size);
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
    course.look.fit = false;
    let step = course.second(knee).unwrap();
    assert_eq!((step.reason, step.to, course.tuner.standing()), (Reason::Unfit, 20, Standing::Unfit));
    assert!((0..600).all(|_| course.second(|_| 0).is_none()));
    course.look.fit = true;
    course.until(Reason::Fewer, knee);
}

#[test]
fn a_pause_while_more_servers_are_tried_does_not_reject_them() {
    let grows = |size: u32| 100 * u64::from(size);
    let mut course = Course::new(20);
    while course.tuner.size() <= 20 {
        course.second(grows);
    }
    (course.look.fit, course.look.ordered) = (false, true);
    let step = course.second(grows).unwrap();
    assert_eq!((step.reason, step.to), (Reason::Unfit, 20));
    (course.look.fit, course.look.ordered) = (true, false);
    let found = course.until(Reason::Found, grows);
    assert_eq!(found.to, 60, "they are tried again");
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
fn risen_errors_take_back_more_servers() {
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
fn errors_count_also_without_demand() {
    let grows = |size: u32| 1000 * u64::from(size.min(40));
    let mut course = Course::new(20);
    course.until(Reason::Found, grows);
    course.waiting = 0;
    let step = (0..400).find_map(|_| {
        course.look.errors += 900;
        course.second(grows)
    });
    assert_eq!(step.map(|step| (step.reason, step.to)), Some((Reason::Errors, 20)));
    // That was all that had been added.
    assert!((0..400).all(|_| {
        course.look.errors += 900;
        course.second(grows).is_none()
    }));
}

#[test]
fn risen_errors_take_back_more_servers_during_a_trial_too() {
    let grows = |size: u32| 1000 * u64::from(size.min(40));
    let mut course = Course::new(20);
    course.until(Reason::Found, grows);
    while course.tuner.standing() != Standing::Probing {
        course.second(grows);
    }
    let step = (0..600).find_map(|_| {
        course.look.errors += 900;
        course.second(grows)
    });
    assert_eq!(step.map(|step| (step.reason, step.to)), Some((Reason::Errors, 20)));
    assert_eq!((course.tuner.size(), course.tuner.standing()), (20, Standing::Found));
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
fn servers_that_clients_keep_end_a_trial_of_fewer() {
    let mut course = Course::new(20);
    while course.tuner.size() == 20 {
        course.second(knee);
    }
    assert_eq!(course.tuner.size(), 16);
    course.look.kept = 16;
    let step = course.second(knee).unwrap();
    assert_eq!((step.reason, step.from, step.to), (Reason::Bounds, 20, 20));
    assert_eq!((course.tuner.size(), course.tuner.trial()), (20, None));
}

#[test]
fn a_resumed_tuner_does_not_search_again() {
    let mut course = Course::new(20);
    course.until(Reason::Tries, knee);
    assert_eq!((course.known().size, course.known().found), (20, false));
    let found = course.until(Reason::Fewer, knee).to;
    let found_at = course.now;
    // The minute in which a neighbour is tried does not count.
    while course.tuner.standing() != Standing::Probing || course.tuner.size() == found {
        course.second(knee);
    }
    let known = course.known();
    assert_eq!((known.size, known.found, known.before), (found, true, 20));
    assert_eq!(known.age, Duration::from_nanos(course.now - found_at));
    let mut next = Course::resumed(known);
    assert_eq!((next.tuner.size(), next.tuner.standing()), (found, Standing::Found));
    assert!((0..10 * 60).all(|_| next.second(knee).is_none()), "it watches for ten minutes");
    assert!((0..2 * 60).any(|_| next.second(knee).is_some_and(|step| step.reason == Reason::Tries)));
    // What was found is not to be had any more, and what was not found is searched for from there on.
    let narrow = Tuner::resumed(Limits { max: 5, ..LIMITS }, known, Time(0));
    assert_eq!((narrow.size(), narrow.known(Time(0)).found), (5, false));
    let open = Tuner::resumed(LIMITS, Known { size: 12, found: false, ..known }, Time(0));
    assert_eq!((open.size(), open.standing()), (12, Standing::NoDemand));
}

#[test]
fn a_resumed_tuner_gives_back_more_servers_if_errors_rise() {
    let grows = |size: u32| 1000 * u64::from(size.min(40));
    let mut course = Course::new(20);
    course.until(Reason::Found, grows);
    let known = course.known();
    let with_errors = |known: Known| {
        let mut next = Course::resumed(known);
        let step = (0..500).find_map(|_| {
            next.look.errors += 900;
            next.second(grows)
        });
        step.map(|step| (step.reason, step.to))
    };
    assert_eq!(with_errors(known), Some((Reason::Errors, 20)));
    assert_eq!(with_errors(Known { errors: 0.03, ..known }), None, "there were as many before");
    assert_eq!(with_errors(Known { before: known.size, ..known }), None, "there was nothing before");
}

#[test]
fn a_resumed_search_knows_the_size_before() {
    let grows = |size: u32| 1000 * u64::from(size.min(40));
    let mut course = Course::new(20);
    let better = course.until(Reason::Better, grows).to;
    let known = course.known();
    assert_eq!((known.size, known.found, known.before), (better, false, 20));
    let mut next = Course::resumed(known);
    while next.tuner.standing() != Standing::Found {
        next.second(grows);
    }
    let step = (0..400).find_map(|_| {
        next.look.errors += 900;
        next.second(grows)
    });
    assert_eq!(step.map(|step| (step.reason, step.to)), Some((Reason::Errors, 20)));
}

#[test]
fn a_resumed_tuner_with_longer_holds_searches_again_at_once() {
    let mut course = Course::new(20);
    course.until(Reason::Fewer, knee);
    for _ in 0..6 * 60 {
        course.second(knee);
    }
    let known = course.known();
    let outcome = |known: Known| {
        let mut next = Course::resumed(known);
        (0..500).find_map(|_| next.second(|size| knee(size) / 2)).map(|step| step.reason)
    };
    assert_eq!(outcome(known), Some(Reason::Changed));
    assert_eq!(outcome(Known { hold: None, ..known }), None, "their duration is not known");
}

#[test]
fn an_old_size_is_searched_for_again() {
    let known = Known { size: 9, found: true, before: 5, errors: 0.0, hold: None, age: MAX_AGE };
    let begun = |known: Known| {
        let tuner = Tuner::resumed(LIMITS, known, Time(0));
        (tuner.size(), tuner.known(Time(0)).found, tuner.known(Time(0)).before)
    };
    assert_eq!(begun(known), (9, true, 5));
    assert_eq!(begun(Known { age: MAX_AGE + Duration::from_secs(1), ..known }), (9, false, 9));
    // Its age goes on with the tuner that has it, and no client waits that could show that it is still the best.
    let mut next = Course::resumed(Known { age: MAX_AGE / 2, ..known });
    next.waiting = 0;
    for _ in 0..MAX_AGE.as_secs() / 2 + 60 {
        next.second(knee);
    }
    assert_eq!((next.tuner.standing(), next.known().age), (Standing::Found, MAX_AGE + Duration::from_secs(60)));
    assert!(!begun(next.known()).1);
}

#[test]
fn with_demand_no_size_grows_that_old() {
    let mut course = Course::new(20);
    course.until(Reason::Fewer, knee);
    let mut oldest = Duration::ZERO;
    for _ in 0..12 * 3600 {
        course.second(knee);
        let known = course.known();
        oldest = oldest.max(if known.found { known.age } else { Duration::ZERO });
    }
    assert!(oldest > MAX_REST && oldest <= MAX_AGE, "{oldest:?}");
}

#[test]
fn with_other_limits_the_search_begins_at_the_known_size() {
    let mut course = Course::new(20);
    while course.tuner.size() == 20 {
        course.second(knee);
    }
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
