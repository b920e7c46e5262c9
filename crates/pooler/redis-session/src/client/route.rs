//! Which pool serves a client. The directory is asked once, not for each request.

use std::sync::Arc;

use seam::{Outbox, PoolId};

use super::Client;
use crate::{Redis, Version};

/// The directory's answer for a user, a database and a version. It is valid for as long as the configuration is the
/// same.
pub(super) struct Route {
    pool: PoolId,
    user: Arc<str>,
    database: u32,
    version: Version,
    epoch: u64,
}

impl Redis {
    /// The pool that serves the client in this logical database. It is remembered.
    #[inline]
    pub(super) fn route(&self, client: &mut Client, database: u32) -> Result<PoolId, String> {
        let (user, version, epoch) = (client.identity.user(), client.settings.version(), self.directory.epoch());
        if let Some(route) = &client.route
            && (route.database, route.version, route.epoch) == (database, version, epoch)
            && route.user == *user
        {
            return Ok(route.pool);
        }
        let pool = self.directory.route(user, database, version)?;
        client.route = Some(Route { pool, user: Arc::clone(user), database, version, epoch });
        Ok(pool)
    }

    /// The pool that serves the client now. It is not remembered.
    pub(super) fn current_pool(&self, client: &Client) -> Result<PoolId, String> {
        self.directory.route(client.identity.user(), client.settings.database(), client.settings.version())
    }

    /// The client has selected another database, or speaks another version of the protocol: the pool that serves it now
    /// counts it.
    pub(super) fn update_counting_pool(&self, client: &mut Client, out: &mut Outbox) {
        if client.identity.counted_in().is_none() {
            return;
        }
        if let Ok(pool) = self.route(client, client.settings.database()) {
            client.identity.use_pool(client.tag, pool, out);
        }
    }
}
