//! The settings by which a server's plans may have been made.

use crate::sql::{Catalogue, Settings, parameter_names::rules_function_compiling};

#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    /// See [`Settings::reading`].
    reading: u64,
    /// Plans may have been made by other settings than those of `reading`.
    pub(super) mixed: bool,
    /// A client has had the server.
    used: bool,
    /// The holder's values of the parameters by which functions are compiled, which sessions do once.
    function_settings: Box<[u8]>,
    /// A client may have had a temporary object there.
    pub(crate) temporary: bool,
}

/// What becomes of a server's plans when a client is granted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlanFate {
    Keep,
    Discard,
    /// Making plans anew would not be enough: the client needs another server.
    ReplaceServer,
}

/// The parameters by which functions are compiled, and their values.
fn function_settings(settings: &Settings) -> Box<[u8]> {
    let mut all = Vec::new();
    for (name, value) in settings.iter().filter(|(name, _)| rules_function_compiling(name)) {
        all.extend_from_slice(&[&name.to_ascii_lowercase(), &b"="[..], value, b"\0"].concat());
    }
    all.into()
}

impl Plans {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { reading: settings.reading(), function_settings: function_settings(settings), ..Self::default() }
    }

    pub(crate) fn is_used(&self) -> bool {
        self.used
    }

    /// A client with these settings is granted the server, perhaps the one that had it last. Returns what becomes of
    /// the plans.
    #[inline]
    pub(crate) fn begin_lease(&mut self, want: &Settings, same_holder: bool, catalogue: &Catalogue) -> PlanFate {
        let used = std::mem::replace(&mut self.used, true);
        if !self.mixed && self.reading == want.reading() {
            PlanFate::Keep
        } else {
            self.begin_lease_with_other_settings(want, same_holder, used, catalogue)
        }
    }

    #[cold]
    fn begin_lease_with_other_settings(
        &mut self,
        want: &Settings,
        same_holder: bool,
        used: bool,
        catalogue: &Catalogue,
    ) -> PlanFate {
        let there = used && catalogue.keeps_plans();
        let function_settings = function_settings(want);
        if there && self.function_settings != function_settings {
            return PlanFate::ReplaceServer;
        }
        if there && same_holder {
            // As on a connection of its own: its plans of before stay, too.
            self.mixed = true;
            return PlanFate::Keep;
        }
        self.function_settings = function_settings;
        (self.reading, self.mixed) = (want.reading(), false);
        if there { PlanFate::Discard } else { PlanFate::Keep }
    }

    /// The holder has left these settings behind.
    pub(crate) fn note_settings_left(&mut self, settings: &Settings) {
        self.mixed |= settings.reading() != self.reading;
    }
}
