//! What input leads to, and how a connection ends, in any version of HTTP.

use crate::Request;

/// The result of a client's input.
#[derive(Debug)]
pub enum InputEvent<'b, C> {
    /// A body is arriving in pieces (HTTP/1.1): the client is no longer idle.
    Uploading,
    /// A complete request. In HTTP/1.1 no more input is read before its answer has been flushed.
    Request(Request<'b, C>),
}

/// How a connection has ended. Flushed bytes are to be sent before it is closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Done,
    /// An error of the client, in words for the log.
    Fault(String),
}
