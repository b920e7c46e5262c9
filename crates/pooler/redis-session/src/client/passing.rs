//! Commands too long to be held whole: they pass in pieces as they arrive.

use seam::{Blame, ClientTag, CloseReason, Input, Outbox, Peer, ServerTag, Sessions, Verdict};

use super::{Client, Taken, lease::Held};
use crate::{
    Redis, Server,
    command::{Kind, kind},
    resp::{self, ReplyScanner},
    server::ReplyKind,
};

/// Bytes from which on a command has a server of its own, and passes in pieces instead of being held whole.
pub(super) const STREAM_FROM: u64 = 16 * 1024;

/// Whether a command of which this is the beginning may pass in pieces: no more of it has to be read.
pub(super) fn needs_no_more(bytes: &[u8]) -> bool {
    let Some(beginning) = resp::beginning(bytes) else { return false };
    if beginning.second.is_none() && (bytes.len() as u64) < STREAM_FROM {
        return false;
    }
    match kind(beginning.name, beginning.second.as_slice()) {
        Kind::Auth | Kind::Hello | Kind::Reset | Kind::Clients(_) => false,
        // What it tracks may stand far behind.
        Kind::Pinning => !beginning.name.eq_ignore_ascii_case(b"CLIENT"),
        _ => true,
    }
}

/// A command that arrives in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passing {
    pub(super) scanner: ReplyScanner,
    /// Nobody gets it: it has been answered with an error.
    pub(super) dropped: bool,
}

impl Redis {
    /// A command that has not arrived whole. A long one begins to pass; others wait for the rest.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn incomplete(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        bytes: &[u8],
        needed: u64,
        full: bool,
        out: &mut Outbox,
    ) -> Taken {
        if needed < STREAM_FROM && !full {
            // A longer one may be passed on before it is whole.
            out.need = needed as usize;
            return Taken::No;
        }
        let beginning = resp::beginning(bytes).filter(|b| b.second.is_some() || bytes.len() as u64 >= STREAM_FROM);
        let kind = match beginning.map(|beginning| kind(beginning.name, beginning.second.as_slice())) {
            Some(Kind::Subscription(_)) if client.is_bound() && client.subscriptions.is_none() => Some(Kind::Pinning),
            Some(Kind::Subscription(_)) if !full => return Taken::No,
            Some(Kind::Subscription(what)) if !client.stranger && !client.is_bound() => {
                return if client.waits() { Taken::No } else { client.begin_list(what) };
            }
            kind => kind,
        };
        let ruled_out = client.is_restricted() || (client.subscriptions.is_some() && kind == Some(Kind::Pinning));
        let passes = !client.stranger
            && !ruled_out
            && (kind != Some(Kind::Pinning) || needs_no_more(bytes))
            && matches!(
                kind,
                Some(
                    Kind::Ordinary
                        | Kind::Blocking
                        | Kind::Control
                        | Kind::Script
                        | Kind::Publish(_)
                        | Kind::SubscriberCount(_)
                        | Kind::Watch
                        | Kind::Multi
                        | Kind::EndTransaction
                        | Kind::Wait
                        | Kind::Pinning
                )
            );
        if !passes {
            if full && client.waits() {
                return Taken::No;
            }
            if full {
                client.fail(me, "ERR Poolhouse: this command is too long for what Poolhouse has to read of it", out);
            }
            return Taken::No;
        }
        let kind = kind.expect("a command that passes has one");
        let dropped = match self.server_for(me, client, servers, kind, true, out) {
            Some((tag, server)) => {
                // Whether it has a time-out may stand far behind.
                let due = if matches!(kind, Kind::Blocking | Kind::Wait) && !client.lease.transaction().is_open() {
                    ReplyKind::WithoutTimeout
                } else {
                    ReplyKind::Plain
                };
                client.note(me, tag, server, kind, due, out);
                false
            }
            None => match client.answered_without_server(me, kind, out) {
                Taken::Yes => true,
                Taken::No => return Taken::No,
            },
        };
        client.passing = Some(Passing { scanner: ReplyScanner::default(), dropped });
        Taken::Yes
    }
}

impl Redis {
    /// Takes a part of a command that comes in pieces; `None` if none does. Returns what was taken.
    pub(super) fn piece(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        at: usize,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> Option<usize> {
        let (bytes, full) = (&input.bytes[at..], input.full && at == 0);
        if client.listing.is_some() {
            return Some(self.list(me, client, bytes, full, out));
        }
        client.passing?;
        let used = client.pass(me, at, bytes, servers, out);
        if used == 0 && full {
            client.fail_in_a_command(me, "ERR Protocol error: a line has no end", out);
        }
        Some(used)
    }
}

impl Client {
    /// Whether its server has nothing to do until the rest of a command has come, of which a part has been passed on.
    pub(crate) fn leaves_command_open(&self) -> bool {
        self.passing.is_some_and(|passing| !passing.dropped) && self.due == 1 && !self.lease.is_pinned()
    }

    /// Passes on a part of a long command. Returns what was taken.
    pub(super) fn pass(
        &mut self,
        me: ClientTag,
        at: usize,
        bytes: &[u8],
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) -> usize {
        let Some(mut passing) = self.passing else { unreachable!("seen by the caller") };
        // Whether what stands there is a command is for the server to say; it closes the connection if not.
        let Ok(end) = passing.scanner.advance(bytes) else {
            self.fail_in_a_command(me, "ERR Protocol error: an argument is longer or shorter than announced", out);
            return bytes.len();
        };
        if end.taken == 0 {
            return 0;
        }
        let held = self.lease.held().map(Held::server);
        if let (false, Some(server)) = (passing.dropped, held) {
            out.span(Peer::Server(server), at..at + end.taken);
        }
        self.passing = (!end.over).then_some(passing);
        if end.over
            && let Some(tag) = held
            && self.due == 0
        {
            // The server has answered before it had heard all.
            if self.is_bound() {
                let reason =
                    CloseReason::Error(Blame::Server, "an answer to half a command, in a transaction".to_owned());
                self.close(me, reason, out);
                return end.taken;
            }
            let server = servers.get(tag).expect("a held server lives");
            self.part(me, tag, server, Verdict::Discard, out);
        }
        end.taken
    }

    /// An error in the middle of a command, which ends the connection: told only if no other reply is due before it.
    pub(super) fn fail_in_a_command(&mut self, me: ClientTag, error: &str, out: &mut Outbox) {
        if self.due > 1 {
            return self.close(me, CloseReason::Error(Blame::Client, error.to_owned()), out);
        }
        self.fail(me, error, out);
    }
}
