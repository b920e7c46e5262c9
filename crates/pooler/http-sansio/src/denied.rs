//! Refusals of requests.

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The status code of the answer (RFC 9110, section 15).
    pub status: u16,
    /// What is wrong, and how to correct it.
    pub error: String,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u64>,
}

impl Denied {
    /// A refusal without `Retry-After`.
    pub fn new(status: u16, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), retry_after: None }
    }

    /// The body is larger than `most` bytes.
    pub(crate) fn too_large(most: usize) -> Self {
        Self::new(413, format!("a request may have {most} bytes here (max_request)"))
    }

    /// There is no memory left in the [`MemoryBudget`](crate::MemoryBudget).
    pub fn crowded() -> Self {
        let error = "clients of HTTP hold as much here as they may together: ask again, or send less at a time";
        Self { retry_after: Some(1), ..Self::new(503, error) }
    }
}
