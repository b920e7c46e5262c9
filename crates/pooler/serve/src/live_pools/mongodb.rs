//! [`Directory`] of MongoDB's sessions, across configurations. A host keeps its number for the life of the process:
//! cursors, transactions and the host's description refer to it.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    time::Duration,
};

use mongodb_session::{Directory, ServerLogin, Verifiers, Welcome};
use seam::{Encryption, Origin, PoolId};

use super::LivePools;
use crate::pools::{ConfigPools, redis::reason};

/// The names of hosts; a host's number is its index.
pub(super) type Hosts = Vec<Arc<str>>;

impl LivePools {
    fn host_names(&self) -> MutexGuard<'_, Hosts> {
        self.mongodb_hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of a host, which is added if it has none.
fn find_or_add_host(hosts: &mut Hosts, name: &str) -> usize {
    hosts.iter().position(|host| **host == *name).unwrap_or_else(|| {
        hosts.push(name.into());
        hosts.len() - 1
    })
}

impl Directory for LivePools {
    fn encryption(&self, listener: u16) -> Encryption {
        postgres_session::Directory::encryption(self, listener)
    }

    fn welcome(&self, origin: Origin) -> Welcome {
        self.current().mongodb_welcome(origin)
    }

    fn verifiers(&self, user: &str) -> Option<Verifiers> {
        self.current().mongodb_verifiers(user)
    }

    fn hosts(&self) -> Vec<usize> {
        let names = self.current().mongodb_hosts();
        let mut hosts = self.host_names();
        names.iter().map(|name| find_or_add_host(&mut hosts, name)).collect()
    }

    fn host_name(&self, host: usize) -> Arc<str> {
        self.host_names().get(host).cloned().unwrap_or_default()
    }

    fn lists_members(&self) -> bool {
        self.current().mongodb_lists_members()
    }

    fn note_unlisted(&self, member: &str) {
        tracing::warn!(
            "the replica set has a member {} that the database's URL does not list: nothing is sent there, \
             and if it becomes the primary, writes fail; list it in the URL",
            member.escape_debug()
        );
    }

    fn note_expired_cleanup(&self, pool: PoolId, count: usize) {
        let Some((host, _)) = self.look_at(pool, ConfigPools::mongodb_login) else { return };
        tracing::warn!(
            %host, count,
            "cursors, transactions or sessions that clients have left at this host were not ended, \
             since no connection to it could be had for too long: it ends by itself what nobody uses"
        );
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

    fn unavailable_wait(&self) -> Duration {
        self.current().mongodb_unavailable_wait()
    }

    fn route(&self, user: &str, host: usize) -> Result<PoolId, String> {
        let name = self.host_names().get(host).cloned().ok_or("there is no such host")?;
        let found = self.find_or_add(|pools| pools.mongodb_route(user, &name), |id| *id);
        found.map(|(_, known)| known).map_err(reason)
    }

    fn is_configured(&self, pool: PoolId) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.entries.get(&pool).is_some_and(|entry| Arc::ptr_eq(&entry.pools, &table.current))
    }

    fn max_wait(&self, pool: PoolId) -> Option<Duration> {
        self.look_at(pool, ConfigPools::mongodb_max_wait)?
    }

    fn max_pinned(&self, pool: PoolId) -> u32 {
        // The client of a pool that has just been forgotten gets another pool before it asks for a server.
        self.look_at(pool, ConfigPools::mongodb_max_pinned).unwrap_or(u32::MAX)
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let entry = self.entry(pool);
        let (name, login) = entry.pools.mongodb_login(entry.id);
        ServerLogin { host: find_or_add_host(&mut self.host_names(), &name), ..login }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Tls, pools::ConfigPools, read::from_text};

    fn of(url: &str) -> ConfigPools {
        let text = format!("[[database]]\nurl = \"{url}\"\n");
        let config = from_text(Path::new("p.toml"), &text, &|_| None).unwrap();
        let tls = Tls::load(&config).unwrap();
        ConfigPools::new(Arc::new(config), Arc::new(tls))
    }

    #[test]
    fn a_pool_is_configured_while_its_host_is() {
        let pools = LivePools::new(of("mongodb://a,b/?replicaSet=rs"));
        let hosts = Directory::hosts(&pools);
        let [one, other] = [hosts[0], hosts[1]].map(|host| Directory::route(&pools, "", host).unwrap());
        assert!(pools.is_configured(one) && pools.is_configured(other));
        pools.make_current(of("mongodb://b,c/?replicaSet=rs"));
        assert!(!pools.is_configured(one) && pools.is_configured(other));
        assert_eq!(Directory::route(&pools, "", hosts[1]), Ok(other));
        pools.make_current(of("mongodb://a,b/?replicaSet=rs"));
        assert!(pools.is_configured(one), "it is back");
        assert_eq!(Directory::route(&pools, "", hosts[0]), Ok(one));
    }

    #[test]
    fn a_url_lists_the_members_of_a_set_unless_it_means_the_host_itself() {
        let lists = |url: &str| LivePools::new(of(url)).lists_members();
        assert!(lists("mongodb://a/?replicaSet=rs") && lists("mongodb://a,b"));
        assert!(!lists("mongodb://a") && !lists("mongodb://a/?replicaSet=rs&directConnection=true"));
        let pools = LivePools::new(of("mongodb://a,b:7"));
        let names: Vec<_> = Directory::hosts(&pools).into_iter().map(|host| pools.host_name(host)).collect();
        assert_eq!(names, ["a:27017", "b:7"].map(Arc::<str>::from));
    }
}
