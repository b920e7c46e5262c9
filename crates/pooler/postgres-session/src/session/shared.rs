//! The state that all sessions share.

use std::sync::Arc;

use seam::ServerTag;

use crate::{
    directory::Directory,
    random::random,
    session::{
        kept_parses::KeptParses, keyring::Keyring, known_parameters::KnownParameters, listen::Hubs,
        listener_rules::RulesInForce, pins::Pins, statements::Statements, wait_notices::WaitNotices, wording::Wording,
    },
    sql::catalogue::Catalogues,
    wire::{cancel_key::MAX_NODE, encryption::SecondTries},
};

pub struct Postgres {
    pub(crate) directory: Arc<dyn Directory>,
    /// Stands in for users who do not exist.
    pub(crate) mock: scram::Mock,
    /// Keys derived from passwords for servers.
    pub(crate) keys: scram::KeyCache,
    /// Servers whose keys are derived part by part.
    pub(crate) derivations: scram::DerivationQueue<(ServerTag, u64)>,
    /// Keys learned from clients that logged in.
    pub(crate) keyring: Keyring,
    pub(crate) parameters: KnownParameters,
    pub(crate) statements: Arc<Statements>,
    pub(crate) texts: KeptParses,
    pub(crate) pins: Pins,
    pub(crate) hubs: Hubs,
    pub(crate) catalogues: Catalogues,
    pub(crate) second_tries: SecondTries,
    pub(crate) rules: RulesInForce,
    pub(crate) wait_notices: WaitNotices,
    pub(crate) wording: Wording,
    /// The number of this Poolhouse among several behind one address.
    pub(crate) node: u16,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Bytes of the texts of named statements that clients or servers have, and of some that none has any more.
    pub named_bytes: u64,
    /// Bytes of long unnamed statements between their Parse and their Bind.
    pub unnamed_bytes: u64,
    /// Long unnamed statements that were forgotten because there were too many bytes of them.
    pub unnamed_forgotten: u64,
}

impl Postgres {
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        Self {
            directory,
            mock: scram::Mock::new(random()),
            keys: scram::KeyCache::default(),
            derivations: scram::DerivationQueue::default(),
            keyring: Keyring::default(),
            parameters: KnownParameters::default(),
            statements: Arc::default(),
            texts: KeptParses::default(),
            pins: Pins::default(),
            hubs: Hubs::default(),
            catalogues: Catalogues::default(),
            second_tries: SecondTries::default(),
            rules: RulesInForce::default(),
            wait_notices: WaitNotices::default(),
            wording: Wording::default(),
            node: 0,
        }
    }

    /// A function that tells the memory of statements whenever it is called.
    pub fn memory(&self) -> impl Fn() -> Memory + Send + Sync + 'static {
        let (statements, texts) = (Arc::clone(&self.statements), self.texts.clone());
        move || {
            let (bytes, unnamed_forgotten) = texts.totals();
            Memory { named_bytes: statements.bytes() as u64, unnamed_bytes: bytes as u64, unnamed_forgotten }
        }
    }

    /// With errors in these words.
    pub fn with_wording(self, wording: Wording) -> Self {
        Self { wording, ..self }
    }

    /// As one of several behind one address: cancel keys carry its number, at most [`MAX_NODE`].
    pub fn with_node(self, node: u16) -> Self {
        assert!(node <= MAX_NODE, "a node id is at most {MAX_NODE}");
        Self { node, ..self }
    }
}
