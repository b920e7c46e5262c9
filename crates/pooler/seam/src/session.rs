//! The trait a protocol implements, and what the driver tells it.

use alloc::{string::String, sync::Arc, vec::Vec};
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
    /// The user of this machine whose process it is; `None` on TCP.
    pub uid: Option<u32>,
}

impl Origin {
    /// A Unix socket or a loopback address.
    pub fn is_local(&self) -> bool {
        self.address.is_none_or(|a| a.is_loopback())
    }
}

/// What an operator is told of a session.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct SessionDescription {
    /// The name that the application gave itself.
    pub application_name: String,
    /// Prepared statements that are there.
    pub prepared_statements: u64,
    /// The kind of replication that the connection is for: `logical` or `physical`.
    pub replication: Option<&'static str>,
}

/// What the driver knows of a client, for the answer to a [survey](crate::Effect::Survey).
#[derive(Clone, Debug)]
pub struct SurveyedClient<'a> {
    /// The client's address, for people.
    pub address: &'a str,
    /// The listener that accepted it, for people.
    pub listener: &'a str,
    /// How long the client has been connected.
    pub age: Duration,
    /// How long no request has been under way; zero if one is.
    pub idle: Duration,
}

/// Bytes handed to a session. What it does not consume is handed to it again, with more behind it.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    pub bytes: &'a [u8],
    /// The driver holds as many bytes as it may. The session must consume some of them, or close the connection.
    pub full: bool,
    /// Not all that was sent to the peer has left, because the peer does not read.
    pub unread: bool,
    /// The time since the driver began.
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
    /// No server became free within `max_wait_time`.
    WaitTimeout {
        /// How long the client waited.
        waited: Duration,
        /// The servers of the pool at that time, and the limit that allowed no more of them.
        shortage: Shortage,
    },
    /// No server could be reached within `unavailable_wait_time`, or the upstream refuses all logins.
    Unavailable {
        /// How long the client waited.
        waited: Duration,
        /// The error of the last attempt, if known.
        last_error: Option<Arc<str>>,
        /// What kept the client from a server.
        outage: Outage,
    },
    /// The upstream has no database of the name that was asked for.
    UnknownDatabase {
        /// The error of the upstream, if known.
        said: Option<Arc<str>>,
    },
    /// As many clients wait already as the pool allows.
    QueueFull,
    /// The pool was cleared or closed.
    Closed,
    /// No client had used the pool for long, and the driver forgot it just before the client asked. The session asks
    /// again, under the new id of the pool.
    Forgotten,
}

/// Why no server could be had from an upstream.
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
        /// The setting that has the limit.
        setting: &'static str,
    },
    /// The client has just logged in, and its database or its user has as many clients as it may have. The effects
    /// for this client since [`Effect::LoggedIn`](crate::Effect::LoggedIn) have been dropped. If its session leaves no
    /// effect now, the bytes among them are sent after all, and the session refuses the client's next request.
    Full {
        /// The database or the user.
        of: Tenant,
        limit: u32,
    },
    /// Too many logins from this address have failed, and the client's turn to log in did not come in time.
    Throttled {
        retry_after: Duration,
    },
    /// Login took longer than allowed.
    LoginTimeout,
    /// The client was idle for longer than `client_idle_time`.
    IdleTimeout,
    /// The client was idle for longest while its listener, its database or its user was above its soft limit.
    Evicted,
    /// A request took longer than `query_time`.
    QueryTimeout,
    /// A transaction was left idle for longer than `transaction_idle_time`.
    TransactionIdleTimeout,
    /// A transaction took longer than `transaction_time`.
    TransactionTimeout,
    /// The server that the client had kept beyond its transactions is replaced (`fast_close`).
    ServerReplaced,
    ShuttingDown,
    /// The client's database is being drained.
    Drained {
        /// The client has just logged in. What was to be sent to it since then has been dropped, including the answer
        /// to its login.
        at_login: bool,
    },
    /// The client's database takes no new clients, by order of an operator.
    Disabled {
        /// As in [`Refusal::Drained`].
        at_login: bool,
    },
    Killed,
    /// An operator has closed all clients and servers of the client's database.
    DatabaseKilled,
    /// The client had not logged in, and another client has got its place.
    Displaced,
}

/// How the driver treats clients because of what they speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRules {
    /// Clients may send as much as they like before they read, and the upstream keeps the replies for them. The driver
    /// therefore receives from a client that holds a server even while the client does not read: otherwise client and
    /// server would wait for each other.
    pub upstream_keeps_replies: bool,
    /// A client that shuts down its sending side gets the answers to its requests, unless they wait for what other
    /// clients may do. If this is false, such a client counts as gone, and its requests are cancelled.
    pub answers_half_closed: bool,
    /// The session bounds what it sends to a client that does not read, and keeps the rest itself. The driver
    /// therefore receives from the client's server meanwhile, so that the server becomes free.
    pub session_keeps_replies: bool,
    /// Bytes that may wait for a client that does not read; with more the client is disconnected. Only posts can
    /// reach this bound, because the driver stops receiving from a server whose client does not read. 32 MB at most.
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

/// A database protocol, as the driver sees it.
///
/// The object itself is shared by all workers: it holds configuration and caches, under locks of its own. What belongs
/// to one connection is in its session: [`Client`](Protocol::Client) for a connection from an application,
/// [`Server`](Protocol::Server) for one to a database. The driver calls the session of a connection on the worker where
/// the connection lives, one call at a time. A call gets an empty [`Outbox`], in which the session leaves
/// [effects](crate::Effect). When the call has returned, the driver executes these in order.
///
/// # The life of a client
///
/// 1. [`client_start`](Protocol::client_start), when the connection is accepted.
/// 2. [`client_input`](Protocol::client_input), whenever bytes arrive. The session logs the client in, and reports that
///    with [`Effect::LoggedIn`](crate::Effect::LoggedIn).
/// 3. For a request that needs a server: the session leaves [`Effect::Lease`](crate::Effect::Lease). The driver holds
///    further input back, and calls [`granted`](Protocol::granted) or [`lease_failed`](Protocol::lease_failed). Then it
///    hands the input over again, and the session sends the request.
/// 4. The server's answer arrives at [`server_input`](Protocol::server_input), which passes it on to the client. Once
///    the request (or the transaction) is done, the session releases the server with a
///    [verdict](crate::Verdict): [`Effect::Release`](crate::Effect::Release).
/// 5. [`client_gone`](Protocol::client_gone), exactly once, as the last call. The connection may have ended, the
///    session may have left [`Effect::Close`](crate::Effect::Close), or the driver may have sent the client away, which
///    it announces by [`refuse`](Protocol::refuse). After `refuse` or `Effect::Close` the session gets no more input.
///
/// # The life of a server
///
/// 1. [`server_start`](Protocol::server_start), when the connection is open. The session logs in.
/// 2. [`Effect::Ready`](crate::Effect::Ready) ends the start: the pool has the server from now on. Or
///    [`Effect::Retain`](crate::Effect::Retain) ends it: the session retains the server, and no client gets it.
/// 3. [`server_input`](Protocol::server_input), whenever bytes arrive, also while no client holds the server.
/// 4. [`reset`](Protocol::reset) or [`check`](Protocol::check), when the pool wants the server cleaned or tested.
///    `Effect::Ready` ends either.
/// 5. [`retire`](Protocol::retire) as the last call, if the pool closes the server.
///    [`server_gone`](Protocol::server_gone) as the last call, if the connection ends while clients have the server
///    or the session retains it: that lease is then over without a release. A server that is free and breaks gets no
///    last call.
///
/// # Rules for all calls
///
/// - What an outbox sets off for others (grants, failures, wake-ups, departures) is called after the whole outbox, and
///   never from within it. Only the client that asks may be granted its own lease at once.
/// - A session that cannot consume all of its input returns how much it has consumed. If that is more than nothing, it
///   is called again with the rest at once. Otherwise it is called again when more bytes have arrived; it can say how
///   many it needs ([`Outbox::need`]), or that it waits for something else ([`Outbox::UNTIL_WOKEN`]). It is also called
///   again after `granted`, `lease_failed` and [`Effect::Wake`](crate::Effect::Wake).
/// - After `Effect::Close` of a client, what the client holds is released through `client_gone` at once, though its
///   last bytes may still be leaving.
/// - A server that its session retains stays on its worker. If its pool has given it up by the end of its start,
///   `retire` is called, and the session has it no longer.
///
/// # Shared servers
///
/// A client that leaves `Effect::Lease` with [`LeaseKind::Shared`](crate::LeaseKind::Shared) gets a *share* of a
/// server, beside other clients of the same worker.
///
/// - A client has one share of a pool at a time, from its first request to the last reply that is due to it, and does
///   not count as idle meanwhile. Then it leaves ([`Effect::Leave`](crate::Effect::Leave)).
/// - A request goes to a shared server whole, in one call, and its reply depends on no more input.
/// - When the driver wants the server back, no more clients join, and clients that have a share get no more input. The
///   one exception is the first input after `granted`, in which the session sends a request or leaves. The driver may
///   keep a server without clients for a while.
/// - A client that goes while replies are due leaves with [`Verdict::Reset`](crate::Verdict::Reset). The server's
///   session goes on, and drops the replies. After [`Verdict::Discard`](crate::Verdict::Discard) no client joins any
///   more.
/// - When a shared server is gone, the driver calls `server_gone`, and then [`share_ended`](Protocol::share_ended) for
///   each client that has a share.
/// - Buffered input is handed over again after a client has left a server that was wanted back, after
///   `server_gone` and `share_ended`, and when a cancel request for the client's server has ended.
#[expect(unused_variables, reason = "the default of a method ignores what it is told")]
pub trait Protocol: Send + Sync + 'static {
    /// The state of a client's connection; small, because tens of thousands are idle.
    type Client: Send + 'static;
    /// The state of a server's connection.
    type Server: Send + 'static;

    /// Returns how the driver treats the clients of a listener. The driver asks once for each listener, at the start.
    fn client_rules(&self, listener: u16) -> ClientRules {
        ClientRules::default()
    }

    /// Each worker calls this at least every 20 ms as long as anything happens: sessions have no clock of their own.
    /// `now` is the time since the driver began. The outbox may get [`Effect::Post`](crate::Effect::Post) and
    /// [`Effect::ResetOne`](crate::Effect::ResetOne) only.
    fn on_tick(&self, now: Duration, out: &mut Outbox) {}

    /// A client's connection has been accepted. Returns its session.
    fn client_start(&self, me: ClientTag, origin: Origin, out: &mut Outbox) -> Self::Client;

    /// A connection to a host of `pool` is open. Returns its session.
    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Self::Server;

    /// As [`server_start`](Protocol::server_start), in a second round over the hosts: in the first round no host met
    /// all that the session asks of one, and now the session is to accept a host that meets less (such as a primary
    /// where a standby is preferred).
    fn server_start_fallback(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Self::Server {
        self.server_start(me, pool, out)
    }

    /// As [`server_start`](Protocol::server_start), on a connection to where a host has
    /// [redirected](crate::CloseReason::Redirected) the driver.
    fn server_start_redirected(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Self::Server {
        self.server_start(me, pool, out)
    }

    /// Bytes have arrived from a client. Returns how many of them the session has consumed.
    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        servers: &mut dyn Sessions<ServerTag, Self::Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize;

    /// All bytes that were sent to a client have left. Called once after one or several
    /// [`Effect::NotifyFlushed`](crate::Effect::NotifyFlushed).
    fn client_flushed(&self, me: ClientTag, client: &mut Self::Client, out: &mut Outbox) {
        unreachable!("the protocol never asks");
    }

    /// Bytes have arrived from a server. Returns how many of them the session has consumed.
    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Self::Server,
        clients: &mut dyn Sessions<ClientTag, Self::Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize;

    /// The client has got the lease that it asked for: the server `tag` is its own until it releases it, or the client
    /// has a share of it. [`client_input`](Protocol::client_input) follows at once with the buffered input. A
    /// session that is not ready for that consumes nothing, and leaves [`Effect::Wake`](crate::Effect::Wake) later.
    fn granted(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        tag: ServerTag,
        server: &mut Self::Server,
        out: &mut Outbox,
    );

    /// The client does not get the lease that it asked for. `arrived` is the number of bytes that the session has not
    /// consumed and that have arrived by now: the client sent them before it could know of the failure.
    fn lease_failed(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        why: LeaseFailure,
        arrived: usize,
        out: &mut Outbox,
    );

    /// Bytes have arrived that another session posted to this client with [`Effect::Post`](crate::Effect::Post). The
    /// slot may be another client's by now: `key` tells whether this client is meant. [Spans](crate::Bytes::Span) in
    /// the outbox are ranges of `bytes`, so what is sent to many clients is not copied for each.
    fn posted_to_client(&self, me: ClientTag, client: &mut Self::Client, key: u64, bytes: &[u8], out: &mut Outbox) {
        unreachable!("the protocol never posts anything");
    }

    /// As [`posted_to_client`](Protocol::posted_to_client), for a server.
    fn posted_to_server(&self, me: ServerTag, server: &mut Self::Server, key: u64, bytes: &[u8], out: &mut Outbox) {
        unreachable!("the protocol never posts anything");
    }

    /// A client [asks all clients](crate::Effect::Survey) a question; the driver calls this for each of them, the one
    /// that asks included. What the session answers is appended to `answer`.
    fn surveyed(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        facts: &SurveyedClient<'_>,
        question: &[u8],
        answer: &mut Vec<u8>,
        out: &mut Outbox,
    ) {
        unreachable!("the protocol never asks");
    }

    /// The survey that this client asked for is complete. `answer` is what all sessions have appended.
    fn survey_done(&self, me: ClientTag, client: &mut Self::Client, answer: &[u8], out: &mut Outbox) {
        unreachable!("the protocol never asks");
    }

    /// The client's connection has ended, or is being closed. The session releases every server that the client holds,
    /// with a verdict.
    fn client_gone(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        servers: &mut dyn Sessions<ServerTag, Self::Server>,
        out: &mut Outbox,
    );

    /// The connection of a server has ended while a client held it, clients shared it or its session kept it. The
    /// session tells the clients an error. The leases are over: none of the clients releases the server.
    fn server_gone(
        &self,
        me: ServerTag,
        server: &mut Self::Server,
        clients: &mut dyn Sessions<ClientTag, Self::Client>,
        out: &mut Outbox,
    );

    /// The server of which this client has a share is gone. The driver has called
    /// [`server_gone`](Protocol::server_gone) before. The client does not [leave](crate::Effect::Leave). The driver
    /// also calls this for a client that is being closed, whose session then sends nothing.
    fn share_ended(&self, me: ClientTag, client: &mut Self::Client, out: &mut Outbox) {
        unreachable!("the protocol never shares a server");
    }

    /// The driver sends the client away, and the session tells it why. Then the driver closes the connection and calls
    /// [`client_gone`](Protocol::client_gone).
    ///
    /// A client that has just been accepted may not be able to understand an error yet. Its session leaves no effect
    /// now, goes on to receive input, answers when it can, and ends with [`Effect::Close`](crate::Effect::Close).
    fn refuse(&self, me: ClientTag, client: &mut Self::Client, why: Refusal, out: &mut Outbox);

    /// Cleans a server. [`Effect::Ready`](crate::Effect::Ready) or [`Effect::Close`](crate::Effect::Close) ends this.
    ///
    /// The driver calls it for a server that was released with [`Verdict::Reset`](crate::Verdict::Reset), for one that
    /// was released with [`Verdict::Soiled`](crate::Verdict::Soiled) and that no client has taken since, and for an
    /// idle one after [`Effect::ResetOne`](crate::Effect::ResetOne).
    fn reset(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox);

    /// Finds out whether an idle server still answers. Ends as [`reset`](Protocol::reset) does.
    fn check(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox);

    /// The driver is about to close an idle server. The session sends the protocol's goodbye, if there is one.
    fn retire(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox) {}

    /// The pool wants back a server that its session retains ([`Effect::Retain`](crate::Effect::Retain)): the pool
    /// makes its servers anew, or needs the server for others. The session releases the server as soon as nothing is in
    /// progress there. The driver calls this again and again until it has.
    fn request_release(&self, me: ServerTag, server: &mut Self::Server, out: &mut Outbox) {}

    /// The pool wants back a server that the client has on a [long-term lease](crate::LeaseKind::LongTerm): the pool
    /// has become smaller, and clients that keep servers have all of them while others wait. The session gives the
    /// server back in the way that harms its client least; if there is no other way, the client goes. Returns false if
    /// there is nothing to do, because what the client waits for ends soon by itself. The driver calls this again now
    /// and then until it has the server.
    fn request_return(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        tag: ServerTag,
        pool: PoolId,
        out: &mut Outbox,
    ) -> bool {
        false
    }

    /// A client presented `secret` to cancel what this client is doing. The session compares the secret, and cancels.
    /// `waiting`: this client is waiting for a lease.
    fn cancel(
        &self,
        me: ClientTag,
        client: &mut Self::Client,
        servers: &mut dyn Sessions<ServerTag, Self::Server>,
        secret: u64,
        waiting: bool,
        out: &mut Outbox,
    ) {
        unreachable!("the protocol has no request to cancel");
    }

    /// The TLS handshake that the session asked for with [`Effect::StartTls`](crate::Effect::StartTls) has succeeded.
    /// The session's input goes on. The listener has checked the client's certificate; a protocol that logs users in by
    /// password has nothing to do.
    fn client_secured(&self, me: ClientTag, client: &mut Self::Client, secured: Secured, out: &mut Outbox) {}

    /// As [`client_secured`](Protocol::client_secured), for a server.
    fn server_secured(&self, me: ServerTag, server: &mut Self::Server, secured: Secured, out: &mut Outbox) {
        unreachable!("the protocol never asks for TLS");
    }

    /// The TLS handshake with a server has failed, and its connection ends. Returns for which reason.
    fn server_tls_failed(&self, server: &mut Self::Server, failure: TlsFailure) -> CloseReason {
        CloseReason::StartFailed { permanent: failure.bad_certificate, message: failure.message }
    }

    /// The driver has forgotten a pool that no client has used for long. The protocol drops what it keeps about it. The
    /// id will never name another pool.
    fn pool_forgotten(&self, pool: PoolId) {}

    /// Whether a server waits for the rest of a request from the client that holds it, and has nothing to do until
    /// then. The driver asks this only when nothing has come from either for a while.
    fn awaits_client(&self, client: &Self::Client, server: &Self::Server) -> bool {
        false
    }

    /// What an operator is told of a client's session.
    fn describe_client(&self, client: &Self::Client) -> SessionDescription {
        SessionDescription::default()
    }

    /// What an operator is told of a server's session.
    fn describe_server(&self, server: &Self::Server) -> SessionDescription {
        SessionDescription::default()
    }

    /// The database's own name for a server's connection (a process id), for people.
    fn backend(&self, server: &Self::Server) -> Option<u32> {
        None
    }
}
