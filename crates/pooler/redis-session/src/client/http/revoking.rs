//! Ends streams of messages after a reload that has removed their token, or its right to hear messages.
//!
//! Each request shows its token, but a stream has no end. So clients with streams are known here, and check their
//! tokens whenever the configuration changes.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed},
    },
};

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer};

use crate::{Client, Redis, resp, rest::rules::Access};

/// The reason, for the client and the log.
pub(super) const REVOKED: &str = "the token, or its right to hear messages, is gone from the configuration";

/// Clients of HTTP that have requested messages.
#[derive(Default)]
pub(crate) struct StreamClients {
    /// Their tags, by their keys.
    clients: Mutex<HashMap<u64, ClientTag>>,
    /// The configuration of which they were notified.
    epoch: AtomicU64,
}

impl Redis {
    /// Tells clients with streams if the configuration has changed.
    pub(crate) fn announce_configuration(&self, out: &mut Outbox) {
        let epoch = self.directory.epoch();
        if self.streams.epoch.load(Relaxed) == epoch || self.streams.epoch.swap(epoch, AcqRel) == epoch {
            return;
        }
        let end = out.inserted.len();
        for (&key, &tag) in &*self.streams.clients.lock().unwrap_or_else(PoisonError::into_inner) {
            out.push(Effect::Post { to: Peer::Client(tag), key, bytes: end..end });
        }
    }

    /// Has the client notified of new configurations. Returns whether the current one lets the request receive events.
    pub(super) fn register_for_revoking(&self, client: &mut Client, index: usize) -> bool {
        let tag = client.tag;
        let http = client.http_mut();
        let key = *http.messages.key.get_or_insert_with(|| self.hubs.new_key());
        self.streams.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(key, tag);
        let request = &http.requests.queue[index];
        resp::parts(&request.call.wire).first().is_some_and(|name| self.lets_hear(&request.access, name))
    }

    /// Whether the current configuration lets the token use this command for the same user and database.
    fn lets_hear(&self, access: &Access, command: &[u8]) -> bool {
        self.directory.renewed(access).is_some_and(|now| {
            (&now.user, now.database) == (&access.user, access.database) && now.rules.forbids(command, None).is_none()
        })
    }

    pub(in crate::client) fn end_revoked(&self, client: &mut Client, out: &mut Outbox) {
        let http = client.http_mut();
        if let Some(endless) = &http.messages.endless_answer {
            if !self.lets_hear(&endless.access, endless.command.as_bytes()) {
                client.close(CloseReason::Error(Blame::Client, REVOKED.to_owned()), out);
            }
            return;
        }
        http.messages
            .streams
            .revoke(|access, command| self.lets_hear(access, command.as_bytes()), &mut http.connection);
        self.end_unused_subscriptions(client, out);
        client.flush(out);
    }

    pub(crate) fn forget_streams(&self, client: &mut Client) {
        if let Some(key) = client.http.as_mut().and_then(|http| http.messages.key.take()) {
            self.streams.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }
}
