//! What a session has beyond its transactions, and what is done about it: settings are brought along from server to
//! server, everything else ties the client to its server until it is gone. It knows no SQL of its own; see
//! `session::survey`.

use seam::{ClientTag, Outbox, Peer, ServerTag, Standing, Verdict};

use crate::{
    directory::{OnState, PoolMode, ResetPolicy},
    features::settings::defaults::tell_differences,
    session::{
        client::{Client, Phase},
        defaults::Then,
        own_queries::Purpose,
        pins::Pin,
        server::Server,
        shared::Postgres,
        soil::Soil,
        survey::{self, Statements, Survey},
    },
    sql::{parameters::Pairs, suspects::Suspects},
    wire::{
        error::{Failure, Report, Severity},
        message::IDLE,
    },
};

impl Postgres {
    /// Nothing is owed and no transaction is open: the server is given back, or asked first what is left behind in it.
    /// True if it is given back.
    #[inline]
    pub(crate) fn finish(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) -> bool {
        let plain = server.traces.is_none() && client.pin.is_none();
        if !plain && !self.finish_with_state(me, client, tag, server, out) {
            return false;
        }
        self.parameters.answered(server.settings.answer_clock());
        if !server.settings.is_explained() && client.mode != PoolMode::Session && matches!(client.phase, Phase::Ready) {
            client.phase = Phase::Applying;
            server.ask_defaults(tag, Then::Finish, out);
            return false;
        }
        client.release(me, tag, server, Verdict::Clean, out);
        true
    }

    /// False if the server is not given back.
    #[cold]
    fn finish_with_state(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) -> bool {
        if self.survey(client, tag, server, out) {
            return false;
        }
        if client.pin.is_some() {
            client.stand(me, Standing::Idle, out);
            return false;
        }
        true
    }

    /// A transaction has ended with suspects. True if the server is asked what there is: the client's next request
    /// waits for the answer.
    fn survey(&self, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) -> bool {
        if client.listening.is_some() && !server.unlistened.is_empty() {
            self.unlisten(client, &server.unlistened.take(), out);
        }
        let temporary = client.pin == Some(Pin::Temporary) || server.traces.may_have(Suspects::ACTING);
        if temporary && server.traces.may_have(Suspects::UNDO) && server.policy.reset != ResetPolicy::Never {
            // What a temporary object has set stays when the object goes.
            server.traces.add(Suspects::HIDDEN);
        }
        let advanced = client.habits.asks_last_values() && server.traces.may_have(Suspects::SEQUENCE);
        if advanced {
            server.sequences.note_advance();
        }
        let mut relevant = if server.stays_out_of_pool() { Suspects::LASTING_OR_UNDONE } else { Suspects::LASTING };
        if server.policy.reset == ResetPolicy::Never {
            relevant.remove(Suspects::DDL);
        }
        if server.policy.on_state == OnState::Allow || !server.traces.may_have(relevant) {
            if advanced && !server.stays_out_of_pool() && server.policy.on_state != OnState::Allow {
                client.phase = Phase::Applying;
                self.ask(client, tag, server, out);
                return true;
            }
            server.forget_suspects();
            return false;
        }
        client.phase = Phase::Applying;
        self.ask(client, tag, server, out);
        true
    }

    /// A parameter was set back within a transaction that goes on: what it was set back to must be the client's start.
    pub(crate) fn survey_in_transaction(
        &self,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
        client.phase = Phase::Applying;
        server.traces.add(Suspects::SETTINGS);
        self.ask(client, tag, server, out);
        server.traces.note_survey_within(server.exchange.status() != IDLE);
        if client.mode == PoolMode::Session {
            server.traces.note_survey_of_session();
        }
    }

    /// The server has said within a transaction what there is: what is not as the client's start is set so.
    fn correct(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        survey: &Survey,
        out: &mut Outbox,
    ) {
        self.take_over(me, client, server, survey, out);
        let wanted = client.settings().current().clone();
        let mut sql = Vec::new();
        if server.exchange.status() == IDLE {
            server.settings.current().write_change(&wanted, &mut sql);
        } else {
            // Who acts may have been changed for the transaction only, and must not be for longer by this.
            server.settings.current().write_change_but_identity(&wanted, &mut sql);
        }
        if sql.is_empty() {
            self.corrected(me, client, server, out);
        } else {
            server.begin(tag, Purpose::Correct(wanted), &[&sql], out);
        }
    }

    /// Sets what a client that keeps its server has otherwise than that; false if there is nothing.
    fn bring_in_line(&self, client: &Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) -> bool {
        let wanted = client.settings().current().clone();
        let mut sql = Vec::new();
        server.settings.current().write_change(&wanted, &mut sql);
        if !sql.is_empty() {
            server.begin(tag, Purpose::Correct(wanted), &[&sql], out);
        }
        !sql.is_empty()
    }

    /// The client goes on with its own start-up values on the server that it keeps.
    pub(crate) fn corrected(&self, me: ClientTag, client: &mut Client, server: &mut Server, out: &mut Outbox) {
        if server.exchange.status() == IDLE {
            client.stand(me, Standing::Idle, out);
        }
        self.tell_in_time(me, client, out);
    }

    fn ask(&self, client: &Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        let known = client.settings().current();
        let hidden =
            if server.traces.may_have(Suspects::HIDDEN) { server.catalogue.shared().custom() } else { Vec::new() };
        let [seen, seen_before] = server.traces.custom();
        let custom = survey::custom_names(&[seen, seen_before, &hidden], &known.extras);
        let statements = server.statements_to_ask_for(client);
        let mut survey = Survey::new(server.traces.suspects(), server.traces.resets().to_vec(), &custom, statements)
            .after(server.settings.current());
        survey.guessed = hidden
            .into_iter()
            .filter(|name| known.extras.get(name).is_none() && !server.traces.names_custom(name))
            .collect();
        let sql = if server.exchange.status() == IDLE {
            survey::write(server.traces.suspects(), &custom, statements)
        } else {
            survey.within()
        };
        server.begin(tag, Purpose::Survey(survey), &[&sql], out);
    }

    /// What was asked or set within a transaction after a RESET has failed, and the transaction with it: the client is
    /// told so before it is told that the server is ready, as of a transaction that fails at its end.
    pub(crate) fn failed_within(
        &self,
        me: ClientTag,
        client: &mut Client,
        server: &mut Server,
        failure: &Failure,
        out: &mut Outbox,
    ) {
        server.exchange.transaction_failed();
        client.withheld_ready = Some(server.exchange.status());
        let report = Report {
            severity: Severity::Error,
            code: &failure.code,
            message: &failure.message,
            hint: "It happened when what RESET leads back to was looked up.",
        };
        out.insert(Peer::Client(me), |to| report.write(to));
        self.corrected(me, client, server, out);
    }

    /// The server did not answer a survey. A time-out of the client's does not hold within a transaction that says so.
    pub(crate) fn survey_failed(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        survey: Survey,
        out: &mut Outbox,
    ) {
        if server.exchange.status() == IDLE
            && let Some((survey, sql)) = survey.again()
        {
            return server.begin(tag, Purpose::Survey(survey), &[&sql, b"ROLLBACK"], out);
        }
        // What it has is not known: it keeps it where it is.
        server.soil.add(Soil::ALL);
        server.traces.add(Suspects::UNNAMED);
        let unknown = Survey::unknown(&survey);
        self.surveyed(me, client, tag, server, unknown, out);
    }

    /// The server has said what there is.
    pub(crate) fn surveyed(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        survey: Survey,
        out: &mut Outbox,
    ) {
        if server.exchange.status() != IDLE || client.mode == PoolMode::Session {
            return self.correct(me, client, tag, server, &survey, out);
        }
        let mut pin = survey.pin;
        if survey.settings_asked() {
            let before = server.settings.current().unreported().collect::<Pairs>();
            self.take_over(me, client, server, &survey, out);
            if server.may_not_see_all() {
                server.soil.add(Soil::STATE);
            }
            if server.policy.on_state == OnState::Pin
                && before != server.settings.current().unreported().collect::<Pairs>()
                && !server.traces.is_discarded()
            {
                pin = pin.or(Some(Pin::Settings));
            }
        }
        if client.settings().current().creates_temporary() {
            pin = pin.or(Some(Pin::Temporary));
        }
        if client.settings().current().acts_as_two() {
            pin = pin.or(Some(Pin::Identity));
        }
        if server.traces.may_have(Suspects::UNNAMED) || survey.too_long || survey.unlisted {
            pin = Some(Pin::UnknownSetting);
        }
        if server.traces.is_discarded() && !server.traces.may_have(Suspects::SEQUENCE) {
            server.sequences.discard();
        }
        if server.sequences.is_advanced() {
            pin = pin.or(Some(Pin::Sequence));
        }
        // These do not end before the client does, or says DISCARD.
        if matches!(client.pin, Some(Pin::UnknownSetting | Pin::Settings)) && !server.traces.is_discarded() {
            pin = pin.or(client.pin);
        }
        let stays = Self::stays_to_listen(client, &survey.channels);
        let shares = pin.is_none() && !stays && Self::shares_listening(server);
        if !survey.channels.is_empty() && !shares {
            pin = pin.or(Some(Pin::Listen));
        }
        server.traces.forget_discard_all();
        server.forget_suspects();
        if !self.set_pin(me, client, tag, server, pin, out) {
            return;
        }
        if client.pin.is_some() && self.bring_in_line(client, tag, server, out) {
            return;
        }
        if !survey.channels.is_empty() && shares {
            return self.listen(me, client, tag, server, survey.channels, out);
        }
        self.tell_in_time(me, client, out);
        self.finish(me, client, tag, server, out);
        if matches!(client.phase, Phase::Subscribing) {
            client.stand(me, Standing::Active, out);
        }
    }

    /// Settings as they are now become the client's, but for those that went back to what it started with.
    fn take_over(&self, me: ClientTag, client: &mut Client, server: &mut Server, survey: &Survey, out: &mut Outbox) {
        let start = client.settings().start().clone();
        let Some((theirs, wanted)) = survey.settings(&server.settings.current().reported, &start, server.facts.user())
        else {
            // More than is remembered.
            server.traces.add(Suspects::UNNAMED);
            return;
        };
        let told = client.settings().current();
        tell_differences(me, told, &wanted, out);
        server.settings.replace(self.parameters.intern(theirs));
        server.plans.note_left(server.settings.current());
        client.settings_mut().set_current(self.parameters.intern(wanted));
    }
}

impl Server {
    /// Which prepared statements its holder may have there beside ours. Who has any is pinned.
    fn statements_to_ask_for(&self, client: &Client) -> Statements {
        let out_of_sight = self.traces.may_have(Suspects::HIDDEN) && self.catalogue.shared().prepares();
        let may_have =
            client.pin.is_some() || self.traces.may_have(Suspects::PREPARE.union(Suspects::BEYOND)) || out_of_sight;
        match may_have {
            true if self.statements.may_have_clients() => Statements::OfClients,
            true => Statements::OfSql,
            false => Statements::None,
        }
    }
}
