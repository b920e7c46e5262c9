//! What forwarded texts may have done to a server's session, and what of it is left for the next client.

use seam::Verdict;

use crate::{
    directory::{OnState, PoolMode, ResetPolicy},
    session::{catalogue_view::SinceGrant, server::Server, server_settings::STANDARD_STRINGS, soil::Soil},
    sql::{Findings, Suspects, is_identity, parameter_names::rules_reading},
    wire::IDLE,
};

impl Server {
    /// A text with these findings is forwarded.
    pub(crate) fn suspect(&mut self, findings: &Findings) {
        self.note_change(findings);
        if self.policy.on_state == OnState::Allow {
            // Only its prepared statements are of interest: they are ours.
            if findings.suspects.intersects(Suspects::DEALLOCATE) {
                self.traces.insert(Suspects::DEALLOCATE);
            }
            return;
        }
        self.note(findings);
    }

    /// What a text with these findings may do on this server now; `text` is empty if it is not known.
    #[inline]
    pub(crate) fn judge(&self, mut findings: Findings, text: &[u8]) -> Findings {
        // With odd strings the bodies of functions are read otherwise, too.
        let known = !self.settings.has_nonconforming_strings() && (self.traces.is_none() || self.meaning_is_known());
        let beyond = self.catalogue.shared().look_for_names(text, &mut findings.calls)
            && self.policy.reset != ResetPolicy::Never;
        if (findings.is_plain() && known && !beyond) || self.policy.on_state == OnState::Allow {
            return findings;
        }
        let mut judged = self.judge_odd(findings, known);
        if beyond
            || (judged.is_unread()
                && self.policy.reset != ResetPolicy::Never
                && self.catalogue.shared().has_irreversible())
        {
            judged.suspects.insert(Suspects::IRREVERSIBLE.union(Suspects::OPAQUE));
        }
        judged
    }

    #[cold]
    fn judge_odd(&self, mut findings: Findings, known: bool) -> Findings {
        if !known {
            findings.suspects.insert(Suspects::OPAQUE);
        }
        if (findings.backslash && !self.strings_are_plain()) || (findings.wide && !self.letters_are_plain()) {
            return Findings::misread(&findings);
        }
        if self.policy.reset == ResetPolicy::Never {
            // Only what the text says counts.
            findings.suspects.remove(Suspects::OPAQUE);
        }
        let looks_at_calls = self.policy.reset != ResetPolicy::Never;
        if looks_at_calls && !findings.calls.is_empty() && !self.catalogue.shared().knows(&findings.calls) {
            findings.suspects.insert(Suspects::OPAQUE);
        }
        findings
    }

    /// No request under way may change how a text is read.
    fn meaning_is_known(&self) -> bool {
        self.exchange.is_settled() || !self.traces.may_have_any(Suspects::MEANING.union(Suspects::NEEDS_SETTINGS))
    }

    /// A backslash in a plain text constant is a backslash.
    fn strings_are_plain(&self) -> bool {
        !self.settings.has_nonconforming_strings() && self.meaning_is_known()
    }

    /// A byte below 128 is always a character.
    fn letters_are_plain(&self) -> bool {
        const WIDE: [&[u8]; 7] = [b"SJIS", b"SHIFT_JIS_2004", b"BIG5", b"GBK", b"UHC", b"GB18030", b"JOHAB"];
        let encoding = self.settings.reported(b"client_encoding");
        self.meaning_is_known() && encoding.is_some_and(|encoding| !WIDE.contains(&encoding))
    }

    pub(crate) fn note_change(&mut self, findings: &Findings) {
        if findings.suspects.intersects(Suspects::DDL) {
            self.catalogue.begin_ddl();
        }
    }

    /// Adds these findings to the traces.
    pub(crate) fn note(&mut self, findings: &Findings) {
        self.note_reading(findings);
        self.note_listed(findings.suspects);
        self.traces.insert(findings.suspects);
        self.plans.temporary |= findings.suspects.intersects(Suspects::TEMPORARY.union(Suspects::OPAQUE));
        // A name that cannot be seen may be that of the seed.
        if findings.suspects.intersects(Suspects::IRREVERSIBLE.union(Suspects::UNKNOWN_NAME)) {
            self.soil.insert(Soil::IRREVERSIBLE);
        } else if findings.suspects.intersects(Suspects::OPAQUE) && self.policy.reset != ResetPolicy::Never {
            self.soil.insert(Soil::ALL);
        } else if findings.suspects.intersects(Suspects::DDL.union(Suspects::TEMPORARY_CODE))
            && self.policy.reset != ResetPolicy::Never
        {
            self.soil.insert(Soil::STATE);
        }
        findings.custom.iter().for_each(|name| self.traces.note_custom(name));
        findings.resets.iter().for_each(|name| self.traces.note_reset(name));
        for name in &findings.unlistens {
            self.unlistened.add(name);
        }
    }

    /// A text took the name of a parameter from a view. The survey tells whose view it is, unless that may have changed
    /// since.
    fn note_listed(&mut self, found: Suspects) {
        let mut others = found;
        if found.intersects(Suspects::NAME_FROM_VIEW) {
            // What it sets itself comes after it was read.
            others.remove(Suspects::MEANING);
            others.insert(self.traces.suspects());
        } else if !self.traces.may_have_any(Suspects::NAME_FROM_VIEW) {
            return;
        }
        if others.intersects(Suspects::MAY_HIDE_VIEWS) {
            self.traces.insert(Suspects::UNKNOWN_NAME);
        }
    }

    /// State of the client may be left behind.
    pub(crate) fn has_state(&self) -> bool {
        self.stays_out_of_pool() || self.traces.may_have_any(Suspects::LASTING)
    }

    /// The transaction has ended, and so has what it changed for itself.
    pub(crate) fn forget_suspects(&mut self) {
        self.traces.end_transaction();
        self.unlistened.clear();
        self.catalogue.end_ddl();
    }

    /// This verdict, or a stricter one if the state left behind demands it.
    pub(crate) fn effective_verdict(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Clean | Verdict::Soiled | Verdict::Reset if self.soil.contains(Soil::IRREVERSIBLE) => {
                Verdict::Discard
            }
            Verdict::Clean if self.soil.is_clean() && !self.unsynced => Verdict::Clean,
            // It must say that it is ready, or it is not.
            Verdict::Clean | Verdict::Soiled if self.unsynced => Verdict::Reset,
            // What the operator's SQL makes is made in a round trip of its own.
            Verdict::Clean if self.connect_query.makes_objects() || self.mode == PoolMode::Session => Verdict::Reset,
            Verdict::Clean => Verdict::Soiled,
            verdict => verdict,
        }
    }

    /// Whether the acting user may see fewer settings than the user who has set them.
    pub(crate) fn may_not_see_all_settings(&self) -> bool {
        self.facts.began_as_superuser()
            && self.settings.current().extras.iter().any(|(name, value)| is_identity(name) && *value != *b"none")
    }

    /// The lease ends: notes what may be left behind for the next client.
    pub(crate) fn note_soil_at_release(&mut self) {
        if self.has_state() {
            self.soil.insert(Soil::ALL);
        }
        let watches = self.watches_catalogue();
        let since_grant = self.catalogue.since_grant();
        match since_grant {
            SinceGrant::MayTouchState if watches => self.soil.insert(Soil::STATE),
            SinceGrant::MayTouchStatements if watches => self.soil.insert(Soil::ALL),
            _ if self.policy.reset == ResetPolicy::Always => self.soil.insert(Soil::STATE),
            _ => {}
        }
        self.plans.temporary |= watches && since_grant != SinceGrant::Harmless;
    }
}

impl Server {
    /// Notes how a forwarded text may change the reading of constants.
    pub(crate) fn note_reading(&mut self, findings: &Findings) {
        // Where it stands alone, nothing runs by settings that are not there at the end, when they are asked for.
        let alone = findings.suspects.intersects(Suspects::SETTINGS)
            && !findings.suspects.intersects(Suspects::OPAQUE)
            && !findings.several
            && findings.calls.is_empty()
            && self.mode != PoolMode::Session
            && self.exchange.is_settled()
            && self.exchange.status() == IDLE;
        self.plans.mixed |= findings.suspects.intersects(Suspects::CONSTANTS) && !alone;
        if findings.suspects.intersects(Suspects::STRING_SYNTAX) {
            self.note_string_syntax_change();
        }
    }

    /// The server reports another value of a parameter.
    pub(crate) fn note_reported(&mut self, name: &[u8]) {
        if self.lease.is_none() || self.work.is_some() || !rules_reading(name) {
            return;
        }
        let asked_for = self.exchange.status() == IDLE && self.traces.may_have_any(Suspects::NEEDS_SETTINGS);
        self.plans.mixed |= !asked_for;
        if name == STANDARD_STRINGS && !asked_for {
            self.note_string_syntax_change();
        }
    }

    /// A text with these findings makes temporary objects, and plans may exist from the time of others.
    #[inline]
    pub(crate) fn needs_new_plans_for(&self, findings: &Findings) -> bool {
        findings.suspects.intersects(Suspects::TEMPORARY)
            && self.plans.temporary
            && !findings.is_unread()
            && self.catalogue.shared().keeps_plans()
    }

    /// Text constants may be read otherwise from here on. Functions that keep plans keep such constants, and no SQL
    /// takes that back.
    fn note_string_syntax_change(&mut self) {
        if self.catalogue.shared().keeps_plans() {
            self.soil.insert(Soil::IRREVERSIBLE);
        }
    }
}
