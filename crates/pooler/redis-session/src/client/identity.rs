//! Who a client is, and whether it has logged in.

use std::sync::Arc;

use seam::{ClientTag, Effect, Outbox, PoolId};

#[derive(Debug)]
pub(super) struct Identity {
    /// Empty where no login is required.
    user: Arc<str>,
    counted_in: Option<PoolId>,
    requires_login: bool,
    is_authenticated: bool,
    /// The client has its turn among clients that log in (`Standing::Login`).
    is_logging_in: bool,
}

impl Identity {
    /// A client that has to log in. `speaks_http`: it does so by the tokens of its requests.
    pub(super) fn unauthenticated(speaks_http: bool) -> Self {
        Self {
            user: Arc::from(""),
            counted_in: None,
            requires_login: true,
            is_authenticated: false,
            is_logging_in: !speaks_http,
        }
    }

    pub(super) fn waive_login(&mut self) {
        self.requires_login = false;
    }

    pub(super) fn user(&self) -> &Arc<str> {
        &self.user
    }

    pub(super) fn user_name(&self) -> &str {
        if self.user.is_empty() { "default" } else { &self.user }
    }

    pub(super) fn requires_login(&self) -> bool {
        self.requires_login
    }

    pub(super) fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    pub(super) fn is_logging_in(&self) -> bool {
        self.is_logging_in
    }

    pub(super) fn counted_in(&self) -> Option<PoolId> {
        self.counted_in
    }

    /// The client takes its turn among clients that log in. False if it has it already.
    pub(super) fn begin_login(&mut self) -> bool {
        !std::mem::replace(&mut self.is_logging_in, true)
    }

    /// The client is this user from now on, and this pool counts it.
    pub(super) fn log_in(&mut self, me: ClientTag, user: Arc<str>, pool: PoolId, out: &mut Outbox) {
        let is_same = self.counted_in.is_some() && self.user == user;
        (self.user, self.is_authenticated, self.is_logging_in) = (user, true, false);
        if is_same {
            self.use_pool(me, pool, out);
        } else {
            self.counted_in = Some(pool);
            out.push(Effect::LoggedIn { client: me, pool, user: Arc::clone(&self.user) });
        }
    }

    /// Another pool may serve the client from now on, and then counts it. Nothing changes before the login.
    pub(super) fn use_pool(&mut self, me: ClientTag, pool: PoolId, out: &mut Outbox) {
        if self.counted_in.is_some_and(|before| before != pool) {
            self.counted_in = Some(pool);
            out.push(Effect::UsesPool { client: me, pool });
        }
    }

    /// RESET: the client has to log in again, if a login is required.
    pub(super) fn log_out(&mut self) {
        self.is_authenticated = !self.requires_login;
    }
}
