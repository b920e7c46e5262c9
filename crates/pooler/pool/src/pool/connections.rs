//! What the caller reports about connections: that they are ready, checked, lost or closed, and that one is permitted.

use crate::{
    action::{ConnectFault, Grant},
    reasons::{CheckOutFailed, Closed, GrantSource},
    slots::{Home, ServerId, State},
    time::Time,
};

use super::{Pool, backoff::Backoff};

impl Pool {
    /// A check or a reset has ended, at `home`. The returned grant is that of the waiter which gets the server at once.
    #[must_use = "a grant that is dropped is a server lost"]
    pub fn handle_checked(&mut self, server: ServerId, ok: bool, home: Home, now: Time) -> Option<Grant> {
        let now = self.tick(now);
        let slot = self.slots.get_mut(server);
        if slot.state == State::Closing {
            return None;
        }
        assert!(slot.state == State::Checking, "{server:?} was reported checked while {:?}", slot.state);
        slot.home = home;
        let failed = (!ok).then_some(Closed::Error);
        let grant = match self.unfit(server, now).or(failed) {
            Some(reason) => {
                self.order_close(server, reason, now);
                None
            }
            None => self.offer(server, home, GrantSource::Queued, now),
        };
        self.settle(now);
        grant
    }

    /// A connection is ready, at `home`. The returned grant is that of the waiter which gets the server at once.
    #[must_use = "a grant that is dropped is a server lost"]
    pub fn handle_connected(&mut self, server: ServerId, home: Home, now: Time) -> Option<Grant> {
        let now = self.tick(now);
        if !self.accept_connected(server, home, now) {
            return None;
        }
        let grant = self.offer(server, home, GrantSource::Created, now);
        self.settle(now);
        grant
    }

    /// A connection is ready, and its own session uses it at once: no waiter gets the server before it is checked in.
    /// Returns false if it is to be closed instead.
    pub fn handle_connected_in_use(&mut self, server: ServerId, home: Home, now: Time) -> bool {
        let now = self.tick(now);
        if !self.accept_connected(server, home, now) {
            return false;
        }
        self.slots.set_state(server, State::InUse, now);
        self.slots.get_mut(server).used = true;
        self.slots.set_pinned(server, true);
        self.settle(now);
        true
    }

    /// A connection is ready. Returns whether the server may be used. If not, it is ordered to close.
    fn accept_connected(&mut self, server: ServerId, home: Home, now: Time) -> bool {
        let expires = now.after(self.life());
        let slot = self.slots.get_mut(server);
        if slot.state == State::Closing {
            return false;
        }
        assert!(slot.state == State::Connecting, "{server:?} was reported connected while {:?}", slot.state);
        slot.home = home;
        slot.ready_at = now;
        slot.expires = expires;
        self.next_expiry = self.next_expiry.min(expires);
        self.backoff = Backoff::default();
        self.has_connected = true;
        self.update_availability(now);
        let Some(reason) = self.unfit(server, now) else { return true };
        self.order_close(server, reason, now);
        self.settle(now);
        false
    }

    /// A connection could not be made, and the server is gone. `permanent`: the next try would fail, too (a wrong
    /// password), so all waiters fail now. In any case, the next try comes after a pause.
    pub fn handle_connect_failed(&mut self, server: ServerId, permanent: bool, now: Time) {
        self.handle_connect_abandoned(
            server,
            if permanent { ConnectFault::Permanent } else { ConnectFault::Transient },
            now,
        );
        self.remove_server(server, now);
    }

    /// A connection could not be made, and has yet to be closed: the server counts until it is reported closed.
    pub fn handle_connect_abandoned(&mut self, server: ServerId, fault: ConnectFault, now: Time) {
        let now = self.tick(now);
        let state = self.slots.get(server).state;
        assert!(
            matches!(state, State::Connecting | State::Closing),
            "{server:?} was reported unable to connect while {state:?}"
        );
        if state == State::Connecting {
            match fault {
                ConnectFault::Transient | ConnectFault::Permanent => {
                    self.note_connect_failure(now);
                    self.backoff.set_permanent(fault == ConnectFault::Permanent);
                }
                ConnectFault::UnknownDatabase => self.note_unknown_database(now),
            }
            match fault {
                ConnectFault::Transient => {}
                ConnectFault::Permanent => self.fail_waiters(CheckOutFailed::Refused, now),
                ConnectFault::UnknownDatabase => self.fail_waiters(CheckOutFailed::UnknownDatabase, now),
            }
        }
        self.note_closing(server, now);
    }

    /// A server's connection is lost, in any state, and the server is gone. If it was in use, its grant has ended.
    pub fn handle_lost(&mut self, server: ServerId, now: Time) {
        self.handle_abandoned(server, now);
        self.remove_server(server, now);
    }

    /// A server's connection is of no use, in any state, and has yet to be closed: the server counts until it is
    /// reported closed.
    pub fn handle_abandoned(&mut self, server: ServerId, now: Time) {
        let now = self.tick(now);
        let slot = self.slots.get(server);
        match slot.state {
            State::Connecting => self.note_connect_failure(now),
            // An upstream may accept connections and drop them at once.
            State::Idle | State::Checking if !slot.used => self.back_off(now),
            _ => {}
        }
        self.note_closing(server, now);
    }

    /// A server has closed or was interrupted, as ordered. It is gone.
    pub fn handle_closed(&mut self, server: ServerId, now: Time) {
        let now = self.tick(now);
        let slot = self.slots.get(server);
        assert!(
            slot.state == State::Closing || slot.interrupted,
            "{server:?} was reported closed while {:?}, without an order",
            slot.state
        );
        self.remove_server(server, now);
    }

    /// Another pool has reached the upstream of this one. That ends a pause between tries, unless the last try of this
    /// pool was refused. The length of the next pause stays as it is. Returns whether this pool now wants to connect.
    pub fn handle_upstream_recovered(&mut self, now: Time) -> bool {
        let now = self.tick(now);
        let before = self.permits_wanted;
        if self.backoff.end_pause_early() {
            self.settle(now);
        }
        self.permits_wanted > before
    }

    /// The budget permits one connection. Returns false if none is wanted any more: the withdrawal crossed the permit,
    /// and the caller releases the permit.
    #[must_use = "a permit that is not taken must be released to the budget"]
    pub fn handle_permit(&mut self, now: Time) -> bool {
        let now = self.tick(now);
        if self.permits_requested == 0 {
            return false;
        }
        self.permits_requested -= 1;
        if self.permits_wanted == 0 {
            return false;
        }
        self.connect(now);
        self.settle(now);
        true
    }
}
