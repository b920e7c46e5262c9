//! The trait a protocol implements, and what the driver tells it.

use alloc::{sync::Arc, vec::Vec};
use core::{net::IpAddr, time::Duration};

use crate::{ClientTag, CloseReason, Outbox, PoolId, Secured, ServerTag, Shortage, Tenant, TlsFailure};

/// Where a client comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Which of the configured listeners accepted it.
    pub listener: u16,
    /// Its address; `None` on a Unix socket.
    pub address: Option<IpAddr>,
    /// Its port; 0 on a Unix socket.
    pub port: u16,
}

impl Origin {
    /// A Unix socket or a loopback address.
    pub fn is_local(&self) -> bool {
        self.address.is_none_or(|a| a.is_loopback())
    }
}

/// What the driver knows of a client that is asked in a [survey](crate::Effect::Survey).
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Where it comes from, for people.
    pub address: &'a str,
    /// The listener that accepted it, for people.
    pub listener: &'a str,
    /// How long it has been connected.
    pub age: Duration,
    /// How long nothing has been under way; zero if something is.
    pub idle: Duration,
}

/// Bytes handed to a session. What it does not consume is handed to it again, with more behind it.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// The driver will hold no more for it: consume something or close.
    pub full: bool,
    /// The peer does not read: not all that was sent to it has left.
    pub unread: bool,
    /// When this is: so much time has passed since the driver began.
    pub now: Duration,
}

/// Read and write access to the sessions on the other side of a relay.
pub trait Sessions<Tag, S> {
    /// The session behind a tag; `None` when it has gone.
    fn get(&mut self, tag: Tag) -> Option<&mut S>;
}

/// Why a lease was not granted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseFailure {
    /// No server became free for `max_wait_time`.
    WaitTimeout {
        /// How long the client waited.
        waited: Duration,
        /// The servers of the pool then, and what allowed no more of them.
        shortage: Shortage,
    },
    /// No server could be reached for `unavailable_wait_time`, or the upstream refused for good.
    Unavailable {
        /// How long the client waited.
        waited: Duration,
        /// What the last attempt ended with, if known.
        last_error: Option<Arc<str>>,
        /// What kept the client from a server.
        outage: Outage,
    },
    /// The upstream knows nothing under the name that was asked for.
    Unknown {
        /// What it said, if known.
        said: Option<Arc<str>>,
    },
    /// As many clients wait as the pool allows.
    QueueFull,
    /// The pool was cleared or closed.
    Closed,
    /// The pool was unused for long and was forgotten just before the client asked. What hands out ids of pools has
    /// another for it.
    Forgotten,
}

/// Why a client waited in vain for an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outage {
    /// No connection could be made.
    Unreachable,
    /// The upstream refuses the login, and goes on refusing it until a setting is changed.
    Refused,
    /// A connection is under way for longer than a client waits.
    Connecting,
    /// An operator has paused the pool.
    Paused,
}

impl Outage {
    /// What can be done about it, as a sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Unreachable => "Find out why it cannot be reached; unavailable_wait_time bounds the wait.",
            Self::Refused => {
                "Mend what it refuses: user and password come from [[database]] and [[user]], TLS from the url."
            }
            Self::Connecting => "Raise max_wait_time, or find out why connecting takes so long.",
            Self::Paused => "`poolhouse ctl resume` lets clients go on.",
        }
    }
}

/// Why the driver turns a client away, or sends it away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The hard limit of clients is reached.
    TooManyClients {
        limit: u32,
    },
    /// It has just logged in, and its database or its user has as many clients as it may have. What was wished for it
    /// since [`Effect::LoggedIn`](crate::Effect::LoggedIn) has been dropped. If its session says nothing now, what was
    /// to be sent to it is sent after all, and the session tells it why in answer to what it asks next.
    Full {
        /// Whose clients are too many.
        of: Tenant,
        limit: u32,
    },
    /// Too many failed logins from this address: it was not the client's turn in time.
    Throttled {
        retry_after: Duration,
    },
    /// Login took longer than allowed.
    LoginTimeout,
    /// Idle for longer than `client_idle_time`.
    IdleTimeout,
    /// Evicted as the longest idle while its listener, its database or its user is above its soft limit.
    Evicted,
    /// A request took longer than `query_time`.
    QueryTimeout,
    /// A transaction was left idle for longer than `transaction_idle_time`.
    TransactionIdleTimeout,
    /// Poolhouse is shutting down.
    ShuttingDown,
    /// Its database is being drained.
    Drained {
        /// It has just logged in, and what was to be sent to it since has been dropped, the answer to its login first
        /// of all.
        at_login: bool,
    },
    Killed,
    /// It has not logged in, and another client has got its place.
    Displaced,
}

/// How the driver treats clients because of what they speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRules {
    /// They send as much as they like before they read, and the upstream keeps the replies for them. Then a client that
    /// holds a server is listened to while it does not read; otherwise that would be a deadlock.
    pub upstream_keeps_replies: bool,
    /// One that ends its side gets the answers to what it has asked for, unless that waits for what others may do.
    /// Otherwise it has gone, and what it has asked for is cancelled: that it asks for no more cannot be told from that
    /// it hears no more.
    pub answers_half_closed: bool,
    /// Their session bounds what is sent to a client that does not read, and keeps the rest itself: then the server
    /// that the client holds is listened to meanwhile, so that it gets free.
    pub session_keeps_replies: bool,
    /// Bytes that may wait for a client that does not read what is sent to it; with more it is disconnected. Only what
    /// is posted to it can be so much: otherwise whoever sends is not listened to meanwhile. 32 MB at most.
    pub max_unread: usize,
}

impl Default for ClientRules {
    fn default() -> Self {
        Self {
            upstream_keeps_replies: false,
            answers_half_closed: false,
            session_keeps_replies: false,
            max_unread: 4 << 20,
        }
    }
}

/// One database protocol, as the driver sees it. The object itself is shared by all workers and
/// holds configuration and caches; the sessions hold the state of one connection.
///
/// Call order for a client: `client_start`, then `client_input` whenever bytes arrive, unless it
/// waits for a lease (`Effect::Lease` until `granted` or `lease_failed`); `client_gone` last, once.
/// For a server: `server_start` when the connection is open, then `server_input`;
/// `Effect::Ready` ends its start-up and makes it available, or `Effect::Keep` keeps it from everybody.
///
/// - Effects are executed in order. What they set off for others (grants, failures, wakes, departures) is called after
///   the whole outbox, never from within it; only the client that asks may be granted its own lease at once.
/// - Input that was held back is handed over again after `granted`, `lease_failed`, `Effect::Wake`, or with more bytes
///   behind it, unless the session says otherwise ([`Outbox::need`], [`Outbox::UNTIL_WOKEN`]). A call that consumed a
///   part is followed by another with the rest.
/// - A server that nobody holds may still get input: whatever its session makes of that, it has no client to send it
///   to.
/// - After `Effect::Close` of a client, what it holds is released through `client_gone` at once, though its last bytes
///   may still be leaving. After `Effect::Close` of a server, or its end, `server_gone` is called if somebody holds it;
///   that lease is then over without a release.
/// - A server that its session keeps for itself ([`Effect::Keep`](crate::Effect::Keep)) stays on its worker;
///   `server_gone` is called for it as for one that is held. If its pool has given it up by the end of its start-up,
///   `retire` is called instead.
/// - After [`refuse`](Protocol::refuse) or `Effect::Close` the driver hands a session no more input.
/// - A shared server lives on the worker of the clients that share it. A client has one share of a pool at a time, from
///   its first request to the last reply that is due to it, and is not called idle meanwhile; then it leaves
///   ([`Effect::Leave`](crate::Effect::Leave)), so that the server can be had back. Once the driver wants that, it lets
///   nobody join, and hands no more input to those who have a share, but for the first after `granted`, in which a
///   session sends a request or leaves. A request goes to a shared server whole, in one call, and its reply depends on
///   no more input. The driver may keep a server that nobody has a share of for a while. A client that goes while
///   replies are due leaves with [`Verdict::Reset`](crate::Verdict::Reset); the server's session goes on and drops what
///   comes for it. After [`Verdict::Discard`](crate::Verdict::Discard) nobody joins any more.
/// - When a shared server is gone, `server_gone` is called and then `share_ended` for each client that has a share; one
///   that is being closed sends nothing then.
/// - Held-back input is also handed over again after a client has left a server that was wanted back, after
///   `server_gone` and `share_ended`, and when a cancel request that concerned its server has ended.
pub trait Protocol: Send + Sync + 'static {
    /// The state of a client's connection; small, because tens of thousands are idle.
    type Client: Send + 'static;
    /// The state of a server's connection.
    type Server: Send + 'static;

    /// What holds for the clients of a listener. Asked once, at the start.
    fn client_rules(&self, listener: u16) -> ClientRules {
        let _ = listener;
        ClientRules::default()
    }

    /// So much time has passed since the driver began. Told every now and then, at least every 20 ms as long as
    /// anything happens: sessions have no clock of their own. All that may be left in the outbox are posts and errands.
    fn on_tick(&self, now: Duration, out: &mut Outbox) {
        let _ = (now, out);
    }

    fn client_start(&self, me: ClientTag, origin: Origin, out: &mut Outbox) -> Self::Client;

    /// A connection to the upstream of `pool` is open.
    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Self::Server;

    /// As [`server_start`](Protocol::server_start), after no host of the upstream met all that a session may ask of it:
    /// this time it is content with less.
    fn server_start_fallback(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Self::Server {
        self.server_start(me, pool, out)
    }

    /// As [`server_start`](Protocol::server_start), on a connection to where a host of the upstream has
    /// [directed](crate::CloseReason::Redirected) the driver.
    fn server_start_redirected(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Self::Server {
        self.server_start(me, pool, out)
    }

    /// Bytes from a client. Returns how many were consumed.
    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        servers: &mut dyn Sessions<ServerTag, Self::Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize;

    /// All has left that was sent to a client, as its session has [asked](crate::Effect::NotifyFlushed) to be told.
    fn client_flushed(&self, me: ClientTag, client: &mut Self::Client, out: &mut Outbox) {
        let _ = (me, client, out);
        unreachable!("the protocol never asks");
    }

    /// Bytes from a server. Returns how many were consumed.
    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Self::Server,
        clients: &mut dyn Sessions<ClientTag, Self::Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize;

    /// The lease that the client asked for. Its held-back input follows in `client_input` at once;
    /// a session that is not ready for it consumes nothing and asks with `Effect::Wake` later.
    fn granted(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        tag: ServerTag,
        server: &mut Self::Server,
        out: &mut Outbox,
    );

    /// The lease that the client asked for is not to be had. `arrived`: bytes that the client had sent by then, as far
    /// as they have arrived, from the first one on that was not consumed. Whoever sent them did not know of this.
    fn lease_failed(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        why: LeaseFailure,
        arrived: usize,
        out: &mut Outbox,
    );

    /// Bytes that another session left with [`Effect::Post`](crate::Effect::Post) for a client. `key` tells whether
    /// they are for this one. Spans are of these bytes: what is sent so to many clients is not copied for each.
    fn posted_to_client(&self, me: ClientTag, client: &mut Self::Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        let _ = (me, client, key, bytes, out);
        unreachable!("the protocol never posts anything");
    }

    /// As [`posted_to_client`](Protocol::posted_to_client), for a server.
    fn posted_to_server(&self, me: ServerTag, server: &mut Self::Server, key: u64, bytes: &[u8], out: &mut Outbox) {
        let _ = (me, server, key, bytes, out);
        unreachable!("the protocol never posts anything");
    }

    /// Somebody [asks all clients](crate::Effect::Survey), this one among them: what its session says is appended to
    /// `answer`.
    fn surveyed(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        seen: &Seen<'_>,
        question: &[u8],
        answer: &mut Vec<u8>,
        out: &mut Outbox,
    ) {
        let _ = (me, client, seen, question, answer, out);
        unreachable!("the protocol never asks");
    }

    /// All clients have been asked what this one wished to know.
    fn survey_done(&self, me: ClientTag, client: &mut Self::Client, answer: &[u8], out: &mut Outbox) {
        let _ = (me, client, answer, out);
        unreachable!("the protocol never asks");
    }

    /// The client's connection has ended. Every server it holds must be released with a verdict.
    fn client_gone(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        servers: &mut dyn Sessions<ServerTag, Self::Server>,
        out: &mut Outbox,
    );

    /// A server's connection has ended, by itself or because its session asked for it. Its holders get an error; the
    /// lease is over without a release.
    fn server_gone(
        &self,
        me: ServerTag,
        server: &mut Self::Server,
        clients: &mut dyn Sessions<ClientTag, Self::Client>,
        out: &mut Outbox,
    );

    /// The server that the client shares with others has gone: `server_gone` was called before. The share is over
    /// without [`Effect::Leave`](crate::Effect::Leave). A client that is being closed hears of it, too.
    fn share_ended(&self, me: ClientTag, client: &mut Self::Client, out: &mut Outbox) {
        let _ = (me, client, out);
        unreachable!("the protocol never shares a server");
    }

    /// The client is to be told why it must go. A client that was just accepted may be answered later, when it is able
    /// to understand: the session then leaves no effect now, goes on receiving input, and ends with `Effect::Close`. In
    /// all other cases the driver closes it afterwards and calls `client_gone`.
    fn refuse(&self, me: ClientTag, client: &mut Self::Client, why: Refusal, out: &mut Outbox);

    /// Clean a server that was released with [`Verdict::Reset`](crate::Verdict::Reset), or that is idle and to go on an
    /// [errand](crate::Effect::ResetOne), or was released with
    /// [`Verdict::Soiled`](crate::Verdict::Soiled) and is idle since; ends with `Effect::Ready` or
    /// `Effect::Close`.
    fn reset(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox);

    /// Find out whether an idle server still answers; ends as `reset` does.
    fn check(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox);

    /// An idle server is about to be closed: say goodbye if the protocol has a word for it.
    fn retire(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox);

    /// The pool makes its servers anew, or is to have this one for others, which goes on on its own account
    /// ([`Effect::Keep`](crate::Effect::Keep)). It is to be released as soon as it is at rest. Told again and again
    /// until it is.
    fn server_outdated(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox) {
        let _ = (me, server, out);
    }

    /// The client got this server of `pool` to [keep it for long](crate::LeaseKind::Lasting). The pool has become
    /// smaller since, and those who keep servers have all that there are, while others wait: it is to give it back in
    /// the way that harms it least, and to go if it can give it back in no other way. Told again now and then until the
    /// server has come back. False: what it waits for ends soon by itself.
    fn return_server(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        tag: ServerTag,
        pool: PoolId,
        out: &mut Outbox,
    ) -> bool {
        let _ = (me, client, tag, pool, out);
        false
    }

    /// Somebody presented `secret` to cancel what this client is doing. `waiting`: it is waiting for a lease.
    fn cancel(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        servers: &mut dyn Sessions<ServerTag, Self::Server>,
        secret: u64,
        waiting: bool,
        out: &mut Outbox,
    );

    /// The TLS handshake that the session asked for with [`Effect::StartTls`](crate::Effect::StartTls) is done; its
    /// input goes on.
    fn client_secured(&self, me: ClientTag, client: &mut Self::Client, secured: Secured, out: &mut Outbox) {
        let _ = (me, client, secured, out);
        unreachable!("the protocol never asks for TLS");
    }

    /// As [`client_secured`](Protocol::client_secured), for a server.
    fn server_secured(&self, me: ServerTag, server: &mut Self::Server, secured: Secured, out: &mut Outbox) {
        let _ = (me, server, secured, out);
        unreachable!("the protocol never asks for TLS");
    }

    /// The TLS handshake with a server failed, and its connection ends. Returns what that means.
    fn server_tls_failed(&self, server: &mut Self::Server, failure: TlsFailure) -> CloseReason {
        let _ = (server, failure);
        unreachable!("the protocol never asks for TLS");
    }

    /// A pool was unused for long and is forgotten: what is kept of it goes. Its id names no other pool, ever.
    fn pool_forgotten(&self, pool: PoolId) {
        let _ = pool;
    }

    /// Whether a server has nothing to do for the client that holds it until more comes from that client, though a
    /// request is under way: a part of it is still to come. The worker asks this only when nothing has come from either
    /// for a while.
    fn awaits_client(&self, client: &Self::Client, server: &Self::Server) -> bool {
        let _ = (client, server);
        false
    }

    /// The upstream's own name for a server's connection (a process id), for people.
    fn backend(&self, server: &Self::Server) -> Option<u32> {
        let _ = server;
        None
    }
}
