//! The state of a client that is logging in.

use std::sync::Arc;

use seam::{Origin, Refusal, Secured};

use crate::wire::{Packet, Start};

pub(crate) struct Login {
    pub(crate) origin: Origin,
    pub(crate) step: Step,
    pub(crate) start: Start,
    /// What the TLS handshake has shown.
    pub(crate) secured: Option<Secured>,
    /// The connection began with that handshake.
    pub(crate) direct: bool,
    /// Requests for encryption that were declined: one of each kind is allowed.
    pub(crate) declined: Vec<Packet>,
    /// The client is refused once its start-up message has come: before that it would not understand.
    pub(crate) refusal: Option<Refusal>,
}

pub(crate) enum Step {
    Packet,
    Md5 {
        stored: Arc<str>,
        salt: [u8; 4],
    },
    SaslFirst(scram::Server),
    SaslLast(scram::Server),
    /// A server is awaited, or is being asked who may log in.
    Asking,
    /// The client is authenticated; a server to learn the parameters from is awaited or at work.
    Parameters,
}

/// The login that a server is asked about.
pub(crate) struct Asked {
    pub(crate) origin: Origin,
    pub(crate) database: String,
    pub(crate) user: String,
}

impl Login {
    pub(crate) fn new(origin: Origin) -> Self {
        Self {
            origin,
            step: Step::Packet,
            start: Start::default(),
            secured: None,
            direct: false,
            declined: Vec::new(),
            refusal: None,
        }
    }

    /// Before the start-up message an error could be taken for the answer to a request for encryption: it is deferred.
    pub(crate) fn defer(&mut self, why: Refusal) -> Option<Refusal> {
        if !matches!(self.step, Step::Packet) {
            return Some(why);
        }
        self.refusal = Some(why);
        None
    }

    /// The login that a server is asked about, if one is.
    pub(crate) fn asked(&self) -> Option<Asked> {
        let Start { database, user, .. } = &self.start;
        matches!(self.step, Step::Asking).then(|| Asked {
            origin: self.origin,
            database: database.clone(),
            user: user.clone(),
        })
    }
}
