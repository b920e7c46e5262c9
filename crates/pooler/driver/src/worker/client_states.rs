//! The states of clients, as they are counted and queued, and their names, for logs.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use pool::Time;
use seam::{Protocol, Standing};

use super::{
    ClientWork, Work, Worker, calls::call, lease::Lease, life::ReadSide, servers::ServerConn, timeout_queues::Queue,
    usage::Hold,
};
use crate::{client_state::State, config::PoolSpec, mailbox::ClientKey, reactor::Reactor};

/// A server and its holder are silent for this long before the worker finds out which of them waits for the other.
const QUIET_TIME: Duration = Duration::from_millis(250);

impl<P: Protocol, R: Reactor> Worker<P, R> {
    // ---- where they stand ----

    pub(super) fn set_standing(&mut self, slot: usize, standing: Standing) {
        let Some(client) = self.clients.get(slot) else { return };
        let standing = if client.pool.is_some() { standing } else { self.note_standing_before_login(slot, standing) };
        let client = &mut self.clients[slot];
        client.standing = standing;
        if standing == Standing::Reading && client.state == State::Idle {
            self.requeue(slot, true);
            self.clients[slot].since = self.now;
        }
        self.refresh_state(slot);
    }

    /// Another request of the client's is under way than before.
    pub(super) fn note_progress(&mut self, slot: usize, in_transaction: bool) {
        if let Some(client) = self.clients.get_mut(slot)
            && client.state == State::Active
        {
            if let Some(pool) = client.pool {
                self.traffic.add_query(pool, self.now - client.since);
            }
            client.since = self.now;
            if !in_transaction {
                self.note_transaction_begin(slot);
            }
        }
    }

    /// A transaction begins on the server that a client holds, if it holds one.
    fn note_transaction_begin(&mut self, slot: usize) {
        if let Lease::Held { server } = self.clients[slot].lease
            && let Some(hold) = self.servers.get_mut(server as usize).and_then(|server| server.usage.hold_mut())
        {
            hold.begin_transaction(self.now);
        }
    }

    /// Something has come from a server or from the client that holds it: neither waits for the other any more, as far
    /// as can be told.
    pub(super) fn note_activity(&mut self, slot: usize) {
        let Some(hold) = self.servers[slot].usage.hold_mut() else { return };
        if let Some(since) = hold.note_activity(self.now) {
            let holder = hold.client();
            self.refresh_state(holder);
            let client = &mut self.clients[holder];
            if client.state == State::Active {
                // The request is the same.
                client.since = since;
            }
        }
    }

    /// Finds servers that wait for the rest of what their holders ask for, and has these stand as clients in a
    /// transaction. What a pinned server still has to say is not known: where its holder has ended its side, the quiet
    /// tells that it has said all.
    pub(super) fn find_awaited_holders(&mut self) {
        let quiet = |(slot, server): (usize, &ServerConn<P::Server>)| {
            let is_quiet =
                |hold: &&Hold| hold.awaited_since().is_none() && self.now - hold.last_activity() >= QUIET_TIME;
            let holder = server.usage.hold().filter(is_quiet)?.client();
            let client = &self.clients[holder];
            let stuck = server.cancels.are_under_way()
                || [server.conn, client.conn].iter().any(|conn| self.reactor.is_sending(*conn));
            let may_wait = client.state == State::Active || client.read_side == ReadSide::Ended;
            (may_wait && !stuck && !client.life.is_broken()).then_some((slot, holder))
        };
        let quiet: Vec<_> = self.servers.iter().filter_map(quiet).collect();
        for (slot, holder) in quiet {
            let protocol = Arc::clone(&self.shared.protocol);
            let (client, server) = (&mut self.clients[holder], &mut self.servers[slot]);
            if client.read_side == ReadSide::Ended && server.pinned.is_some() {
                self.push_client_gone(holder);
            } else if client.state == State::Active
                && call(|| protocol.awaits_client(&client.session, &server.session)).unwrap_or(false)
            {
                let hold = server.usage.hold_mut().expect("its holder was just seen");
                hold.await_rest(client.since);
                let last_activity = hold.last_activity();
                self.refresh_state(holder);
                self.clients[holder].since = last_activity;
            }
        }
    }

    /// Recomputes the state a client is counted in.
    pub(super) fn refresh_state(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        let awaited = |lease| match lease {
            Lease::Held { server } => {
                let hold = self.servers.get(server as usize).and_then(|server| server.usage.hold());
                hold.is_some_and(|hold| hold.awaited_since().is_some())
            }
            _ => false,
        };
        let state = match (client.life.is_closing(), client.lease, client.standing) {
            (true, ..) => State::Closing,
            _ if client.places.is_in_tenant_queue() => State::Login,
            (_, _, Standing::Login) => State::Login,
            // A server that it seeks for others, too, is not what it waits for.
            (_, _, Standing::Subscribed) => State::Subscribed,
            (_, Lease::Waiting { .. } | Lease::Joining { .. }, _) => State::Waiting,
            (_, _, Standing::Idle | Standing::Reading) => State::Idle,
            (_, lease, Standing::Active | Standing::Blocked) if awaited(lease) => State::Transaction,
            (_, _, Standing::Active | Standing::Blocked) => State::Active,
            (_, _, Standing::InTransaction | Standing::Preparing) => State::Transaction,
        };
        if client.read_side == ReadSide::Ended {
            let key = ClientKey { slot: slot as u32, serial: client.serial };
            self.work.push_back(Work::Client(key, ClientWork::Answered));
        }
        if state == client.state {
            if state == State::Idle {
                self.requeue(slot, false);
            }
            return;
        }
        let was_login = client.state == State::Login;
        let listener = usize::from(client.listener);
        self.counters.client_left(client.listener, client.state);
        self.counters.client_came(client.listener, state);
        client.log.note_state(client.state, state);
        if client.state == State::Active
            && let Some(pool) = client.pool
        {
            self.traffic.add_query(pool, self.now - client.since);
        }
        let was_busy = std::mem::replace(&mut client.state, state).is_busy();
        client.since = self.now;
        if !was_busy && state.is_busy() {
            self.note_transaction_begin(slot);
        }
        self.requeue(slot, true);
        if was_login {
            // A client that is only a monitor, as drivers have them, has not logged in.
            let told = matches!(state, State::Closing | State::Subscribed);
            if !told && !std::mem::replace(&mut self.clients[slot].log.connected, true) {
                self.process.listeners[listener].count_login();
                self.log_connected(slot);
            }
            self.end_turn(slot);
        }
    }

    /// Has a client join the queue of its state, if there is one. `anew`: as the last one, even if it is there already.
    pub(super) fn requeue(&mut self, slot: usize, anew: bool) {
        let client = &mut self.clients[slot];
        let queue = match (client.state, client.lease) {
            // The tenant queue has a time-out of its own.
            (State::Login, _) if client.places.is_in_tenant_queue() => None,
            // One that only looked on until now may have its login before it.
            (State::Login, _) => Some(Queue::Login),
            (State::Idle, Lease::Held { .. }) => Some(Queue::Pinned),
            (State::Idle, _) => Some(Queue::Idle),
            _ => None,
        };
        if !anew && client.queued.queue() == queue {
            return;
        }
        self.queues.leave(client.listener, &mut client.queued);
        if let Some(queue) = queue {
            self.queues.join(client.listener, &mut client.queued, queue, slot, self.now);
        }
        if client.places.tenants() != [None; 2] && self.queues.has_tenants() {
            self.leave_tenant_queues(slot);
            if let Some(queue) = queue {
                self.join_tenant_queues(slot, queue, self.now);
            }
        }
    }

    /// Has a client join the queues of its database and its user, if these have limits.
    pub(super) fn join_tenant_queues(&mut self, slot: usize, queue: Queue, since: Time) {
        let client = &mut self.clients[slot];
        self.queues.join_tenants(client.places.tenants(), &mut client.queued, queue, slot, since);
    }

    pub(super) fn leave_tenant_queues(&mut self, slot: usize) {
        let client = &mut self.clients[slot];
        self.queues.leave_tenants(client.places.tenants(), &mut client.queued);
    }

    // ---- their names ----

    /// Whether this client is still here.
    pub(super) fn client_is(&self, client: ClientKey) -> bool {
        self.clients.get(client.slot as usize).is_some_and(|here| here.serial == client.serial)
    }

    pub(super) fn client_key(&self, slot: usize) -> ClientKey {
        ClientKey { slot: slot as u32, serial: self.clients[slot].serial }
    }

    /// Has something done for a client once the effect at hand is finished.
    pub(super) fn push_client_work(&mut self, slot: usize, work: ClientWork) {
        let client = self.client_key(slot);
        self.work.push_back(Work::Client(client, work));
    }

    pub(super) fn client_ip(&self, slot: usize) -> Option<IpAddr> {
        let client = &self.clients[slot];
        client.log.peer.map(|(ip, _)| ip.to_canonical())
    }

    pub(super) fn client_address(&self, slot: usize) -> String {
        let client = &self.clients[slot];
        if !self.process.listeners[usize::from(client.listener)].tcp {
            return "unix".to_owned();
        }
        client.log.peer.map(SocketAddr::from).map_or_else(|| "gone".to_owned(), |address| address.to_string())
    }

    pub(super) fn database(&self, slot: usize) -> String {
        self.spec_of(slot).map_or_else(|| self.asked(slot).0, |spec| spec.database.clone())
    }

    pub(super) fn user(&self, slot: usize) -> String {
        self.spec_of(slot).map_or_else(|| self.asked(slot).1, |spec| spec.user.clone())
    }

    /// The user that a client logged in as.
    pub(super) fn login_user(&self, slot: usize) -> String {
        match &self.clients[slot].log.login {
            Some(login) => login.1.clone(),
            None => self.user(slot),
        }
    }

    fn asked(&self, slot: usize) -> (String, String) {
        self.clients[slot].log.login.as_deref().cloned().unwrap_or_default()
    }

    fn spec_of(&self, slot: usize) -> Option<Arc<PoolSpec>> {
        let pool = self.clients[slot].pool?;
        self.pools.known(pool).map(|pool| pool.spec())
    }
}
