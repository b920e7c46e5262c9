//! `/api/findings`: what the doctor says of the last minutes. It looks only while somebody asks, and forgets what it
//! saw soon after. Refuses to know what a symptom is.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use admin_api::{Client, Look};
use doctor::{Diagnosis, Observation, Window, examine};
use serde_json::{Value, json};

/// Looks are so far apart at least, however often it is asked.
const PACE: Duration = Duration::from_secs(1);
/// The past that counts is twice this at most, and this at least once it has looked for so long.
const HALF: Duration = Duration::from_secs(150);
/// What less time or fewer looks tell may be chance.
const LEAST: Duration = Duration::from_secs(10);
const LEAST_LOOKS: usize = 4;
/// Of more pools too much would be kept.
pub const MAX_POOLS: usize = 200;
/// Nobody has asked for so long: what it saw is forgotten.
pub const FORGETS_AFTER: Duration = Duration::from_secs(60);
/// Clients that it looks at, of those that hold a server, and of all.
pub const MAX_HOLDERS: usize = 1_000;
pub const MAX_CLIENTS: usize = 1_000;

pub struct Seen {
    /// `/api/pools`.
    pub look: Look,
    /// Those that hold a server.
    pub holders: Vec<Client>,
    pub clients: Vec<Client>,
}

/// Why there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unseen {
    /// There are more than [`MAX_POOLS`]: of thousands, to read what would not be kept takes long.
    TooManyPools,
    /// The doctor does not understand what it is shown.
    Unread,
}

/// What was seen while somebody asked.
#[derive(Default)]
pub struct Findings(Mutex<Watched>);

/// Two windows, of which the elder is examined. When it is old the younger takes its place: a window only grows.
#[derive(Default)]
struct Watched {
    elder: Window,
    younger: Window,
    /// When the first look was, and the last.
    looked: Option<(Instant, Instant)>,
    /// When the look was that was added last.
    added: Duration,
    has_too_many: bool,
}

impl Findings {
    /// Looks, if the last look was some time ago, and says what all looks tell. The second value is false if it did not
    /// look.
    pub fn answer(&self, now: Instant, look: impl FnOnce() -> Result<Seen, Unseen>) -> (Value, bool) {
        // Others who ask meanwhile do not look as well, and do not wait.
        let begun = self.watched().begin(now);
        if let Some(at) = begun {
            let seen = look();
            self.watched().add(at, seen);
        }
        (self.watched().tell(), begun.is_some())
    }

    /// Forgets what was seen if nobody has asked for [`FORGETS_AFTER`].
    pub fn tidy(&self, now: Instant) {
        let mut watched = self.watched();
        if watched.looked.is_some_and(|(_, last)| now.saturating_duration_since(last) >= FORGETS_AFTER) {
            *watched = Watched::default();
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    /// It is time for a look: when that is, from the first look on.
    fn begin(&mut self, now: Instant) -> Option<Duration> {
        if let Some((_, last)) = self.looked {
            let since = now.saturating_duration_since(last);
            if since < PACE {
                return None;
            }
            if since >= FORGETS_AFTER {
                *self = Self::default();
            }
        }
        let (first, last) = self.looked.get_or_insert((now, now));
        *last = now;
        Some(now.saturating_duration_since(*first))
    }

    fn add(&mut self, at: Duration, seen: Result<Seen, Unseen>) {
        // A look that took so long that another was faster tells of a past that counts already.
        if at < self.added {
            return;
        }
        self.added = at;
        self.has_too_many = matches!(seen, Err(Unseen::TooManyPools));
        if self.has_too_many {
            (self.elder, self.younger) = Default::default();
        }
        let Ok(Seen { look, holders, clients }) = seen else { return };
        let observation = Observation { at, look, holders };
        if self.elder.lasts() >= HALF {
            self.younger.add(observation.clone());
        }
        self.elder.add(observation);
        if self.elder.lasts() >= 2 * HALF {
            self.elder = std::mem::take(&mut self.younger);
        }
        self.elder.clients = clients;
    }

    fn tell(&self) -> Value {
        if self.has_too_many {
            return json!({ "state": "too many pools", "most_pools": MAX_POOLS });
        }
        if self.elder.looks() < LEAST_LOOKS || self.elder.lasts() < LEAST {
            let (lasts, looks) = (self.elder.lasts().as_secs_f64(), self.elder.looks());
            return json!({
                "state": "looking", "window_s": lasts, "needs_s": LEAST.as_secs_f64(), "looks": looks, "needs_looks": LEAST_LOOKS,
            });
        }
        told(&examine(&self.elder))
    }
}

/// A diagnosis, with the names that people have for symptoms.
fn told(diagnosis: &Diagnosis) -> Value {
    let mut told = serde_json::to_value(diagnosis).expect("it has text keys and finite numbers");
    told["state"] = json!("examined");
    for (shown, finding) in told["findings"].as_array_mut().into_iter().flatten().zip(&diagnosis.findings) {
        shown["name"] = json!(finding.symptom.name());
    }
    for (shown, undecided) in told["undecided"].as_array_mut().into_iter().flatten().zip(&diagnosis.undecided) {
        shown["names"] = undecided.between.iter().map(|symptom| symptom.name()).collect();
    }
    told
}

#[cfg(test)]
mod tests {
    use driver::Snapshot;

    use super::*;
    use crate::admin::{api, metrics};

    /// What a pool shows whose database cannot be reached, as the doctor reads it.
    fn unreachable() -> Result<Seen, Unseen> {
        let mut pool = metrics::tests::pool("d", "u");
        pool.unavailable_for = Some(Duration::from_secs(90));
        let snapshot = Snapshot { pools: vec![pool], ..Snapshot::default() };
        let shown = api::pools(snapshot, ("i", Duration::from_secs(100)), |_| ([].into(), None));
        let look = serde_json::from_slice(&shown.collect::<Vec<_>>().concat()).expect("the doctor reads what is shown");
        Ok(Seen { look, holders: Vec::new(), clients: Vec::new() })
    }

    fn after(findings: &Findings, began: Instant, seconds: u64) -> Value {
        findings.answer(began + Duration::from_secs(seconds), unreachable).0
    }

    #[test]
    fn it_says_nothing_before_it_has_looked_for_a_while_and_then_names_what_it_sees() {
        let (findings, began) = (Findings::default(), Instant::now());
        assert_eq!(after(&findings, began, 0)["state"], json!("looking"));
        assert_eq!(after(&findings, began, 4)["state"], json!("looking"));
        assert_eq!(after(&findings, began, 8)["state"], json!("looking"));
        let told = after(&findings, began, 12);
        assert_eq!((&told["state"], &told["window_s"]), (&json!("examined"), &json!(12.0)));
        assert_eq!(told["findings"][0]["symptom"], json!("out_of_reach"));
        assert_eq!(told["findings"][0]["name"], json!("the database is out of reach"));
    }

    #[test]
    fn however_often_it_is_asked_it_looks_once_a_second() {
        let (findings, began) = (Findings::default(), Instant::now());
        let looks = (0..100).filter(|tenth| findings.answer(began + Duration::from_millis(tenth * 100), unreachable).1);
        assert_eq!(looks.count(), 10);
    }

    #[test]
    fn the_past_that_counts_is_bounded_and_forgotten_when_nobody_asks() {
        let (findings, began) = (Findings::default(), Instant::now());
        let mut longest = 0.0_f64;
        for second in (0..2_000).step_by(5) {
            let window = after(&findings, began, second)["window_s"].as_f64().unwrap();
            longest = longest.max(window);
            assert!(second < 300 || window >= HALF.as_secs_f64() - 10.0, "{window} at {second}");
        }
        assert!(longest <= 2.0 * HALF.as_secs_f64(), "{longest}");
        findings.tidy(began + Duration::from_secs(2_010));
        assert_ne!(findings.watched().elder.looks(), 0);
        findings.tidy(began + Duration::from_secs(2_100));
        assert_eq!(findings.watched().elder.looks(), 0);
        assert_eq!(after(&findings, began, 2_101)["state"], json!("looking"));
    }

    #[test]
    fn a_look_that_ends_after_a_later_one_is_left_out() {
        let (findings, began) = (Findings::default(), Instant::now());
        after(&findings, began, 0);
        let slow = || {
            after(&findings, began, 9);
            unreachable()
        };
        findings.answer(began + Duration::from_secs(3), slow);
        let watched = findings.watched();
        assert_eq!((watched.elder.looks(), watched.elder.lasts()), (2, Duration::from_secs(9)));
    }

    #[test]
    fn of_too_many_pools_nothing_is_kept() {
        let (findings, began) = (Findings::default(), Instant::now());
        after(&findings, began, 0);
        let told = findings.answer(began + Duration::from_secs(2), || Err(Unseen::TooManyPools)).0;
        assert_eq!((&told["state"], findings.watched().elder.looks()), (&json!("too many pools"), 0));
        assert_eq!(after(&findings, began, 4)["state"], json!("looking"), "there are fewer again");
    }
}
