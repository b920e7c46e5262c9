//! The answers to PostgreSQL's sessions, across configurations.

use std::sync::PoisonError;

use postgres_session::{
    Ask, CancelDealtWith, CheckOutcome, Directory, Encryption, ForeignCancel, ListenerRules, LoginAttempt, LoginCheck,
    Look, Proof, Route, ServerLogin, StartRequest, Unknown,
};
use seam::PoolId;

use super::LivePools;
use crate::login_checks::LoginChecks;

impl Directory for LivePools {
    fn encryption(&self, listener: u16) -> Encryption {
        let now = self.first.listen(listener).and_then(|listen| self.current().encryption_at(listen));
        now.unwrap_or_else(|| self.first.encryption(listener))
    }

    fn rules(&self, listener: u16) -> ListenerRules {
        let Some(listen) = self.first.listen(listener) else { return ListenerRules::default() };
        self.current().rules_at(listen).unwrap_or_else(|| self.first.rules(listener))
    }

    fn announcements(&self, pool: PoolId) -> Vec<(String, String)> {
        let entry = self.entry(pool);
        entry.pools.announcements(entry.id)
    }

    fn proof(&self, attempt: &LoginAttempt) -> Result<Proof, Unknown> {
        loop {
            let pools = self.current();
            match pools.proof(attempt)? {
                Proof::Ask(ask) => {
                    if let Some(pool) = self.find_or_add_id(&pools, ask.pool)? {
                        return Ok(Proof::Ask(Ask { pool, ..ask }));
                    }
                }
                proof => return Ok(proof),
            }
        }
    }

    fn note_lookup(&self, attempt: &LoginAttempt, stored: Option<&str>) -> Result<Proof, Unknown> {
        self.current().note_lookup(attempt, stored)
    }

    fn looks(&self, attempt: &LoginAttempt) -> Vec<Look> {
        self.current().looks(attempt)
    }

    fn begin_check(&self, check: LoginCheck) {
        self.begin_login_check(check);
    }

    fn finished_checks(&self) -> Vec<CheckOutcome> {
        self.checks.as_ref().map(LoginChecks::finished).unwrap_or_default()
    }

    fn hand_on_cancel(&self, cancel: ForeignCancel) {
        self.peers.as_ref().expect("a process that serves has a list of peers").hand_on(cancel);
    }

    fn handed_on_cancels(&self) -> Vec<CancelDealtWith> {
        self.peers.as_ref().map(|peers| peers.dealt_with()).unwrap_or_default()
    }

    fn note_refuted(&self, database: &str, user: &str) {
        self.current().note_refuted(database, user);
    }

    fn keeps_places(&self, database: &str) -> bool {
        self.current().keeps_places(database)
    }

    fn route(&self, database: &str, user: &str) -> Result<Route, Unknown> {
        let (route, pool) = self.find_or_add(|pools| pools.route(database, user), |route| route.pool)?;
        Ok(Route { pool, ..route })
    }

    fn dedicated_route(
        &self,
        database: &str,
        user: &str,
        request: &StartRequest<'_>,
    ) -> Result<Option<Route>, Unknown> {
        loop {
            let pools = self.current();
            let Some(route) = pools.dedicated_route(database, user, request)? else { return Ok(None) };
            if let Some(pool) = self.find_or_add_id(&pools, route.pool)? {
                return Ok(Some(Route { pool, ..route }));
            }
        }
    }

    fn note_catalogue(&self, pool: PoolId, suspicious: &[String]) {
        let entry = self.entry(pool);
        entry.pools.note_catalogue(entry.id, suspicious);
        let database = entry.pools.server_login(entry.id).database_id;
        let mut known = self.suspicious.write().unwrap_or_else(PoisonError::into_inner);
        if suspicious.is_empty() {
            known.remove(&database);
        } else {
            known.insert(database, suspicious.into());
        }
    }

    fn database_name(&self, pool: PoolId) -> String {
        let entry = self.entry(pool);
        entry.pools.database_name(entry.id)
    }

    fn server_login(&self, pool: PoolId) -> ServerLogin {
        let entry = self.entry(pool);
        entry.pools.server_login(entry.id)
    }
}
