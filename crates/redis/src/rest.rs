//! Redis over HTTP, after the contract that Upstash publishes for its REST API
//! (<https://upstash.com/docs/redis/features/restapi>): what a request asks, what may be asked, and what is answered.
//!
//! Bytes in, bytes out: it knows no connection and no pool. `client::rest` lets requests through to servers.

pub(crate) mod answer;
pub(crate) mod body;
pub(crate) mod call;
pub(crate) mod events;
pub(crate) mod h2;
pub(crate) mod head;
pub(crate) mod json;
pub(crate) mod rules;

/// Largest request body that is taken unless a listener says otherwise, in bytes.
pub const DEFAULT_MAX_REQUEST: usize = 10 * 1024 * 1024;

/// Most commands of one request.
pub(crate) const MAX_COMMANDS: usize = 100_000;

/// Largest answer, in bytes: it is held whole before it is sent.
pub(crate) const MAX_ANSWER: usize = 128 * 1024 * 1024;

/// Bytes of a request that are dropped, because it is answered already, before its connection is given up.
pub(crate) const MAX_DROPPED: u64 = 64 * 1024 * 1024;

/// Why a request is not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Denied {
    /// The HTTP status.
    pub status: u16,
    /// What is wrong, and what to do.
    pub error: String,
    /// When to try again, in seconds.
    pub retry_after: Option<u64>,
}

impl Denied {
    pub(crate) fn new(status: u16, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), retry_after: None }
    }

    /// What an error of Redis comes to, or of Poolhouse when there is none.
    pub(crate) fn by(error: &[u8]) -> Self {
        let status = if error.starts_with(b"ERR Poolhouse") { 503 } else { 400 };
        Self::new(status, String::from_utf8_lossy(error))
    }
}
