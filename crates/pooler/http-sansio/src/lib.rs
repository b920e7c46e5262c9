//! The server side of HTTP without I/O: a client's bytes in, requests out; answers in, bytes for the client out.
//!
//! It implements HTTP/1.1 (RFC 9112), HTTP/2 (RFC 9113), bearer tokens (RFC 6750), CORS
//! (<https://fetch.spec.whatwg.org/#http-cors-protocol>) and server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), with limits of heads, bodies, and the memory
//! that connections hold. A protocol describes itself as a [`Service`], decides who may send requests as a [`Door`],
//! and keeps a [`Connection`] for each client:
//!
//! 1. [`Connection::read`] with the client's bytes, until it returns no [`InputEvent`];
//! 2. for each [`Request`], in any order: one [`Connection::answer`] or [`Connection::deny`]; or
//!    [`Connection::open_events`], and from then on [`Connection::send_events`];
//! 3. [`Connection::flush`] after that, for the bytes to be sent to the client, then [`Connection::ended`] and
//!    [`Connection::end`]; and again, once the client has taken them, if it [has more](Connection::has_more).
//!
//! Once [`Connection::end`] returns a result, the connection is to be closed after the flushed bytes.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod body;
mod connection;
mod denied;
mod events;
mod head;
mod http1;
mod http2;
mod memory_budget;
mod outcome;
mod request;
mod target;

pub use self::{
    access::{DEFAULT_MAX_REQUEST, Door, Rules},
    answer::{Answer, Service},
    connection::Connection,
    denied::Denied,
    events::EventWriter,
    head::Method,
    memory_budget::MemoryBudget,
    outcome::{End, InputEvent},
    request::{Request, Stream},
    target::Target,
};
