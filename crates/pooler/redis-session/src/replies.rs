//! Brings replies from servers to clients, and tells clients that their server is lost.

use seam::{Blame, CloseReason, Effect, Input, Outbox, Peer, ServerTag, Verdict};

use crate::{
    Client, Clients, Redis, Server,
    command::Topic,
    hub::Hubs,
    resp,
    server::{Recipient, ReplyKind, ServerBytes},
};

impl Redis {
    /// Reads what a server sends that is no hub. Returns the number of bytes that were consumed.
    pub(crate) fn read_replies(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let mut at = 0;
        while at < input.bytes.len() {
            let bytes = &input.bytes[at..];
            let used = match server.bytes_kind() {
                ServerBytes::ForHolder(holder) => {
                    if let Some(holder) = holder
                        && !clients.get(holder).is_some_and(|client| client.on_http_stream(bytes, out))
                    {
                        out.span(Peer::Client(holder), at..input.bytes.len());
                    }
                    return input.bytes.len();
                }
                ServerBytes::Replies => self.forward_reply(me, server, clients, bytes, at, out),
                ServerBytes::OwnReply => server.on_own_reply(me, bytes, out),
                ServerBytes::Ignored => return input.bytes.len(),
            };
            match used {
                Ok(0) => break,
                Ok(used) => at += used,
                Err(message) => {
                    Server::fail(me, message, out);
                    return input.bytes.len();
                }
            }
        }
        if at == 0 && input.full {
            Server::fail(me, "a line of the server's has no end".to_owned(), out);
            return input.bytes.len();
        }
        at
    }

    fn forward_reply(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        bytes: &[u8],
        at: usize,
        out: &mut Outbox,
    ) -> Result<usize, String> {
        let Some(part) = server.read_reply(me, bytes, out)? else { return Ok(0) };
        let reply = &bytes[..part.taken];
        let mut changed = match part.kind {
            ReplyKind::MoreSubscribers(more) if part.begins && part.over => with_more_subscribers(reply, more),
            ReplyKind::SubscriberCount(topic) if part.begins && part.over => {
                with_uncounted_subscribers(reply, topic, &self.hubs)
            }
            _ => None,
        };
        let mut recipient = part.recipient.and_then(|recipient| alive(clients, recipient));
        if part.kind == ReplyKind::Unblock && recipient.as_mut().is_some_and(|client| client.take_unblocked()) {
            changed = with_more_subscribers(reply, 1);
        }
        let is_whole = part.begins && part.over && part.kind == ReplyKind::WithoutTimeout;
        let goes = is_whole && recipient.as_ref().is_some_and(|client| client.ends_by_giving_way(reply));
        if goes {
            // The reply is that of a time-out, which the command does not have.
        } else if let Some(client) = &mut recipient
            && let Some(changed) = &changed
        {
            if !client.on_http_reply(changed, true) {
                out.insert(Peer::Client(client.tag), |to| to.extend_from_slice(changed));
                client.on_reply_part(true, out);
            }
        } else if let Some(client) = &mut recipient
            && !client.on_http_reply(reply, part.over)
        {
            out.span(Peer::Client(client.tag), at..at + part.taken);
            client.on_reply_part(part.over, out);
        }
        if part.over {
            server.end_reply();
            if let (ReplyKind::Pause(pauses), false) = (part.kind, server.has_refused()) {
                self.note_pause(pauses);
            }
            if part.kind == ReplyKind::Select {
                let error = reply.strip_prefix(b"-");
                let error = error.map(|error| String::from_utf8_lossy(error.trim_ascii_end()).into_owned());
                self.on_database_selected(me, server, clients, error.as_deref(), out);
            } else if let Some(client) = recipient {
                if server.is_closing() {
                    let reason = CloseReason::Error(Blame::Client, "a protocol error, says Redis".to_owned());
                    client.close(reason, out);
                } else if client.on_reply(part.kind, server.has_refused(), out) {
                    // Behind the last reply of all nothing can be meant for the next client.
                    let unasked = server.reply_runs() == 0 && part.taken < bytes.len();
                    client.give_back(me, server, if unasked { Verdict::Discard } else { Verdict::Clean }, out);
                }
                if goes {
                    client.close_to_give_way(out);
                }
                client.answer(out);
            }
            server.end_draining(me, out);
        }
        Ok(part.taken)
    }

    /// A server has answered SELECT. The clients that wait for that request a server again, or get the error.
    fn on_database_selected(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut Clients<'_>,
        error: Option<&str>,
        out: &mut Outbox,
    ) {
        for recipient in server.on_select_reply(error.is_none()) {
            if let Some(client) = alive(clients, recipient)
                && client.has(me)
            {
                self.on_selected(client, me, server, error, out);
                out.push(Effect::Wake { client: client.tag });
            }
        }
    }

    /// A server is lost that is no hub.
    pub(crate) fn server_lost(&self, server: &mut Server, clients: &mut Clients<'_>, out: &mut Outbox) {
        // The driver tells clients that share it one by one.
        if let Some(tag) = server.lose() {
            clients.get(tag).expect("a holder lives").on_server_gone(out);
        }
    }
}

/// The client, if it is connected and not closing.
fn alive<'c>(clients: &'c mut Clients<'_>, (tag, id): Recipient) -> Option<&'c mut Client> {
    clients.get(tag).filter(|client| client.id == id && !client.is_closing())
}

/// Adds to a reply that is a number; `None` if it is something else.
fn with_more_subscribers(reply: &[u8], more: i32) -> Option<Vec<u8>> {
    let number = take_number(&mut &*reply)?;
    Some(format!(":{}\r\n", (number + i64::from(more)).max(0)).into_bytes())
}

/// Adds the subscribers that Redis does not count to a reply of names and numbers; `None` if it is something else.
fn with_uncounted_subscribers(reply: &[u8], topic: Topic, hubs: &Hubs) -> Option<Vec<u8>> {
    let mut rest = reply;
    resp::take_array_header(&mut rest)?;
    let mut changed = reply[..reply.len() - rest.len()].to_vec();
    while !rest.is_empty() {
        let name = resp::take_string(&mut rest)?;
        let count = take_number(&mut rest)? + i64::from(hubs.uncounted_subscribers(topic, name));
        resp::text(&mut changed, name);
        changed.extend_from_slice(format!(":{}\r\n", count.max(0)).as_bytes());
    }
    Some(changed)
}

fn take_number(rest: &mut &[u8]) -> Option<i64> {
    let (number, used) = resp::number(rest.strip_prefix(b":")?).ok()??;
    *rest = &rest[1 + used..];
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_changed_and_other_replies_left_alone() {
        assert_eq!(with_more_subscribers(b":3\r\n", 2).as_deref(), Some(&b":5\r\n"[..]));
        assert_eq!(with_more_subscribers(b"-NOPERM no\r\n", 2), None);
        let counts = b"*4\r\n$1\r\na\r\n:1\r\n$2\r\n\r\n\r\n:0\r\n";
        let changed = |reply| with_uncounted_subscribers(reply, Topic::Channel, &Hubs::default());
        assert_eq!(changed(counts).as_deref(), Some(&counts[..]));
        assert_eq!(changed(b"-NOPERM no\r\n"), None);
    }
}
