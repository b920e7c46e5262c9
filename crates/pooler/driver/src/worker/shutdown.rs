//! How a worker ends: it stops accepting, sends clients away, and ends when the last has gone or its time is up.

use std::{
    sync::atomic::Ordering::{Relaxed, SeqCst},
    time::Duration,
};

use pool::Time;
use seam::{Protocol, Refusal};

use super::{Worker, clients::ClientConn};
use crate::{client_state::State, process::Board, reactor::Reactor};

/// How long the last words to clients, and the cancelling of what they have asked for, may take when the worker is to
/// end at once.
const MAX_STOP_TIME: Duration = Duration::from_secs(2);

/// How far a worker is on its way to its end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) enum Shutdown {
    #[default]
    None,
    /// Another process accepts the clients now. The worker ends when its last client has gone.
    Leaving,
    /// The same, and clients are sent away that have nothing in progress.
    Draining,
    /// All clients have been sent away. The worker ends at this time at the latest.
    Stopping(Time),
}

impl Shutdown {
    pub(super) fn is_under_way(self) -> bool {
        self != Self::None
    }

    pub(super) fn is_draining(self) -> bool {
        matches!(self, Self::Draining | Self::Stopping(_))
    }

    fn leave(&mut self) {
        if *self == Self::None {
            *self = Self::Leaving;
        }
    }

    fn drain(&mut self) {
        if !self.is_draining() {
            *self = Self::Draining;
        }
    }

    fn stop(&mut self, deadline: Time) {
        if !matches!(self, Self::Stopping(_)) {
            *self = Self::Stopping(deadline);
        }
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Stops accepting. Clients that are here stay.
    pub(super) fn leave(&mut self) {
        self.shutdown.leave();
        self.stop_listening();
    }

    /// Stops accepting, and sends clients away that have nothing in progress.
    pub(super) fn drain(&mut self) {
        self.departures = None;
        self.shutdown.drain();
        self.process.draining.store(true, SeqCst);
        self.stop_listening();
        self.refuse_newcomers();
        self.send_idle_away();
    }

    /// Sends all clients away. What they have asked for of servers is cancelled.
    pub(super) fn stop(&mut self) {
        self.drain();
        self.shutdown.stop(self.now + MAX_STOP_TIME);
        let all: Vec<usize> = self.clients.iter().map(|(slot, _)| slot).collect();
        for slot in all {
            self.refuse(slot, Refusal::ShuttingDown);
        }
    }

    /// Whether the worker was to end at once, and has: the clients have gone, and all cancel requests have been sent.
    pub(super) fn has_stopped(&self) -> bool {
        let is_done = || self.clients.is_empty() && self.has_told_databases();
        matches!(self.shutdown, Shutdown::Stopping(deadline) if self.now >= deadline || is_done())
    }

    /// Whether the worker was to end with the last client, and has.
    pub(super) fn has_drained(&self) -> bool {
        self.shutdown.is_under_way() && self.is_last_client_gone() && self.has_told_databases()
    }

    /// Whether no cancel request is under way, nor one that may have to be repeated.
    fn has_told_databases(&self) -> bool {
        self.cancel_connections.is_empty()
            && !self.closing_servers.iter().any(|(_, closing)| closing.awaits_cancel(self.now))
    }

    /// Whether no client is left or can come, here or on another worker, which may need the servers and pools that are
    /// looked after here.
    fn is_last_client_gone(&self) -> bool {
        // First whether any can come: a client that is accepted is counted before the listening socket is let go.
        let gone = |board: &Board| board.ended.load(SeqCst) || board.clients.load(SeqCst) == 0;
        let none_waits = || self.process.listeners.iter().all(|listener| listener.newcomers.load(SeqCst) == 0);
        self.clients.is_empty()
            && self.process.listening.load(SeqCst) == 0
            && none_waits()
            && self.process.boards.iter().all(gone)
    }

    /// While draining: sends clients away that have become idle, or wait for what other clients may do.
    pub(super) fn send_idle_away(&mut self) {
        let with_waiting = self.process.config.drain_waiting;
        let to_go =
            |client: &ClientConn<P::Client>| client.has_no_work() || (with_waiting && client.state == State::Waiting);
        let idle: Vec<usize> = self.clients.iter().filter(|(_, c)| to_go(c)).map(|(slot, _)| slot).collect();
        for slot in idle {
            self.refuse(slot, Refusal::ShuttingDown);
        }
    }

    /// Sends clients away that use a drained pool and have nothing in progress, or wait for what other clients may do.
    pub(super) fn send_drained_away(&mut self) {
        let to_go = |client: &ClientConn<P::Client>| {
            client.state != State::Login
                && client.has_no_work()
                && client.pool.is_some_and(|pool| self.pools.used(pool).drained.load(Relaxed))
        };
        let idle: Vec<usize> = self.clients.iter().filter(|(_, c)| to_go(c)).map(|(slot, _)| slot).collect();
        for slot in idle {
            self.refuse(slot, Refusal::Drained { at_login: false });
        }
    }
}
