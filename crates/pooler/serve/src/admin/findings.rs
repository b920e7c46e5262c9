//! `/api/findings`: what the doctor finds in the last minutes. Samples are taken only while clients request findings,
//! and forgotten soon after. Knows no symptom.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use admin_api::{Client, Examiner, Look, NewExaminer, Observation};
use serde_json::{Value, json};

/// The shortest time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Findings cover at most twice this time, and at least this time once there are samples for as long.
const HALF_WINDOW: Duration = Duration::from_secs(150);
/// Findings of a shorter window may be chance.
const MIN_WINDOW: Duration = Duration::from_secs(10);
/// Findings of fewer samples may be chance.
const MIN_SAMPLES: usize = 4;
/// With more pools, samples would take too much memory.
pub const MAX_POOLS: usize = 200;
/// Samples are forgotten when no client has requested findings for this long.
pub const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Clients in a sample that hold a server.
pub const MAX_HOLDERS: usize = 1_000;
/// Clients in a sample, of all clients.
pub const MAX_CLIENTS: usize = 1_000;

pub struct Sample {
    /// `/api/pools`.
    pub look: Look,
    /// Clients that hold a server.
    pub holders: Vec<Client>,
    pub clients: Vec<Client>,
}

/// The samples that were taken while clients requested findings.
pub struct Findings {
    new_examiner: NewExaminer,
    examiners: Mutex<Examiners>,
}

/// Two examiners. The older one answers, until the younger one takes its place: an examiner only grows.
struct Examiners {
    older: Box<dyn Examiner>,
    younger: Box<dyn Examiner>,
    /// The times of the first and the last sample.
    first_and_last: Option<(Instant, Instant)>,
    /// The time of the sample that was added last.
    last_added: Duration,
    has_too_many: bool,
}

impl Findings {
    pub fn new(new_examiner: NewExaminer) -> Self {
        Self { new_examiner, examiners: Mutex::new(Examiners::new(new_examiner)) }
    }

    /// Takes a sample, unless the last one is recent, and returns the findings of all samples. `take_sample` gives
    /// `None` if there are more than [`MAX_POOLS`]: the doctor would take long, and keep too much. The second value is
    /// whether a sample was taken.
    pub fn answer(&self, now: Instant, take_sample: impl FnOnce() -> Option<Sample>) -> (Value, bool) {
        // Other requests meanwhile take no sample, and do not wait for this one.
        let begun = self.examiners().begin_sample_if_due(now, self.new_examiner);
        if let Some(at) = begun {
            let sample = take_sample();
            self.examiners().add(at, sample, self.new_examiner);
        }
        (self.examiners().answer_json(), begun.is_some())
    }

    /// Forgets all samples if no client has requested findings for [`FORGET_AFTER`].
    pub fn tidy(&self, now: Instant) {
        let mut examiners = self.examiners();
        if examiners.first_and_last.is_some_and(|(_, last)| now.saturating_duration_since(last) >= FORGET_AFTER) {
            *examiners = Examiners::new(self.new_examiner);
        }
    }

    fn examiners(&self) -> MutexGuard<'_, Examiners> {
        self.examiners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Examiners {
    fn new(new_examiner: NewExaminer) -> Self {
        let (older, younger) = (new_examiner(), new_examiner());
        Self { older, younger, first_and_last: None, last_added: Duration::ZERO, has_too_many: false }
    }

    /// Begins a sample if one is due: notes its time, and forgets samples that are too old. Returns the time since the
    /// first sample; `None` if no sample is due.
    fn begin_sample_if_due(&mut self, now: Instant, new_examiner: NewExaminer) -> Option<Duration> {
        if let Some((_, last)) = self.first_and_last {
            let since = now.saturating_duration_since(last);
            if since < SAMPLE_INTERVAL {
                return None;
            }
            if since >= FORGET_AFTER {
                *self = Self::new(new_examiner);
            }
        }
        let (first, last) = self.first_and_last.get_or_insert((now, now));
        *last = now;
        Some(now.saturating_duration_since(*first))
    }

    fn add(&mut self, at: Duration, sample: Option<Sample>, new_examiner: NewExaminer) {
        // A sample that took longer than a later one describes a time that is covered already.
        if at < self.last_added {
            return;
        }
        self.last_added = at;
        self.has_too_many = sample.is_none();
        if self.has_too_many {
            (self.older, self.younger) = (new_examiner(), new_examiner());
        }
        let Some(Sample { look, holders, clients }) = sample else { return };
        let observation = Observation { at, look, holders };
        if self.older.duration() >= HALF_WINDOW {
            self.younger.add(observation.clone(), clients.clone());
        }
        self.older.add(observation, clients);
        if self.older.duration() >= 2 * HALF_WINDOW {
            self.older = std::mem::replace(&mut self.younger, new_examiner());
        }
    }

    fn answer_json(&self) -> Value {
        if self.has_too_many {
            return json!({ "state": "too many pools", "most_pools": MAX_POOLS });
        }
        if self.older.looks() < MIN_SAMPLES || self.older.duration() < MIN_WINDOW {
            let (lasts, looks) = (self.older.duration().as_secs_f64(), self.older.looks());
            return json!({
                "state": "looking", "window_s": lasts, "needs_s": MIN_WINDOW.as_secs_f64(),
                "looks": looks, "needs_looks": MIN_SAMPLES,
            });
        }
        self.older.findings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts looks.
    #[derive(Default)]
    struct Counting {
        looks: usize,
        ends: Option<(Duration, Duration)>,
    }

    impl Examiner for Counting {
        fn add(&mut self, observation: Observation, _clients: Vec<Client>) {
            self.looks += 1;
            self.ends = Some((self.ends.map_or(observation.at, |(first, _)| first), observation.at));
        }

        fn looks(&self) -> usize {
            self.looks
        }

        fn duration(&self) -> Duration {
            self.ends.map_or(Duration::ZERO, |(first, last)| last - first)
        }

        fn findings(&self) -> Value {
            json!({ "state": "examined", "window_s": self.duration().as_secs_f64() })
        }
    }

    fn findings() -> (Findings, Instant) {
        (Findings::new(|| Box::new(Counting::default())), Instant::now())
    }

    fn look() -> Option<Sample> {
        Some(Sample { look: Look::default(), holders: Vec::new(), clients: Vec::new() })
    }

    fn after(findings: &Findings, began: Instant, seconds: u64) -> Value {
        findings.answer(began + Duration::from_secs(seconds), look).0
    }

    #[test]
    fn it_answers_only_after_enough_looks_over_enough_time() {
        let (findings, began) = findings();
        assert_eq!(after(&findings, began, 0)["state"], json!("looking"));
        assert_eq!(after(&findings, began, 4)["state"], json!("looking"));
        assert_eq!(after(&findings, began, 8)["state"], json!("looking"));
        let answer = after(&findings, began, 12);
        assert_eq!((&answer["state"], &answer["window_s"]), (&json!("examined"), &json!(12.0)));
    }

    #[test]
    fn however_often_it_is_asked_it_looks_once_a_second() {
        let (findings, began) = findings();
        let looks = (0..100).filter(|tenth| findings.answer(began + Duration::from_millis(tenth * 100), look).1);
        assert_eq!(looks.count(), 10);
    }

    #[test]
    fn samples_are_bounded_and_forgotten_when_no_client_asks() {
        let (findings, began) = findings();
        let mut longest = 0.0_f64;
        for second in (0..2_000).step_by(5) {
            let window = after(&findings, began, second)["window_s"].as_f64().unwrap();
            longest = longest.max(window);
            assert!(second < 300 || window >= HALF_WINDOW.as_secs_f64() - 10.0, "{window} at {second}");
        }
        assert!(longest <= 2.0 * HALF_WINDOW.as_secs_f64(), "{longest}");
        findings.tidy(began + Duration::from_secs(2_010));
        assert_ne!(findings.examiners().older.looks(), 0);
        findings.tidy(began + Duration::from_secs(2_100));
        assert_eq!(findings.examiners().older.looks(), 0);
        assert_eq!(after(&findings, began, 2_101)["state"], json!("looking"));
    }

    #[test]
    fn a_look_that_ends_after_a_later_one_is_left_out() {
        let (findings, began) = findings();
        after(&findings, began, 0);
        let slow = || {
            after(&findings, began, 9);
            look()
        };
        findings.answer(began + Duration::from_secs(3), slow);
        let examiners = findings.examiners();
        assert_eq!((examiners.older.looks(), examiners.older.duration()), (2, Duration::from_secs(9)));
    }

    #[test]
    fn of_too_many_pools_nothing_is_kept() {
        let (findings, began) = findings();
        after(&findings, began, 0);
        let answer = findings.answer(began + Duration::from_secs(2), || None).0;
        assert_eq!((&answer["state"], findings.examiners().older.looks()), (&json!("too many pools"), 0));
        assert_eq!(after(&findings, began, 4)["state"], json!("looking"), "there are fewer again");
    }
}
