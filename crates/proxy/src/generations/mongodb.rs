//! What the protocol of MongoDB asks, through all configurations. A host has a number that it keeps for as long as this process lives,
//! whatever configuration comes: cursors, transactions and what is known of a host hang on it.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use mongodb::{Directory, ServerLogin, Verifier, Welcome};
use protocol::{Encryption, Origin, PoolId};

use super::Generations;
use crate::pools::redis::reason;

/// The names of hosts, in the order in which they were first heard of: the place is the number.
pub(super) type Hosts = Vec<Arc<str>>;

impl Generations {
    fn host_names(&self) -> MutexGuard<'_, Hosts> {
        self.mongodb_hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(hosts: &mut Hosts, name: &str) -> usize {
    hosts.iter().position(|host| **host == *name).unwrap_or_else(|| {
        hosts.push(name.into());
        hosts.len() - 1
    })
}

impl Directory for Generations {
    fn encryption(&self, listener: u16) -> Encryption {
        postgres::Directory::encryption(self, listener)
    }

    fn welcome(&self, origin: Origin) -> Welcome {
        self.current().mongodb_welcome(origin)
    }

    fn verifier(&self, user: &str) -> Option<Arc<Verifier>> {
        self.current().mongodb_verifier(user)
    }

    fn hosts(&self) -> Vec<usize> {
        let names = self.current().mongodb_hosts();
        let mut hosts = self.host_names();
        names.iter().map(|name| number(&mut hosts, name)).collect()
    }

    fn max_greeters(&self) -> u32 {
        self.current().mongodb_max_greeters()
    }

    fn replica_set(&self) -> Option<Arc<str>> {
        self.current().mongodb_replica_set()
    }

    fn shares_login(&self) -> bool {
        self.current().mongodb_shares_login()
    }

    fn local_threshold(&self) -> Duration {
        self.current().mongodb_local_threshold()
    }

    fn patience(&self) -> Duration {
        self.current().mongodb_patience()
    }

    fn route(&self, user: &str, host: usize) -> Result<PoolId, String> {
        let name = self.host_names().get(host).cloned().ok_or("there is no such host")?;
        let pools = self.current();
        let pool = pools.mongodb_route(user, &name)?;
        self.known_as(&pools, pool).map_err(reason)
    }

    fn max_wait(&self, pool: PoolId) -> Option<Duration> {
        let entry = self.entry(pool);
        entry.pools.mongodb_max_wait(entry.id)
    }

    fn max_pinned(&self, pool: PoolId) -> u32 {
        let entry = self.entry(pool);
        entry.pools.mongodb_max_pinned(entry.id)
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let entry = self.entry(pool);
        let (name, login) = entry.pools.mongodb_login(entry.id);
        ServerLogin { host: number(&mut self.host_names(), &name), ..login }
    }
}
