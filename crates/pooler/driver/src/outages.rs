//! Pools that could not connect, by where their servers are: as soon as one of them has, the others need not wait any
//! longer.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use seam::PoolId;

use crate::config::{Address, Hosts};

/// A pool stands here from a failure on until its upstream is reached, or the pool is forgotten.
#[derive(Default)]
pub(crate) struct Outages {
    pools: Mutex<HashMap<Address, BTreeSet<PoolId>>>,
    any: AtomicBool,
}

impl Outages {
    /// A pool could connect to none of its hosts.
    pub(crate) fn note(&self, pool: PoolId, hosts: &Hosts) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(true, Relaxed);
        for address in &hosts.addresses {
            match pools.get_mut(address) {
                Some(there) => _ = there.insert(pool),
                None => _ = pools.insert(address.clone(), BTreeSet::from([pool])),
            }
        }
    }

    /// Takes out a pool that could not connect to this host, because the host has let a server in.
    pub(crate) fn take_one(&self, address: &Address) -> Option<PoolId> {
        if !self.any.load(Relaxed) {
            return None;
        }
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let there = pools.get_mut(address)?;
        let pool = there.pop_first();
        if there.is_empty() {
            pools.remove(address);
        }
        self.any.store(!pools.is_empty(), Relaxed);
        pool
    }

    pub(crate) fn forget(&self, pool: PoolId) {
        if !self.any.load(Relaxed) {
            return;
        }
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|_, there| {
            there.remove(&pool);
            !there.is_empty()
        });
        self.any.store(!pools.is_empty(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_hear_once_that_their_host_is_back() {
        let [one, two] = ["one", "two"].map(|host| Address::Tcp { host: host.to_owned(), port: 5432 });
        let outages = Outages::default();
        assert!(outages.take_one(&one).is_none());
        outages.note(PoolId(1), &one.clone().into());
        outages.note(PoolId(2), &one.clone().into());
        outages.note(PoolId(3), &two.clone().into());
        outages.note(PoolId(4), &one.clone().into());
        outages.forget(PoolId(4));
        outages.forget(PoolId(3));
        let taken: Vec<_> = std::iter::from_fn(|| outages.take_one(&one)).collect();
        assert_eq!(taken, [PoolId(1), PoolId(2)]);
        assert!(outages.take_one(&one).is_none() && outages.take_one(&two).is_none());
    }
}
