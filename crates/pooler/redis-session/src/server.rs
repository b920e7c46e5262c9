//! The server's side: its login, and whose reply is due. It knows no client's session: `replies` brings replies to
//! clients.

mod holding;
mod outside;

use std::collections::VecDeque;

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag, Verdict};

use crate::{
    command::Topic,
    hello::Hello,
    login::Progress,
    resp::{self, ReplyScanner},
    sentinel::Start,
};
use holding::Holding;

pub struct Server {
    phase: Phase,
    hello: Hello,
    holder: Option<ClientTag>,
    /// The replies that are due, in order.
    due: VecDeque<Run>,
    /// Where the present reply is.
    scanner: ReplyScanner,
    /// It is none, but something that Redis says by itself.
    pushed: bool,
    /// What CLIENT GETNAME tells there.
    name: Option<Box<[u8]>>,
    /// The server closes the connection next.
    closing: bool,
    /// Everything that comes once nothing is due is for the holder.
    kept: bool,
    /// The present reply says that nothing has changed: an error, or that the command is queued.
    refused: bool,
    /// It holds the subscriptions of its pool.
    holding: Option<Box<Holding>>,
    /// Clients that wait for its database to be selected: those who have a share of it, or it.
    entering: Vec<Whom>,
}

enum Phase {
    Starting(Box<Start>),
    Ready,
    /// Given back by clients that went before their replies: it waits for those.
    Draining,
    /// Asked whether it still answers.
    Checking,
    /// Its login failed: whatever else it says is of no interest.
    Ended,
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

/// A client, and the number that CLIENT ID tells it: its tag alone may be another's by the time of the reply.
pub(crate) type Whom = (ClientTag, u64);

/// Replies of one kind that are due to one client, one after another.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// `None`: Poolhouse asked by itself.
    whom: Option<Whom>,
    due: ReplyKind,
    times: u32,
}

/// What a server's bytes are.
pub(crate) enum Says {
    /// All is for its holder, as it is.
    Stream(Option<ClientTag>),
    Replies,
    /// A reply to what Poolhouse asked while nobody held the server.
    Own,
    Nothing,
}

pub(crate) struct ReplyPart {
    /// For whom it is, if for anybody.
    pub whom: Option<Whom>,
    pub due: ReplyKind,
    /// Whether it is the beginning.
    pub begins: bool,
    /// Bytes of it.
    pub taken: usize,
    /// Whether the reply ends with it.
    pub over: bool,
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
            due: VecDeque::new(),
            scanner: ReplyScanner::default(),
            pushed: false,
            name: None,
            closing: false,
            kept: false,
            refused: false,
            holding: None,
            entering: Vec::new(),
        }
    }

    /// Whether it holds the subscriptions of its pool.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding.is_some()
    }

    /// The connection is in TLS now.
    pub(crate) fn secured(&self, me: ServerTag, out: &mut Outbox) {
        let Phase::Starting(start) = &self.phase else { unreachable!("TLS is asked for at the start only") };
        out.insert(Peer::Server(me), |to| start.begin(to));
    }

    /// What it says of itself.
    pub(crate) fn hello(&self) -> &Hello {
        &self.hello
    }

    pub(crate) fn backend(&self) -> Option<u32> {
        (self.hello.id != 0).then_some(self.hello.id)
    }

    /// It belongs to this client now.
    pub(crate) fn lend(&mut self, client: ClientTag) {
        assert!(self.holder.is_none() && self.due.is_empty(), "a server is lent that is not clean");
        self.holder = Some(client);
    }

    /// It belongs to nobody any more. Returns the verdict that it deserves.
    pub(crate) fn take_back(&mut self, verdict: Verdict) -> Verdict {
        self.holder = None;
        if verdict == Verdict::Clean && (self.kept || self.closing || !self.due.is_empty()) {
            Verdict::Discard
        } else {
            verdict
        }
    }

    /// Has the connection called like its client, before commands that may ask.
    pub(crate) fn set_name(&mut self, me: ServerTag, name: Option<&[u8]>, out: &mut Outbox) {
        if self.name.as_deref() != name {
            out.insert(Peer::Server(me), |to| resp::command(to, &[b"CLIENT", b"SETNAME", name.unwrap_or_default()]));
            self.expect(None, ReplyKind::Plain);
            self.name = name.map(Box::from);
        }
    }

    pub(crate) fn expect(&mut self, whom: Option<Whom>, due: ReplyKind) {
        match self.due.back_mut() {
            Some(last) if last.due == due && last.whom == whom => last.times += 1,
            _ => self.due.push_back(Run { whom, due, times: 1 }),
        }
    }

    /// How much memory the order of replies takes: changes of kind.
    pub(crate) fn reply_runs(&self) -> usize {
        self.due.len()
    }

    /// All that comes is for its holder from here on.
    pub(crate) fn pin(&mut self) {
        self.kept = true;
    }

    /// It was given back by clients whose replies may not all have come.
    pub(crate) fn reset(&mut self, me: ServerTag, out: &mut Outbox) {
        if self.closing || self.kept {
            let reason = CloseReason::Error(Blame::Server, "the server was about to close the connection".to_owned());
            return out.push(Effect::Close { peer: Peer::Server(me), reason });
        }
        self.phase = Phase::Draining;
        self.end_draining(me, out);
    }

    /// Where it was given back before all replies had come: it is free once they have.
    pub(crate) fn end_draining(&mut self, me: ServerTag, out: &mut Outbox) {
        if matches!(self.phase, Phase::Draining) && self.due.is_empty() {
            self.phase = Phase::Ready;
            out.push(Effect::Ready { server: me });
        }
    }

    pub(crate) fn check(&mut self, me: ServerTag, out: &mut Outbox) {
        self.phase = Phase::Checking;
        out.insert(Peer::Server(me), |to| resp::command(to, &[b"PING"]));
    }

    /// What its bytes are now.
    pub(crate) fn says(&self) -> Says {
        match self.phase {
            _ if self.kept && self.due.is_empty() => Says::Stream(self.holder),
            Phase::Ready | Phase::Draining => Says::Replies,
            Phase::Starting(_) | Phase::Checking => Says::Own,
            Phase::Ended => Says::Nothing,
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
        let begins = self.scanner.is_between();
        if begins {
            // Only who has a connection of its own can have asked for these.
            self.pushed = bytes[0] == b'>';
        }
        if self.pushed {
            let end = self.scanner.advance(bytes).map_err(|error| error.to_string())?;
            let nobodys = ReplyPart { whom: None, due: ReplyKind::Plain, begins, taken: end.taken, over: false };
            return Ok((end.taken > 0).then_some(nobodys));
        }
        let Some(&Run { whom, due, .. }) = self.due.front() else {
            // Not what it is: it may be some client's data.
            let (kind, length) = (bytes[0].escape_ascii(), bytes.len());
            return Err(format!("the server said something unasked: {length} bytes that begin with `{kind}`"));
        };
        let mut scanner = self.scanner;
        let end = scanner.advance(bytes).map_err(|error| error.to_string())?;
        // What is to be changed is waited for, unless it is as long as nobody asks for.
        let awaited =
            matches!(due, ReplyKind::SubscriberCount(_)) && begins && !end.over && bytes.len() < MAX_COUNTED_REPLY;
        if end.taken == 0 || awaited {
            return Ok(None);
        }
        self.scanner = scanner;
        if begins {
            // A line is taken whole, so that these can be told from others by what is there.
            self.refused = match bytes[0] {
                b'-' => !bytes.starts_with(b"-EXECABORT"),
                _ => bytes.starts_with(b"+QUEUED"),
            };
            if LOST_ITS_PLACE.iter().any(|words| bytes.starts_with(words)) {
                out.push(Effect::Outdated { server: me });
            }
            // A script can say this, too. To a server that is shared only whole commands go, so there it can be nothing
            // else.
            self.closing |=
                self.holder.is_some() && due != ReplyKind::Script && bytes.starts_with(b"-ERR Protocol error");
        }
        Ok(Some(ReplyPart { whom, due, begins, taken: end.taken, over: end.over }))
    }

    /// The reply that is next has come whole.
    pub(crate) fn end_reply(&mut self) {
        let run = self.due.front_mut().expect("a reply that was due");
        run.times -= 1;
        if run.times == 0 {
            self.due.pop_front();
        }
    }

    /// Whether the present reply says that nothing has changed: it is an error, or says that the command is queued.
    pub(crate) fn has_refused(&self) -> bool {
        self.refused
    }

    /// Whether it closes the connection next.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Takes a whole reply to what Poolhouse asked while nobody held the server.
    pub(crate) fn own_reply(&mut self, me: ServerTag, bytes: &[u8], out: &mut Outbox) -> Result<usize, String> {
        let end = ReplyScanner::default().advance(bytes).map_err(|error| format!("this is no Redis: {error}"))?;
        if !end.over {
            return Ok(0);
        }
        let reply = &bytes[..end.taken];
        let Phase::Starting(start) = &mut self.phase else {
            // Who is busy with a script, or does not allow the question, has answered it.
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
            Progress::Elsewhere { host, port } => {
                self.phase = Phase::Ended;
                let reason = CloseReason::Elsewhere { host, port };
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            Progress::Unknown { message } => {
                self.phase = Phase::Ended;
                out.push(Effect::Close { peer: Peer::Server(me), reason: CloseReason::Unknown { message } });
            }
            Progress::Failed { message, permanent } => {
                self.phase = Phase::Ended;
                let reason = CloseReason::StartFailed { permanent, message };
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
        }
        Ok(end.taken)
    }

    /// The connection is lost. Tells whose own it was.
    pub(crate) fn lose(&mut self) -> Option<ClientTag> {
        self.holder.take()
    }
}

/// Bytes of names and numbers of subscribers that are changed. The driver holds more.
const MAX_COUNTED_REPLY: usize = 32 * 1024;

/// What a server says that was the master and is a replica now: another one takes the writes. Replicas and scripts say
/// the first, too, which is why the driver makes servers anew only now and then on that account.
const LOST_ITS_PLACE: [&[u8]; 2] = [b"-READONLY ", b"-UNBLOCKED force "];

pub(crate) const LOST: &str = "the connection to Redis was lost";

/// The beginning of what a server said, for people.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(80)].trim_ascii_end().escape_ascii().to_string()
}
