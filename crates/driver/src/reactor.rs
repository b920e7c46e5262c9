//! The reactor's interface: operations are submitted, completions are received.
//!
//! It is completion-shaped so that an io_uring implementation fits behind it; the one there is
//! ([`readiness`]) emulates it on epoll through mio. Buffers come from the worker's own ring and
//! belong to the reactor until a completion hands them out. The reactor knows no protocol, no pool
//! and no session: only connections, and the [`Owner`] each completion is addressed to.
//!
//! Rules of the interface, which hold for every implementation:
//! - a connection has at most one receive and one chain of sends under way;
//! - what is sent leaves in the order of the calls;
//! - `detach` gives the socket back only when no operation is under way, and unread bytes stay in
//!   the socket, so a connection can go on in another worker;
//! - the end of the stream is told to a connection that is not receiving as [`Completion::HungUp`];
//! - a connection can go on in TLS: from then on what is sent is plaintext that it encrypts, and what is received is plaintext that it
//!   has decrypted. TLS goes with a connection that is detached.

mod buffers;
mod readiness;

use std::{io, ops::Range, os::fd::OwnedFd, rc::Rc, sync::Arc};

pub(crate) use buffers::Buffer;
use protocol::Secured;

pub(crate) use readiness::{Moved, Reactor, Seed, Waker};

/// What a worker's reactor is called in metrics.
pub(crate) const NAME: &str = "epoll";

/// A connection within its reactor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnId(pub u32);

/// To whom a connection's completions are addressed: a slot of the worker's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Owner {
    /// A listening socket.
    Listener(u32),
    /// A client.
    Client(u32),
    /// A server.
    Server(u32),
    /// A server's connection in the making.
    Dial(u32),
    /// A short-lived connection beside a server's, for a cancel request.
    Side(u32),
}

/// The end of an operation.
#[derive(Debug)]
pub(crate) enum Completion {
    /// A client connected.
    Accepted { listener: u32, socket: OwnedFd },
    /// Accepting failed for want of descriptors or memory; accepting goes on at `resume_accept`.
    AcceptFailed { listener: u32, error: io::Error },
    /// A connect ended.
    Connected { owner: Owner, result: io::Result<()> },
    /// Bytes came; none means the end of the stream. The receive is over and must be submitted again.
    Received { owner: Owner, buffer: Rc<Buffer>, length: usize },
    /// The TLS handshake is done. The receive goes on.
    Secured { owner: Owner, secured: Box<Secured> },
    /// The connection is broken. No other completion follows.
    Broken { owner: Owner, error: io::Error },
    /// All that was to be sent has left.
    Sent { owner: Owner },
    /// The peer has gone while nothing was being received. Told once.
    HungUp { owner: Owner },
}

/// What to send.
pub(crate) enum Data<'a> {
    /// A part of a ring buffer, which is kept until it has left.
    Ring(&'a Rc<Buffer>, Range<usize>),
    /// A part of what many connections are sent, which is kept until it has left all of them.
    Shared(&'a Arc<[u8]>, Range<usize>),
    /// Other bytes; what cannot leave at once is copied.
    Bytes(&'a [u8]),
}

impl Data<'_> {
    /// What they are.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Data::Ring(buffer, range) => &buffer[range.clone()],
            Data::Shared(bytes, range) => &bytes[range.clone()],
            Data::Bytes(bytes) => bytes,
        }
    }
}

/// What became of a send at submission.
#[derive(Debug)]
pub(crate) enum Submitted {
    /// It left at once.
    Done,
    /// [`Completion::Sent`] follows.
    Pending,
    /// The connection is broken; no completion follows.
    Broken(io::Error),
}
