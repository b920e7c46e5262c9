//! The answers to PostgreSQL's sessions: who may log in, which pool serves a client, and how Poolhouse itself logs in.

use std::{sync::Arc, time::Instant};

use postgres_session::{
    CancelDealtWith, CheckOutcome, Directory, Encryption, ForeignCancel, ListenerRules, LoginAttempt, LoginCheck, Look,
    PoolMode, Proof, ResetPolicy, Route, ServerLogin, StartRequest, StatePolicy, Unknown,
};
use seam::PoolId;
use settings::Secret;

use super::{ConfigPools, Key, Lookups};
use crate::config::{Mode, PoolSettings, Reset};

/// Functions that a line of the log names.
const MAX_LOGGED_FUNCTIONS: usize = 10;

impl Directory for ConfigPools {
    fn encryption(&self, listener: u16) -> Encryption {
        self.listen(listener).and_then(|listen| self.encryption_at(listen)).unwrap_or_default()
    }

    fn rules(&self, listener: u16) -> ListenerRules {
        self.config.listeners.get(usize::from(listener)).map(|listener| listener.rules.clone()).unwrap_or_default()
    }

    fn announcements(&self, pool: PoolId) -> Vec<(String, String)> {
        self.announced(pool)
    }

    fn proof(&self, attempt: &LoginAttempt) -> Result<Proof, Unknown> {
        self.find_proof(attempt)
    }

    fn note_lookup(&self, attempt: &LoginAttempt, stored: Option<&str>) -> Result<Proof, Unknown> {
        self.prove_looked_up(attempt, stored)
    }

    fn looks(&self, attempt: &LoginAttempt) -> Vec<Look> {
        self.looks_of(attempt)
    }

    fn begin_check(&self, _: LoginCheck) {
        unreachable!("the pools in force have logins checked")
    }

    fn finished_checks(&self) -> Vec<CheckOutcome> {
        Vec::new()
    }

    fn hand_on_cancel(&self, _: ForeignCancel) {
        unreachable!("the pools in force have cancel requests handed on")
    }

    fn handed_on_cancels(&self) -> Vec<CancelDealtWith> {
        Vec::new()
    }

    fn note_refuted(&self, database: &str, user: &str) {
        if let Some(lookups) = self.lookups(database) {
            lookups.known.note_refuted(user, Instant::now());
        }
    }

    fn keeps_places(&self, database: &str) -> bool {
        self.database(database).is_some_and(|index| self.config.databases[index].is_console)
    }

    fn route(&self, database: &str, user: &str) -> Result<Route, Unknown> {
        let index = self.database(database).ok_or(Unknown::Database)?;
        let configured = &self.config.databases[index];
        let server_user = configured.user.as_deref().unwrap_or(user);
        let key = Key::Postgres { database: database.into(), user: server_user.into() };
        let pool = self.find_or_add_pool_for(index, key, Some(user))?;
        let pass_through = server_user == user && self.server_password(index, user).is_none();
        let settings = self.settings(configured, server_user);
        Ok(Route { pool, mode: mode(settings.mode), pass_through, add_host: settings.application_name_add_host })
    }

    fn dedicated_route(
        &self,
        database: &str,
        user: &str,
        request: &StartRequest<'_>,
    ) -> Result<Option<Route>, Unknown> {
        self.find_dedicated_route(database, user, request)
    }

    fn note_catalogue(&self, id: PoolId, suspicious: &[String]) {
        let (entry, _) = self.entry(id);
        let (database, user) = (entry.key.label(), entry.key.user());
        if suspicious.is_empty() {
            tracing::info!(
                %database, %user,
                "nothing in this database can touch a session behind the text of a statement"
            );
            return;
        }
        let mut shown = suspicious.iter().take(MAX_LOGGED_FUNCTIONS).cloned().collect::<Vec<_>>().join(", ");
        if suspicious.len() > MAX_LOGGED_FUNCTIONS {
            shown.push_str(&format!(" and {} more (see /api/pools)", suspicious.len() - MAX_LOGGED_FUNCTIONS));
        }
        tracing::warn!(
            %database, %user, functions = %shown,
            "servers are cleaned whenever they change hands, because something in this database could touch a session \
             behind the text of a statement; name in trusted_functions what is harmless"
        );
    }

    fn database_name(&self, pool: PoolId) -> String {
        self.entry(pool).0.key.label()
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let (entry, database) = self.entry(pool);
        let text = |secret: Secret| Arc::clone(secret.reveal());
        if let Some(Lookups { auth, database: name, .. }) = self.lookups_of(&entry) {
            let own = || self.user(entry.key.user())?.password.as_ref()?.plain().cloned();
            let of_database = || database.password.clone().filter(|_| database.user.as_ref() == Some(&auth.user));
            return ServerLogin {
                database: name.clone(),
                user: entry.key.user().to_string(),
                password: auth.password.clone().or_else(own).or_else(of_database).map(text),
                parameters: database.parameters.clone(),
                encryption: dial::encryption(&database.hosts, &database.tls),
                // Only Poolhouse itself runs statements there.
                state: StatePolicy { reset: ResetPolicy::Never, ..StatePolicy::default() },
                ..ServerLogin::default()
            };
        }
        if let Some(login) = self.dedicated_login(&entry, database) {
            return login;
        }
        let user = entry.key.user();
        let md5_hash = || self.stored(entry.database, user)?.md5().cloned();
        let settings = self.settings(database, user);
        let name = database.database.clone().unwrap_or_else(|| entry.key.label());
        ServerLogin {
            database: name.clone(),
            user: user.to_string(),
            password: self.server_password(entry.database, user).map(text),
            md5_hash: md5_hash().map(text),
            parameters: database.parameters.clone(),
            connect_query: database.pool.connect_query.clone(),
            database_id: format!(
                "{:?} {:?} {:?} {}",
                database.hosts,
                name,
                settings.trusted_functions,
                matches!(settings.mode, Mode::Session)
            )
            .into(),
            trusted_functions: settings.trusted_functions.clone(),
            mode: mode(settings.mode),
            state: state_policy(&settings, self.smallest_cap(database, user)),
            target: database.target,
            encryption: dial::encryption(&database.hosts, &database.tls),
        }
    }
}

fn mode(mode: Mode) -> PoolMode {
    match mode {
        Mode::Transaction => PoolMode::Transaction,
        Mode::Session => PoolMode::Session,
        Mode::Statement => PoolMode::Statement,
    }
}

/// `smallest_cap` is the smallest limit that the pool shares with others.
fn state_policy(settings: &PoolSettings, smallest_cap: u32) -> StatePolicy {
    let state = &settings.state;
    StatePolicy {
        on_state: state.on_session_state,
        reset: match state.reset {
            Reset::Auto => ResetPolicy::Auto,
            Reset::Always => ResetPolicy::Always,
            Reset::Never => ResetPolicy::Never,
        },
        max_pinned: settings.max_pinned(smallest_cap),
        // One that listens for all must leave one for everything else.
        share_listener: settings.max_servers_within(smallest_cap) > 1,
        max_prepared: state.max_prepared_statements.unwrap_or(StatePolicy::default().max_prepared),
    }
}
