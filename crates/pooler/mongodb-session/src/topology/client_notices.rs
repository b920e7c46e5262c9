//! The clients that are notified of changes among the hosts, or at a deadline. They are notified by posts.

use std::{collections::BTreeMap, time::Duration};

use seam::{ClientTag, Effect, Outbox, Peer};

use super::checks::MIN_HEARTBEAT_INTERVAL;

/// Clients by their keys.
#[derive(Default)]
pub struct ClientNotices {
    /// All clients that may ask for a server.
    clients: BTreeMap<u64, ClientTag>,
    waiting_for_host: BTreeMap<u64, ClientTag>,
    deadlines: BTreeMap<u64, (Duration, ClientTag)>,
    /// A host no longer serves its clients, and they have not been notified.
    host_lost: bool,
    next_notice: Duration,
}

impl ClientNotices {
    /// A client may ask for servers from now on.
    pub fn enter(&mut self, client: ClientTag, key: u64) {
        self.clients.insert(key, client);
    }

    pub fn leave(&mut self, key: u64) {
        self.clients.remove(&key);
        self.deadlines.remove(&key);
    }

    /// A client is to check at this time whether it has waited long enough.
    pub fn set_deadline(&mut self, at: Duration, client: ClientTag, key: u64) {
        self.deadlines.insert(key, (at, client));
    }

    pub fn wait_for_host(&mut self, client: ClientTag, key: u64) {
        self.waiting_for_host.insert(key, client);
    }

    pub fn stop_waiting(&mut self, key: u64) {
        self.waiting_for_host.remove(&key);
    }

    pub fn wake_waiting(&mut self, out: &mut Outbox) {
        let waiting = std::mem::take(&mut self.waiting_for_host);
        waiting.into_iter().for_each(|(key, client)| post(Peer::Client(client), key, out));
    }

    /// A host no longer serves its clients.
    pub fn note_host_lost(&mut self) {
        self.host_lost = true;
    }

    /// Notifies all clients of a lost host, as soon as the minimum interval allows.
    pub fn notify_if_due(&mut self, now: Duration, out: &mut Outbox) {
        if self.host_lost && now >= self.next_notice {
            (self.host_lost, self.next_notice) = (false, now + MIN_HEARTBEAT_INTERVAL);
            self.clients.iter().for_each(|(key, client)| post(Peer::Client(*client), *key, out));
        }
    }

    /// Wakes waiting clients, so that they check how long they have waited, and those whose deadline has passed.
    pub fn on_tick(&mut self, now: Duration, out: &mut Outbox) {
        self.wake_waiting(out);
        self.notify_if_due(now, out);
        self.deadlines.retain(|key, (at, client)| {
            if *at <= now {
                post(Peer::Client(*client), *key, out);
            }
            *at > now
        });
    }
}

/// Wakes a session that waits for something.
pub fn post(to: Peer, key: u64, out: &mut Outbox) {
    let here = out.inserted.len();
    out.push(Effect::Post { to, key, bytes: here..here });
}
