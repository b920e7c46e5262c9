//! What a session asks of its driver, and the box in which it leaves its wishes.

use alloc::{boxed::Box, string::String, sync::Arc, vec::Vec};
use core::ops::Range;

use crate::{ClientTag, PoolId, ServerTag, Upgrade};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// An application's connection.
    Client(ClientTag),
    /// A database's connection.
    Server(ServerTag),
}

/// Bytes to send, by reference: either a span of the input that the session was just handed (rows
/// are never copied), or a span of what it wrote into the outbox itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bytes {
    /// A range of [`Input::bytes`](crate::Input).
    Span(Range<usize>),
    /// A range of [`Outbox::inserted`].
    Insert(Range<usize>),
}

/// How a server is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseKind {
    Exclusive,
    /// The same, for as long as others like to keep it waiting: the last server of a pool is not to be had in this way.
    Lasting,
    /// For this client alone, and nobody has had it: a connection that is made for it, where others wait for used ones.
    Unused,
    /// Together with others; the session of the server tells the replies apart. The multiplexed
    /// server is a single holder in its pool.
    Shared,
}

/// The state in which a server is given back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Clean,
    /// Ready for anybody whose session cleans it when it is granted. If nobody takes it within a millisecond, the
    /// driver calls [`Protocol::reset`](crate::Protocol::reset): what is left in it may hold up others.
    Soiled,
    /// Must be cleaned first: the driver calls [`Protocol::reset`](crate::Protocol::reset).
    Reset,
    /// Beyond repair, or of unknown state: close it.
    Discard,
}

/// Where a client stands, for admission, eviction and time-outs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Not yet authenticated; the login time-out runs.
    Login,
    /// Logged in with nothing in progress; may be evicted; the idle time-out runs.
    Idle,
    /// All is answered, and the client has not read all of it. As [`Idle`](Self::Idle), but that it does not go when
    /// idle clients are sent away. To be told again whenever it has read some: the idle time begins anew.
    Reading,
    /// A request is being answered; the query time-out runs.
    Active,
    /// As [`Active`](Self::Active), but the request waits for what other clients may do, at its server or on the way
    /// there: so the client goes when idle clients are sent away.
    Blocked,
    /// Inside a transaction, and it is the client's turn; the transaction-idle time-out runs.
    InTransaction,
    /// As [`InTransaction`](Self::InTransaction), but no transaction has begun, and nothing is lost with what comes
    /// before it: so the client goes when idle clients are sent away.
    Preparing,
    /// Nothing is in progress, and the client waits for what others may send it: no time-out runs and it is not
    /// evicted, but it goes when idle clients are sent away. Of those who have not logged in half may stand so, who
    /// only look on; others stand as [`Login`](Self::Login).
    Subscribed,
}

/// Whose fault an error is. Rules the log level and the metric.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Blame {
    /// The client broke the protocol or gave wrong credentials.
    Client,
    /// The database broke the protocol, died or refused.
    Server,
    /// The configuration is wrong.
    Configuration,
    /// A limit was reached.
    Exhausted,
    Ours,
}

/// Why a connection is closed by its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    Goodbye,
    /// The dialogue was complete (a cancel request, a refused start-up).
    Done,
    /// An error; the text is for the log and never holds a secret.
    Error(Blame, String),
    /// A server refused our login or start-up. `permanent`: asking again cannot help (wrong
    /// password, no such database), so waiters are failed at once with this text.
    StartFailed {
        /// Retrying is useless until somebody changes something.
        permanent: bool,
        message: String,
    },
    /// A server refused our start-up because it knows nothing under the name that was asked for, such as a database.
    /// That is no outage: waiters are failed at once with this text.
    Unknown {
        message: String,
    },
    /// A server that is starting knows where the upstream is, and is not the upstream itself: the driver connects there
    /// instead ([`server_start_redirected`](crate::Protocol::server_start_redirected)), and goes on with the next host if
    /// that will not do.
    Redirected {
        host: String,
        port: u16,
    },
}

/// One wish. The driver executes effects strictly in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send bytes. Adjacent sends to one peer leave in one system call.
    Send { to: Peer, bytes: Bytes },
    /// The client needs a server of this pool. Until
    /// [`granted`](crate::Protocol::granted) or [`lease_failed`](crate::Protocol::lease_failed) is called, its input
    /// is held back by the driver.
    Lease { client: ClientTag, pool: PoolId, kind: LeaseKind },
    /// The client that has the server for itself is done with it.
    Release { server: ServerTag, verdict: Verdict },
    /// The client gives back its share of a server. The last one who leaves gives the server back, with the worst
    /// verdict of all.
    Leave {
        client: ClientTag,
        server: ServerTag,
        /// In which state the client leaves it. [`Verdict::Clean`]: no reply is due to this client any more.
        verdict: Verdict,
    },
    /// The client is done with the server, which does not go back to its pool: the session of the server goes on with
    /// it on its own account, until [`Effect::Release`]. In place of [`Effect::Ready`] it ends the start-up of a server
    /// that no client has asked for. A pool that is to have one always has a `min_size` of 1 and exists from the start:
    /// a server that is lost is made anew.
    Keep {
        server: ServerTag,
        /// Only for an answer: if the server is not released within its pool's time for connecting, it is given up.
        briefly: bool,
    },
    /// Hand bytes to another session of this protocol, wherever it lives:
    /// [`posted_to_client`](crate::Protocol::posted_to_client) or
    /// [`posted_to_server`](crate::Protocol::posted_to_server) is called after the outbox. What one session posts to
    /// another arrives in order, or not at all if the other has gone: then perhaps at a session of another protocol,
    /// whose keys must be others.
    Post {
        /// To whom. Its slot may be another's by then: `key` tells.
        to: Peer,
        /// Whatever lets the receiver tell that it is the one that is meant.
        key: u64,
        /// A range of [`Outbox::inserted`].
        bytes: Range<usize>,
    },
    /// Put a question to the sessions of all clients, wherever they live: [`surveyed`](crate::Protocol::surveyed) is
    /// called for each of them, and [`survey_done`](crate::Protocol::survey_done) with what they said.
    Survey {
        /// Who asks. One survey of a client is under way at a time.
        client: ClientTag,
        /// A range of [`Outbox::inserted`].
        question: Range<usize>,
    },
    /// The server accepted our login; what remains of its start-up is counted apart.
    Authenticated { server: ServerTag },
    /// The server has finished its start-up, reset or check and may be used. (A start-up may end with [`Effect::Keep`]
    /// instead.)
    Ready { server: ServerTag },
    /// The server is kept by its client beyond the end of its transaction because of `reason`; `None`
    /// when no longer.
    Pinned {
        server: ServerTag,
        /// A word for metrics, from a short fixed list of the protocol's.
        reason: Option<&'static str>,
    },
    /// The client would have kept a server beyond the end of its transaction, and as many of this pool are kept as may
    /// be.
    PinRefused {
        client: ClientTag,
        pool: PoolId,
        /// As in [`Pinned`](Self::Pinned).
        reason: &'static str,
    },
    /// The client's standing changed.
    Standing { client: ClientTag, standing: Standing },
    /// What the client asked for first has been answered, and the next request is under way: its time begins.
    Progress { client: ClientTag },
    /// Hand the client's held-back input to it again.
    Wake { client: ClientTag },
    /// Say when all has left that was sent to the client, what stands before this in the outbox included:
    /// [`client_flushed`](crate::Protocol::client_flushed) is called then, in a later turn. Once for however many of these.
    NotifyFlushed { client: ClientTag },
    /// The client logged in: its place is its own, which another might have got before. From here on it counts towards
    /// `database` and `user` in the metrics.
    ///
    /// Where its database or its user has as many clients as it may have, it waits for a place there. Until then the
    /// driver keeps back what is wished for the client from here on, so that this comes before the answer to its login.
    /// If it waits for too long that is dropped, and it is refused as one too many
    /// ([`Refusal::Full`](crate::Refusal::Full)).
    ///
    /// A client may log in again, as another user: then it gives its places back for those that it has now. If there
    /// are none it is refused at once, and what is wished for it from here on is dropped.
    LoggedIn {
        client: ClientTag,
        pool: PoolId,
        /// The name of its login; empty if it did not have to log in.
        user: Arc<str>,
    },
    /// The client, which has logged in, uses another pool of the same database and user from now on, and counts towards
    /// that one.
    UsesPool { client: ClientTag, pool: PoolId },
    /// The client failed to authenticate (counted per address and rate-limited).
    AuthFailed { client: ClientTag },
    /// Somebody asked to cancel what `target` is doing. The driver calls [`cancel`](crate::Protocol::cancel) on the
    /// worker that owns the target. It closes the asker when that has been dealt with (the side connection, if one was
    /// opened, has ended), unless its session has closed it before.
    Cancel {
        asker: ClientTag,
        /// Whose work. Only the lowest 16 bits of the slot count: the secret is offered to every client of that worker
        /// whose slot ends in them.
        target: ClientTag,
        /// Proof of the right to do so; compared by the target's session.
        secret: u64,
    },
    /// Open a second connection to where `server` is connected, send the inserted bytes, read until the upstream
    /// closes it. The server is withheld from others meanwhile.
    SideConnection {
        /// The server whose address is meant.
        server: ServerTag,
        /// A range of [`Outbox::inserted`].
        bytes: Range<usize>,
        /// How to secure the connection before that; `None` leaves it in the clear.
        upgrade: Option<Upgrade>,
    },
    /// Go on in TLS. Input that the session does not consume in this call begins the peer's handshake. The session gets
    /// nothing more until the handshake is done ([`client_secured`](crate::Protocol::client_secured),
    /// [`server_secured`](crate::Protocol::server_secured)), and what it sends meanwhile is dropped, because nobody
    /// could read it.
    StartTls { peer: Peer },
    /// The upstream is no longer what this server was made for: all servers of its pool are to be made anew, this one
    /// too when it comes back.
    Outdated {
        /// Which server showed it.
        server: ServerTag,
    },
    /// A client wants to log in, for the log: to this database, as this user. Either may be empty.
    LoginRequest { client: ClientTag, login: Box<(String, String)> },
    /// A server of this pool is to be [reset](crate::Protocol::reset) as soon as nobody needs it, and at once if one is
    /// idle: there is something to be seen to that no client waits for, of which its session knows. If the pool has no
    /// server, one is connected. One server for however many of these until then.
    ResetOne { pool: PoolId },
    /// The client no longer waits for a lease.
    Withdraw { client: ClientTag },
    /// Close a connection once everything sent to it has left.
    Close { peer: Peer, reason: CloseReason },
}

/// Bytes of memory that an empty box keeps.
const MAX_KEPT: usize = 256 * 1024;

/// The effects of one call and the bytes that the session wrote itself. Reused between calls; a
/// session only appends.
#[derive(Default, Debug)]
pub struct Outbox {
    pub effects: Vec<Effect>,
    /// Bytes that [`Bytes::Insert`] refers to.
    pub inserted: Vec<u8>,
    /// At least so many bytes, of those that this call does not consume, must be there before the session can do
    /// anything because more have arrived; 0 if it cannot tell. It is not called for fewer, unless the driver can hold
    /// no more, so that a message that comes in small pieces is not read again from its beginning for each. What else
    /// hands input over again does so all the same.
    pub need: usize,
}

impl Outbox {
    /// For [`need`](Outbox::need) of a client's session: the rest is not to be handed over again because more has
    /// arrived, however much there is. The session waits for something else than bytes or a lease, and asks with
    /// [`Effect::Wake`].
    pub const UNTIL_WOKEN: usize = usize::MAX;

    /// An empty box.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the box and keeps its memory, as far as that is no more than most calls need.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.inserted.clear();
        self.inserted.shrink_to(MAX_KEPT);
        self.need = 0;
    }

    /// Sends a span of the input. A span that continues the last one is joined to it.
    pub fn span(&mut self, to: Peer, span: Range<usize>) {
        if span.is_empty() {
            return;
        }
        if let Some(Effect::Send { to: last, bytes: Bytes::Span(previous) }) = self.effects.last_mut()
            && *last == to
            && previous.end == span.start
        {
            previous.end = span.end;
            return;
        }
        self.effects.push(Effect::Send { to, bytes: Bytes::Span(span) });
    }

    /// Sends bytes that `write` appends to the outbox.
    pub fn insert(&mut self, to: Peer, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.inserted.len();
        write(&mut self.inserted);
        let end = self.inserted.len();
        assert!(end >= start, "an insertion only appends");
        if start == end {
            return;
        }
        if let Some(Effect::Send { to: last, bytes: Bytes::Insert(previous) }) = self.effects.last_mut()
            && *last == to
            && previous.end == start
        {
            previous.end = end;
            return;
        }
        self.effects.push(Effect::Send { to, bytes: Bytes::Insert(start..end) });
    }

    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_spans_to_one_peer_become_one_send() {
        let mut out = Outbox::new();
        let a = Peer::Client(ClientTag(1));
        out.span(a, 0..5);
        out.span(a, 5..5);
        out.span(a, 5..9);
        out.span(a, 10..12);
        out.span(Peer::Client(ClientTag(2)), 12..13);
        assert_eq!(out.effects.len(), 3);
        assert_eq!(out.effects[0], Effect::Send { to: a, bytes: Bytes::Span(0..9) });
    }

    #[test]
    fn insertions_keep_their_place_among_spans() {
        let mut out = Outbox::new();
        let a = Peer::Client(ClientTag(1));
        out.insert(a, |b| b.extend(b"xy"));
        out.insert(a, |b| b.extend(b"z"));
        out.span(a, 0..1);
        out.insert(a, |b| b.extend(b"w"));
        assert_eq!(
            out.effects,
            [
                Effect::Send { to: a, bytes: Bytes::Insert(0..3) },
                Effect::Send { to: a, bytes: Bytes::Span(0..1) },
                Effect::Send { to: a, bytes: Bytes::Insert(3..4) },
            ]
        );
    }
}
