//! Shows each pool whose `max_size` is "auto" to a tuner of its own, and gives it the size that the tuner says. Each decision is logged; what
//! has been decided is kept for metrics, for the admin address, and for the process that takes over. Knows neither how a size is chosen nor any
//! protocol.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use driver::{Handle, PoolLoad};
use pool::Time;
use protocol::PoolId;
use serde::{Deserialize, Serialize};
use tuner::{Known, Limits, Look, Tuner};

use crate::generations::Generations;

/// Looks at a pool in one window of its tuner, at least.
const LOOKS: u32 = 4;
/// The longest time between two looks, and the shortest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(50));

/// Most sizes that are handed over, so that they fit into a line of the hand-over.
const MAX_KEPT: usize = 1000;

/// What is known of a pool's size, for the process that takes over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kept {
    protocol: String,
    database: String,
    user: String,
    size: u32,
    found: bool,
}

/// See the module.
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
    /// What the process before knew, until the pool is there.
    kept: Vec<Kept>,
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
        self.lock().kept = kept;
    }

    /// What the process that takes over can go on with.
    pub fn known(&self) -> Vec<Kept> {
        let tuned = self.lock();
        let own = self.handle.loads().into_iter().filter_map(|load| {
            let known = tuned.tuners.get(&load.id)?.known();
            Some(Kept::of(&load, known))
        });
        own.chain(tuned.kept.iter().cloned()).take(MAX_KEPT).collect()
    }

    /// Looks at all pools once; tells after which time the next look is due.
    fn look(&self) -> Duration {
        let mut tuned = self.lock();
        if !self.pools.tunes() {
            *tuned = Tuned::default();
            return PAUSES.0;
        }
        let Tuned { tuners, kept } = &mut *tuned;
        let now = Time(u64::try_from(self.began.elapsed().as_nanos()).expect("584 years fit"));
        let loads = self.handle.loads();
        tuners.retain(|id, _| loads.iter().any(|load| load.id == *id));
        let mut pause = PAUSES.0;
        for load in &loads {
            let Some(limits) = self.pools.tuning(load.id) else { continue };
            let tuner = tuners.entry(load.id).or_insert_with(|| begun(load, limits, kept, now));
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

    fn lock(&self) -> MutexGuard<'_, Tuned> {
        self.tuned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn of(load: &PoolLoad, Known { size, found }: Known) -> Self {
        let PoolLoad { protocol, database, user, .. } = load;
        Self { protocol: (*protocol).to_owned(), database: database.clone(), user: user.clone(), size, found }
    }

    fn is_of(&self, load: &PoolLoad) -> bool {
        (self.protocol.as_str(), &self.database, &self.user) == (load.protocol, &load.database, &load.user)
    }
}

/// The tuner of a pool that has none yet.
fn begun(load: &PoolLoad, limits: Limits, kept: &mut Vec<Kept>, now: Time) -> Tuner {
    let Some(at) = kept.iter().position(|kept| kept.is_of(load)) else { return Tuner::new(limits, load.max_size) };
    let Kept { size, found, .. } = kept.swap_remove(at);
    let tuner = Tuner::resumed(limits, Known { size, found }, now);
    let PoolLoad { protocol, database, user, .. } = load;
    let servers = tuner.size();
    tracing::info!(protocol, database, user, servers, found, "tuning: goes on where the process before was");
    tuner
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
