//! What the protocol of MongoDB asks, through all configurations.

use std::{sync::Arc, time::Duration};

use mongodb::{Directory, ServerLogin, Verifier, Welcome};
use protocol::{Encryption, Origin, PoolId};

use super::Generations;
use crate::pools::redis::reason;

impl Directory for Generations {
    fn encryption(&self, listener: u16) -> Encryption {
        postgres::Directory::encryption(self, listener)
    }

    fn welcome(&self, origin: Origin) -> Welcome {
        self.current().welcome(origin)
    }

    fn verifier(&self, user: &str) -> Option<Arc<Verifier>> {
        self.current().verifier(user)
    }

    fn hosts(&self) -> usize {
        self.current().hosts()
    }

    fn replica_set(&self) -> Option<Arc<str>> {
        self.current().replica_set()
    }

    fn patience(&self) -> Duration {
        self.current().patience()
    }

    fn route(&self, user: &str, host: usize) -> Result<PoolId, String> {
        let pools = self.current();
        let pool = Directory::route(&*pools, user, host)?;
        self.known_as(&pools, pool).map_err(reason)
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let entry = self.entry(pool);
        Directory::server_login(&*entry.pools, entry.id)
    }
}
