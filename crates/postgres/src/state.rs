//! What a session has beyond its transactions, and what is done about it: settings are brought along from server to server,
//! everything else ties the client to its server until it is gone. It knows no SQL of its own; see `survey`.

use protocol::{Blame, ClientTag, Effect, Outbox, Peer, ServerTag, Standing, Verdict};

use crate::{
    Postgres,
    cleaning::Soil,
    client::{Client, Phase},
    directory::{OnState, PoolMode, ResetPolicy},
    exchange::Note,
    listeners::MAX_CHANNELS,
    server::Server,
    session::{
        pins::Pin,
        survey::{self, Survey},
    },
    sql::suspects::{ALL_PARAMETERS, Findings, Suspects},
    wire::{
        error::{Failure, Report, Severity, code},
        message::{IDLE, front, write, write_query},
    },
    work::Purpose,
};

/// Most names of parameters noted of one transaction, of those set and of those set back.
const MAX_NAMES: usize = 256;

impl Server {
    /// A text with these findings is forwarded.
    pub(crate) fn suspect(&mut self, findings: &Findings) {
        self.note_change(findings);
        if self.policy.on_state == OnState::Allow {
            // Only its prepared statements are of interest: they are ours.
            if findings.suspects.any(Suspects::FORGET) {
                self.suspects.add(Suspects::FORGET);
            }
            return;
        }
        self.note(findings);
    }

    /// What a text with these findings may do here and now; no text if it is not known.
    #[inline]
    pub(crate) fn judge(&self, mut findings: Findings, text: &[u8]) -> Findings {
        // With odd strings the bodies of functions are read otherwise, too.
        let known = !self.odd_strings && (self.suspects == Suspects::NONE || self.meaning_is_known());
        let beyond =
            self.catalogue.look_for_names(text, &mut findings.calls) && self.policy.reset != ResetPolicy::Never;
        if (findings.is_plain() && known && !beyond) || self.policy.on_state == OnState::Allow {
            return findings;
        }
        let mut judged = self.judge_odd(findings, known);
        if beyond || (judged.is_unread() && self.policy.reset != ResetPolicy::Never && self.catalogue.has_beyond()) {
            judged.suspects.add(Suspects::BEYOND.and(Suspects::HIDDEN));
        }
        judged
    }

    #[cold]
    fn judge_odd(&self, mut findings: Findings, known: bool) -> Findings {
        if !known {
            findings.suspects.add(Suspects::HIDDEN);
        }
        if (findings.backslash && !self.strings_are_plain()) || (findings.wide && !self.letters_are_plain()) {
            return Findings::misread(&findings);
        }
        if self.policy.reset == ResetPolicy::Never {
            // Only what the text says counts.
            findings.suspects.remove(Suspects::HIDDEN);
        }
        let judged = self.policy.reset != ResetPolicy::Never;
        if judged && !findings.calls.is_empty() && !self.catalogue.knows(&findings.calls) {
            findings.suspects.add(Suspects::HIDDEN);
        }
        findings
    }

    /// Nothing under way may change how a text is read.
    fn meaning_is_known(&self) -> bool {
        self.exchange.is_settled() || !self.suspects.any(Suspects::MEANING.and(Suspects::ASKS_SETTINGS))
    }

    /// A backslash in a text constant of the plain kind is a backslash.
    fn strings_are_plain(&self) -> bool {
        !self.odd_strings && self.meaning_is_known()
    }

    /// A byte below 128 is always a character.
    fn letters_are_plain(&self) -> bool {
        const WIDE: [&[u8]; 7] = [b"SJIS", b"SHIFT_JIS_2004", b"BIG5", b"GBK", b"UHC", b"GB18030", b"JOHAB"];
        let encoding = self.settings.reported.get(b"client_encoding");
        self.meaning_is_known() && encoding.is_some_and(|encoding| !WIDE.contains(&encoding))
    }

    /// Something changes what the database consists of.
    pub(crate) fn note_change(&mut self, findings: &Findings) {
        if findings.suspects.any(Suspects::DDL) && !std::mem::replace(&mut self.changes, true) {
            self.catalogue.change_begins();
        }
    }

    /// What a transaction has changed is changed for all, or never was.
    pub(crate) fn settle_change(&mut self) {
        if std::mem::take(&mut self.changes) {
            self.catalogue.change_ends();
        }
    }

    /// Adds these findings to what is known.
    pub(crate) fn note(&mut self, findings: &Findings) {
        self.note_reading(findings);
        self.suspects.add(findings.suspects);
        self.plans.temporary |= findings.suspects.any(Suspects::TEMPORARY.and(Suspects::HIDDEN));
        // A name that cannot be seen may be that of the seed.
        if findings.suspects.any(Suspects::BEYOND.and(Suspects::UNNAMED)) {
            self.soil.add(Soil::BEYOND);
        } else if findings.suspects.any(Suspects::HIDDEN) && self.policy.reset != ResetPolicy::Never {
            self.soil.add(Soil::ALL);
        } else if findings.suspects.any(Suspects::DDL) && self.policy.reset != ResetPolicy::Never {
            self.soil.add(Soil::STATE);
        }
        findings.custom.iter().for_each(|name| self.note_custom(name));
        for name in &findings.resets {
            let name = if self.resets.len() < MAX_NAMES { name } else { &Box::from(*ALL_PARAMETERS) };
            if !self.resets.contains(name) {
                self.resets.push(name.clone());
            }
        }
        for name in &findings.unlistens {
            // One more than there can be of channels does no harm: the client goes on hearing of it.
            if self.unlistens.len() < MAX_CHANNELS && !self.unlistens.contains(name) {
                self.unlistens.push(name.clone());
            }
        }
    }

    /// A custom parameter of this name may be set.
    pub(crate) fn note_custom(&mut self, name: &[u8]) {
        if !self.customs.iter().any(|known| **known == *name) && self.customs.len() < MAX_NAMES {
            self.customs.push(name.into());
        }
        if self.custom.iter().any(|known| **known == *name) {
            return;
        }
        if self.custom.len() < MAX_NAMES {
            self.custom.push(name.into());
        } else {
            self.suspects.add(Suspects::UNNAMED);
        }
    }

    /// Something of the client may have been left behind.
    pub(crate) fn has_state(&self) -> bool {
        self.pinned || self.suspects.any(Suspects::LASTING)
    }

    /// The present transaction is over: what it changed for itself is, too.
    pub(crate) fn forget_suspects(&mut self) {
        self.suspects = Suspects::NONE;
        self.custom = Vec::new();
        self.resets = Vec::new();
        (self.committed, self.reset_in_doubt) = (false, false);
        self.unlistens = Vec::new();
        self.retold = None;
        self.settle_change();
    }

    /// This verdict, unless what is left in it makes it worse.
    pub(crate) fn worse(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Clean | Verdict::Soiled | Verdict::Reset if self.soil.has(Soil::BEYOND) => Verdict::Discard,
            Verdict::Clean if self.soil.is_clean() && !self.unsynced => Verdict::Clean,
            // It must say that it is ready, or it is not.
            Verdict::Clean | Verdict::Soiled if self.unsynced => Verdict::Reset,
            // What the operator's SQL makes is made in a round trip of its own.
            Verdict::Clean if self.connect_makes || self.mode == PoolMode::Session => Verdict::Reset,
            Verdict::Clean => Verdict::Soiled,
            verdict => verdict,
        }
    }

    /// What may be left in it for whoever comes next, now that its client is done.
    pub(crate) fn soil_at_release(&mut self) {
        if self.has_state() {
            self.soil.add(Soil::ALL);
        }
        let reads = self.policy.reset != ResetPolicy::Never && self.policy.on_state != OnState::Allow;
        if reads && !self.catalogue.is_clean() {
            self.soil.add(if self.catalogue.prepares() { Soil::ALL } else { Soil::STATE });
            self.plans.temporary = true;
        } else if self.policy.reset == ResetPolicy::Always {
            self.soil.add(Soil::STATE);
        }
    }
}

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
        let plain = server.suspects == Suspects::NONE && client.pin.is_none();
        if !plain && !self.finish_with_state(me, client, tag, server, out) {
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
        if client.listening.is_some() && !server.unlistens.is_empty() {
            self.unlisten(client, &std::mem::take(&mut server.unlistens), out);
        }
        let advanced = client.last_values && server.suspects.any(Suspects::SEQUENCE);
        server.advanced |= advanced;
        let mut relevant = if server.pinned { Suspects::LASTING_OR_UNDONE } else { Suspects::LASTING };
        if server.policy.reset == ResetPolicy::Never {
            relevant.remove(Suspects::DDL);
        }
        if server.policy.on_state == OnState::Allow || !server.suspects.any(relevant) {
            if advanced && !server.pinned && server.policy.on_state != OnState::Allow {
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
        server.suspects.add(Suspects::SETTINGS);
        self.ask(client, tag, server, out);
        server.suspects.remove(Suspects::RESET);
        // What is set now is gone with the transaction if that is rolled back; the RESET may have been committed before it began.
        server.reset_in_doubt |= server.exchange.status() != IDLE;
        if client.mode == PoolMode::Session {
            server.suspects.remove(Suspects::SETTINGS);
            if !server.reset_in_doubt {
                (server.custom, server.resets) = (Vec::new(), Vec::new());
            }
            (server.discarded, server.committed) = (false, false);
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
        let wanted = client.settings.clone().expect("a client that is logged in has settings");
        let mut sql = Vec::new();
        if server.exchange.status() == IDLE {
            server.settings.write_change(&wanted, &mut sql);
        } else {
            // Who acts may have been changed for the transaction only, and must not be for longer by this.
            server.settings.write_change_but_identity(&wanted, &mut sql);
        }
        if sql.is_empty() {
            self.corrected(me, client, server, out);
        } else {
            server.begin(tag, Purpose::Correct(wanted), &[&sql], out);
        }
    }

    /// Sets what a client that keeps its server has otherwise than that; false if there is nothing.
    fn bring_in_line(&self, client: &Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) -> bool {
        let wanted = client.settings.clone().expect("a client that is logged in has settings");
        let mut sql = Vec::new();
        server.settings.write_change(&wanted, &mut sql);
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
        self.tell_in_time(me, client, server, out);
    }

    fn ask(&self, client: &Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        let known = client.settings.as_ref().expect("a client that is logged in has settings");
        let hidden = if server.suspects.any(Suspects::HIDDEN) { server.catalogue.custom() } else { Vec::new() };
        let custom = survey::custom_names(&[&server.custom, &server.customs, &hidden], &known.extras);
        let mut survey = Survey::new(server.suspects, server.resets.clone(), &custom);
        let named = |name: &[u8]| server.custom.iter().any(|seen| seen.eq_ignore_ascii_case(name));
        survey.guessed = hidden.into_iter().filter(|name| known.extras.get(name).is_none() && !named(name)).collect();
        let sql =
            if server.exchange.status() == IDLE { survey::write(server.suspects, &custom) } else { survey.within() };
        server.begin(tag, Purpose::Survey(survey), &[&sql], out);
    }

    /// What was asked or set within a transaction after a RESET has failed, and the transaction with it: the client is told so
    /// before it is told that the server is ready, as of a transaction that fails at its end.
    pub(crate) fn failed_within(
        &self,
        me: ClientTag,
        client: &mut Client,
        server: &mut Server,
        failure: &Failure,
        out: &mut Outbox,
    ) {
        server.exchange.transaction_failed();
        server.ready_withheld = Some(server.exchange.status());
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
        server.suspects.add(Suspects::UNNAMED);
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
            let before = server.settings.clone();
            self.take_over(me, client, server, &survey, out);
            if server.may_not_see_all() {
                server.soil.add(Soil::STATE);
            }
            if server.policy.on_state == OnState::Pin && before != server.settings && !server.discarded {
                pin = pin.or(Some(Pin::Settings));
            }
        }
        if client.settings.as_ref().is_some_and(|settings| settings.creates_temporary()) {
            pin = pin.or(Some(Pin::Temporary));
        }
        if client.settings.as_ref().is_some_and(|settings| settings.acts_as_two()) {
            pin = pin.or(Some(Pin::Identity));
        }
        if server.suspects.any(Suspects::UNNAMED) || survey.too_long {
            pin = Some(Pin::UnknownSetting);
        }
        server.advanced &= !server.discarded || server.suspects.any(Suspects::SEQUENCE);
        if server.advanced {
            pin = pin.or(Some(Pin::Sequence));
        }
        // These do not end before the client does, or says DISCARD.
        if matches!(client.pin, Some(Pin::UnknownSetting | Pin::Settings)) && !server.discarded {
            pin = pin.or(client.pin);
        }
        let shares = pin.is_none() && Self::shares_listening(server);
        if !survey.channels.is_empty() && !shares {
            pin = pin.or(Some(Pin::Listen));
        }
        server.discarded = false;
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
        self.tell_in_time(me, client, server, out);
        self.finish(me, client, tag, server, out);
        if matches!(client.phase, Phase::Subscribing) {
            client.stand(me, Standing::Active, out);
        }
    }

    /// Settings as they are now become the client's, but for those that went back to what it started with.
    fn take_over(&self, me: ClientTag, client: &mut Client, server: &mut Server, survey: &Survey, out: &mut Outbox) {
        let start = client.start.clone().expect("a client that is logged in has settings");
        let own_user = server.user.clone();
        let Some((theirs, wanted)) =
            survey.settings(&server.settings.reported, (&start, &server.defaults), own_user.as_deref())
        else {
            // More than is remembered.
            server.suspects.add(Suspects::UNNAMED);
            return;
        };
        for (name, value) in wanted.reported.iter() {
            if server.settings.reported.get(name).is_some_and(|now| now != value) {
                out.insert(Peer::Client(me), |to| crate::wire::message::write_parameter(to, name, value));
            }
        }
        server.settings = self.parameters.intern(theirs);
        server.note_left(&server.settings.clone());
        client.settings = Some(self.parameters.intern(wanted));
    }

    /// Pins the client's server, or lets it go. False if there is no room for another pin: then the client is told to go.
    fn set_pin(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        pin: Option<Pin>,
        out: &mut Outbox,
    ) -> bool {
        match (client.pin, pin) {
            (None, Some(new)) if !self.add_pin(me, client, tag, server, new, out) => return false,
            (Some(_), None) => {
                server.pinned = false;
                self.unpin(client, tag, out);
            }
            (Some(old), Some(new)) if old != new => {
                out.push(Effect::Pinned { server: tag, reason: Some(new.word()) });
            }
            _ => {}
        }
        client.pin = pin;
        true
    }

    /// One more server of the pool is pinned. False if there is no room for it: then the client is told to go.
    pub(crate) fn add_pin(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        pin: Pin,
        out: &mut Outbox,
    ) -> bool {
        let max = server.policy.max_pinned;
        if self.pins.add(client.pool, max) {
            server.pinned = true;
            out.push(Effect::Pinned { server: tag, reason: Some(pin.word()) });
            return true;
        }
        let message =
            format!("this session needs a server of its own ({}), and max_pinned = {max} have one", pin.word());
        let report = Report {
            severity: Severity::Fatal,
            code: code::CONFIGURATION_LIMIT_EXCEEDED,
            message: &message,
            hint: "Raise max_pinned, or use mode = \"session\" for such clients.",
        };
        client.fail(me, &report, Blame::Exhausted, out);
        server.soil.add(Soil::ALL);
        client.release(me, tag, server, Verdict::Reset, out);
        false
    }

    /// The client no longer keeps the server.
    pub(crate) fn unpin(&self, client: &mut Client, tag: ServerTag, out: &mut Outbox) {
        if client.pin.take().is_some() {
            self.pins.remove(client.pool);
            out.push(Effect::Pinned { server: tag, reason: None });
        }
    }

    /// The pinned server of a client is lost.
    pub(crate) fn forget_pin(&self, client: &mut Client) {
        if client.pin.take().is_some() {
            self.pins.remove(client.pool);
        }
    }
}

/// Puts something that fails in the place of a request that is not allowed, or before it: so the refusal comes in its
/// turn, and the server treats what follows as it treats all that follows an error.
pub(crate) fn reject(tag: ServerTag, server: &mut Server, kind: u8, out: &mut Outbox) {
    const REJECTION: &[u8] = b"DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '0A000', \
        MESSAGE = 'this statement leaves something behind in the session, which on_session_state = \"reject\" forbids', \
        HINT = 'Use SET LOCAL, or mode = \"session\" for this database.'; END $poolhouse$";
    refuse(tag, server, kind, REJECTION, out);
}

/// The same with this SQL, which fails.
pub(crate) fn refuse(tag: ServerTag, server: &mut Server, kind: u8, failing: &[u8], out: &mut Outbox) {
    if kind == front::QUERY {
        out.insert(Peer::Server(tag), |to| write_query(to, failing));
        server.exchange.query();
        return;
    }
    out.insert(Peer::Server(tag), |to| {
        write(to, front::PARSE, |to| {
            to.push(0);
            to.extend_from_slice(failing);
            to.extend_from_slice(&[0, 0, 0]);
        });
        write(to, front::BIND, |to| to.extend_from_slice(&[0; 8]));
        write(to, front::EXECUTE, |to| to.extend_from_slice(&[0; 5]));
    });
    server.unnamed.owner = None;
    server.mid_pipeline = true;
    server.exchange.noted(Note::Swallowed);
    server.exchange.noted(Note::Swallowed);
    server.exchange.extended();
}
