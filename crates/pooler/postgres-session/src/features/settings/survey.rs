//! What a session has beyond its transactions, and what is done about it: settings are brought along from server to
//! server, everything else ties the client to its server until it is gone. It knows no SQL of its own; see
//! `session::survey`.

use std::num::NonZeroU8;

use seam::{Standing, Verdict};

use crate::{
    directory::{OnState, PoolMode, ResetPolicy},
    features::settings::defaults::tell_differences,
    session::{
        AfterDefaults, Client, Link, Phase, Pin, Postgres, Purpose, Server, Soil, Survey,
        survey::{self, StatementScope},
    },
    sql::{Pairs, Suspects},
    wire::{Failure, IDLE, Report, Severity},
};

impl Postgres {
    /// Nothing is owed and no transaction is open: the server is given back, or surveyed first. True if it is given
    /// back.
    #[inline]
    pub(crate) fn finish(&self, link: &mut Link<'_>) -> bool {
        let plain = link.server.traces.is_none() && link.client.pin.is_none();
        if !plain && self.survey_or_keep(link) {
            return false;
        }
        self.parameters.note_answer_time(link.server.settings.answer_clock());
        if !link.server.settings.is_explained()
            && link.client.mode != PoolMode::Session
            && matches!(link.client.phase, Phase::Ready)
        {
            link.client.phase = Phase::ServerAtWork;
            link.server.ask_defaults(link.server_tag, AfterDefaults::Finish, link.out);
            return false;
        }
        link.release(Verdict::Clean);
        true
    }

    /// Surveys the server, or leaves it to its pinned client. False if neither: the server can be given back.
    #[cold]
    fn survey_or_keep(&self, link: &mut Link<'_>) -> bool {
        if self.survey_if_due(link) {
            return true;
        }
        let keeps = link.client.pin.is_some();
        if keeps {
            link.stand(Standing::Idle);
        }
        keeps
    }

    /// A transaction with suspects has ended. True if the server is surveyed: the client's next request waits for the
    /// answer.
    fn survey_if_due(&self, link: &mut Link<'_>) -> bool {
        if link.client.listening.is_some() && !link.server.unlistened.is_empty() {
            self.unlisten(link.client, &link.server.unlistened.take(), link.out);
        }
        let temporary =
            link.client.pin == Some(Pin::Temporary) || link.server.traces.may_have_any(Suspects::TEMPORARY_CODE);
        if temporary
            && link.server.traces.may_have_any(Suspects::UNPIN)
            && link.server.policy.reset != ResetPolicy::Never
        {
            // What a temporary object has set stays when the object goes.
            link.server.traces.insert(Suspects::OPAQUE);
        }
        let advanced = link.client.habits.asks_last_values && link.server.traces.may_have_any(Suspects::SEQUENCE);
        if advanced {
            link.server.sequences.advanced = true;
        }
        let mut relevant = if link.server.stays_out_of_pool() { Suspects::LASTING_OR_UNPIN } else { Suspects::LASTING };
        if link.server.policy.reset == ResetPolicy::Never {
            relevant.remove(Suspects::DDL);
        }
        if link.server.policy.on_state == OnState::Allow || !link.server.traces.may_have_any(relevant) {
            if advanced && !link.server.stays_out_of_pool() && link.server.policy.on_state != OnState::Allow {
                self.begin_survey(link);
                return true;
            }
            link.server.forget_suspects();
            return false;
        }
        self.begin_survey(link);
        true
    }

    /// A parameter was reset, and the client goes on with this server, in a transaction or in session mode: what was
    /// reset must be set to the client's start.
    pub(crate) fn survey_for_resets(&self, link: &mut Link<'_>) {
        link.server.traces.insert(Suspects::SETTINGS);
        self.begin_survey(link);
        link.server.traces.note_survey_for_resets(link.server.exchange.status() != IDLE);
        if link.client.mode == PoolMode::Session {
            link.server.traces.note_survey_of_session();
        }
    }

    /// Takes a survey made within a transaction: what differs from the client's start is set to it.
    fn correct(&self, link: &mut Link<'_>, survey: &Survey) {
        self.take_over(link, survey);
        let wanted = link.client.settings().current().clone();
        let mut sql = Vec::new();
        if link.server.exchange.status() == IDLE {
            link.server.settings.current().write_change(&wanted, &mut sql);
        } else {
            // Who acts may have been changed for the transaction only, and must not be for longer by this.
            link.server.settings.current().write_change_but_identity(&wanted, &mut sql);
        }
        if sql.is_empty() {
            self.corrected(link);
        } else {
            link.server.begin_queries(link.server_tag, Purpose::Correct(wanted), &[&sql], link.out);
        }
    }

    /// Sets what differs from the settings of a client that keeps its server; false if nothing does.
    fn correct_differences(&self, link: &mut Link<'_>) -> bool {
        let wanted = link.client.settings().current().clone();
        let mut sql = Vec::new();
        link.server.settings.current().write_change(&wanted, &mut sql);
        if !sql.is_empty() {
            link.server.begin_queries(link.server_tag, Purpose::Correct(wanted), &[&sql], link.out);
        }
        !sql.is_empty()
    }

    /// The client goes on with its own start-up values on the server that it keeps.
    pub(crate) fn corrected(&self, link: &mut Link<'_>) {
        if link.server.exchange.status() == IDLE {
            link.stand(Standing::Idle);
        }
        self.resume_after_notifications(link.client_tag, link.client, link.out);
    }

    /// Asks the server what the client may have left in it; the client's next request waits for the answer.
    fn begin_survey(&self, link: &mut Link<'_>) {
        link.client.phase = Phase::ServerAtWork;
        let known = link.client.settings().current();
        let hidden = if link.server.traces.may_have_any(Suspects::OPAQUE) {
            link.server.catalogue.shared().custom()
        } else {
            Vec::new()
        };
        let [seen, seen_before] = link.server.traces.custom();
        let custom = survey::custom_names(&[seen, seen_before, &hidden], &known.extras);
        let statements = link.server.statements_to_ask_for(link.client);
        let mut survey =
            Survey::new(link.server.traces.suspects(), link.server.traces.resets().to_vec(), &custom, statements)
                .after(link.server.settings.current());
        survey.guessed = hidden
            .into_iter()
            .filter(|name| known.extras.get(name).is_none() && !link.server.traces.may_have_set_custom(name))
            .collect();
        let sql = if link.server.exchange.status() == IDLE {
            survey::write(link.server.traces.suspects(), &custom, statements)
        } else {
            survey.guard_in_savepoint()
        };
        link.server.begin_queries(link.server_tag, Purpose::Survey(survey), &[&sql], link.out);
    }

    /// A query of Poolhouse after a RESET has failed, and with it the transaction: the client is told so before it is
    /// told that the server is ready, like at a transaction that fails at its end.
    pub(crate) fn failed_in_transaction(&self, link: &mut Link<'_>, failure: &Failure) {
        link.server.exchange.note_failed_transaction();
        link.client.withheld_ready = NonZeroU8::new(link.server.exchange.status());
        let report = Report {
            severity: Severity::Error,
            code: &failure.code,
            message: &failure.message,
            hint: "It happened when what RESET leads back to was looked up.",
        };
        link.write_to_client(|to| report.write(to));
        self.corrected(link);
    }

    /// A survey failed. It is repeated in a transaction that the time-outs of the client do not end.
    pub(crate) fn retry_survey(&self, link: &mut Link<'_>, survey: Survey) {
        if link.server.exchange.status() == IDLE
            && let Some((survey, sql)) = survey.repetition()
        {
            return link.server.begin_queries(link.server_tag, Purpose::Survey(survey), &[&sql, b"ROLLBACK"], link.out);
        }
        // What it has is not known: it keeps it where it is.
        link.server.soil.insert(Soil::ALL);
        link.server.traces.insert(Suspects::UNKNOWN_NAME);
        let unknown = Survey::unknown(&survey);
        self.surveyed(link, unknown);
    }

    pub(crate) fn surveyed(&self, link: &mut Link<'_>, survey: Survey) {
        if link.server.exchange.status() != IDLE || link.client.mode == PoolMode::Session {
            return self.correct(link, &survey);
        }
        let mut pin = survey.pin;
        if survey.settings_asked() {
            let before = link.server.settings.current().unreported().collect::<Pairs>();
            self.take_over(link, &survey);
            if link.server.may_not_see_all_settings() {
                link.server.soil.insert(Soil::STATE);
            }
            if link.server.policy.on_state == OnState::Pin
                && before != link.server.settings.current().unreported().collect::<Pairs>()
                && !link.server.traces.has_discarded_all()
            {
                pin = pin.or(Some(Pin::Settings));
            }
        }
        if link.client.settings().current().creates_temporary() {
            pin = pin.or(Some(Pin::Temporary));
        }
        if link.client.settings().current().has_two_identities() {
            pin = pin.or(Some(Pin::Identity));
        }
        if link.server.traces.may_have_any(Suspects::UNKNOWN_NAME) || survey.too_long || survey.unlisted {
            pin = Some(Pin::UnknownSetting);
        }
        if link.server.traces.has_discarded_all() && !link.server.traces.may_have_any(Suspects::SEQUENCE) {
            link.server.sequences.advanced = false;
        }
        if link.server.sequences.advanced {
            pin = pin.or(Some(Pin::Sequence));
        }
        // These pins do not end before the client does, or says DISCARD.
        if matches!(link.client.pin, Some(Pin::UnknownSetting | Pin::Settings))
            && !link.server.traces.has_discarded_all()
        {
            pin = pin.or(link.client.pin);
        }
        let stays = Self::stays_to_listen(link.client, &survey.channels);
        let shares = pin.is_none() && !stays && Self::shares_listening(link.server);
        if !survey.channels.is_empty() && !shares {
            pin = pin.or(Some(Pin::Listen));
        }
        link.server.traces.forget_discard_all();
        link.server.forget_suspects();
        if !self.set_pin(link, pin) {
            return;
        }
        if link.client.pin.is_some() && self.correct_differences(link) {
            return;
        }
        if !survey.channels.is_empty() && shares {
            return self.listen(link, survey.channels);
        }
        self.resume_after_notifications(link.client_tag, link.client, link.out);
        self.finish(link);
        if matches!(link.client.phase, Phase::Subscribing) {
            link.stand(Standing::Active);
        }
    }

    /// The settings of the session become the client's, but for those that were reset to the client's start.
    fn take_over(&self, link: &mut Link<'_>, survey: &Survey) {
        let start = link.client.settings().start().clone();
        let Some((theirs, wanted)) =
            survey.settings(&link.server.settings.current().reported, &start, link.server.facts.user())
        else {
            // More than is remembered.
            link.server.traces.insert(Suspects::UNKNOWN_NAME);
            return;
        };
        let told = link.client.settings().current();
        tell_differences(link.client_tag, told, &wanted, link.out);
        link.server.settings.replace(self.parameters.intern(theirs));
        link.server.plans.note_settings_left(link.server.settings.current());
        link.client.settings_mut().set_current(self.parameters.intern(wanted));
    }
}

impl Server {
    /// The prepared statements that its holder may have on it beside ours. A holder that has any is pinned.
    fn statements_to_ask_for(&self, client: &Client) -> StatementScope {
        let out_of_sight = self.traces.may_have_any(Suspects::OPAQUE) && self.catalogue.shared().prepares();
        let may_have = client.pin.is_some()
            || self.traces.may_have_any(Suspects::PREPARE.union(Suspects::IRREVERSIBLE))
            || out_of_sight;
        match may_have {
            true if self.statements.may_have_clients() => StatementScope::OfClients,
            true => StatementScope::OfSql,
            false => StatementScope::None,
        }
    }
}
