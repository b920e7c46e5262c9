//! Runs a tuner for each pool with `max_size = "auto"`, and resizes the pool as the tuner decides. Each decision is
//! logged, and kept for metrics, the admin address, and a process that takes over. Knows neither how a size is chosen
//! nor any protocol.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use driver::{Handle, PoolLoad};
use pool::Time;
use seam::PoolId;
use serde::{Deserialize, Serialize};
use tuner::{Finding, Limits, Sample, Tuner, TunerState};

use crate::live_pools::LivePools;

/// Samples of a pool in one window of its tuner, unless [`MIN_SAMPLE_INTERVAL`] is longer. With four, chance decided
/// whether they showed waiters that were present most of the time.
const SAMPLES_PER_WINDOW: u32 = 16;
const MAX_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const MIN_SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Sizes that are handed over, and taken: they fit into a line of the handover.
const MAX_HANDED_OVER_SIZES: usize = 1000;

/// The size that a tuner has found for a pool, for the process that takes over. A process of an older version may leave
/// fields out; without an age, a size is taken for too old to be trusted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HandedOverSize {
    protocol: String,
    database: String,
    user: String,
    size: u32,
    found: bool,
    /// The size before this one was found, and the fraction of errors with it.
    #[serde(default)]
    before: Option<u32>,
    #[serde(default)]
    errors: Option<f64>,
    /// The mean time that a client holds a server with this size, in microseconds.
    #[serde(default)]
    hold_us: Option<u64>,
    /// Age of the finding at the handover, in seconds.
    #[serde(default)]
    age_s: Option<u64>,
}

pub struct Tuning {
    handle: Handle,
    pools: Arc<LivePools>,
    began: Instant,
    tuned: Mutex<Tuned>,
}

#[derive(Default)]
struct Tuned {
    tuners: HashMap<PoolId, Tuner>,
    /// Sizes from the predecessor whose pools do not exist here yet, and when they came.
    unclaimed: Vec<HandedOverSize>,
    received_at: Time,
}

impl Tuning {
    pub fn new(handle: Handle, pools: Arc<LivePools>) -> Self {
        Self { handle, pools, began: Instant::now(), tuned: Mutex::default() }
    }

    /// Samples and tunes all pools, without end.
    pub async fn run(&self) {
        loop {
            tokio::time::sleep(self.sample_pools()).await;
        }
    }

    /// Copies of the tuners of all tuned pools.
    pub fn tuners(&self) -> HashMap<PoolId, Tuner> {
        self.lock().tuners.clone()
    }

    /// Takes over the predecessor's sizes: of each pool once it exists.
    pub fn resume(&self, mut sizes: Vec<HandedOverSize>) {
        sizes.truncate(MAX_HANDED_OVER_SIZES);
        let mut tuned = self.lock();
        (tuned.unclaimed, tuned.received_at) = (sizes, self.now());
    }

    /// The sizes for a process that takes over.
    pub fn handed_over_sizes(&self) -> Vec<HandedOverSize> {
        let (tuned, now) = (self.lock(), self.now());
        let own = self.handle.loads().into_iter().filter_map(|load| {
            let finding = tuned.tuners.get(&load.id)?.finding(now);
            Some(HandedOverSize::of(&load, finding))
        });
        let before = tuned.unclaimed.iter().map(|size| size.after(now - tuned.received_at));
        own.chain(before).take(MAX_HANDED_OVER_SIZES).collect()
    }

    /// Samples all pools once; returns the time until the next sample.
    fn sample_pools(&self) -> Duration {
        let mut tuned = self.lock();
        if !self.pools.tunes() {
            *tuned = Tuned::default();
            return MAX_SAMPLE_INTERVAL;
        }
        let Tuned { tuners, unclaimed, received_at } = &mut *tuned;
        let now = self.now();
        let loads = self.handle.loads();
        let present: HashSet<PoolId> = loads.iter().map(|load| load.id).collect();
        tuners.retain(|id, _| present.contains(id));
        let mut pause = MAX_SAMPLE_INTERVAL;
        for load in &loads {
            let Some(limits) = self.pools.tuner_limits(load.id) else {
                tuners.remove(&load.id);
                continue;
            };
            let tuner =
                tuners.entry(load.id).or_insert_with(|| new_tuner(load, limits, (&mut *unclaimed, *received_at), now));
            let bounded = (tuner.limits() != limits).then(|| tuner.set_limits(limits, now));
            for step in bounded.into_iter().chain(tuner.observe(&sample(load), now)) {
                let PoolLoad { protocol, database, user, .. } = load;
                tracing::info!(protocol, database, user, reason = step.reason.as_str(), "tuning: {step}");
            }
            if tuner.size() != load.max_size {
                tracing::debug!(database = load.database, from = load.max_size, to = tuner.size(), "tuning: resized");
                self.handle.resize(load.id, tuner.size());
            }
            pause = pause.min(limits.window / SAMPLES_PER_WINDOW);
        }
        pause.max(MIN_SAMPLE_INTERVAL)
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).expect("584 years fit"))
    }

    fn lock(&self) -> MutexGuard<'_, Tuned> {
        self.tuned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandedOverSize {
    fn of(load: &PoolLoad, finding: Finding) -> Self {
        let Finding { size, found, before, errors, hold, age } = finding;
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

    /// The same finding, older by `passed`.
    fn after(&self, passed: Duration) -> Self {
        Self { age_s: self.age_s.map(|age| age.saturating_add(passed.as_secs())), ..self.clone() }
    }

    fn finding(&self) -> Finding {
        Finding {
            size: self.size,
            found: self.found,
            before: self.before.unwrap_or(self.size),
            errors: self.errors.unwrap_or(0.0),
            hold: self.hold_us.map(Duration::from_micros),
            age: self.age_s.map_or(Duration::MAX, Duration::from_secs),
        }
    }
}

/// The tuner of a pool that has none yet, from the predecessor's finding if there is one; `received_at` is when that
/// came.
fn new_tuner(
    load: &PoolLoad,
    limits: Limits,
    (unclaimed, received_at): (&mut Vec<HandedOverSize>, Time),
    now: Time,
) -> Tuner {
    let Some(at) = unclaimed.iter().position(|size| size.is_of(load)) else { return Tuner::new(limits, load.max_size) };
    let finding = unclaimed.swap_remove(at).after(now - received_at).finding();
    let tuner = Tuner::resumed(limits, finding, now);
    let PoolLoad { protocol, database, user, .. } = load;
    let (servers, found) = (tuner.size(), tuner.state() == TunerState::Found);
    tracing::info!(protocol, database, user, servers, found, "tuning: goes on where the process before was");
    tuner
}

fn sample(load: &PoolLoad) -> Sample {
    Sample {
        completed: load.completed,
        held: load.held,
        granted: load.granted,
        waited: load.waited,
        errors: load.errors,
        in_use: load.counts.in_use,
        waiters: load.counts.waiters,
        pinned: load.pinned,
        is_working: load.fit,
        stopped_by_order: load.ordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { min: 1, max: 60, window: Duration::from_secs(4) };
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

    fn known(age: Duration) -> Finding {
        Finding { size: 32, found: true, before: 20, errors: 0.02, hold: Some(Duration::from_millis(7)), age }
    }

    /// What a process knows of a pool that comes `passed` after it has read `said`.
    fn later(said: &str, passed: Duration) -> Finding {
        let mut unclaimed: Vec<HandedOverSize> = serde_json::from_str(said).unwrap();
        let now = Time(5) + passed;
        let tuner = new_tuner(&load(), LIMITS, (&mut unclaimed, Time(5)), now);
        assert!(unclaimed.is_empty());
        tuner.finding(now)
    }

    #[test]
    fn a_handed_over_size_keeps_its_fallback_and_its_age() {
        let said = serde_json::to_string(&[HandedOverSize::of(&load(), known(HOUR / 2))]).unwrap();
        assert_eq!(later(&said, Duration::ZERO), known(HOUR / 2));
        assert_eq!(later(&said, HOUR / 2), known(HOUR));
    }

    #[test]
    fn an_old_finding_is_where_a_new_search_begins() {
        let said = serde_json::to_string(&[HandedOverSize::of(&load(), known(HOUR / 2))]).unwrap();
        let late = later(&said, 2 * HOUR);
        assert_eq!((late.size, late.found), (32, false));
        // It may have been handed on by a process in which the pool never was.
        let handed_on = [serde_json::from_str::<Vec<HandedOverSize>>(&said).unwrap()[0].after(2 * HOUR)];
        assert!(!later(&serde_json::to_string(&handed_on).unwrap(), Duration::ZERO).found);
    }

    #[test]
    fn fields_that_an_older_version_leaves_out_are_unknown() {
        let said = r#"[{"protocol":"postgres","database":"shop","user":"app","size":32,"found":true}]"#;
        let known = later(said, Duration::ZERO);
        assert_eq!((known.size, known.found, known.before), (32, false, 32));
    }
}
