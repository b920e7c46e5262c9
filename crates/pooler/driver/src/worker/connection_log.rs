//! Lines of the log about clients that come and go, and about databases that are lost and come back. Decides nothing.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::Time;
use seam::{Blame, CloseReason, Protocol};

use super::Worker;
use crate::{client_state::State, reactor::Reactor, shared_pool::SharedPool};

/// Seconds, to the millisecond.
fn in_log(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

/// How a client's connection came to its end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The client closed it, or it broke.
    #[default]
    Gone,
    /// The client said goodbye, or all was said.
    Done,
    /// For what the client did.
    ClientError,
    /// Another error, which another line of the log names.
    Error,
}

impl End {
    pub(super) fn of(reason: &CloseReason) -> Self {
        match reason {
            CloseReason::Goodbye | CloseReason::Done => Self::Done,
            CloseReason::Error(Blame::Client, _) => Self::ClientError,
            _ => Self::Error,
        }
    }

    /// Whether the connection ended with an error, which the client was told.
    pub(super) fn is_error(self) -> bool {
        matches!(self, Self::ClientError | Self::Error)
    }

    fn text(self) -> &'static str {
        match self {
            Self::Gone => "the client closed the connection",
            Self::Done => "the client ended the session",
            Self::ClientError => "an error of the client",
            Self::Error => "an error",
        }
    }
}

/// What the last line about a client says.
#[derive(Clone, Default)]
pub(super) struct ConnectionLog {
    /// The client's address, for when its connection is broken and no longer tells it. `None` on a Unix socket.
    pub(super) peer: Option<(IpAddr, u16)>,
    /// The database and the user that the client asked for. After the login `None` unless its servers log in as
    /// another user, which is rare.
    pub(super) login: Option<Box<(String, String)>>,
    /// How often the client became busy after it had been idle.
    requests: u32,
    pub(super) tls: bool,
    /// The client has logged in. Later logins of the same connection are not logged.
    pub(super) connected: bool,
    /// The login has failed, and the client is closed for that. The reason is logged then.
    pub(super) login_failed: bool,
    pub(super) end: End,
}

impl ConnectionLog {
    pub(super) fn new(peer: Option<(IpAddr, u16)>) -> Self {
        Self { peer, ..Self::default() }
    }

    /// The user that the client asked for, during its login.
    pub(super) fn login_user(&self) -> Option<&str> {
        self.login.as_ref().map(|login| login.1.as_str())
    }

    /// It goes from one state to another.
    pub(super) fn note_state(&mut self, from: State, to: State) {
        let busy = matches!(to, State::Active | State::Waiting | State::Transaction);
        self.requests = self.requests.saturating_add(u32::from(from == State::Idle && busy));
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A client asks for a database, as a user.
    pub(super) fn on_login_request(&mut self, slot: usize, login: Box<(String, String)>) {
        let Some(client) = self.clients.get_mut(slot) else { return };
        if self.process.logged.load().attempts {
            let (database, user) = &*login;
            let tls = client.log.tls;
            tracing::info!(client = %self.client_address(slot), database, user, tls, "login attempt");
        }
        self.clients[slot].log.login = Some(login);
    }

    /// A client has logged in.
    pub(super) fn log_connected(&mut self, slot: usize) {
        let of_servers = self.user(slot);
        self.clients[slot].log.login.take_if(|login| login.1 == of_servers);
        if !self.process.logged.load().logins {
            return;
        }
        let client = &self.clients[slot];
        let listener = &self.process.listeners[usize::from(client.listener)];
        let took = self.now - client.born;
        tracing::info!(
            client = %self.client_address(slot), database = %self.database(slot), user = %self.user(slot),
            listener = %listener.name, protocol = listener.protocol, tls = client.log.tls,
            took_ms = took.as_millis() as u64,
            "client connected"
        );
    }

    /// The connection of a client is about to be closed.
    pub(super) fn log_disconnected(&self, slot: usize) {
        let client = &self.clients[slot];
        if !self.process.logged.load().ends || client.pool.is_none() {
            return;
        }
        let listener = &self.process.listeners[usize::from(client.listener)];
        let reason = client.sent_away.map_or_else(|| client.log.end.text(), |sent| sent.label());
        tracing::info!(
            client = %self.client_address(slot), database = %self.database(slot), user = %self.user(slot),
            listener = %listener.name, protocol = listener.protocol, tls = client.log.tls,
            lasted_s = self.age_in_log(slot), requests = client.log.requests, reason,
            "client disconnected"
        );
    }

    /// For how long a client has been connected, in seconds.
    pub(super) fn age_in_log(&self, slot: usize) -> f64 {
        in_log(self.now - self.clients[slot].born)
    }

    /// A login has failed. If the session has closed the client for that, one line reports both.
    pub(super) fn on_login_failed(&mut self, slot: usize) {
        match self.clients[slot].life.is_closing() {
            true => self.clients[slot].log.login_failed = true,
            false => self.log_login_failed(slot, None),
        }
    }

    pub(super) fn log_login_failed(&mut self, slot: usize, reason: Option<&str>) {
        if self.process.logged.load().errors
            && let Some(withheld) = self.paces.auth_failed.take_line(self.now)
        {
            let listener = &self.process.listeners[usize::from(self.clients[slot].listener)].name;
            tracing::info!(
                withheld, client = %self.client_address(slot), database = %self.database(slot), user = %self.user(slot),
                %listener, reason, lasted_s = self.age_in_log(slot), "a login has failed"
            );
        }
    }

    /// No connection of a pool works, and none can be made, since then.
    pub(super) fn log_database_lost(&mut self, pool: &Arc<SharedPool>, since: Option<Time>) {
        let Some(since) = since else { return };
        if pool.lost_at.swap(since.0.max(1), Relaxed) != 0 {
            return;
        }
        if let Some(withheld) = self.paces.database_lost.take_line(self.now) {
            let (spec, error) = (pool.spec(), pool.last_error());
            let (database, user, error) = (&spec.database, &spec.user, error.as_deref().unwrap_or_default());
            tracing::error!(
                withheld, %database, %user, error,
                "the database is out of reach; trying again until it is back"
            );
        }
    }

    /// A connection of a pool has been made.
    pub(super) fn log_database_back(&mut self, pool: &Arc<SharedPool>) {
        if pool.lost_at.load(Relaxed) == 0 {
            return;
        }
        let away: Duration = self.now - Time(pool.lost_at.swap(0, Relaxed));
        if let Some(withheld) = self.paces.database_lost.take_line(self.now) {
            let spec = pool.spec();
            tracing::warn!(
                withheld, database = %spec.database, user = %spec.user, away_s = in_log(away),
                "the database is back"
            );
        }
    }
}
