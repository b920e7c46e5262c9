//! The Redis serialization protocol (RESP2 and RESP3), as far as a proxy has to read it: where a command ends and what
//! its arguments are, and where a reply ends, whatever is in it. No tree is built and nothing is copied.
//!
//! It knows no connection and no state of a client. The protocol's rules are those of
//! <https://redis.io/docs/latest/develop/reference/protocol-spec/>; what a server makes of a malformed request, and in
//! which words, was observed of Redis 7.

mod inline;
mod number;
mod parts;
mod pubsub;
mod reply;
mod request;
mod write;

pub use inline::split;
pub(crate) use number::{Line, line, number, parse as integer};
pub use parts::parts;
pub use pubsub::{PubSubReply, read_pubsub, take_array_header, take_string};
pub use reply::ReplyScanner;
pub use request::{Limits, Request, beginning, read};
pub use write::{command, error, head, null, null_array, text, verbatim};

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Version {
    #[default]
    Resp2,
    Resp3,
}

impl Version {
    pub fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}
