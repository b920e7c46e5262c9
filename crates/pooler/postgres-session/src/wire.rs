//! The bytes of the protocol: messages and how they are written, the first packets of a connection, errors, and what
//! hashes and keys look like. It knows no session.

pub(crate) mod cancel_key;
pub(crate) mod encryption;
pub(crate) mod error;
pub(crate) mod md5;
pub(crate) mod message;
mod options;
pub(crate) mod startup;

pub(crate) use encryption::Wire;
pub(crate) use error::{CANCELLED, Failure, Report, Severity, code, write_notice};
pub(crate) use message::{
    HEADER, Header, IDLE, SMALL_LIMIT, back, front, read_row, take_text, take_u16, take_u32, take_value, write_bind,
    write_execute, write_parameter, write_parse, write_query, write_ready, write_text,
};
pub(crate) use startup::{Packet, Start};
