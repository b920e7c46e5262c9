//! `/api/findings`: what the doctor says of the last minutes. Looks are taken only while clients ask,
//! and forgotten soon after. Knows no symptom.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use admin_api::{Client, Examiner, Look, NewExaminer, Observation};
use serde_json::{Value, json};

/// Two looks are at least this far apart.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The past that counts is at most twice this, and at least this once there are looks for as long.
const HALF_WINDOW: Duration = Duration::from_secs(150);
/// What a shorter window tells may be chance.
const MIN_WINDOW: Duration = Duration::from_secs(10);
/// What fewer looks tell may be chance.
const MIN_LOOKS: usize = 4;
/// With more pools, looks would take too much memory.
pub const MAX_POOLS: usize = 200;
/// Looks are forgotten when no client has asked for this long.
pub const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Clients that a look has, among those that hold a server.
pub const MAX_HOLDERS: usize = 1_000;
/// Clients that a look has, among all.
pub const MAX_CLIENTS: usize = 1_000;

pub struct Seen {
    /// `/api/pools`.
    pub look: Look,
    /// Those that hold a server.
    pub holders: Vec<Client>,
    pub clients: Vec<Client>,
}

/// Looks that were taken while clients asked for findings.
pub struct Findings {
    new_examiner: NewExaminer,
    watched: Mutex<Watched>,
}

/// Two examiners, of which the elder answers. When it is old the younger takes its place: an examiner only grows.
struct Watched {
    elder: Box<dyn Examiner>,
    younger: Box<dyn Examiner>,
    /// When the first look was, and the last.
    looked: Option<(Instant, Instant)>,
    /// When the look was that was added last.
    added: Duration,
    has_too_many: bool,
}

impl Findings {
    pub fn new(new_examiner: NewExaminer) -> Self {
        Self { new_examiner, watched: Mutex::new(Watched::new(new_examiner)) }
    }

    /// Takes a look unless the last one was a moment ago, and answers what all looks tell. `look` gives `None` if there
    /// are more than [`MAX_POOLS`]: the doctor would take long, and keep too much. The second value is false if no look
    /// was taken.
    pub fn answer(&self, now: Instant, look: impl FnOnce() -> Option<Seen>) -> (Value, bool) {
        // Others who ask meanwhile do not look as well, and do not wait.
        let begun = self.watched().begin(now, self.new_examiner);
        if let Some(at) = begun {
            let seen = look();
            self.watched().add(at, seen, self.new_examiner);
        }
        (self.watched().tell(), begun.is_some())
    }

    /// Forgets all looks if no client has asked for [`FORGET_AFTER`].
    pub fn tidy(&self, now: Instant) {
        let mut watched = self.watched();
        if watched.looked.is_some_and(|(_, last)| now.saturating_duration_since(last) >= FORGET_AFTER) {
            *watched = Watched::new(self.new_examiner);
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn new(new_examiner: NewExaminer) -> Self {
        let (elder, younger) = (new_examiner(), new_examiner());
        Self { elder, younger, looked: None, added: Duration::ZERO, has_too_many: false }
    }

    /// If it is time for a look: the time from the first look to this one.
    fn begin(&mut self, now: Instant, new_examiner: NewExaminer) -> Option<Duration> {
        if let Some((_, last)) = self.looked {
            let since = now.saturating_duration_since(last);
            if since < LOOK_INTERVAL {
                return None;
            }
            if since >= FORGET_AFTER {
                *self = Self::new(new_examiner);
            }
        }
        let (first, last) = self.looked.get_or_insert((now, now));
        *last = now;
        Some(now.saturating_duration_since(*first))
    }

    fn add(&mut self, at: Duration, seen: Option<Seen>, new_examiner: NewExaminer) {
        // A look that took so long that another was faster tells of a past that counts already.
        if at < self.added {
            return;
        }
        self.added = at;
        self.has_too_many = seen.is_none();
        if self.has_too_many {
            (self.elder, self.younger) = (new_examiner(), new_examiner());
        }
        let Some(Seen { look, holders, clients }) = seen else { return };
        let observation = Observation { at, look, holders };
        if self.elder.duration() >= HALF_WINDOW {
            self.younger.add(observation.clone(), clients.clone());
        }
        self.elder.add(observation, clients);
        if self.elder.duration() >= 2 * HALF_WINDOW {
            self.elder = std::mem::replace(&mut self.younger, new_examiner());
        }
    }

    fn tell(&self) -> Value {
        if self.has_too_many {
            return json!({ "state": "too many pools", "most_pools": MAX_POOLS });
        }
        if self.elder.looks() < MIN_LOOKS || self.elder.duration() < MIN_WINDOW {
            let (lasts, looks) = (self.elder.duration().as_secs_f64(), self.elder.looks());
            return json!({
                "state": "looking", "window_s": lasts, "needs_s": MIN_WINDOW.as_secs_f64(), "looks": looks, "needs_looks": MIN_LOOKS,
            });
        }
        self.elder.findings()
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

    fn look() -> Option<Seen> {
        Some(Seen { look: Look::default(), holders: Vec::new(), clients: Vec::new() })
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
        let told = after(&findings, began, 12);
        assert_eq!((&told["state"], &told["window_s"]), (&json!("examined"), &json!(12.0)));
    }

    #[test]
    fn however_often_it_is_asked_it_looks_once_a_second() {
        let (findings, began) = findings();
        let looks = (0..100).filter(|tenth| findings.answer(began + Duration::from_millis(tenth * 100), look).1);
        assert_eq!(looks.count(), 10);
    }

    #[test]
    fn the_past_that_counts_is_bounded_and_forgotten_when_nobody_asks() {
        let (findings, began) = findings();
        let mut longest = 0.0_f64;
        for second in (0..2_000).step_by(5) {
            let window = after(&findings, began, second)["window_s"].as_f64().unwrap();
            longest = longest.max(window);
            assert!(second < 300 || window >= HALF_WINDOW.as_secs_f64() - 10.0, "{window} at {second}");
        }
        assert!(longest <= 2.0 * HALF_WINDOW.as_secs_f64(), "{longest}");
        findings.tidy(began + Duration::from_secs(2_010));
        assert_ne!(findings.watched().elder.looks(), 0);
        findings.tidy(began + Duration::from_secs(2_100));
        assert_eq!(findings.watched().elder.looks(), 0);
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
        let watched = findings.watched();
        assert_eq!((watched.elder.looks(), watched.elder.duration()), (2, Duration::from_secs(9)));
    }

    #[test]
    fn of_too_many_pools_nothing_is_kept() {
        let (findings, began) = findings();
        after(&findings, began, 0);
        let told = findings.answer(began + Duration::from_secs(2), || None).0;
        assert_eq!((&told["state"], findings.watched().elder.looks()), (&json!("too many pools"), 0));
        assert_eq!(after(&findings, began, 4)["state"], json!("looking"), "there are fewer again");
    }
}
