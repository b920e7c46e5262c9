//! Counts of what clients of a pool ask for and what they get.

/// Counts that the pool's totals lack.
#[derive(Clone, Copy, Default)]
pub(crate) struct Traffic {
    /// Requests that were answered.
    pub(crate) queries: u64,
    /// From a request's first byte to its last answer, in nanoseconds, without the wait for a server.
    pub(crate) query_ns: u64,
    /// Bytes that servers got for clients.
    pub(crate) received_bytes: u64,
    /// Bytes that clients got from servers.
    pub(crate) sent_bytes: u64,
}
