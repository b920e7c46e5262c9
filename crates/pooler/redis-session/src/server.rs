//! A server's session: its login, and to which client each of its replies goes. It knows no client's session: `replies`
//! brings the replies to clients.

mod database;
mod hub_connection;
mod reply_queue;

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag, Verdict};

use crate::{
    command::Topic,
    hello::Hello,
    login::Progress,
    resp::{self, ReplyScanner},
    sentinel::Start,
};
use hub_connection::HubConnection;
pub(crate) use reply_queue::ReplyPart;
use reply_queue::{ReplyQueue, Signs};

pub struct Server {
    phase: Phase,
    hello: Hello,
    /// The client that has the server for itself.
    holder: Option<ClientTag>,
    /// The server stays with its holder until one of them goes. When no reply is pending, all bytes are the holder's.
    pinned: bool,
    replies: ReplyQueue,
    /// The reply of CLIENT GETNAME on this connection.
    name: Option<Box<[u8]>>,
    /// The server is about to close the connection.
    closing: bool,
    /// It holds the subscriptions of its pool.
    hub: Option<Box<HubConnection>>,
    /// Clients that wait until its database is selected. They hold or share the server.
    selecting_for: Vec<Recipient>,
}

enum Phase {
    Starting(Box<Start>),
    Ready,
    /// Clients went before their replies had come. The server is ready when these have.
    Draining,
    /// PING was sent to see whether the server answers.
    Checking,
    /// The login failed. Whatever else the server sends is ignored.
    Failed,
}

/// What a reply means to Poolhouse, known when its command is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyKind {
    Plain,
    /// The reply of a script. It may be any error, even a protocol error.
    Script,
    /// The reply of a blocking command without a time-out.
    WithoutTimeout,
    /// Unless it is an error, the reply of CLIENT PAUSE (`true`) or CLIENT UNPAUSE.
    Pause(bool),
    /// The reply of CLIENT UNBLOCK. Redis does not know of clients that wait for a server in Poolhouse.
    Unblock,
    /// Unless it is an error, a transaction begins.
    Multi,
    /// Unless it is an error, keys are watched.
    Watch,
    /// Unless it is an error or `QUEUED`, the transaction ends and no key is watched.
    EndTransaction,
    /// Names with their numbers of subscribers, to which Poolhouse adds the subscribers that share a connection.
    SubscriberCount(Topic),
    /// Unless it is an error, the server's database is selected.
    Select,
    /// A number of subscribers, to which Poolhouse adds this many that share a connection.
    MoreSubscribers(i32),
}

/// A client, and the id that CLIENT ID tells it: by the time of a reply, its tag may be another client's.
pub(crate) type Recipient = (ClientTag, u64);

/// What the bytes of a server are.
pub(crate) enum ServerBytes {
    /// They go to the holder unchanged.
    ForHolder(Option<ClientTag>),
    Replies,
    /// A reply to what Poolhouse sent while no client had the server.
    OwnReply,
    Ignored,
}

impl Server {
    pub(crate) fn start(me: ServerTag, start: Start, out: &mut Outbox) -> Self {
        if start.wants_tls() {
            out.push(Effect::StartTls { peer: Peer::Server(me) });
        } else {
            out.insert(Peer::Server(me), |to| start.begin(to));
        }
        Self {
            phase: Phase::Starting(Box::new(start)),
            hello: Hello::default(),
            holder: None,
            pinned: false,
            replies: ReplyQueue::default(),
            name: None,
            closing: false,
            hub: None,
            selecting_for: Vec::new(),
        }
    }

    /// Whether it holds the subscriptions of its pool.
    pub(crate) fn is_hub(&self) -> bool {
        self.hub.is_some()
    }

    pub(crate) fn secured(&self, me: ServerTag, out: &mut Outbox) {
        let Phase::Starting(start) = &self.phase else { unreachable!("TLS is asked for at the start only") };
        out.insert(Peer::Server(me), |to| start.begin(to));
    }

    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    pub(crate) fn backend(&self) -> Option<u32> {
        (self.hello.id != 0).then_some(self.hello.id)
    }

    pub(crate) fn lend(&mut self, client: ClientTag) {
        assert!(self.holder.is_none() && self.replies.is_empty(), "a server is lent that is not clean");
        self.holder = Some(client);
    }

    /// It belongs to no client any more. Returns the verdict on its state.
    pub(crate) fn take_back(&mut self, verdict: Verdict) -> Verdict {
        self.holder = None;
        if verdict == Verdict::Clean && (self.pinned || self.closing || !self.replies.is_empty()) {
            Verdict::Discard
        } else {
            verdict
        }
    }

    /// Gives the connection the client's name, before a command whose effects may show it.
    pub(crate) fn set_name(&mut self, me: ServerTag, name: Option<&[u8]>, out: &mut Outbox) {
        if self.name.as_deref() != name {
            out.insert(Peer::Server(me), |to| resp::command(to, &[b"CLIENT", b"SETNAME", name.unwrap_or_default()]));
            self.expect(None, ReplyKind::Plain);
            self.name = name.map(Box::from);
        }
    }

    /// A command is sent, whose reply is of this kind. `recipient`: `None` if no client gets the reply.
    pub(crate) fn expect(&mut self, recipient: Option<Recipient>, kind: ReplyKind) {
        self.replies.push(recipient, kind);
    }

    /// How much memory the order of pending replies takes, in runs of replies of one kind.
    pub(crate) fn reply_runs(&self) -> usize {
        self.replies.runs()
    }

    /// The server stays with its holder from now on.
    pub(crate) fn pin(&mut self) {
        self.pinned = true;
    }

    /// Clients gave the server back before all their replies had come.
    pub(crate) fn reset(&mut self, me: ServerTag, out: &mut Outbox) {
        if self.closing || self.pinned {
            return Self::fail(me, "the server was about to close the connection".to_owned(), out);
        }
        self.phase = Phase::Draining;
        self.end_draining(me, out);
    }

    /// Makes a draining server ready if no reply is pending.
    pub(crate) fn end_draining(&mut self, me: ServerTag, out: &mut Outbox) {
        if matches!(self.phase, Phase::Draining) && self.replies.is_empty() {
            self.phase = Phase::Ready;
            out.push(Effect::Ready { server: me });
        }
    }

    pub(crate) fn check(&mut self, me: ServerTag, out: &mut Outbox) {
        self.phase = Phase::Checking;
        out.insert(Peer::Server(me), |to| resp::command(to, &[b"PING"]));
    }

    pub(crate) fn bytes_kind(&self) -> ServerBytes {
        match self.phase {
            _ if self.pinned && self.replies.is_empty() => ServerBytes::ForHolder(self.holder),
            Phase::Ready | Phase::Draining => ServerBytes::Replies,
            Phase::Starting(_) | Phase::Checking => ServerBytes::OwnReply,
            Phase::Failed => ServerBytes::Ignored,
        }
    }

    /// Reads a reply, or a part of one; `None` if more of it has to come. [`end_reply`](Self::end_reply) is to be
    /// called behind its end.
    pub(crate) fn read_reply(
        &mut self,
        me: ServerTag,
        bytes: &[u8],
        out: &mut Outbox,
    ) -> Result<Option<ReplyPart>, String> {
        let mut signs = Signs::default();
        let part = self.replies.read(bytes, &mut signs)?;
        if signs.demoted {
            out.push(Effect::Outdated { server: me });
        }
        // A shared server gets only whole commands, so there it is a client's data.
        self.closing |= signs.protocol_error && self.holder.is_some();
        Ok(part)
    }

    pub(crate) fn end_reply(&mut self) {
        self.replies.end_reply();
    }

    /// Whether the first pending reply says that nothing has changed: it is an error, or `QUEUED`.
    pub(crate) fn has_refused(&self) -> bool {
        self.replies.has_refused()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Takes a whole reply to what Poolhouse sent while no client had the server.
    pub(crate) fn on_own_reply(&mut self, me: ServerTag, bytes: &[u8], out: &mut Outbox) -> Result<usize, String> {
        let end = ReplyScanner::default().advance(bytes).map_err(|error| format!("this is no Redis: {error}"))?;
        if !end.over {
            return Ok(0);
        }
        let reply = &bytes[..end.taken];
        let Phase::Starting(start) = &mut self.phase else {
            // A server that is busy with a script, or forbids PING, works.
            if reply[0] == b'-' && ![&b"-BUSY "[..], b"-NOPERM "].iter().any(|answers| reply.starts_with(answers)) {
                return Err(format!("the server does not answer PING: {}", shown(reply)));
            }
            self.phase = Phase::Ready;
            out.push(Effect::Ready { server: me });
            return Ok(end.taken);
        };
        match start.reply(reply) {
            Progress::Say { bytes, accepted } => {
                if accepted {
                    out.push(Effect::Authenticated { server: me });
                }
                out.insert(Peer::Server(me), |to| to.extend_from_slice(&bytes));
            }
            Progress::Done { hello } => {
                self.hello = hello;
                self.phase = Phase::Ready;
                out.push(Effect::Ready { server: me });
            }
            Progress::Redirected { host, port } => {
                self.phase = Phase::Failed;
                let reason = CloseReason::Redirected { host, port };
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            Progress::Unknown { message } => {
                self.phase = Phase::Failed;
                out.push(Effect::Close { peer: Peer::Server(me), reason: CloseReason::UnknownDatabase { message } });
            }
            Progress::Failed { message, permanent } => {
                self.phase = Phase::Failed;
                let reason = CloseReason::StartFailed { permanent, message };
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
        }
        Ok(end.taken)
    }

    /// Closes a connection that cannot be used any more.
    pub(crate) fn fail(me: ServerTag, message: String, out: &mut Outbox) {
        let reason = CloseReason::Error(Blame::Server, message);
        out.push(Effect::Close { peer: Peer::Server(me), reason });
    }

    /// The connection is lost. Returns its holder.
    pub(crate) fn lose(&mut self) -> Option<ClientTag> {
        self.holder.take()
    }
}

pub(crate) const LOST: &str = "the connection to Redis was lost";

/// The beginning of a reply, for error messages.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].trim_ascii_end().escape_ascii().to_string()
}
