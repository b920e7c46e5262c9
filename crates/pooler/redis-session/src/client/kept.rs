//! A client that keeps its server until it leaves: what it sends passes as it is, except what would concern others than
//! itself, or who it is.
//!
//! Which replies are due is not known here, since CLIENT REPLY, MONITOR and a script's debugger make for more and for
//! fewer. So nothing can be answered in Redis's place. What does not pass is replaced by a command that Redis does not
//! know, whose name says why: so the error comes in its turn, spoils a transaction, and is left out where replies are
//! off.

use seam::{ClientTag, Input, Outbox, Peer};

use super::{
    Client, MAX_SAID, own,
    passing::{Passing, STREAM_FROM, needs_no_more},
};
use crate::{
    Redis,
    command::{Kind, kind},
    resp::{self, Limits, ReplyScanner, Request},
};

/// Why commands do not pass. Redis shows 128 bytes of a name that it does not know.
const AUTH: &str = "AUTH after a command that keeps a server (Poolhouse: log in before it, or on another connection)";
const HELLO: &str =
    "HELLO with AUTH after a command that keeps a server (Poolhouse: log in before, or on another connection)";
const ROSTER: &str =
    "CLIENT LIST, INFO, KILL or UNBLOCK of a client that keeps a server (Poolhouse: use another connection)";
const REDIRECT: &str = "CLIENT TRACKING with REDIRECT (Poolhouse: use RESP3, without REDIRECT)";
const RESET: &str = "RESET of a client that keeps a server (Poolhouse: use another connection)";

/// What Redis takes for no command, so that it says so and closes the connection.
const MALFORMED: &[u8] = b"*x\r\n";

impl Redis {
    /// Passes on what a client sends that keeps its server. Returns what was taken.
    pub(super) fn pass_kept(
        &self,
        me: ClientTag,
        client: &mut Client,
        at: usize,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let server = Peer::Server(client.lease.held().expect("a pinned server is held").server());
        // What is to pass, and has not been sent.
        let (mut begin, mut end) = (at, at);
        while end < input.bytes.len() && out.inserted.len() <= MAX_SAID {
            let (bytes, whole) = (&input.bytes[end..], input.full && end == 0);
            if let Some(passing) = &mut client.passing {
                let taken = passing.scanner.advance(bytes).map(|piece| (piece.taken, piece.over));
                let Ok((taken @ 1.., over)) = taken else {
                    if taken.is_ok() && !whole {
                        break;
                    }
                    client.fail(me, "ERR Protocol error: an argument is longer or shorter than announced", out);
                    return input.bytes.len();
                };
                end += taken;
                if over {
                    client.passing = None;
                }
                continue;
            }
            match resp::read(bytes, &Limits::OPEN) {
                Ok(Request::Nothing(length)) => end += length,
                Ok(Request::Command(length, arguments)) => {
                    let arguments = own::to_be_read(arguments);
                    if let Some(why) = self.pass_one(client, &arguments) {
                        out.span(server, begin..end);
                        begin = end + length;
                        out.insert(server, |to| resp::command(to, &[why.as_bytes()]));
                    }
                    end += length;
                }
                Ok(Request::Inline(length, words)) => {
                    let arguments: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    let why = self.pass_one(client, &arguments);
                    out.span(server, begin..end);
                    end += length;
                    begin = end;
                    match why {
                        Some(why) => out.insert(server, |to| resp::command(to, &[why.as_bytes()])),
                        None => out.insert(server, |to| resp::command(to, &arguments)),
                    }
                }
                Ok(Request::Incomplete(needed)) if needed < STREAM_FROM && !whole => {
                    out.need = needed as usize;
                    break;
                }
                Ok(Request::Incomplete(_)) if needs_no_more(bytes) => {
                    client.passing = Some(Passing { scanner: ReplyScanner::default(), dropped: false });
                }
                Ok(Request::Incomplete(_)) if whole => {
                    let error = "ERR Poolhouse: this command is too long for what Poolhouse has to read of it";
                    client.fail(me, error, out);
                    return input.bytes.len();
                }
                Ok(Request::Incomplete(_)) => break,
                Err(_) => {
                    // Redis answers that in its turn, and reads nothing more of the connection.
                    out.span(server, begin..end);
                    out.insert(server, |to| to.extend_from_slice(MALFORMED));
                    return input.bytes.len();
                }
            }
        }
        out.span(server, begin..end);
        end
    }

    /// A whole command is to pass; otherwise why it does not.
    fn pass_one(&self, client: &Client, arguments: &[&[u8]]) -> Option<&'static str> {
        let kind = kind(arguments[0], &arguments[1..]);
        match kind {
            Kind::Clients(_) => Some(ROSTER),
            Kind::Pinning if own::redirects(arguments) => Some(REDIRECT),
            Kind::Reset if arguments.len() == 1 && self.makes_another_user(client) => Some(RESET),
            _ => ruled_out_in_redis(kind, arguments),
        }
    }

    /// Whether Redis would take the client for another user after RESET.
    fn makes_another_user(&self, client: &Client) -> bool {
        let has_login = |pool| {
            let login = self.directory.server_login(pool);
            login.user.is_some() || login.password.is_some()
        };
        client.guarded || client.counted.is_none_or(has_login)
    }
}

/// Why a command may not go to Redis even where the server is the client's own for long, be it for a transaction only.
/// Who the client is is a matter of Poolhouse's.
pub(super) fn ruled_out_in_redis(kind: Kind, arguments: &[&[u8]]) -> Option<&'static str> {
    match kind {
        // With fewer or more words it shows no password, and Redis has words for that.
        Kind::Auth if matches!(arguments.len(), 2 | 3) => Some(AUTH),
        Kind::Hello if own::logs_in(arguments) => Some(HELLO),
        _ => None,
    }
}
