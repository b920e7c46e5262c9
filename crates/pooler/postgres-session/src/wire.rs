//! The bytes of the protocol: messages and how they are written, the first packets of a connection, errors, and what
//! hashes and keys look like. It knows no session.

pub(crate) mod cancel_key;
pub(crate) mod encryption;
pub(crate) mod error;
pub(crate) mod md5;
pub(crate) mod message;
mod options;
pub(crate) mod startup;
