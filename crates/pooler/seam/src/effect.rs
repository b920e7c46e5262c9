//! What a session asks of its driver: effects, and the outbox in which it leaves them.

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

/// In which way a client is to have a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeaseKind {
    Exclusive,
    /// As [`Exclusive`](Self::Exclusive), but for a long time, since the client waits for what other clients may do.
    /// The last server of a pool is not lent in this way.
    LongTerm,
    /// As [`Exclusive`](Self::Exclusive), but a new connection that no client has had before.
    Fresh,
    /// Together with other clients of the same worker. The session of the server tells the replies apart. To the pool
    /// the clients are one holder.
    Shared,
}

/// The state in which a server is given back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    Clean,
    /// Ready for a client whose session cleans it when it is granted. If no client takes it within a millisecond, the
    /// driver calls [`Protocol::reset`](crate::Protocol::reset), because what is left in it may hold up others.
    Soiled,
    /// To be cleaned first: the driver calls [`Protocol::reset`](crate::Protocol::reset).
    Reset,
    /// Beyond repair, or in an unknown state: the driver closes it.
    Discard,
}

/// What a client is doing, for admission, eviction and time-outs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Not yet authenticated; the login time-out runs.
    Login,
    /// Logged in with nothing in progress; may be evicted; the idle time-out runs.
    Idle,
    /// All requests are answered, and the client has not read all of the answers. As [`Idle`](Self::Idle), but the
    /// client stays when idle clients are sent away. The session reports this again whenever the client has read
    /// something; then the idle time begins anew.
    Reading,
    /// A request is being answered; the query time-out runs.
    Active,
    /// As [`Active`](Self::Active), but the request waits for what other clients may do, so the client goes when idle
    /// clients are sent away.
    Blocked,
    /// Inside a transaction, and it is the client's turn; the transaction-idle time-out runs.
    InTransaction,
    /// As [`InTransaction`](Self::InTransaction), but the client has only prepared a transaction and not begun it, so
    /// the client goes when idle clients are sent away.
    Preparing,
    /// No request is in progress, and the client waits for what other clients may send it. No time-out runs, and the
    /// client is not evicted, but it goes when idle clients are sent away. At most half of the clients that have not
    /// logged in may be subscribed (drivers' monitors); the driver treats further ones as [`Login`](Self::Login).
    Subscribed,
}

/// Whose fault an error is. Decides the log level and the metric.
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
    /// Poolhouse has a defect.
    Ours,
}

/// Why a connection is closed by its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CloseReason {
    Goodbye,
    /// The dialogue was complete (a cancel request, a refused start-up).
    Done,
    /// An error. The text is for the log, and holds no secret.
    Error(Blame, String),
    /// A server refused the login, or another part of its start.
    StartFailed {
        /// Another attempt would fail, too, until a setting is changed (such as a wrong password). Clients that wait
        /// for a server fail at once, with this message.
        permanent: bool,
        message: String,
    },
    /// A server refused the start because there is no database of the name that was asked for. Clients that wait for a
    /// server fail at once, with this message; the pool does not count as out of reach.
    UnknownDatabase {
        message: String,
    },
    /// A server that is starting has named the host of the upstream, and is not that host itself. The driver connects
    /// to that host ([`server_start_redirected`](crate::Protocol::server_start_redirected)), and tries the next host of
    /// the pool if that fails.
    Redirected {
        host: String,
        port: u16,
    },
}

/// What a session asks of its driver. The driver executes the effects of an outbox strictly in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send bytes. Adjacent sends to one peer leave in one system call.
    Send { to: Peer, bytes: Bytes },
    /// The client needs a server of this pool. The driver holds the client's input back until it calls
    /// [`granted`](crate::Protocol::granted) or [`lease_failed`](crate::Protocol::lease_failed).
    Lease { client: ClientTag, pool: PoolId, kind: LeaseKind },
    /// The client that holds the server gives it back, or the session that [retains](Effect::Retain) it does.
    Release { server: ServerTag, verdict: Verdict },
    /// The client gives back its share of a server. If the driver wants the server back, or it is not clean, the pool
    /// gets it when the last client has left, with the worst verdict of all.
    Leave {
        client: ClientTag,
        server: ServerTag,
        /// The state in which the client leaves the server. [`Verdict::Clean`] means that no reply is due to the
        /// client.
        verdict: Verdict,
    },
    /// The client gives the server back, but the pool does not get it: the session of the server keeps it for itself
    /// until [`Effect::Release`].
    ///
    /// In place of [`Effect::Ready`] this ends the start of a server that no client has asked for. A pool that is
    /// always to have such a server has a `min_size` of 1 and exists from the start; then a lost server is replaced.
    Retain {
        server: ServerTag,
        /// The session waits only for an answer: if it has not released the server within the pool's time for
        /// connecting, the driver closes the server.
        briefly: bool,
    },
    /// Hand bytes to another session, on whatever worker it lives: the driver calls
    /// [`posted_to_client`](crate::Protocol::posted_to_client) or
    /// [`posted_to_server`](crate::Protocol::posted_to_server) after the outbox. What one session posts to another
    /// arrives in order. If the other connection has gone, a new one that has got its slot receives the post, perhaps
    /// one of another protocol, so keys must differ between protocols.
    Post {
        to: Peer,
        /// A number by which the receiver's session tells whether it is meant.
        key: u64,
        /// A range of [`Outbox::inserted`].
        bytes: Range<usize>,
    },
    /// Ask the sessions of all clients on all workers: the driver calls [`surveyed`](crate::Protocol::surveyed) for
    /// each of them, and [`survey_done`](crate::Protocol::survey_done) with their answers.
    Survey {
        /// The client that asks. At most one survey of a client is under way at a time.
        client: ClientTag,
        /// A range of [`Outbox::inserted`].
        question: Range<usize>,
    },
    /// The server has accepted the login. The metrics count the rest of its start separately.
    Authenticated { server: ServerTag },
    /// The server has finished its start, its reset or its check, and may be used. (A start may end with
    /// [`Effect::Retain`] instead.)
    Ready { server: ServerTag },
    /// The client keeps the server beyond the end of its transaction, because of `reason`; `None`: no longer.
    Pinned {
        server: ServerTag,
        /// A word for the metrics, from a short fixed list of the protocol.
        reason: Option<&'static str>,
    },
    /// The client needed to keep a server beyond the end of its transaction, and may not: clients keep as many servers
    /// of this pool as the limit allows.
    PinRefused {
        client: ClientTag,
        pool: PoolId,
        /// As in [`Pinned`](Self::Pinned).
        reason: &'static str,
    },
    /// The client's standing has changed.
    Standing { client: ClientTag, standing: Standing },
    /// The client's first request has been answered and its next one is under way: the query time-out begins anew.
    Progress {
        client: ClientTag,
        /// The client has been in one transaction all the time.
        in_transaction: bool,
    },
    /// Hand the client's buffered input to its session again.
    Wake { client: ClientTag },
    /// Call [`client_flushed`](crate::Protocol::client_flushed) once all has left that was sent to the client,
    /// including what stands before this in the outbox. The call comes in a later turn of the worker, once for all of
    /// these effects until then.
    NotifyFlushed { client: ClientTag },
    /// The client has logged in. From here on no other client can get its place, and it counts for `database` and
    /// `user` in the metrics.
    ///
    /// If its database or its user has as many clients as it may have, the client waits for a place there. The driver
    /// defers all later effects for this client until it has the place, so this effect comes before the answer to
    /// the login. If the client waits for too long, these effects are dropped and the client is refused
    /// ([`Refusal::Full`](crate::Refusal::Full)).
    ///
    /// A client may log in again, as another user. Then it exchanges its places for those of the new database and user.
    /// If there are none, it is refused at once and later effects for it are dropped.
    LoggedIn {
        client: ClientTag,
        pool: PoolId,
        /// The name of the login; empty if the client did not have to log in.
        user: Arc<str>,
    },
    /// The client, which has logged in, uses another pool of the same database and user from now on, and counts for
    /// that one.
    UsesPool { client: ClientTag, pool: PoolId },
    /// The client's login has failed. The driver counts this by address, and delays further logins from there.
    AuthFailed { client: ClientTag },
    /// The client `asker` asks to cancel what `target` is doing. The driver calls [`cancel`](crate::Protocol::cancel)
    /// on the worker of the target. When the side connection that this may open has ended, the driver closes the asker,
    /// unless its session has closed it before.
    Cancel {
        asker: ClientTag,
        /// The client whose request is to be cancelled. Only the lowest `slot_bits` of the slot count: the driver
        /// offers the secret to every client of that worker whose slot ends in them.
        target: ClientTag,
        slot_bits: u32,
        /// Proof of the right to cancel, which the target's session compares.
        secret: u64,
    },
    /// Open a second connection to where `server` is connected, send `bytes` there, and read until the upstream closes
    /// that connection. The driver lends the server to no other client meanwhile.
    SideConnection {
        server: ServerTag,
        /// A range of [`Outbox::inserted`].
        bytes: Range<usize>,
        /// How to secure the connection first; `None` leaves it in the clear.
        upgrade: Option<Upgrade>,
    },
    /// Go on in TLS. Input that the session does not consume in this call is the beginning of the peer's handshake. The
    /// session gets no more input until the handshake is done ([`client_secured`](crate::Protocol::client_secured),
    /// [`server_secured`](crate::Protocol::server_secured)). What it sends meanwhile is dropped, because the peer could
    /// not read it.
    StartTls { peer: Peer },
    /// This server has shown that its host is no longer what the pool needs (such as a primary that has become a
    /// standby). All servers of the pool are made anew, this one as soon as it is released.
    Outdated { server: ServerTag },
    /// The client asks for this database, as this user. Either may be empty. The driver uses this for the log only.
    LoginRequest { client: ClientTag, login: Box<(String, String)> },
    /// [Reset](crate::Protocol::reset) one server of this pool, as soon as one is idle: its session has something to do
    /// there that no client waits for. If the pool has no server, it connects one. Several of these before the reset
    /// lead to one reset.
    ResetOne { pool: PoolId },
    /// The client no longer waits for a lease.
    Withdraw { client: ClientTag },
    /// Close a connection once everything sent to it has left.
    Close { peer: Peer, reason: CloseReason },
}

/// Bytes of memory that an empty outbox keeps.
const MAX_IDLE_CAPACITY: usize = 256 * 1024;

/// The effects of one call, and the bytes that the session wrote itself. The driver uses an outbox for one call after
/// another. A session only appends.
#[derive(Default, Debug)]
pub struct Outbox {
    pub effects: Vec<Effect>,
    /// Bytes that [`Bytes::Insert`] refers to.
    pub inserted: Vec<u8>,
    /// How many bytes the session needs, counted from the first that it has not consumed, before it can go on; 0 if it
    /// does not know. The driver does not call the session on account of new bytes before it has as many, or can hold
    /// no more. So a message that comes in small pieces is not read again from its beginning for each piece. This does
    /// not hold up calls for other reasons.
    pub need: usize,
}

impl Outbox {
    /// A value for [`need`](Outbox::need) of a client's session that waits for something other than bytes or a lease:
    /// the driver does not call it on account of new bytes. The session asks for its input with [`Effect::Wake`].
    pub const UNTIL_WOKEN: usize = usize::MAX;

    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the outbox. It keeps as much memory as most calls need.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.inserted.clear();
        self.inserted.shrink_to(MAX_IDLE_CAPACITY);
        self.need = 0;
    }

    /// Sends a span of the input. A span that begins where the last one ends is joined to that.
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
