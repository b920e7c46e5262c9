//! Why a request is not carried out.

/// Why a request is not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Denied {
    /// The status of its answer (RFC 9110, section 15).
    pub status: u16,
    /// What is wrong, and what to do.
    pub error: String,
    /// When to try again, in seconds (`Retry-After`).
    pub retry_after: Option<u64>,
}

impl Denied {
    /// With nothing said of another try.
    pub fn new(status: u16, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), retry_after: None }
    }

    /// A body has more bytes than it may have.
    pub(crate) fn too_large(most: usize) -> Self {
        Self::new(413, format!("a request may have {most} bytes here (max_request)"))
    }

    /// There is no [`Room`](crate::Room) for it: to be told to the request that is too much.
    pub fn crowded() -> Self {
        let error = "clients of HTTP hold as much here as they may together: ask again, or send less at a time";
        Self { retry_after: Some(1), ..Self::new(503, error) }
    }
}
