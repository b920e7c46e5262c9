//! Which pool serves a client, and to which it counts: the directory is asked once, not for each request.

use std::sync::Arc;

use seam::{ClientTag, Effect, Outbox, PoolId};

use super::Client;
use crate::{Redis, Version};

/// What the directory has said of a client's pool: for this user in this database and version, as long as the
/// configuration is the same.
pub(super) struct Home {
    pool: PoolId,
    user: Arc<str>,
    database: u32,
    version: Version,
    epoch: u64,
}

impl Redis {
    /// The pool that serves the client in this logical database: asked for once, not for each request.
    #[inline]
    pub(super) fn pool_of(&self, client: &mut Client, database: u32) -> Result<PoolId, String> {
        let (version, epoch) = (client.version, self.directory.epoch());
        if let Some(home) = &client.home
            && (home.database, home.version, home.epoch) == (database, version, epoch)
            && home.user == client.user
        {
            return Ok(home.pool);
        }
        let pool = self.directory.route(&client.user, database, version)?;
        client.home = Some(Home { pool, user: Arc::clone(&client.user), database, version, epoch });
        Ok(pool)
    }

    /// The client is in another logical database, or speaks another version: it counts to the pool that serves it
    /// there.
    pub(super) fn count_anew(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        if client.counted.is_none() {
            return;
        }
        let Ok(pool) = self.pool_of(client, client.database) else { return };
        if client.counted != Some(pool) {
            client.counted = Some(pool);
            out.push(Effect::UsesPool { client: me, pool });
        }
    }
}
