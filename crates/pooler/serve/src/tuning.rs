//! Shows each pool whose `max_size` is "auto" to a tuner of its own, and gives it the size that the tuner says. Each
//! decision is logged; what has been decided is kept for metrics, for the admin address, and for the process that takes
//! over. Knows neither how a size is chosen nor any protocol.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use driver::{Handle, PoolLoad};
use pool::Time;
use seam::PoolId;
use serde::{Deserialize, Serialize};
use tuner::{Known, Limits, Look, Standing, Tuner};

use crate::generations::Generations;

/// Looks at a pool in one window of its tuner, at least, unless they would be too close. With four, chance decided
/// whether they saw those who wait most of the time.
const LOOKS: u32 = 16;
/// The longest time between two looks, and the shortest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(50));

/// Most sizes that are handed over, so that they fit into a line of the hand-over.
const MAX_KEPT: usize = 1000;

/// What is known of a pool's size, for the process that takes over. What a process does not say that is older than this
/// one is not known: without an age, what was found is taken for too old.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Kept {
    protocol: String,
    database: String,
    user: String,
    size: u32,
    found: bool,
    /// The size before it was found, and the part of errors then.
    #[serde(default)]
    before: Option<u32>,
    #[serde(default)]
    errors: Option<f64>,
    /// The mean hold with it, in microseconds.
    #[serde(default)]
    hold_us: Option<u64>,
    /// How many seconds ago it was known to be the best, when this was handed over.
    #[serde(default)]
    age_s: Option<u64>,
}

pub struct Tuning {
    handle: Handle,
    pools: Arc<Generations>,
    began: Instant,
    tuned: Mutex<Tuned>,
}

#[derive(Default)]
struct Tuned {
    /// One for each pool that is tuned, so at most as many as there are pools.
    tuners: HashMap<PoolId, Tuner>,
    /// What the process before knew, until the pool is there; and when it has told that.
    kept: Vec<Kept>,
    told: Time,
}

impl Tuning {
    /// Nothing is tuned before the first look.
    pub fn new(handle: Handle, pools: Arc<Generations>) -> Self {
        Self { handle, pools, began: Instant::now(), tuned: Mutex::default() }
    }

    /// Looks again and again. Waits for nobody in between but for the locks of pools.
    pub async fn go_on(&self) {
        loop {
            tokio::time::sleep(self.look()).await;
        }
    }

    /// The tuners of all pools that are tuned, as they are now.
    pub fn tuners(&self) -> HashMap<PoolId, Tuner> {
        self.lock().tuners.clone()
    }

    /// Goes on with what the process before knew, of each pool as soon as it is there.
    pub fn go_on_from(&self, mut kept: Vec<Kept>) {
        kept.truncate(MAX_KEPT);
        let mut tuned = self.lock();
        (tuned.kept, tuned.told) = (kept, self.now());
    }

    /// What the process that takes over can go on with.
    pub fn known(&self) -> Vec<Kept> {
        let (tuned, now) = (self.lock(), self.now());
        let own = self.handle.loads().into_iter().filter_map(|load| {
            let known = tuned.tuners.get(&load.id)?.known(now);
            Some(Kept::of(&load, known))
        });
        let before = tuned.kept.iter().map(|kept| kept.after(now - tuned.told));
        own.chain(before).take(MAX_KEPT).collect()
    }

    /// Looks at all pools once; tells after which time the next look is due.
    fn look(&self) -> Duration {
        let mut tuned = self.lock();
        if !self.pools.tunes() {
            *tuned = Tuned::default();
            return PAUSES.0;
        }
        let Tuned { tuners, kept, told } = &mut *tuned;
        let now = self.now();
        let loads = self.handle.loads();
        let present: HashSet<PoolId> = loads.iter().map(|load| load.id).collect();
        tuners.retain(|id, _| present.contains(id));
        let mut pause = PAUSES.0;
        for load in &loads {
            let Some(limits) = self.pools.tuning(load.id) else { continue };
            let tuner = tuners.entry(load.id).or_insert_with(|| begun(load, limits, (&mut *kept, *told), now));
            let bounded = (tuner.limits() != limits).then(|| tuner.set_limits(limits, now));
            for step in bounded.into_iter().chain(tuner.look(&seen(load), now)) {
                let PoolLoad { protocol, database, user, .. } = load;
                tracing::info!(protocol, database, user, reason = step.reason.as_str(), "tuning: {step}");
            }
            if tuner.size() != load.max_size {
                tracing::debug!(database = load.database, from = load.max_size, to = tuner.size(), "tuning: resized");
                self.handle.resize(load.id, tuner.size());
            }
            pause = pause.min(limits.window / LOOKS);
        }
        pause.max(PAUSES.1)
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).expect("584 years fit"))
    }

    fn lock(&self) -> MutexGuard<'_, Tuned> {
        self.tuned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn of(load: &PoolLoad, known: Known) -> Self {
        let Known { size, found, before, errors, hold, age } = known;
        let PoolLoad { protocol, database, user, .. } = load;
        let micros = |hold: Duration| u64::try_from(hold.as_micros()).unwrap_or(u64::MAX);
        Self {
            protocol: (*protocol).to_owned(),
            database: database.clone(),
            user: user.clone(),
            size,
            found,
            before: Some(before),
            errors: Some(errors),
            hold_us: hold.map(micros),
            age_s: Some(age.as_secs()),
        }
    }

    fn is_of(&self, load: &PoolLoad) -> bool {
        (self.protocol.as_str(), &self.database, &self.user) == (load.protocol, &load.database, &load.user)
    }

    /// The same, when so much time has passed.
    fn after(&self, passed: Duration) -> Self {
        Self { age_s: self.age_s.map(|age| age.saturating_add(passed.as_secs())), ..self.clone() }
    }

    fn known(&self) -> Known {
        Known {
            size: self.size,
            found: self.found,
            before: self.before.unwrap_or(self.size),
            errors: self.errors.unwrap_or(0.0),
            hold: self.hold_us.map(Duration::from_micros),
            age: self.age_s.map_or(Duration::MAX, Duration::from_secs),
        }
    }
}

/// The tuner of a pool that has none yet. What the process before knew was told then.
fn begun(load: &PoolLoad, limits: Limits, (kept, told): (&mut Vec<Kept>, Time), now: Time) -> Tuner {
    let Some(at) = kept.iter().position(|kept| kept.is_of(load)) else { return Tuner::new(limits, load.max_size) };
    let known = kept.swap_remove(at).after(now - told).known();
    let tuner = Tuner::resumed(limits, known, now);
    let PoolLoad { protocol, database, user, .. } = load;
    let (servers, found) = (tuner.size(), tuner.standing() == Standing::Found);
    tracing::info!(protocol, database, user, servers, found, "tuning: goes on where the process before was");
    tuner
}

fn seen(load: &PoolLoad) -> Look {
    Look {
        completed: load.completed,
        held: load.held,
        granted: load.granted,
        waited: load.waited,
        errors: load.errors,
        in_use: load.counts.in_use,
        waiters: load.counts.waiters,
        kept: load.pinned,
        fit: load.fit,
        ordered: load.ordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { least: 1, most: 60, window: Duration::from_secs(4) };
    const HOUR: Duration = Duration::from_secs(3600);

    fn load() -> PoolLoad {
        PoolLoad {
            id: PoolId(1),
            protocol: "postgres",
            database: "shop".to_owned(),
            user: "app".to_owned(),
            counts: pool::Counts::default(),
            max_size: 20,
            completed: 0,
            held: Duration::ZERO,
            granted: 0,
            waited: 0,
            errors: 0,
            pinned: 0,
            fit: true,
            ordered: false,
        }
    }

    fn known(age: Duration) -> Known {
        Known { size: 32, found: true, before: 20, errors: 0.02, hold: Some(Duration::from_millis(7)), age }
    }

    /// What a process knows that has read this, when a pool comes so much later.
    fn later(said: &str, passed: Duration) -> Known {
        let mut kept: Vec<Kept> = serde_json::from_str(said).unwrap();
        let now = Time(5) + passed;
        let tuner = begun(&load(), LIMITS, (&mut kept, Time(5)), now);
        assert!(kept.is_empty());
        tuner.known(now)
    }

    #[test]
    fn what_is_handed_over_has_a_way_back_and_an_age() {
        let said = serde_json::to_string(&[Kept::of(&load(), known(HOUR / 2))]).unwrap();
        assert_eq!(later(&said, Duration::ZERO), known(HOUR / 2));
        assert_eq!(later(&said, HOUR / 2), known(HOUR));
    }

    #[test]
    fn what_was_found_long_before_its_pool_came_is_where_the_search_begins() {
        let said = serde_json::to_string(&[Kept::of(&load(), known(HOUR / 2))]).unwrap();
        let late = later(&said, 2 * HOUR);
        assert_eq!((late.size, late.found), (32, false));
        // It may have been handed on by a process in which the pool never was.
        let handed_on = [serde_json::from_str::<Vec<Kept>>(&said).unwrap()[0].after(2 * HOUR)];
        assert!(!later(&serde_json::to_string(&handed_on).unwrap(), Duration::ZERO).found);
    }

    #[test]
    fn what_a_process_does_not_say_that_is_older_is_not_known() {
        let said = r#"[{"protocol":"postgres","database":"shop","user":"app","size":32,"found":true}]"#;
        let known = later(said, Duration::ZERO);
        assert_eq!((known.size, known.found, known.before), (32, false, 32));
    }
}
