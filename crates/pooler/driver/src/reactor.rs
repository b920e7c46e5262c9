//! The reactor's interface: operations are submitted, completions are received.
//!
//! It is completion-shaped so that an io_uring implementation fits behind it; the one for sockets ([`epoll`]) emulates
//! it on readiness. Another one stands in the simulator, over a simulated network. A worker knows its reactor
//! by its type, so that nothing is called through a pointer. A reactor knows no protocol, no pool and no session: only
//! connections, and the [`Owner`] each completion is addressed to.
//!
//! Rules of the interface, which hold for every implementation:
//! - a connection has at most one receive and one chain of sends under way;
//! - what is sent leaves in the order of the calls;
//! - `detach` gives the socket back only when no operation is under way, and unread bytes stay in
//!   the socket, so a connection can go on in another worker;
//! - the end of the stream is told to a connection that is not receiving as [`Completion::HungUp`];
//! - a connection can go on in TLS: from then on what is sent is plaintext that it encrypts, and what is received is
//!   plaintext that it has decrypted. TLS goes with a connection that is detached.
//!
//! Two rules come from trials with io_uring, for which the interface leaves room: a worker receives from a server only
//! after all effects of its last input, because stopping a receive costs a completion; and `send` queues behind what is
//! unsent, because two sends on one full socket interleave.

mod buffers;
pub mod epoll;

use std::{io, net::SocketAddr, ops::Range, path::Path, rc::Rc, sync::Arc, time::Duration};

use seam::Secured;

pub use self::buffers::{Buffer, Ring, writable};
pub use crate::tls::Channel;

/// A connection within its reactor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnId(pub u32);

/// To whom a connection's completions are addressed: a slot of the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Listener(u32),
    Client(u32),
    Server(u32),
    /// A server's connection in the making.
    Dial(u32),
    /// A short-lived connection beside a server's, for a cancel request.
    Cancel(u32),
    /// A server's connection that the worker has ended, and its database has not.
    ClosingServer(u32),
    /// The connection of a proxy that has not said yet whom it speaks for.
    Proxy(u32),
}

/// The end of an operation. `S` is a socket.
#[derive(Debug)]
pub enum Completion<S> {
    Accepted {
        listener: u32,
        /// Its connection, which no reactor knows yet.
        socket: S,
    },
    /// Accepting failed for want of descriptors or memory; accepting goes on at [`Reactor::resume_accept`].
    AcceptFailed { listener: u32, error: io::Error },
    Connected {
        owner: Owner,
        /// Whether the connection is open.
        result: io::Result<()>,
    },
    /// Bytes came; none means the end of the stream. The receive is over and must be submitted again.
    Received {
        owner: Owner,
        /// They stand at its beginning; [`Reactor::give_back`] takes it.
        buffer: Rc<Buffer>,
        length: usize,
    },
    /// The TLS handshake is done. The receive goes on.
    Secured { owner: Owner, secured: Box<Secured> },
    /// The connection is broken. No other completion follows.
    Broken { owner: Owner, error: io::Error },
    /// All that was to be sent has left.
    Sent { owner: Owner },
    /// The peer has gone while nothing was being received. Told once.
    HungUp { owner: Owner },
}

pub enum Data<'a> {
    /// A part of a ring buffer, which is kept until it has left.
    Ring(&'a Rc<Buffer>, Range<usize>),
    /// A part of what many connections are sent, which is kept until it has left all of them.
    Shared(&'a Arc<[u8]>, Range<usize>),
    /// Other bytes; what cannot leave at once is copied.
    Bytes(&'a [u8]),
}

impl Data<'_> {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Data::Ring(buffer, range) => &buffer[range.clone()],
            Data::Shared(bytes, range) => &bytes[range.clone()],
            Data::Bytes(bytes) => bytes,
        }
    }
}

/// What became of a send at submission.
#[derive(Debug)]
pub enum Submitted {
    Done,
    /// [`Completion::Sent`] follows.
    Pending,
    /// The connection is broken; no completion follows.
    Broken(io::Error),
}

/// Wakes a reactor that is waiting, from any thread.
pub trait Wake: Send + Sync + 'static {
    /// Its wait ends, or the next one ends at once.
    ///
    /// # Errors
    /// When it cannot be told.
    fn wake(&self) -> io::Result<()>;
}

/// Sockets of one worker: see the file's head. Call order: [`wait`](Self::wait), then [`next`](Self::next) until it has
/// nothing more; anything else at any time between.
pub trait Reactor: 'static {
    /// A connection that no reactor knows: accepted, or let go of. Dropping it closes it.
    type Socket: Send + 'static;
    /// A connection between two reactors.
    type Moved: Send + 'static;
    type Waker: Wake;

    /// What it is called in metrics.
    const NAME: &'static str;

    /// Looks at what there is, and waits for it (for a tick, or `at_most`) if `may_sleep`. All completions must have
    /// been taken with [`next`](Self::next) before.
    ///
    /// # Errors
    /// When nothing more can be learnt from it.
    fn wait(&mut self, may_sleep: bool, at_most: Option<Duration>) -> io::Result<()>;

    /// The next completion, until there is none and it is time to wait.
    fn next(&mut self) -> Option<Completion<Self::Socket>>;

    /// Takes over a connected (or listening) socket.
    ///
    /// # Errors
    /// When it cannot be watched; so for the following three.
    fn attach(&mut self, socket: Self::Socket, owner: Owner) -> io::Result<ConnId>;

    /// Takes over a connection that another reactor has detached.
    #[allow(clippy::missing_errors_doc)]
    fn attach_moved(&mut self, moved: Self::Moved, owner: Owner) -> io::Result<ConnId>;

    /// Begins to connect to an address; [`Completion::Connected`] follows.
    #[allow(clippy::missing_errors_doc)]
    fn connect_tcp(&mut self, address: SocketAddr, owner: Owner) -> io::Result<ConnId>;

    /// Begins to connect to a Unix socket; [`Completion::Connected`] follows.
    #[allow(clippy::missing_errors_doc)]
    fn connect_unix(&mut self, path: &Path, owner: Owner) -> io::Result<ConnId>;

    /// Gives a connection another owner, which later completions name (a dial that has become a server).
    fn set_owner(&mut self, id: ConnId, owner: Owner);

    fn receive(&mut self, id: ConnId);

    /// Sends after all that was submitted before. What is submitted during a TLS handshake is dropped.
    fn send(&mut self, id: ConnId, data: Data<'_>) -> Submitted;

    /// Bytes that have arrived and were not handed out. In TLS those in what has come of about one
    /// record's length: more are not looked at.
    fn unreceived(&self, id: ConnId) -> usize;

    /// Bytes that were to be sent and are still here.
    fn unsent(&self, id: ConnId) -> usize;

    /// How many bytes have left in all that could not leave at once, wrapping around. While anything is unsent,
    /// a change tells that the peer reads.
    fn deferred_bytes_sent(&self, id: ConnId) -> u32;

    /// Sends as much of the unsent bytes as the socket takes. A system may say that a socket takes more only when a
    /// large part of its buffer is free, which takes minutes where the peer reads slowly.
    fn try_to_send(&mut self, id: ConnId);

    /// Whether anything that was to be sent is still here.
    fn is_sending(&self, id: ConnId) -> bool;

    /// Goes on in TLS. `received` came from the peer already and is part of the handshake.
    fn start_tls(&mut self, id: ConnId, channel: Channel, received: &[u8]) -> Submitted;

    /// Takes back the receive and gives the connection back, to be attached to another reactor. Nothing may be
    /// waiting to be sent.
    ///
    /// # Errors
    /// When it cannot be let go of: then it is closed.
    fn detach(&mut self, id: ConnId) -> io::Result<Self::Moved>;

    /// Gives the socket of a connection without TLS to the caller. Nothing may be waiting to be sent; what has not been
    /// received stays to be received.
    ///
    /// # Errors
    /// When it cannot be let go of: then it is closed.
    fn release(&mut self, id: ConnId) -> io::Result<Self::Socket>;

    /// Says that nothing more will be sent, so that the last words arrive; what has not been sent is lost. What is
    /// received from now on is not decrypted: only its end tells anything.
    fn half_close(&mut self, id: ConnId);

    /// Says that nothing more will be sent, and gives the socket to the caller, which can ask whether the peer
    /// [has closed its side](Self::has_peer_closed). What has not been sent is lost.
    ///
    /// # Errors
    /// When it cannot be let go of: then it is closed.
    fn half_close_and_detach(&mut self, id: ConnId) -> io::Result<Self::Socket>;

    /// Whether the peer of a socket of which leave was taken has ended its side, too. What it sent before is thrown
    /// away.
    fn has_peer_closed(socket: &Self::Socket) -> bool;

    /// Whether the peer of an accepted socket has ended its side, or the connection is broken. What it has sent stays
    /// to be received.
    fn has_hung_up(socket: &Self::Socket) -> bool;

    /// Closes the connection; what has not been sent is lost.
    fn close(&mut self, id: ConnId);

    /// Gives a buffer back that a completion handed out.
    fn give_back(&mut self, buffer: Rc<Buffer>);

    /// Goes on accepting after [`Completion::AcceptFailed`].
    fn resume_accept(&mut self, id: ConnId);

    /// The address of the peer of a socket that no reactor knows yet; `None` as below.
    fn peer_of(socket: &Self::Socket) -> Option<SocketAddr>;

    /// The address of this end; `None` for a Unix socket or one that has gone.
    fn local(&self, _: ConnId) -> Option<SocketAddr> {
        None
    }

    /// The process at the other end of a Unix socket.
    fn peer_process(&self, _: ConnId) -> Option<u32> {
        None
    }

    /// The version and the cipher of TLS, if the connection has it.
    fn tls_of(&self, _: ConnId) -> Option<String> {
        None
    }

    /// The peer's address; `None` for a Unix socket or one that has gone.
    fn peer(&self, id: ConnId) -> Option<SocketAddr>;

    /// The user of this machine whose process has the other end of a Unix socket; `None` on TCP.
    fn peer_uid(&self, id: ConnId) -> Option<u32>;

    /// How long the host of a peer on TCP may be silent before it is taken for dead.
    fn set_user_timeout(&self, id: ConnId, user_timeout: Duration);

    /// Whether the host of a peer on TCP leaves what was sent to it unacknowledged, and has acknowledged nothing for
    /// this long. A host acknowledges also while the peer itself reads nothing.
    fn is_host_silent(&self, id: ConnId, time: Duration) -> bool;
}
