//! What a server's functions keep of the settings of those who have called them. PL/pgSQL reads the constants in a function's statements when
//! it plans these, by the settings of that moment (`'01/02/2020'` by DateStyle), and keeps the plans to the session's end. PostgreSQL itself makes
//! them anew where the search_path or the role is another one, and nowhere else. It knows no SQL but one statement.

use protocol::{Outbox, ServerTag};

use crate::{
    cleaning::Soil,
    client::{Client, Phase},
    directory::{OnState, PoolMode},
    server::Server,
    session::{pins::Pin, request::Step},
    sql::{
        parameter_names::{rules_compiling, rules_reading},
        parameters::Settings,
        suspects::{Findings, Suspects},
    },
    wire::message::IDLE,
    work::Purpose,
};

/// Has a server make all plans anew.
pub(crate) const FORGET: &[u8] = b"DISCARD PLANS";

/// What rules how constants are read.
const STRINGS: &[u8] = b"standard_conforming_strings";

/// By which settings a server's plans may have been made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    /// See [`Settings::reading`].
    reading: u64,
    /// By others, too.
    mixed: bool,
    /// Somebody has had the server.
    used: bool,
    /// What its holder has for the parameters by which functions are compiled: how their texts are cut into words is never looked at again.
    compiling: Box<[u8]>,
    /// Somebody may have had a temporary object there.
    pub(crate) temporary: bool,
}

/// What becomes of a server's plans where somebody gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Stay,
    /// They have to be made anew.
    Go,
    /// That would not be enough: it has to be another server.
    Spoil,
}

/// The parameters by which functions are compiled, and their values.
fn compiling(settings: &Settings) -> Box<[u8]> {
    let mut all = Vec::new();
    for (name, value) in
        settings.reported.iter().chain(settings.extras.iter()).filter(|(name, _)| rules_compiling(name))
    {
        all.extend_from_slice(&[&name.to_ascii_lowercase(), &b"="[..], value, b"\0"].concat());
    }
    all.into()
}

impl Plans {
    /// Those of a server that has none yet.
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { reading: settings.reading(), compiling: compiling(settings), ..Self::default() }
    }

    /// Somebody has had the server.
    pub(crate) fn is_used(&self) -> bool {
        self.used
    }
}

/// A text with these findings is about to be forwarded: what to do instead of that, if it makes the client's first temporary object.
/// PostgreSQL makes plans anew for the first one of a session, which may stand before what they use; of later ones it knows nothing.
pub(crate) fn before(
    client: &mut Client,
    (tag, server): (ServerTag, &mut Server),
    findings: &Findings,
    out: &mut Outbox,
) -> Option<Step> {
    let first = server.needs_new_plans_for(findings)
        && !server.suspects.any(Suspects::TEMPORARY)
        && client.pin != Some(Pin::Temporary);
    let can = matches!(server.policy.on_state, OnState::Replay | OnState::Pin);
    // Behind other requests without an answer there is no place for it.
    let now = server.exchange.is_settled() && server.exchange.status() != b'E' && server.work.is_none();
    if !(first && can && now) {
        return None;
    }
    server.suspects.add(Suspects::TEMPORARY);
    client.phase = Phase::Applying;
    server.begin(tag, Purpose::Forget, &[FORGET], out);
    Some(Step::Later)
}

impl Server {
    /// Somebody with these settings gets it, perhaps who has had it last.
    #[inline]
    pub(crate) fn judge_plans(&mut self, want: &Settings, same_holder: bool) -> Fate {
        let used = std::mem::replace(&mut self.plans.used, true);
        if !self.plans.mixed && self.plans.reading == want.reading() {
            Fate::Stay
        } else {
            self.judge_other_plans(want, same_holder, used)
        }
    }

    #[cold]
    fn judge_other_plans(&mut self, want: &Settings, same_holder: bool, used: bool) -> Fate {
        let there = used && self.catalogue.keeps_plans();
        let compiling = compiling(want);
        if there && self.plans.compiling != compiling {
            return Fate::Spoil;
        }
        if there && same_holder {
            // As on a connection of its own. Others have to do with it.
            self.plans.mixed = true;
            return Fate::Stay;
        }
        self.plans.compiling = compiling;
        (self.plans.reading, self.plans.mixed) = (want.reading(), false);
        if there { Fate::Go } else { Fate::Stay }
    }

    /// A text with these findings is forwarded.
    pub(crate) fn note_reading(&mut self, findings: &Findings) {
        // Where it stands alone, nothing runs by settings that are not there at the end, when they are asked for.
        let alone = findings.suspects.any(Suspects::SETTINGS)
            && !findings.suspects.any(Suspects::HIDDEN)
            && !findings.several
            && findings.calls.is_empty()
            && self.mode != PoolMode::Session
            && self.exchange.is_settled()
            && self.exchange.status() == IDLE;
        self.plans.mixed |= findings.suspects.any(Suspects::READING) && !alone;
        if findings.suspects.any(Suspects::STRINGS) {
            self.mix_strings();
        }
    }

    /// It reports another value of a parameter.
    pub(crate) fn note_reported(&mut self, name: &[u8]) {
        if self.holder.is_none() || self.work.is_some() || !rules_reading(name) {
            return;
        }
        let asked_for = self.exchange.status() == IDLE && self.suspects.any(Suspects::ASKS_SETTINGS);
        self.plans.mixed |= !asked_for;
        if name == STRINGS && !asked_for {
            self.mix_strings();
        }
    }

    /// Its holder has left these settings.
    pub(crate) fn note_left(&mut self, settings: &Settings) {
        self.plans.mixed |= settings.reading() != self.plans.reading;
    }

    /// A text with these findings makes temporary objects, and there may be plans from a time when others had such.
    #[inline]
    pub(crate) fn needs_new_plans_for(&self, findings: &Findings) -> bool {
        findings.suspects.any(Suspects::TEMPORARY)
            && self.plans.temporary
            && !findings.is_unread()
            && self.catalogue.keeps_plans()
    }

    fn mix_strings(&mut self) {
        if self.catalogue.keeps_plans() {
            self.soil.add(Soil::BEYOND);
        }
    }
}
