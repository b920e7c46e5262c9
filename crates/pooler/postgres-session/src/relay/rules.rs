//! The rules of a listener: which of its clients' messages are too long or of the wrong protocol, and who waits for so
//! long that it is told.

use seam::{Blame, ClientTag, Effect, Outbox, Peer, Sessions, Verdict};

use super::client::Relay;
use crate::{
    session::{
        Client, ErrorText, Occasion, Phase, Postgres, Server, ServerSide, Stage, listener_rules::Restrictions,
        wait_notices::key_of,
    },
    wire::{Header, code, front, write_notice},
};

impl Relay<'_> {
    /// Closes a client that breaks the rules with this message. True if it does.
    #[cold]
    pub(super) fn break_rules(&mut self, rules: Restrictions, header: Header) -> bool {
        let (occasion, ours) = if header.length > rules.max_length {
            let message = format!("a message of {} bytes, and max_message_size is {}", header.length, rules.max_length);
            let hint = "Send large values in parts, or by COPY, or raise max_message_size.";
            (Occasion::BadHeader(&self.bytes[self.at..]), ErrorText::new(code::PROGRAM_LIMIT_EXCEEDED, message, hint))
        } else if rules.refuses_simple && header.kind == front::QUERY {
            let message = "simple queries are not allowed here (refuse_simple_queries)";
            let hint = "Use the extended protocol, as drivers do for statements with parameters.";
            (Occasion::SimpleQuery, ErrorText::new(code::FEATURE_NOT_SUPPORTED, message, hint))
        } else {
            return false;
        };
        self.client.fail_for(self.me, occasion, ours, Blame::Client, self.out);
        true
    }

    /// The client has just asked for a server.
    pub(super) fn begin_wait_notice(&mut self) {
        if let Some(after_ms) = self.rules.and_then(|rules| rules.wait_notice_ms) {
            self.inspection.postgres.wait_notices.begin(self.me, self.client.secret, after_ms);
        }
    }
}

impl Postgres {
    /// The client waits for a server no more.
    pub(crate) fn end_wait_notice(&self, client: &Client) {
        if self.rules.of(client.entrance.listener()).is_some_and(|rules| rules.wait_notice_ms.is_some()) {
            self.wait_notices.end(client.secret);
        }
    }

    /// Puts the rules in force that a reload may have changed.
    pub(crate) fn refresh_rules(&self, now_ms: u64) {
        for listener in self.rules.to_refresh(now_ms) {
            self.rules.set(listener, &self.directory.rules(listener));
        }
    }

    /// Tells the sessions of clients that have waited for long.
    pub(crate) fn post_wait_notices(&self, now_ms: u64, out: &mut Outbox) {
        for (client, key) in self.wait_notices.take_due(now_ms) {
            let end = out.inserted.len();
            out.push(Effect::Post { to: Peer::Client(client), key, bytes: end..end });
        }
    }

    /// Tells a client that it waits, if this post is about that.
    pub(crate) fn tell_waiting(&self, me: ClientTag, client: &Client, key: u64, out: &mut Outbox) {
        if matches!(client.phase, Phase::Waiting) && key == key_of(client.secret) {
            out.insert(Peer::Client(me), |to| write_notice(to, client.entrance.wording().of_waiting()));
        }
    }

    /// Longest message that a server may send to its holder.
    #[cold]
    pub(super) fn longest_answer(&self, server: &Server, clients: &mut dyn Sessions<ClientTag, Client>) -> u32 {
        let holder = server.holder().filter(|_| server.serves_client()).and_then(|tag| clients.get(tag));
        let rules = holder.and_then(|client| self.rules.of(client.entrance.listener()));
        rules.map_or(u32::MAX, |rules| rules.max_length)
    }

    /// A server has begun a message that is longer than its holder may get: both go.
    #[cold]
    pub(super) fn refuse_answer(&self, side: &mut ServerSide<'_>, header: Header) {
        let mut link = side.link();
        link.client.mid_message = false;
        let message = format!("the answer has a message of {} bytes, which max_message_size forbids", header.length);
        let ours = ErrorText::new(code::PROGRAM_LIMIT_EXCEEDED, message, "Raise max_message_size.");
        link.client.fail_for(link.client_tag, Occasion::LongAnswer, ours, Blame::Client, link.out);
        link.server.stage = Stage::Closed;
        link.release(Verdict::Discard);
    }
}
