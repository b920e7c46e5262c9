//! Posts: bytes that sessions send to each other across workers. Does not read them.
//!
//! A session that posts more than other workers can take gets no more input until they have caught up. The bytes that
//! wait in a mailbox are bounded by [`MAX_POSTED`] and what one more receive can bring.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use pool::Time;
use seam::{Effect, Peer, Protocol};

use super::{Work, Worker, calls::Source};
use crate::{
    mailbox::{Message, Post},
    reactor::Reactor,
};

/// Bytes that may wait in a worker's mailbox before sessions that post get no more input. Each post counts with
/// [`POST_OVERHEAD`].
const MAX_POSTED: usize = 4 << 20;

/// Bytes that a post takes beside its content, which posts to several sessions share.
const POST_OVERHEAD: usize = size_of::<Post>();

/// The bytes last posted from an outbox, and their range there: bytes that are posted to many sessions are kept once.
pub(super) type LastPost = Option<(Range<usize>, Arc<[u8]>)>;

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A session posts `inserted[range]` to another.
    pub(super) fn post(&mut self, to: Peer, key: u64, inserted: &[u8], range: Range<usize>, last: &mut LastPost) {
        let bytes = match last {
            Some((known, bytes)) if *known == range => Arc::clone(bytes),
            _ => {
                let bytes: Arc<[u8]> = inserted[range.clone()].into();
                *last = Some((range, Arc::clone(&bytes)));
                bytes
            }
        };
        let post = Post { to, key, bytes };
        let worker = match to {
            Peer::Client(tag) => tag.worker(),
            Peer::Server(tag) => tag.worker(),
        };
        if worker == self.number {
            return self.work.push_back(Work::Post(post));
        }
        let mailbox = &self.shared.mailboxes[usize::from(worker)];
        mailbox.posted.fetch_add(weight(&post), Relaxed);
        mailbox.send(Message::Post(post));
    }

    /// A post has come from another worker.
    pub(super) fn on_post(&mut self, post: Post) {
        self.shared.mailboxes[usize::from(self.number)].posted.fetch_sub(weight(&post), Relaxed);
        self.work.push_back(Work::Post(post));
    }

    /// Whether another worker has not caught up with its posts.
    pub(super) fn posts_wait(&self) -> bool {
        self.shared.mailboxes.iter().any(|mailbox| mailbox.posted.load(Relaxed) > MAX_POSTED)
    }

    /// Receives again from servers whose sessions posted too much.
    pub(super) fn rearm_posters(&mut self) {
        for server in std::mem::take(&mut self.posters) {
            self.rearm_server(server as usize);
        }
    }

    /// Tells the protocol the time. It may post, and have idle servers reset.
    pub(super) fn on_tick(&mut self) {
        let mut out = self.take_outbox();
        self.shared.protocol.on_tick(self.now.since(Time(0)), &mut out);
        debug_assert!(
            out.effects.iter().all(|effect| matches!(effect, Effect::Post { .. } | Effect::ResetOne { .. })),
            "a tick leads to posts and resets only"
        );
        self.execute(out, Source::NONE);
    }

    /// Hands a post to the session that has the receiver's slot now.
    pub(super) fn deliver_post(&mut self, post: &Post) {
        let (key, bytes, source) = (post.key, &*post.bytes, Source::Posted(&post.bytes));
        match post.to {
            Peer::Client(tag) => {
                if self.clients.get(tag.slot()).is_some_and(|client| !client.life.is_closing()) {
                    self.call_client(tag.slot(), source, |protocol, tag, session, out| {
                        protocol.posted_to_client(tag, session, key, bytes, out);
                    });
                }
            }
            Peer::Server(tag) => {
                if self.servers.get(tag.slot()).is_some_and(|server| !server.link.is_ending()) {
                    self.call_server(tag.slot(), source, |protocol, tag, session, out| {
                        protocol.posted_to_server(tag, session, key, bytes, out);
                    });
                }
            }
        }
    }
}

fn weight(post: &Post) -> usize {
    POST_OVERHEAD + post.bytes.len()
}
