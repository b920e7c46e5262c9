//! Commands that are too long to be held whole. Most pass to the server in pieces as they arrive. The names of a long
//! SUBSCRIBE are read in pieces (`long_subscribe`).

use seam::{Blame, CloseReason, Input, Outbox, Peer, Verdict};

use super::{Client, Outcome, lease::Held, long_subscribe::SubscribedNames};
use crate::{
    Redis, Servers,
    command::{Kind, kind},
    resp::{self, ReplyScanner},
    server::ReplyKind,
};

/// Bytes from which on a command needs a server of its own, and is streamed instead of held.
pub(super) const MIN_STREAMED_LENGTH: u64 = 16 * 1024;

/// What a client is told whose command can neither be held nor streamed.
pub(super) const TOO_LONG: &str = "ERR Poolhouse: this command is too long for what Poolhouse has to read of it";

pub(super) const WRONG_LENGTH: &str = "ERR Protocol error: an argument is longer or shorter than announced";

#[derive(Clone, Copy, Debug)]
pub(super) enum PartialCommand {
    Streamed(StreamedCommand),
    Subscription(SubscribedNames),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StreamedCommand {
    scanner: ReplyScanner,
    /// The client got an error instead, so no server gets the command.
    discarded: bool,
}

impl StreamedCommand {
    pub(super) fn new(discarded: bool) -> Self {
        Self { scanner: ReplyScanner::default(), discarded }
    }

    /// Reads on. Returns how many bytes belong to the command, and whether it ends with them.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<(usize, bool), &'static str> {
        self.scanner.advance(bytes).map(|end| (end.taken, end.over)).map_err(|_| WRONG_LENGTH)
    }

    /// The server is lost: the rest goes nowhere.
    pub(super) fn discard(&mut self) {
        self.discarded = true;
    }
}

/// Whether a command that begins with these bytes may be streamed: what Poolhouse has to know of it is there.
pub(super) fn may_be_streamed(bytes: &[u8]) -> bool {
    let Some(beginning) = resp::beginning(bytes) else { return false };
    if beginning.second.is_none() && (bytes.len() as u64) < MIN_STREAMED_LENGTH {
        return false;
    }
    match kind(beginning.name, beginning.second.as_slice()) {
        Kind::Auth | Kind::Hello | Kind::Reset | Kind::AboutClients(_) => false,
        // CLIENT TRACKING may have REDIRECT as its last option.
        Kind::Pinning => !beginning.name.eq_ignore_ascii_case(b"CLIENT"),
        _ => true,
    }
}

impl Redis {
    /// Takes a command that has not arrived whole. A long one begins to be streamed or read in pieces; others wait for
    /// the rest.
    pub(super) fn begin_partial(
        &self,
        client: &mut Client,
        servers: &mut Servers<'_>,
        bytes: &[u8],
        needed: u64,
        full: bool,
        out: &mut Outbox,
    ) -> Outcome {
        if needed < MIN_STREAMED_LENGTH && !full {
            // A longer one may be streamed before it is whole.
            out.need = needed as usize;
            return Outcome::Waits;
        }
        let beginning = resp::beginning(bytes)
            .filter(|beginning| beginning.second.is_some() || bytes.len() as u64 >= MIN_STREAMED_LENGTH);
        let kind = match beginning.map(|beginning| kind(beginning.name, beginning.second.as_slice())) {
            Some(Kind::Subscription(_)) if client.needs_its_server() && client.subscriptions.is_none() => {
                Some(Kind::Pinning)
            }
            Some(Kind::Subscription(_)) if !full => return Outcome::Waits,
            Some(Kind::Subscription(what)) if client.identity.is_authenticated() && !client.needs_its_server() => {
                if client.hold_input_for_replies() {
                    return Outcome::Waits;
                }
                client.partial = Some(PartialCommand::Subscription(SubscribedNames::new(what)));
                return Outcome::Consumed;
            }
            kind => kind,
        };
        match kind.filter(|kind| client.streams(*kind, bytes)) {
            Some(kind) => self.begin_stream(client, servers, kind, out),
            None => {
                if full && !client.hold_input_for_replies() {
                    client.fail(TOO_LONG, out);
                }
                Outcome::Waits
            }
        }
    }

    fn begin_stream(&self, client: &mut Client, servers: &mut Servers<'_>, kind: Kind, out: &mut Outbox) -> Outcome {
        let discarded = match self.server_for(client, servers, kind, true, out) {
            Some((tag, server)) => {
                // The time-out may be the last argument.
                let may_wait_forever = matches!(kind, Kind::Blocking | Kind::Wait);
                let reply = match may_wait_forever && !client.lease.transaction().is_open() {
                    true => ReplyKind::WithoutTimeout,
                    false => ReplyKind::Plain,
                };
                client.note_sent(tag, server, kind, reply, out);
                false
            }
            None => match client.answer_without_server(kind, out) {
                Outcome::Consumed => true,
                Outcome::Waits => return Outcome::Waits,
            },
        };
        client.partial = Some(PartialCommand::Streamed(StreamedCommand::new(discarded)));
        Outcome::Consumed
    }

    /// Reads a piece of a command of which a part has been consumed. Returns the number of bytes that were consumed;
    /// `None` if there is no such command.
    pub(super) fn read_partial(
        &self,
        client: &mut Client,
        servers: &mut Servers<'_>,
        at: usize,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> Option<usize> {
        let (bytes, full) = (&input.bytes[at..], input.full && at == 0);
        match client.partial? {
            PartialCommand::Subscription(names) => {
                let (used, left) = self.read_names(client, names, bytes, full, out);
                client.partial = left.map(PartialCommand::Subscription);
                Some(used)
            }
            PartialCommand::Streamed(command) => {
                let used = client.stream(command, at, bytes, servers, out);
                if used == 0 && full {
                    client.fail_in_a_command("ERR Protocol error: a line has no end", out);
                }
                Some(used)
            }
        }
    }
}

impl Client {
    /// Whether a command of this kind, which begins with these bytes, is streamed.
    fn streams(&self, kind: Kind, bytes: &[u8]) -> bool {
        let is_refused = self.is_restricted() || (self.subscriptions.is_some() && kind == Kind::Pinning);
        let is_possible = match kind {
            Kind::Pinning => may_be_streamed(bytes),
            Kind::Ordinary
            | Kind::Blocking
            | Kind::Control
            | Kind::Script
            | Kind::Publish(_)
            | Kind::SubscriberCount(_)
            | Kind::Watch
            | Kind::Multi
            | Kind::EndTransaction
            | Kind::Wait => true,
            Kind::Auth
            | Kind::Hello
            | Kind::Select
            | Kind::AboutSelf(_)
            | Kind::AboutClients(_)
            | Kind::Subscription(_)
            | Kind::Quit
            | Kind::Reset
            | Kind::Http => false,
        };
        self.identity.is_authenticated() && !is_refused && is_possible
    }

    /// Whether its server has nothing to do until the rest of a streamed command has come.
    pub(crate) fn leaves_command_open(&self) -> bool {
        matches!(self.partial, Some(PartialCommand::Streamed(command)) if !command.discarded)
            && self.replies.count() == 1
            && !self.lease.is_pinned()
    }

    /// Forwards a piece of a streamed command. Returns the number of bytes that were consumed.
    fn stream(
        &mut self,
        mut command: StreamedCommand,
        at: usize,
        bytes: &[u8],
        servers: &mut Servers<'_>,
        out: &mut Outbox,
    ) -> usize {
        // The server says whether the bytes are a command. If they are not, it closes the connection.
        let (taken, over) = match command.advance(bytes) {
            Ok(piece) => piece,
            Err(error) => {
                self.fail_in_a_command(error, out);
                return bytes.len();
            }
        };
        if taken == 0 {
            return 0;
        }
        let held = self.lease.held().map(Held::server);
        if let (false, Some(server)) = (command.discarded, held) {
            out.span(Peer::Server(server), at..at + taken);
        }
        self.partial = (!over).then_some(PartialCommand::Streamed(command));
        if over
            && let Some(tag) = held
            && self.replies.is_empty()
        {
            // The server answered before the whole command was sent.
            if self.needs_its_server() {
                let why = "an answer to half a command, in a transaction".to_owned();
                self.close(CloseReason::Error(Blame::Server, why), out);
                return taken;
            }
            let server = servers.get(tag).expect("a held server lives");
            self.give_back(tag, server, Verdict::Discard, out);
        }
        taken
    }

    /// An error in the middle of a command, which ends the connection. The client is told only if no earlier reply is
    /// pending.
    fn fail_in_a_command(&mut self, error: &str, out: &mut Outbox) {
        if self.replies.count() > 1 {
            return self.close(CloseReason::Error(Blame::Client, error.to_owned()), out);
        }
        self.fail(error, out);
    }
}
