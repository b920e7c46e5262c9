//! What clients are told beside the parameters of their servers: who serves them, where they expect PgBouncer.

use postgres_session::{Directory, PoolMode};
use seam::PoolId;

use super::ConfigPools;
use crate::compatibility::{Compatibility, PGBOUNCER_VERSION};

impl ConfigPools {
    pub(super) fn announced(&self, pool: PoolId) -> Vec<(String, String)> {
        if self.config.serve.compatible_with == Compatibility::Own {
            return Vec::new();
        }
        let login = self.server_login(pool);
        let mode = match login.mode {
            PoolMode::Transaction => "transaction",
            PoolMode::Session => "session",
            PoolMode::Statement => "statement",
            PoolMode::Dedicated => return Vec::new(),
        };
        let prepared = login.state.max_prepared.to_string();
        let told = [("version", PGBOUNCER_VERSION), ("max_prepared_statements", &prepared), ("pool_mode", mode)];
        told.map(|(name, value)| (format!("pgbouncer.{name}"), value.to_owned())).into()
    }
}
