//! The state of a server that is being logged in to.

use seam::Secured;

use crate::{
    directory::{ServerLogin, target::Traits},
    sql::Pairs,
};

/// What is needed of a server until it is ready.
pub(crate) struct Login {
    pub(crate) how: ServerLogin,
    pub(crate) step: Step,
    pub(crate) secured: Option<Secured>,
    /// The SCRAM exchange is bound to the TLS connection.
    pub(crate) bound: bool,
    /// The SCRAM exchange, if there is one.
    pub(crate) scram: Option<scram::Client>,
    /// The answer to the challenge waits for these keys.
    pub(crate) deriving: Option<Box<Deriving>>,
    /// What the server has proved.
    pub(crate) proof: ServerProof,
    pub(crate) parameters: Pairs,
    /// The traits that the server has answered with, once it was asked.
    pub(crate) asked: Option<Traits>,
    /// Messages that the server has sent.
    pub(crate) messages: u32,
}

/// Keys that are derived part by part.
pub(crate) struct Deriving {
    /// Tells posts for this server from those for an earlier one.
    pub(crate) key: u64,
    pub(crate) derivation: scram::Derivation,
    pub(crate) challenge: Box<[u8]>,
}

#[derive(PartialEq, Eq)]
pub(crate) enum Step {
    Asked,
    Handshake,
    Started,
}

#[derive(PartialEq, Eq)]
pub(crate) enum ServerProof {
    /// No proof was asked for.
    None,
    /// No proof, though the server has received the password or its hash.
    Shown,
    /// SCRAM has begun and must be finished.
    Owed,
    /// The server knows the verifier, or has accepted the login.
    Done,
}
