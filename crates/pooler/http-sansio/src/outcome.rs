//! What comes of a client's bytes, and how a connection ends, in whatever version of HTTP.

use crate::Request;

/// What comes of the client's bytes.
#[derive(Debug)]
pub enum Event<'b, C> {
    /// A body has begun to come in pieces (HTTP/1.1): the client is not idle from now on.
    Uploading,
    /// A request has come whole. In HTTP/1.1 nothing more is read before it has been answered, and the answer flushed.
    Request(Request<'b, C>),
}

/// How a connection has come to its end. What was flushed is to be sent before it is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    /// By what the client did, in words for a log.
    Fault(String),
}
