//! The server's side of HTTP without I/O: bytes of a client in, requests out; answers in, bytes for the client out.
//!
//! HTTP/1.1 (RFC 9112), HTTP/2 (RFC 9113), bearer tokens (RFC 6750), CORS
//! (<https://fetch.spec.whatwg.org/#http-cors-protocol>), server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>), and limits: of a head, of a body, of what
//! connections hold. It knows no socket, no thread, no clock, and nothing of what is asked for: a protocol describes
//! itself as a [`Service`], says who may ask as a [`Door`], and keeps a [`Connection`] per client:
//!
//! 1. [`Connection::read`] with the client's bytes, until no [`Event`] comes of it;
//! 2. for each [`Request`], in any order: one [`Connection::answer`] or [`Connection::deny`]; or [`Connection::open`],
//!    and from then on [`Connection::say`];
//! 3. [`Connection::flush`] after that, for the bytes that the client is to be sent, then [`Connection::ended`] and
//!    [`Connection::end`]; and again, once the client has taken them, if it [has more](Connection::has_more).
//!
//! Once [`Connection::end`] has said that the connection is over, it is to be closed behind what was flushed.
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
mod outcome;
mod request;
mod room;
mod target;

pub use self::{
    access::{DEFAULT_MAX_REQUEST, Door, Rules},
    answer::{Answer, Service},
    connection::Connection,
    denied::Denied,
    events::EventWriter,
    head::Method,
    outcome::{End, Event},
    request::{Request, Stream},
    room::Room,
    target::Target,
};
