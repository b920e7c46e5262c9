//! What is under way to a server ahead of its new holder's request. What it is for is told in the feature of the same
//! name. It sends nothing.

use std::sync::Arc;

use crate::{session::texts::Text, sql::parameters::Settings};

/// What is under way ahead of a request.
pub(crate) struct Preface {
    /// The settings that the server will have.
    pub(crate) settings: Arc<Settings>,
    pub(crate) cleaned: bool,
    /// No client has had the server before.
    pub(crate) fresh: bool,
    /// Steps that are still to be answered; if there were none, a ReadyForQuery ends it.
    pub(crate) steps: u16,
    /// PostgreSQL was told to send its answers at once: otherwise they come with those to the request.
    pub(crate) hurried: bool,
    /// A cancel that came was passed on, without waiting for the outcome.
    pub(crate) cancel_sent: bool,
    /// The client's unnamed statement when it began: the request may have changed that.
    pub(crate) unnamed: Option<Arc<Text>>,
}

impl Preface {
    pub(crate) fn new(settings: Arc<Settings>, cleaned: bool, steps: u16, unnamed: Option<Arc<Text>>) -> Self {
        Self { settings, cleaned, fresh: false, steps, hurried: false, cancel_sent: false, unnamed }
    }
}
