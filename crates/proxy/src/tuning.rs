//! Shows each pool whose `max_size` is "auto" to a tuner of its own, and gives it the size that the tuner says. Each decision is logged; what
//! has been decided is kept for metrics and the admin address. Knows neither how a size is chosen nor any protocol.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use driver::{Handle, PoolLoad};
use pool::Time;
use protocol::PoolId;
use tuner::{Look, Tuner};

use crate::generations::Generations;

/// Looks at a pool in one window of its tuner, at least.
const LOOKS: u32 = 4;
/// The longest time between two looks, and the shortest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(50));

/// See the module.
pub struct Tuning {
    handle: Handle,
    pools: Arc<Generations>,
    began: Instant,
    /// One for each pool that is tuned, so at most as many as there are pools.
    tuners: Mutex<HashMap<PoolId, Tuner>>,
}

impl Tuning {
    /// Nothing is tuned before the first look.
    pub fn new(handle: Handle, pools: Arc<Generations>) -> Self {
        Self { handle, pools, began: Instant::now(), tuners: Mutex::default() }
    }

    /// Looks again and again. Waits for nobody in between but for the locks of pools.
    pub async fn go_on(&self) {
        loop {
            tokio::time::sleep(self.look()).await;
        }
    }

    /// The tuners of all pools that are tuned, as they are now.
    pub fn tuners(&self) -> HashMap<PoolId, Tuner> {
        self.lock().clone()
    }

    /// Looks at all pools once; tells after which time the next look is due.
    fn look(&self) -> Duration {
        let mut tuners = self.lock();
        if !self.pools.tunes() {
            tuners.clear();
            return PAUSES.0;
        }
        let now = Time(u64::try_from(self.began.elapsed().as_nanos()).expect("584 years fit"));
        let loads = self.handle.loads();
        tuners.retain(|id, _| loads.iter().any(|load| load.id == *id));
        let mut pause = PAUSES.0;
        for load in &loads {
            let Some(limits) = self.pools.tuning(load.id) else { continue };
            let tuner = tuners.entry(load.id).or_insert_with(|| Tuner::new(limits, load.max_size));
            if tuner.limits() != limits {
                tuner.set_limits(limits, now);
            }
            if let Some(step) = tuner.look(&seen(load), now) {
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

    fn lock(&self) -> MutexGuard<'_, HashMap<PoolId, Tuner>> {
        self.tuners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn seen(load: &PoolLoad) -> Look {
    Look {
        completed: load.completed,
        held: load.held,
        errors: load.errors,
        in_use: load.counts.in_use,
        waiters: load.counts.waiters,
        kept: load.pinned,
        fit: load.fit,
    }
}
