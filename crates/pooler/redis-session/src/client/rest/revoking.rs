//! Streams of messages end whose token a reload has taken away, or the right to hear them: that is how an operator
//! stops its holder.
//!
//! Requests show their token each time, but a stream goes on for as long as both sides like. So clients that have begun
//! one are known here, and look what the configuration says whenever there is another one.

use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed},
    },
};

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer};

use crate::{Client, Redis, resp, rest::rules::Access};

/// What the holder of such a token is told, and the log.
pub(super) const REVOKED: &str = "the token, or its right to hear messages, is gone from the configuration";

/// Clients of HTTP that have begun streams.
#[derive(Default)]
pub(crate) struct Streams {
    /// Where they are, by their keys.
    clients: Mutex<HashMap<u64, ClientTag>>,
    /// The configuration that they have looked at.
    epoch: AtomicU64,
}

impl Redis {
    /// If another configuration is in force, clients with streams are told.
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

    /// Whether a request may begin to hear events. From now on its client learns of other configurations.
    pub(super) fn may_begin_events(&self, me: ClientTag, client: &mut Client, number: usize) -> bool {
        let rest = client.http();
        let key = *rest.stream_key.get_or_insert_with(|| self.hubs.key());
        self.streams.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(key, me);
        let work = &rest.works[number];
        resp::parts(&work.call.wire).first().is_some_and(|name| self.lets_hear(&work.access, name))
    }

    /// Whether the configuration lets the holder of a token use this command, as it was when it began.
    fn lets_hear(&self, access: &Access, command: &[u8]) -> bool {
        self.directory.renewed(access).is_some_and(|now| {
            (&now.user, now.database) == (&access.user, access.database) && now.rules.forbids(command, None).is_none()
        })
    }

    /// Ends streams that their tokens no longer let the client hear.
    pub(in crate::client) fn end_revoked(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        let rest = client.http();
        if let Some(listening) = &rest.listening {
            if !self.lets_hear(&listening.access, listening.command.as_bytes()) {
                client.close(me, CloseReason::Error(Blame::Client, REVOKED.to_owned()), out);
            }
            return;
        }
        rest.feeds.revoke(|access, command| self.lets_hear(access, command.as_bytes()), &mut rest.connection);
        self.tidy(me, client, out);
        client.flush(me, out);
    }

    pub(crate) fn forget_streams(&self, client: &mut Client) {
        if let Some(key) = client.rest.as_mut().and_then(|rest| rest.stream_key.take()) {
            self.streams.clients.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }
}
