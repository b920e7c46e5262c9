//! What is under way to a server ahead of its new holder's request.

use std::sync::Arc;

use crate::{session::kept_parses::KeptParse, sql::Settings};

pub(crate) struct Preface {
    /// The settings that the server will have.
    pub(crate) settings: Arc<Settings>,
    pub(crate) cleaned: bool,
    /// No client has had the server before.
    pub(crate) fresh: bool,
    /// Unanswered steps; zero in the form that a ReadyForQuery ends.
    pub(crate) steps: u16,
    /// A Flush was sent: otherwise the answers come with those to the request.
    pub(crate) hurried: bool,
    /// A cancel request was passed on before the outcome was known.
    pub(crate) cancel_sent: bool,
    /// The client's unnamed statement when the preface began: the request may have changed it.
    pub(crate) unnamed: Option<Arc<KeptParse>>,
}

/// Input of a client that was sent ahead of the outcome of a preface.
#[derive(Default)]
pub(crate) struct Ahead {
    /// Bytes that were sent, and are still with the driver.
    bytes: u32,
    /// The request has ended: no more may be sent ahead.
    ended: bool,
}

impl Ahead {
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes as usize
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn set_bytes(&mut self, bytes: usize) {
        self.bytes = u32::try_from(bytes).expect("no more is held than that");
    }

    /// A message is forwarded, which ends the request that goes ahead, or does not.
    #[inline]
    pub(crate) fn set_ended(&mut self, ended: bool) {
        self.ended = ended;
    }
}

impl Preface {
    pub(crate) fn new(settings: Arc<Settings>, cleaned: bool, steps: u16, unnamed: Option<Arc<KeptParse>>) -> Self {
        Self { settings, cleaned, fresh: false, steps, hurried: false, cancel_sent: false, unnamed }
    }
}
