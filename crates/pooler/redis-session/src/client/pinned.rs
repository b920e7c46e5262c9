//! A client whose server is pinned: what it sends passes unchanged, except what concerns other clients or the user.
//!
//! Poolhouse does not know which replies are pending, because CLIENT REPLY, MONITOR and the script debugger make for
//! more or fewer of them. So it cannot answer in Redis's place. A command that must not pass is replaced by one that
//! Redis does not know, whose name is the reason. So the error comes in order, aborts a transaction, and is left out
//! where replies are off.

use seam::{Input, Outbox, Peer};

use super::{
    Client, MAX_INSERTED, connection_commands,
    long_commands::{MIN_STREAMED_LENGTH, PartialCommand, StreamedCommand, TOO_LONG, WRONG_LENGTH, may_be_streamed},
};
use crate::{
    Redis,
    command::{Kind, kind},
    resp::{self, Limits, Request},
};

/// Why commands do not pass. Redis shows 128 bytes of an unknown name.
const AUTH: &str = "AUTH after a command that keeps a server (Poolhouse: log in before it, or on another connection)";
const HELLO: &str =
    "HELLO with AUTH after a command that keeps a server (Poolhouse: log in before, or on another connection)";
const CLIENTS: &str =
    "CLIENT LIST, INFO, KILL or UNBLOCK of a client that keeps a server (Poolhouse: use another connection)";
const REDIRECT: &str = "CLIENT TRACKING with REDIRECT (Poolhouse: use RESP3, without REDIRECT)";
const RESET: &str = "RESET of a client that keeps a server (Poolhouse: use another connection)";

/// Bytes that Redis answers with a protocol error, and then closes the connection.
const MALFORMED: &[u8] = b"*x\r\n";

impl Redis {
    /// Forwards the input of a client whose server is pinned. Returns the number of bytes that were consumed.
    pub(super) fn forward_pinned(&self, client: &mut Client, at: usize, input: Input<'_>, out: &mut Outbox) -> usize {
        let server = Peer::Server(client.lease.held().expect("a pinned server is held").server());
        // Bytes that pass, and are not in the output yet.
        let (mut begin, mut end) = (at, at);
        while end < input.bytes.len() && out.inserted.len() <= MAX_INSERTED {
            let (bytes, whole) = (&input.bytes[end..], input.full && end == 0);
            match client.advance_stream(bytes, whole) {
                Ok(None) => {}
                Ok(Some(0)) => break,
                Ok(Some(taken)) => {
                    end += taken;
                    continue;
                }
                Err(error) => {
                    client.fail(error, out);
                    return input.bytes.len();
                }
            }
            match resp::read(bytes, &Limits::AUTHENTICATED) {
                Ok(Request::Nothing(length)) => end += length,
                Ok(Request::Command(length, arguments)) => {
                    let arguments = connection_commands::needed_arguments(arguments);
                    if let Some(why) = self.why_withheld_from_pinned(client, &arguments) {
                        out.span(server, begin..end);
                        begin = end + length;
                        out.insert(server, |to| resp::command(to, &[why.as_bytes()]));
                    }
                    end += length;
                }
                Ok(Request::Inline(length, words)) => {
                    let arguments: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    let why = self.why_withheld_from_pinned(client, &arguments);
                    out.span(server, begin..end);
                    end += length;
                    begin = end;
                    match why {
                        Some(why) => out.insert(server, |to| resp::command(to, &[why.as_bytes()])),
                        None => out.insert(server, |to| resp::command(to, &arguments)),
                    }
                }
                Ok(Request::Incomplete(needed)) if needed < MIN_STREAMED_LENGTH && !whole => {
                    out.need = needed as usize;
                    break;
                }
                Ok(Request::Incomplete(_)) if may_be_streamed(bytes) => {
                    client.partial = Some(PartialCommand::Streamed(StreamedCommand::new(false)));
                }
                Ok(Request::Incomplete(_)) if whole => {
                    client.fail(TOO_LONG, out);
                    return input.bytes.len();
                }
                Ok(Request::Incomplete(_)) => break,
                Err(_) => {
                    // Redis answers in order, and closes the connection.
                    out.span(server, begin..end);
                    out.insert(server, |to| to.extend_from_slice(MALFORMED));
                    return input.bytes.len();
                }
            }
        }
        out.span(server, begin..end);
        end
    }

    /// Why this command must not pass; `None` if it may.
    fn why_withheld_from_pinned(&self, client: &Client, arguments: &[&[u8]]) -> Option<&'static str> {
        let kind = kind(arguments[0], &arguments[1..]);
        match kind {
            Kind::AboutClients(_) => Some(CLIENTS),
            Kind::Pinning if connection_commands::has_redirect(arguments) => Some(REDIRECT),
            Kind::Reset if arguments.len() == 1 && self.reset_changes_user(client) => Some(RESET),
            _ => why_withheld(kind, arguments),
        }
    }

    /// Whether Redis would take the client for another user after RESET.
    fn reset_changes_user(&self, client: &Client) -> bool {
        let has_login = |pool| {
            let login = self.directory.server_login(pool);
            login.user.is_some() || login.password.is_some()
        };
        client.identity.requires_login() || client.identity.counted_in().is_none_or(has_login)
    }
}

impl Client {
    /// Goes on with a streamed command, if there is one. Returns the number of bytes that belong to it.
    fn advance_stream(&mut self, bytes: &[u8], whole: bool) -> Result<Option<usize>, &'static str> {
        let Some(PartialCommand::Streamed(command)) = &mut self.partial else { return Ok(None) };
        let (taken, over) = command.advance(bytes)?;
        if over {
            self.partial = None;
        }
        if taken == 0 && whole { Err(WRONG_LENGTH) } else { Ok(Some(taken)) }
    }
}

/// Why this command must not go to Redis even while the client holds its server, in a transaction too; `None` if it
/// may. Clients log in to Poolhouse, not to Redis.
pub(super) fn why_withheld(kind: Kind, arguments: &[&[u8]]) -> Option<&'static str> {
    match kind {
        // With fewer or more arguments, it is an error in Redis.
        Kind::Auth if matches!(arguments.len(), 2 | 3) => Some(AUTH),
        Kind::Hello if connection_commands::has_auth(arguments) => Some(HELLO),
        _ => None,
    }
}
