//! The state of a client that is logging in.

use std::sync::Arc;

use seam::{Origin, Refusal, Secured};

use crate::{
    LoginAttempt, StoredPassword,
    wire::{Packet, Start},
};

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
        stored: Arc<[Arc<str>]>,
        salt: [u8; 4],
    },
    SaslFirst(scram::Server),
    SaslLast(scram::Server),
    /// The password itself is awaited.
    Cleartext(Comparison),
    /// What takes long is being found out, under this number.
    Checking {
        serial: u64,
    },
    /// It has asked to cancel what a client of another node does, under this number.
    HandingOn {
        serial: u64,
    },
    /// A server is awaited, or is being asked who may log in.
    Asking,
    /// The client is authenticated; a server to learn the parameters from is awaited or at work.
    Parameters,
}

/// What is done with a password that a client sends as it is.
pub(crate) enum Comparison {
    With(Arc<[StoredPassword]>),
    /// There is no such user. The password is compared with a verifier of this shape all the same, if there is one, so
    /// that the time tells nothing.
    Mock(Option<scram::Shape>),
    /// Another program checks it.
    Elsewhere,
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

    /// What is known of the client that the directory can decide by.
    pub(crate) fn attempt(&self) -> LoginAttempt {
        let Start { database, user, replication, .. } = &self.start;
        LoginAttempt {
            origin: self.origin,
            encrypted: self.secured.is_some(),
            certificate: self.secured.as_ref().and_then(|secured| secured.peer_name.clone()),
            database: database.clone(),
            user: user.clone(),
            replication: replication.as_deref().is_some_and(|kind| kind != "database"),
        }
    }

    /// The login that a server is asked about, if one is.
    pub(crate) fn asked(&self) -> Option<LoginAttempt> {
        matches!(self.step, Step::Asking).then(|| self.attempt())
    }
}
