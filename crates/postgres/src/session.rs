//! What is known of each connection, and of all.

pub(crate) mod keyring;
pub(crate) mod pins;
pub(crate) mod prepared;
pub(crate) mod request;
pub(crate) mod statements;
pub(crate) mod survey;
pub(crate) mod version;
