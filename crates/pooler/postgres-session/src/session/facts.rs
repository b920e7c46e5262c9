//! Facts that a server reports about itself and that no client can set (`is_fact`): its version, its user, whether it
//! is a standby.

use std::sync::Arc;

use crate::{session::version::Version, sql::Pairs};

#[derive(Default)]
pub(crate) struct Facts {
    current: Arc<Pairs>,
    /// The facts reported at start-up.
    at_start: Arc<Pairs>,
    version: Version,
    /// The user that the server was logged in to as, in the server's spelling.
    user: Option<Box<[u8]>>,
}

impl Facts {
    pub(crate) fn new(reported: Pairs) -> Self {
        let current = Arc::new(reported);
        let version = Version::read(current.get(b"server_version").unwrap_or_default());
        let mut facts = Self { at_start: current.clone(), current, version, user: None };
        facts.read_user();
        facts
    }

    /// Takes the acting user for the one that was logged in as: no client has had the server yet.
    pub(crate) fn read_user(&mut self) {
        self.user = self.current.get(b"session_authorization").map(Into::into);
    }

    pub(crate) fn current(&self) -> &Arc<Pairs> {
        &self.current
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn user(&self) -> Option<&[u8]> {
        self.user.as_deref()
    }

    /// The server reports a fact. True if it is new.
    pub(crate) fn record(&mut self, name: &[u8], value: &[u8]) -> bool {
        let new = self.current.get(name) != Some(value);
        if new {
            self.current = Arc::new(self.current.with(name, value));
        }
        new
    }

    /// The same user acts as at start-up, with the same rights.
    pub(crate) fn has_own_identity(&self) -> bool {
        let same = |name: &[u8]| self.current.get(name) == self.at_start.get(name);
        Arc::ptr_eq(&self.current, &self.at_start) || (same(b"is_superuser") && same(b"session_authorization"))
    }

    pub(crate) fn began_as_superuser(&self) -> bool {
        self.at_start.get(b"is_superuser") == Some(&b"on"[..])
    }
}
