//! Clients of PostgreSQL that get a dedicated server: which ones, how it logs in, and the limits of such servers. All
//! clients of a pool ask for the same start-up parameters, so any of its servers fits each of them.

use std::time::Duration;

use ::pool::PoolConfig;
use console::Role;
use driver::{ClientRank, PoolSpec, PoolTimeouts};
use postgres_session::{PoolMode, Rejection, ResetPolicy, Route, ServerLogin, StartRequest, StatePolicy, Unknown};
use seam::PoolId;
use settings::Secret;

use super::{ConfigPools, Entry, Key};
use crate::config::Database;

/// A server whose client has left before it was ready waits this long for another client.
const MAX_IDLE_TIME: Duration = Duration::from_secs(1);

/// A pool without clients is forgotten after this time, because clients choose the parameters that identify it.
const FORGET_AFTER: Duration = Duration::from_secs(5);

impl ConfigPools {
    /// See [`Directory::dedicated_route`](postgres_session::Directory::dedicated_route).
    pub(super) fn find_dedicated_route(
        &self,
        database: &str,
        user: &str,
        request: &StartRequest<'_>,
    ) -> Result<Option<Route>, Unknown> {
        let index = self.database(database).ok_or(Unknown::Database)?;
        let configured = &self.config.databases[index];
        if request.replication.is_none() && !configured.is_console {
            return Ok(None);
        }
        if configured.is_console && request.replication.is_some() {
            // Rules for replication say how the client logged in, not those for the console.
            return Err(Unknown::Forbidden("The console has no replication.".to_owned()));
        }
        let is_owner = configured.is_console && self.config.owns_console(user, &request.origin);
        if configured.is_console && !is_owner && self.config.console_role(user).is_none() {
            return Err(Unknown::Rejected(Rejection::Console));
        }
        let server_user = configured.user.as_deref().unwrap_or(user);
        let replication = request.replication.map(|value| ("replication".to_owned(), value.to_owned()));
        let parameters = match configured.is_console {
            // Nothing of what the client sends, so that only the console's own parameter can be there.
            true => is_owner.then(|| (console::OWNER_PARAMETER.to_owned(), "1".to_owned())).into_iter().collect(),
            false => replication.iter().chain(request.settings).cloned().collect(),
        };
        let key = Key::Dedicated {
            database: database.into(),
            user: server_user.into(),
            replication: replication.is_some(),
            parameters,
        };
        let pool = self.find_or_add_pool_for(index, key, Some(user))?;
        let pass_through = server_user == user && self.server_password(index, user).is_none();
        Ok(Some(Route { pool, mode: PoolMode::Dedicated, pass_through, add_host: false }))
    }

    pub fn is_dedicated(&self, pool: PoolId) -> bool {
        matches!(self.entry(pool).0.key, Key::Dedicated { .. })
    }

    /// How a dedicated server logs in, if the pool is of such servers.
    pub(super) fn dedicated_login(&self, entry: &Entry, database: &Database) -> Option<ServerLogin> {
        let Key::Dedicated { database: name, user, parameters: own, .. } = &entry.key else { return None };
        let text = |secret: Secret| std::sync::Arc::clone(secret.reveal());
        let overridden = |name: &str| own.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let general = database.parameters.iter().filter(|(name, _)| !overridden(name));
        Some(ServerLogin {
            database: database.database.clone().unwrap_or_else(|| name.to_string()),
            user: user.to_string(),
            password: self.server_password(entry.database, user).map(text),
            md5_hash: self.stored(entry.database, user).and_then(|stored| stored.md5().cloned()).map(text),
            parameters: general.chain(own.iter()).cloned().collect(),
            mode: PoolMode::Dedicated,
            // Its client keeps what it leaves there.
            state: StatePolicy { reset: ResetPolicy::Never, ..StatePolicy::default() },
            target: database.target,
            encryption: dial::encryption(&database.hosts, &database.tls),
            ..ServerLogin::default()
        })
    }

    /// The driver's view of a pool of dedicated servers. Those of the console count for nothing.
    pub(super) fn dedicated_spec(&self, entry: &Entry, database: &Database) -> PoolSpec {
        let settings = self.settings(database, entry.key.user());
        let mut spec = self.plain_spec(entry, database);
        spec.config = PoolConfig {
            min_size: 0,
            min_size_once_connected: true,
            max_size: settings.max_replication_size,
            reserve_size: 0,
            max_idle_time: Some(MAX_IDLE_TIME),
            max_life_time: None,
            check_after_idle: None,
            ..settings.config
        };
        spec.forget_after = Some(FORGET_AFTER);
        // A base backup takes as long as the database is large.
        spec.timeouts = PoolTimeouts { query: Some(None), transaction: Some(None), ..settings.timeouts };
        if database.is_console {
            spec.config.max_size = 0;
            spec.timeouts = PoolTimeouts {
                client_idle: Some(None),
                query: Some(None),
                transaction_idle: Some(None),
                transaction: Some(None),
            };
            spec.caps.clear();
            spec.hidden = true;
            let is_owners = matches!(&entry.key, Key::Dedicated { parameters, .. } if !parameters.is_empty());
            spec.client_rank = match self.config.console_role(entry.key.user()) {
                _ if is_owners => ClientRank::Operator,
                Some(Role::Admin) => ClientRank::Operator,
                Some(Role::Viewer) => ClientRank::Viewer,
                None => ClientRank::Application,
            };
        }
        spec
    }
}
