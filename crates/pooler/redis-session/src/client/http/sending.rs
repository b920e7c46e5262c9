//! The commands of requests go to servers; their replies become answers.

use std::sync::Arc;

use http_sansio::{Denied, Stream};
use seam::{Blame, CloseReason, Effect, Outbox, Peer};

use super::{super::long_commands::MIN_STREAMED_LENGTH, Client, EndlessAnswer, PendingRequest, revoking::REVOKED};
use crate::{
    Redis, Servers,
    command::{Kind, SubscriptionCommand, kind},
    resp,
    rest::{
        call::{Call, Command, RequestKind},
        messages::{Messages, PostedEvents},
        rules::Access,
    },
    server::ReplyKind,
};

/// Bytes of results that are held without asking the memory budget.
const MAX_UNCOUNTED_RESULTS: usize = 64 * 1024;

/// Bytes of commands that are sent before their replies have come. The driver limits what waits for a server, and many
/// requests may have waited for a server.
const MAX_UNANSWERED: usize = 32 * 1024 * 1024;

/// The error for a request while messages of another user come over its connection, which counts in that user's limits.
const OF_ANOTHER_USER: &str =
    "ERR messages for a token with another user come over this connection: use another connection";

enum Next {
    /// None, until a reply, a server or a change of subscriptions has come.
    Wait,
    /// The one that now has the index of the request that was sent.
    SameIndex,
    Following,
}

impl Redis {
    /// Sends what can be sent now: nothing while a server is requested.
    pub(super) fn send_all(&self, client: &mut Client, servers: &mut Servers<'_>, out: &mut Outbox) {
        if client.lease.is_requested() {
            return;
        }
        self.end_unused_subscriptions(client, out);
        let http = client.http_mut();
        http.output.is_behind = http.connection.is_behind();
        let Some(mut index) = http.requests.queue.iter().position(|request| !request.is_sent()) else { return };
        while let Some(request) = client.http_mut().requests.queue.get_mut(index) {
            // A transaction that has begun holds its server, so it is sent to its end.
            let (goes_on, listens) = (request.is_in_transaction(), request.call.kind == RequestKind::Events);
            if client.http_mut().output.is_behind && !goes_on {
                return;
            }
            let is_revoked = listens && !self.register_for_revoking(client, index);
            let http = client.http_mut();
            let request = &mut http.requests.queue[index];
            if is_revoked {
                request.refuse(401, REVOKED);
                index += 1;
                continue;
            }
            if http.messages.streams.are_of_another_user(&request.access) {
                request.refuse(409, OF_ANOTHER_USER);
                index += 1;
                continue;
            }
            if let Some(what) = request.call.subscription() {
                match self.send_subscription(client, index, what, out) {
                    Next::Wait => return,
                    Next::SameIndex => {}
                    Next::Following => index += 1,
                }
                continue;
            }
            // It is taken, because `send` borrows the client.
            let mut call = std::mem::take(&mut request.call);
            let (mut next, access, begun) = (request.next, Arc::clone(&request.access), request.known > 0);
            let outcome = self.send(client, &mut call, &mut next, &access, begun, servers, out);
            let pinned = client.lease.is_pinned();
            let request = &mut client.http_mut().requests.queue[index];
            (request.call, request.next) = (call, next);
            match outcome {
                Ok(true) if pinned => {
                    let request = client.http_mut().requests.queue.pop_back().expect("it was just sent");
                    client.listen(request.stream, request.access, "monitor");
                    return;
                }
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => request.give_up(&error),
            }
            index += 1;
        }
    }

    /// Sends a request for messages, and says which request is next.
    fn send_subscription(
        &self,
        client: &mut Client,
        index: usize,
        what: SubscriptionCommand,
        out: &mut Outbox,
    ) -> Next {
        if client.has_streams() && client.awaits_change() {
            return Next::Wait;
        }
        let access = Arc::clone(&client.http_mut().requests.queue[index].access);
        match self.switch_user(client, &access, out) {
            Ok(true) if self.begin_events(client, index, what, out) => Next::SameIndex,
            Ok(_) => Next::Wait,
            Err(error) => {
                client.http_mut().requests.queue[index].give_up(&error);
                Next::Following
            }
        }
    }

    /// Begins a stream of messages. Returns whether it has failed, and the next request may be sent.
    fn begin_events(&self, client: &mut Client, index: usize, what: SubscriptionCommand, out: &mut Outbox) -> bool {
        if client.has_streams() {
            return self.open_stream(client, index, what, out);
        }
        // In HTTP/1.1 the request is the only one of its connection.
        let request = client.http_mut().requests.queue.pop_back().expect("a request that was just seen");
        client.listen(request.stream, Arc::clone(&request.access), what.name());
        let words = resp::parts(&request.call.wire);
        if let Err(why) = self.change_subscriptions(client, what, &words[1..], out) {
            client.http_mut().connection.fail(&Denied::new(503, why));
            client.flush(out);
        }
        false
    }

    /// Sends a request's commands. `Ok(false)`: the rest has to wait. `Err`: there is no server for the rest, for this
    /// reason. `begun`: its first reply has come.
    #[allow(clippy::too_many_arguments)]
    fn send(
        &self,
        client: &mut Client,
        call: &mut Call,
        next: &mut usize,
        access: &Access,
        begun: bool,
        servers: &mut Servers<'_>,
        out: &mut Outbox,
    ) -> Result<bool, Box<str>> {
        if !self.switch_user(client, access, out)? {
            return Ok(false);
        }
        let last = call.commands.len().saturating_sub(1);
        let alone = call.wire.len() as u64 >= MIN_STREAMED_LENGTH;
        while let Some(command) = call.commands.get(*next) {
            let Command::Send(span) = command else {
                *next += 1;
                continue;
            };
            // If MULTI is refused, what follows would be executed outside of the transaction.
            if call.kind == RequestKind::Transaction && *next == 1 && !begun {
                client.replies.hold_input();
                return Ok(false);
            }
            if client.exceeds_unanswered(span.len()) {
                client.replies.hold_input();
                return Ok(false);
            }
            let kind = match call.kind {
                RequestKind::Transaction if *next == 0 => Kind::Multi,
                RequestKind::Transaction if *next == last => Kind::EndTransaction,
                RequestKind::Events => Kind::Pinning,
                _ => kind_of(&call.wire[span.clone()]),
            };
            let reply = match kind {
                Kind::Publish(_) | Kind::Control => match resp::beginning(&call.wire[span.clone()]) {
                    Some(begins) => self.reply_kind(client, kind, &[begins.name, begins.second.unwrap_or_default()]),
                    None => ReplyKind::Plain,
                },
                _ => ReplyKind::Plain,
            };
            match self.server_for(client, servers, kind, alone, out) {
                Some((tag, server)) => {
                    client.note_sent(tag, server, kind, reply, out);
                    out.insert(Peer::Server(tag), |to| to.extend_from_slice(&call.wire[span.clone()]));
                    client.http_mut().requests.unanswered_bytes += span.len();
                    *next += 1;
                }
                None => return client.lease_error.take().map_or(Ok(false), Err),
            }
        }
        Ok(true)
    }

    /// Makes the client the user of the next request. `Ok(false)`: the replies to another user's requests have to come
    /// first. Fails with the reason if no pool serves the user.
    fn switch_user(&self, client: &mut Client, access: &Access, out: &mut Outbox) -> Result<bool, Box<str>> {
        if *client.identity.user() != access.user || client.settings.database() != access.database {
            if !client.lease.is_none() {
                client.replies.hold_input();
                return Ok(false);
            }
            let pool = self.directory.route(&access.user, access.database, client.settings.version());
            let pool = pool.map_err(|why| format!("ERR Poolhouse: {why}"))?;
            client.settings.set_database(access.database);
            client.log_in(Arc::clone(&access.user), pool, out);
        }
        Ok(true)
    }
}

/// The kind of a command, as far as it matters here.
fn kind_of(bytes: &[u8]) -> Kind {
    let kind = resp::beginning(bytes).map(|beginning| kind(beginning.name, beginning.second.as_slice()));
    kind.filter(|kind| matches!(kind, Kind::Publish(_) | Kind::SubscriberCount(_) | Kind::Script | Kind::Control))
        .unwrap_or(Kind::Ordinary)
}

impl Client {
    /// Takes a part of a reply. Returns false if the client does not speak HTTP: then the bytes are to be forwarded.
    pub(crate) fn on_http_reply(&mut self, bytes: &[u8], over: bool) -> bool {
        let Some(http) = &mut self.http else { return false };
        let Some(at) = http.requests.queue.iter_mut().position(PendingRequest::is_waiting) else { return true };
        http.requests.queue[at].add_reply_part(bytes, over);
        if http.requests.queue[at].result_bytes() > MAX_UNCOUNTED_RESULTS {
            let held = http.held_bytes();
            if !http.connection.try_hold(held) {
                http.requests.queue[at].drop_results();
            }
        }
        true
    }

    /// Whether this many more bytes have to wait for replies. Counts from 0 again when no reply is pending.
    fn exceeds_unanswered(&mut self, more: usize) -> bool {
        if self.replies.is_empty() {
            self.http_mut().requests.unanswered_bytes = 0;
        }
        !self.replies.is_empty() && self.http_mut().requests.unanswered_bytes + more > MAX_UNANSWERED
    }

    fn listen(&mut self, stream: Stream, access: Arc<Access>, command: &'static str) {
        let endless = EndlessAnswer { stream, access, command, begun: false, messages: Messages::default() };
        self.http_mut().messages.endless_answer = Some(Box::new(endless));
    }

    /// Takes bytes of a pinned server, or a change of subscriptions. Returns false if the client does not speak HTTP.
    pub(crate) fn on_http_stream(&mut self, bytes: &[u8], out: &mut Outbox) -> bool {
        let Some(http) = &mut self.http else { return false };
        if self.closing {
            return true;
        }
        let Some(endless) = &mut http.messages.endless_answer else {
            http.messages.streams.on_subscription_reply(bytes, &mut http.connection);
            self.flush(out);
            return true;
        };
        let mut events = Vec::new();
        let outcome = endless.messages.take(bytes, &mut events);
        if !events.is_empty() {
            endless.say(&events, &mut http.connection);
        }
        match outcome {
            Err(denied) if endless.begun => {
                self.flush(out);
                self.close(CloseReason::Error(Blame::Server, denied.error), out);
            }
            Err(denied) => {
                http.connection.fail(&denied);
                self.flush(out);
            }
            Ok(()) => self.flush(out),
        }
        true
    }

    /// Takes events to which its requests have subscribed.
    pub(crate) fn on_http_events(&mut self, posted: &PostedEvents<'_>, out: &mut Outbox) {
        let Some(http) = self.http.as_mut().filter(|_| !self.closing) else { return };
        match &mut http.messages.endless_answer {
            Some(endless) => endless.say(posted.events, &mut http.connection),
            None => http.messages.streams.forward_events(posted, &mut http.connection),
        }
        self.flush(out);
    }

    pub(crate) fn answer(&mut self, out: &mut Outbox) {
        let Some(http) = &mut self.http else { return };
        let mut answered = false;
        while http.requests.queue.front_mut().is_some_and(PendingRequest::is_done) {
            let request = http.requests.queue.pop_front().expect("seen above");
            answered = true;
            let stream = request.stream;
            match request.answer() {
                Ok(answer) => http.connection.answer(stream, answer),
                Err(denied) => http.connection.deny(stream, &denied),
            }
        }
        let all = answered && http.requests.queue.is_empty();
        self.flush(out);
        if all && !self.closing && self.lease.is_none() {
            out.push(Effect::Standing { client: self.tag, standing: self.standing() });
        }
    }
}
