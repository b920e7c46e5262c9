//! The settings of a server's session: the settings now, the session's own, and whether reported values are known to be
//! the one or the other.

use std::sync::{Arc, atomic::AtomicU64};

use crate::{
    session::{defaults::DefaultsQuestion, known_parameters::KnownParameters},
    sql::{Pairs, Settings},
};

pub(crate) const STANDARD_STRINGS: &[u8] = b"standard_conforming_strings";

#[derive(Default)]
pub(crate) struct ServerSettings {
    current: Arc<Settings>,
    /// The session's own settings, before any SQL: RESET leads back there.
    own: Arc<Settings>,
    /// The settings at start-up, including those of the `connect_query`, and after a cleaning.
    defaults: Arc<Settings>,
    /// Since `own` was checked, the server has reported another value, or a setting was reset.
    own_in_doubt: bool,
    /// The version of the defaults at that check: see `KnownParameters::defaults_version`.
    checked_at: u64,
    /// The clock of the answers of the pool: see `KnownParameters::clock`.
    answer_clock: Arc<AtomicU64>,
    /// Backslashes may escape in plain string constants.
    nonconforming_strings: bool,
}

/// The answer to the question which settings are the session's own.
pub(crate) struct OwnAnswer {
    /// Settings made in the session that were not known.
    pub(crate) set: Pairs,
    /// The session's own settings have changed.
    pub(crate) changed: bool,
}

impl ServerSettings {
    /// The settings of a server that has logged in.
    pub(crate) fn new(started_with: Arc<Settings>) -> Self {
        let nonconforming_strings = started_with.reported.get(STANDARD_STRINGS) != Some(&b"on"[..]);
        Self { current: started_with.clone(), own: started_with, nonconforming_strings, ..Self::default() }
    }

    /// The `connect_query` has run: the settings now are what every client of the server begins with.
    pub(crate) fn set_defaults_to_current(&mut self, defaults_version: u64) {
        self.defaults = self.current.clone();
        self.checked_at = defaults_version;
    }

    #[inline]
    pub(crate) fn current(&self) -> &Arc<Settings> {
        &self.current
    }

    /// The value that the server has reported last.
    #[inline]
    pub(crate) fn reported(&self, name: &[u8]) -> Option<&[u8]> {
        self.current.reported.get(name)
    }

    pub(crate) fn own(&self) -> &Arc<Settings> {
        &self.own
    }

    #[inline]
    pub(crate) fn defaults(&self) -> &Arc<Settings> {
        &self.defaults
    }

    pub(crate) fn is_at_defaults(&self) -> bool {
        Arc::ptr_eq(&self.current, &self.defaults)
    }

    pub(crate) fn has_nonconforming_strings(&self) -> bool {
        self.nonconforming_strings
    }

    /// The server reports a value. True if it is new.
    pub(crate) fn report(&mut self, name: &[u8], value: &[u8], parameters: &KnownParameters) -> bool {
        if self.reported(name) == Some(value) {
            return false;
        }
        self.own_in_doubt = true;
        if name == STANDARD_STRINGS {
            self.nonconforming_strings = value != b"on";
        }
        let reported = self.current.reported.with(name, value);
        self.current = parameters.intern(Settings::new(reported, self.current.extras.clone()));
        true
    }

    /// The server has answered with its settings.
    pub(crate) fn replace(&mut self, current: Arc<Settings>) {
        self.current = current;
    }

    /// Replaces the settings that the server does not report.
    pub(crate) fn replace_extras(&mut self, extras: Pairs, parameters: &KnownParameters) {
        self.current = parameters.intern(Settings::new(self.current.reported.clone(), extras));
    }

    /// The settings of `wanted` were set, and the others reset. Reported values remain the last reports: a value may
    /// not be the expected one, and PostgreSQL reports none that has not changed.
    pub(crate) fn apply(&mut self, wanted: &Arc<Settings>, parameters: &KnownParameters) {
        if wanted.reported == self.current.reported {
            self.current = wanted.clone();
        } else {
            self.own_in_doubt = true;
            self.replace_extras(wanted.extras.clone(), parameters);
        }
    }

    /// The session was cleaned: all but the reported values are known to be the defaults.
    pub(crate) fn reset(&mut self, parameters: &KnownParameters) {
        self.replace_extras(self.defaults.extras.clone(), parameters);
        self.own_in_doubt = true;
    }
}

impl ServerSettings {
    /// Whether no reported value needs an explanation: each is what RESET leads back to, or was set in the session, or
    /// `own` was checked after the last report.
    #[inline]
    pub(crate) fn is_explained(&self) -> bool {
        let is_own = |(name, value)| self.own.reported.get(name) == Some(value);
        !self.own_in_doubt || self.current.unset().all(is_own)
    }

    /// The session's own settings are known at this version of the defaults, without a doubt.
    #[inline]
    pub(crate) fn is_known_at(&self, defaults_version: u64) -> bool {
        self.checked_at == defaults_version && !self.own_in_doubt
    }

    /// The session's own settings were checked at this version of the defaults.
    pub(crate) fn is_checked_at(&self, defaults_version: u64) -> bool {
        self.checked_at == defaults_version
    }

    /// The session's own settings are asked for at this version of the defaults.
    pub(crate) fn begin_check(&mut self, defaults_version: u64) {
        self.checked_at = defaults_version;
    }

    /// The session's own settings need no question at this version of the defaults.
    pub(crate) fn pass_check(&mut self, defaults_version: u64) {
        (self.checked_at, self.own_in_doubt) = (defaults_version, false);
    }

    pub(crate) fn settle_doubt(&mut self) {
        self.own_in_doubt = false;
    }

    /// Takes the answer which settings are the session's own.
    pub(crate) fn take_answer(&mut self, question: &DefaultsQuestion, parameters: &KnownParameters) -> OwnAnswer {
        self.own_in_doubt = false;
        let answered = question.set_of(&self.current);
        let is_set = |name: &[u8]| answered.get(name).is_some();
        let before = &self.current.extras;
        let set: Pairs = answered.iter().filter(|(name, _)| before.get(name).is_none()).collect();
        let unreported = self.current.unreported();
        let extras = before.iter().filter(|(name, _)| is_set(name)).chain(unreported).chain(set.iter()).collect();
        self.current = parameters.intern(Settings::new(self.current.reported.clone(), extras));
        let value_of = |(name, value)| (name, self.own.reported.get(name).filter(|_| is_set(name)).unwrap_or(value));
        let own = Settings::new(self.current.reported.iter().map(value_of).collect(), self.own.extras.clone());
        let own = parameters.intern(own);
        let changed = !Arc::ptr_eq(&own, &self.own);
        self.defaults = parameters.intern(self.defaults.rebased(&self.own, &own));
        self.own = own;
        OwnAnswer { set, changed }
    }

    pub(crate) fn answer_clock(&self) -> &Arc<AtomicU64> {
        &self.answer_clock
    }

    pub(crate) fn set_answer_clock(&mut self, clock: Arc<AtomicU64>) {
        self.answer_clock = clock;
    }
}
