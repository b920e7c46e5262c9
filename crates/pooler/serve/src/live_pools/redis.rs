//! [`Directory`] of Redis' sessions, across configurations.

use std::sync::{Arc, atomic::Ordering::Acquire};

use redis_session::{Access, Directory, HttpRules, OverRate, ServerLogin, Version, Welcome};
use seam::{Encryption, Origin, PoolId};

use super::LivePools;
use crate::pools::redis::reason;

impl Directory for LivePools {
    fn encryption(&self, listener: u16) -> Encryption {
        postgres_session::Directory::encryption(self, listener)
    }

    fn welcome(&self, origin: Origin) -> Welcome {
        self.current().welcome(origin)
    }

    fn is_password(&self, user: &str, password: &[u8]) -> bool {
        self.current().is_password(user, password)
    }

    fn route(&self, user: &str, database: u32, version: Version) -> Result<PoolId, String> {
        let found = self.find_or_add(|pools| pools.redis_route(user, database, version), |id| *id);
        found.map(|(_, known)| known).map_err(reason)
    }

    fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    fn http(&self, listener: u16) -> Option<Arc<HttpRules>> {
        // A listener goes on speaking what it was opened with.
        let before = self.first.http(listener)?;
        let listen = self.first.listen(listener).expect("its rules were just found");
        Some(self.current().http_at(listen).unwrap_or(before))
    }

    fn access(&self, token: &[u8]) -> Option<Arc<Access>> {
        self.current().access(token)
    }

    fn renewed(&self, access: &Access) -> Option<Arc<Access>> {
        self.current().renewed(access)
    }

    fn spend(&self, access: &Access, commands: u32) -> Result<(), OverRate> {
        self.current().spend(access, commands)
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let entry = self.entry(pool);
        entry.pools.server_login(entry.id)
    }
}
