//! Which pools could not connect, by where their servers are: as soon as one of them has, the others need not wait any longer. Tries nothing.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use protocol::PoolId;

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

    /// A host has let a server in. Returns the pools that could not connect there.
    pub(crate) fn end(&self, address: &Address) -> BTreeSet<PoolId> {
        if !self.any.load(Relaxed) {
            return BTreeSet::new();
        }
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let there = pools.remove(address).unwrap_or_default();
        self.any.store(!pools.is_empty(), Relaxed);
        there
    }

    /// A pool is gone.
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
        assert!(outages.end(&one).is_empty());
        outages.note(PoolId(1), &one.clone().into());
        outages.note(PoolId(2), &one.clone().into());
        outages.note(PoolId(3), &two.clone().into());
        outages.note(PoolId(4), &one.clone().into());
        outages.forget(PoolId(4));
        outages.forget(PoolId(3));
        assert!(outages.end(&one).into_iter().eq([PoolId(1), PoolId(2)]));
        assert!(outages.end(&one).is_empty() && outages.end(&two).is_empty());
    }
}
