//! What is known of a server that is being logged in to.

use seam::Secured;

use crate::{
    directory::{ServerLogin, target::Traits},
    sql::parameters::Pairs,
};

/// What is needed of a server until it is ready.
pub(crate) struct Login {
    pub(crate) how: ServerLogin,
    pub(crate) step: Step,
    /// What the TLS handshake has shown.
    pub(crate) secured: Option<Secured>,
    /// The SCRAM exchange is bound to the TLS connection.
    pub(crate) bound: bool,
    /// The SCRAM exchange, if there is one.
    pub(crate) scram: Option<scram::Client>,
    /// The answer to its challenge waits for this.
    pub(crate) deriving: Option<Box<Deriving>>,
    /// What the server has proved.
    pub(crate) proof: Proof,
    pub(crate) parameters: Pairs,
    /// It was asked what it is; its answer, once that has come.
    pub(crate) asked: Option<Traits>,
    /// How many messages it has sent.
    pub(crate) messages: u32,
}

/// Keys that are derived part by part.
pub(crate) struct Deriving {
    /// Tells what is posted to this server from what was meant for another.
    pub(crate) key: u64,
    pub(crate) derivation: scram::Derivation,
    pub(crate) challenge: Box<[u8]>,
}

#[derive(PartialEq, Eq)]
pub(crate) enum Step {
    Asked,
    /// The handshake is under way.
    Handshake,
    /// The start-up message was sent.
    Started,
}

#[derive(PartialEq, Eq)]
pub(crate) enum Proof {
    /// None was asked for.
    None,
    /// None, and it has been told the password, or its hash.
    Shown,
    /// It has begun SCRAM and must finish it.
    Owed,
    /// It knows our verifier, or has let us in.
    Done,
}
