//! The run-time parameters of a client that has logged in.

use std::sync::Arc;

use crate::{
    session::known_parameters::{KnownParameters, LoginOutcome},
    sql::Settings,
};

pub(crate) struct ClientSettings {
    current: Arc<Settings>,
    /// What the client had at the end of its login: RESET leads back there.
    start: Arc<Settings>,
    /// The defaults of the server that the client held last: what the client would have if it had asked for nothing.
    base: Arc<Settings>,
}

impl ClientSettings {
    pub(crate) fn new(learned: LoginOutcome) -> Self {
        Self { current: learned.settings.clone(), start: learned.settings, base: learned.base }
    }

    #[inline]
    pub(crate) fn current(&self) -> &Arc<Settings> {
        &self.current
    }

    pub(crate) fn set_current(&mut self, current: Arc<Settings>) {
        self.current = current;
    }

    pub(crate) fn start(&self) -> &Arc<Settings> {
        &self.start
    }

    #[inline]
    pub(crate) fn is_based_on(&self, defaults: &Arc<Settings>) -> bool {
        Arc::ptr_eq(&self.base, defaults)
    }

    /// What the client has not set is as in these defaults from now on. Returns what the client had before.
    #[cold]
    pub(crate) fn rebase(&mut self, defaults: &Arc<Settings>, parameters: &KnownParameters) -> Arc<Settings> {
        let from = std::mem::replace(&mut self.base, defaults.clone());
        self.start = parameters.intern(self.start.rebased(&from, defaults));
        let current = parameters.intern(self.current.rebased(&from, defaults));
        std::mem::replace(&mut self.current, current)
    }
}
