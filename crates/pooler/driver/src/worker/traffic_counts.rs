//! What clients of each pool ask for and what they get: requests, their time, and bytes. A worker counts by itself, so
//! that no lock is taken and no clock is read for it, and adds its counts to those of the pools twice a second.

use std::time::Duration;

use pool::Time;
use seam::{PoolId, Protocol};

use super::Worker;
use crate::{by_pool::ByPool, reactor::Reactor, traffic::Traffic};

/// How often the counts are added to those of the pools.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(500);

/// The counts of a worker.
#[derive(Default)]
pub(super) struct TrafficCounts {
    pools: ByPool<Traffic>,
    next_publication: Time,
}

impl TrafficCounts {
    pub(super) fn add_query(&mut self, pool: PoolId, took: Duration) {
        let traffic = self.pools.entry(pool).or_default();
        traffic.queries += 1;
        traffic.query_ns += u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    }

    pub(super) fn add_received(&mut self, pool: PoolId, bytes: usize) {
        self.pools.entry(pool).or_default().received_bytes += bytes as u64;
    }

    pub(super) fn add_sent(&mut self, pool: PoolId, bytes: usize) {
        self.pools.entry(pool).or_default().sent_bytes += bytes as u64;
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Adds the counts to those of the pools, if it is time.
    pub(super) fn publish_traffic(&mut self) {
        if self.now >= self.traffic.next_publication {
            self.publish_traffic_now();
        }
    }

    pub(super) fn publish_traffic_now(&mut self) {
        self.traffic.next_publication = self.now + PUBLISH_INTERVAL;
        for (pool, traffic) in self.traffic.pools.drain() {
            // What a forgotten pool has counted since is lost with it.
            if let Some(pool) = self.pools.known(pool) {
                pool.lock().stats.on_traffic(&traffic);
            }
        }
    }
}
