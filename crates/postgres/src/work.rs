//! What Poolhouse itself asks of a server: to take over a client's settings, to be cleaned, to show that it lives. The
//! answers are swallowed.

use std::sync::Arc;

use protocol::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag, Sessions, Verdict};

use crate::{
    Postgres,
    cleaning::{self, Soil},
    client::{Client, Phase},
    directory::{OnState, PoolMode, ResetPolicy},
    lookup::Lookup,
    preface::Preface,
    server::{Server, Stage},
    session::survey::Survey,
    sql::{
        catalogue::{Catalogue, Reading},
        parameters::{Pairs, Settings},
    },
    wire::{
        error::{Failure, Report, Severity, code},
        message::{IDLE, write_query},
    },
};

/// How often what a time-out of the client's has ended is tried again.
const MAX_TRIES: u8 = 8;

/// Queries of ours that a server is answering.
pub(crate) struct Work {
    pub(crate) purpose: Purpose,
    /// Queries that are still to be answered.
    pending: u8,
    /// Something other than ReadyForQuery has answered the oldest of them.
    pub(crate) answered: bool,
    /// The first error.
    pub(crate) failure: Option<Failure>,
    /// The request that it precedes was cancelled meanwhile.
    pub(crate) cancelled: bool,
    /// What was asked, where it may be asked again.
    text: Box<[u8]>,
    tries: u8,
}

/// What the queries are for.
pub(crate) enum Purpose {
    /// To clean it, and to give it the settings of its new holder, whose request may be under way behind that.
    Preface(Box<Preface>),
    /// To learn what settings a client will have; with those that the server does not report.
    Learn(Pairs),
    /// To clean it.
    Reset {
        /// Of all but what our own queries leave behind.
        cleaned: bool,
        /// Of prepared statements, too.
        statements: bool,
    },
    /// To learn what its database could do to sessions; then it is given back, or, if that is how it began, ready.
    Catalogue(Box<Reading>, Option<Verdict>),
    /// To see whether it lives.
    Check,
    /// To learn what its holder has left behind in it.
    Survey(Survey),
    /// To have it stop listening to these channels for its holder.
    Unlisten(Vec<Box<[u8]>>),
    /// To have it listen to these channels for others, or no more to others.
    Listen(Vec<Box<[u8]>>),
    /// To have it stop listening, so that it can go back to its pool.
    Retire,
    /// To clean it before it listens for all.
    CleanListener,
    /// To have it forget the last values of sequences, or plans, before its holder goes on.
    Forget,
    /// To give it its holder's start-up values, within a transaction.
    Correct(Arc<Settings>),
    /// To run the `connect_query` on a new server.
    Connect,
    /// To learn what that has set.
    Connected(Survey),
    /// To ask who may log in.
    Lookup(Lookup),
}

impl Purpose {
    /// Doing it twice is as doing it once, and it needs no transaction of its holder's.
    fn may_be_repeated(&self) -> bool {
        matches!(self, Purpose::Forget | Purpose::Unlisten(_) | Purpose::Correct(_))
    }
}

impl Work {
    /// It was ended from outside, nothing else is wrong with it, and it may be tried again.
    fn is_to_repeat(&self) -> bool {
        let ended = self.failure.as_ref().is_some_and(|failure| failure.code == code::QUERY_CANCELED);
        ended && self.purpose.may_be_repeated() && self.tries < MAX_TRIES
    }

    /// The question who may log in, if that is what the server is asked.
    pub(crate) fn lookup(&mut self) -> Option<&mut Lookup> {
        match &mut self.purpose {
            Purpose::Lookup(lookup) => Some(lookup),
            _ => None,
        }
    }

    /// It is asked who may log in.
    pub(crate) fn is_lookup(&self) -> bool {
        matches!(self.purpose, Purpose::Lookup(_))
    }

    /// It is done before the holder's request is sent, not because of what the holder has done already.
    pub(crate) fn precedes_request(&self) -> bool {
        matches!(self.purpose, Purpose::Preface(_) | Purpose::Forget)
    }

    /// Rows that come are looked at.
    pub(crate) fn reads_rows(&self) -> bool {
        matches!(self.purpose, Purpose::Survey(_) | Purpose::Connected(_) | Purpose::Lookup(_) | Purpose::Catalogue(..))
    }

    /// A row; `None` if it is too long. False if it is malformed.
    pub(crate) fn row(&mut self, body: Option<&[u8]>) -> bool {
        match (&mut self.purpose, body) {
            (Purpose::Survey(survey) | Purpose::Connected(survey), Some(body)) => survey.row(body).is_some(),
            (Purpose::Lookup(lookup), Some(body)) => {
                lookup.row(body);
                true
            }
            (Purpose::Lookup(lookup), None) => {
                lookup.long_row();
                true
            }
            (Purpose::Survey(survey) | Purpose::Connected(survey), None) => {
                survey.long_row();
                true
            }
            (Purpose::Catalogue(reading, _), Some(body)) => reading.row(body).is_some(),
            (Purpose::Catalogue(reading, _), None) => {
                reading.long_row();
                true
            }
            _ => true,
        }
    }
}

impl Server {
    /// Sends queries of ours.
    pub(crate) fn begin(&mut self, me: ServerTag, purpose: Purpose, queries: &[&[u8]], out: &mut Outbox) {
        let write = |to: &mut Vec<u8>| queries.iter().for_each(|sql| write_query(to, sql));
        let text = if purpose.may_be_repeated() { queries.join(&b';').into() } else { Box::default() };
        self.begin_with(me, purpose, queries.len() as u8, write, out);
        if let Some(work) = &mut self.work {
            work.text = text;
        }
    }

    /// A time-out of the client's, or a cancel request that came late, has ended what is ours: it is done again, where no time-out of a session holds.
    fn begin_again(&mut self, me: ServerTag, work: Work, out: &mut Outbox) {
        let guarded = [b"BEGIN;SET LOCAL statement_timeout = 0;", &work.text[..], b";COMMIT"].concat();
        // If the guard itself was too slow.
        self.begin(me, work.purpose, &[&guarded, b"ROLLBACK"], out);
        if let Some(again) = &mut self.work {
            (again.text, again.tries, again.cancelled) = (work.text, work.tries + 1, work.cancelled);
        }
    }

    /// Sends messages that are answered by `pending` ReadyForQuery.
    pub(crate) fn begin_with(
        &mut self,
        me: ServerTag,
        purpose: Purpose,
        pending: u8,
        write: impl FnOnce(&mut Vec<u8>),
        out: &mut Outbox,
    ) {
        if matches!(self.stage, Stage::Closed) {
            // It has asked to be closed since it was given back.
            return;
        }
        assert!(self.work.is_none(), "a server is at work for one purpose at a time");
        assert!(matches!(self.stage, Stage::Ready), "only a ready server is put to work");
        out.insert(Peer::Server(me), write);
        self.unnamed.owner = None;
        self.work = Some(Box::new(Work {
            purpose,
            pending,
            answered: false,
            failure: None,
            cancelled: false,
            text: Box::default(),
            tries: 0,
        }));
    }
}

impl Postgres {
    /// Cleans a server after a client.
    pub(crate) fn reset_server(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if let Some(lookup) = server.work.as_mut().and_then(|work| work.lookup()) {
            // Nothing is left behind by that: it is clean when it has answered.
            lookup.abandoned = true;
            return;
        }
        let cleaned = server.mode == PoolMode::Session || !server.soil.is_clean();
        let statements =
            cleaned && (server.mode == PoolMode::Session || server.soil.has(Soil::ALL) || server.connect_makes);
        let mut cleaning = Vec::new();
        if cleaned {
            cleaning::write_whole(&mut cleaning, statements, &server.own, &server.defaults);
        }
        let connect_query = server.connect_query.clone().filter(|_| cleaned && server.connect_makes);
        let mut queries: Vec<&[u8]> = Vec::new();
        if server.exchange.status() != IDLE {
            queries.push(b"ROLLBACK");
        }
        if cleaned || queries.is_empty() {
            queries.push(&cleaning);
        }
        queries.extend(connect_query.as_deref().map(str::as_bytes));
        server.begin(me, Purpose::Reset { cleaned, statements }, &queries, out);
    }

    /// A ReadyForQuery came while the server is at work for us.
    pub(crate) fn work_ready(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        status: u8,
        out: &mut Outbox,
    ) {
        let work = server.work.as_mut().expect("the server is at work for us");
        if !std::mem::take(&mut work.answered) {
            return self.broken(me, server, clients, "a ReadyForQuery without an answer", out);
        }
        if work.pending == 0 {
            return self.broken(me, server, clients, "a ReadyForQuery without a Sync", out);
        }
        server.unsynced = false;
        work.pending -= 1;
        if work.pending > 0 {
            return;
        }
        let work = server.work.take().expect("the server is at work for us");
        let within = matches!(work.purpose, Purpose::Survey(_) | Purpose::Correct(_) | Purpose::Forget);
        if let (b'E', Purpose::Survey(_) | Purpose::Correct(_), Some(failure)) = (status, &work.purpose, &work.failure)
            && server.exchange.status() != IDLE
        {
            let (tag, client) = holder(server, clients);
            return self.failed_within(tag, client, server, failure, out);
        }
        if status != IDLE && !(within && work.failure.is_none() && status == server.exchange.status()) {
            let behind = work.failure.as_ref().map(|failure| format!(" behind {}", failure.text())).unwrap_or_default();
            return self.broken(me, server, clients, &format!("a transaction that does not end{behind}"), out);
        }
        if status == IDLE && work.is_to_repeat() {
            return server.begin_again(me, *work, out);
        }
        if matches!(work.purpose, Purpose::Unlisten(_)) && work.failure.is_some() {
            // It still listens for its holder, of which nothing else tells.
            server.soil.add(Soil::ALL);
        }
        match (work.purpose, work.failure) {
            (Purpose::Learn(extras), Some(failure)) => {
                let (tag, client) = holder(server, clients);
                if !self.learns_elsewhere(tag, client, me, server, &extras, out) {
                    reject(me, server, clients, &failure, out);
                }
            }
            (Purpose::Forget | Purpose::Unlisten(_) | Purpose::Correct(_), Some(failure)) => {
                reject(me, server, clients, &failure, out);
            }
            (Purpose::Preface(preface), None) => self.prefaced(me, server, clients, (*preface, work.cancelled), out),
            (Purpose::Preface(_), Some(_)) => unreachable!("its first error is the end of it"),
            (Purpose::Learn(extras), None) => {
                let reported = server.settings.reported.clone();
                server.settings = self.parameters.intern(Settings::new(reported, extras));
                let (tag, client) = holder(server, clients);
                self.learned(tag, client, me, server, out);
            }
            (Purpose::Reset { .. } | Purpose::Check, Some(failure)) => {
                server.stage = Stage::Closed;
                let reason = CloseReason::Error(Blame::Server, failure.text());
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            (Purpose::Reset { cleaned, statements }, None) => self.was_reset(me, server, cleaned, statements, out),
            (Purpose::Catalogue(reading, verdict), failure) => {
                self.catalogue_answered(me, server, *reading, failure, verdict, out);
            }
            (Purpose::Survey(survey), Some(_)) => {
                let (tag, client) = holder(server, clients);
                self.survey_failed(tag, client, me, server, survey, out);
            }
            (Purpose::Survey(survey), None) => {
                let (tag, client) = holder(server, clients);
                self.surveyed(tag, client, me, server, survey, out);
            }
            (Purpose::Correct(settings), None) => {
                server.settings = settings;
                let (tag, client) = holder(server, clients);
                self.corrected(tag, client, server, out);
            }
            (Purpose::Unlisten(channels), None) => {
                let (tag, client) = holder(server, clients);
                self.unlistened(tag, client, me, server, &channels, out);
            }
            (Purpose::Forget, None) => {
                let (tag, client) = holder(server, clients);
                client.phase = Phase::Ready;
                out.push(Effect::Wake { client: tag });
            }
            (Purpose::Listen(channels), failure) => self.listened(me, server, &channels, failure.as_ref(), out),
            (Purpose::CleanListener, failure) => self.listener_cleaned(me, server, failure, out),
            (Purpose::Retire, failure) => self.retired(me, server, failure.as_ref(), out),
            (Purpose::Lookup(lookup), failure) => self.looked_up(me, server, clients, lookup, failure, out),
            (Purpose::Connect, failure) => self.connect_query_ready(me, server, None, failure, out),
            (Purpose::Connected(set), failure) => self.connect_query_ready(me, server, Some(&set), failure, out),
            (Purpose::Check, None) => out.push(Effect::Ready { server: me }),
        }
    }

    /// A server is as if it were new, or, unless it was `cleaned`, as it was left by somebody who left nothing behind.
    fn was_reset(&self, me: ServerTag, server: &mut Server, cleaned: bool, statements: bool, out: &mut Outbox) {
        server.exchange = crate::exchange::Exchange::new();
        server.forget_suspects();
        if statements {
            server.prepared = None;
        }
        if cleaned {
            self.was_cleaned(server);
        }
        out.push(Effect::Ready { server: me });
    }

    /// Everything but prepared statements is as it was when the server was new.
    pub(crate) fn was_cleaned(&self, server: &mut Server) {
        server.forget_soil();
        let reported = server.settings.reported.clone();
        let extras = server.defaults.extras.clone();
        server.settings = self.parameters.intern(Settings::new(reported, extras));
    }

    /// The server has said what its database could do to sessions.
    fn catalogue_answered(
        &self,
        me: ServerTag,
        server: &mut Server,
        reading: Reading,
        failure: Option<Failure>,
        verdict: Option<Verdict>,
        out: &mut Outbox,
    ) {
        let news = match failure {
            Some(failure) => server.catalogue.failed(&failure.text()),
            None => server.catalogue.read(reading),
        };
        // In session mode all servers are cleaned when they change hands, whatever the functions are; and so are they where that is asked for.
        let tells = server.mode != PoolMode::Session && server.policy.reset == ResetPolicy::Auto;
        if let Some(suspicious) = news.filter(|_| tells) {
            self.directory.catalogue_read(server.pool, &suspicious);
        }
        match verdict {
            None => out.push(Effect::Ready { server: me }),
            Some(verdict) => {
                server.soil_at_release();
                out.push(Effect::Release { server: me, verdict: server.worse(verdict) });
            }
        }
    }
}

impl Server {
    /// Nothing of what clients have left in it so far matters any more.
    pub(crate) fn forget_soil(&mut self) {
        self.soil = Soil::default();
        self.customs = Vec::new();
        self.sequences_of = None;
    }

    /// Gives it back to its pool, perhaps after a look at its database's catalogue.
    pub(crate) fn give_back(&mut self, me: ServerTag, verdict: Verdict, out: &mut Outbox) {
        let usable = verdict != Verdict::Discard && matches!(self.stage, Stage::Ready) && self.work.is_none();
        let at_rest = usable && self.exchange.status() == IDLE && self.exchange.is_settled();
        let mark = out.effects.len();
        out.push(Effect::Keep { server: me, briefly: true });
        if !at_rest || !self.ask_catalogue(me, Some(verdict), out) {
            out.effects.truncate(mark);
            out.push(Effect::Release { server: me, verdict });
        }
    }

    /// Asks what its database could do to sessions, if that is to be known. True if it is at work then.
    pub(crate) fn ask_catalogue(&mut self, me: ServerTag, verdict: Option<Verdict>, out: &mut Outbox) -> bool {
        let of_interest = self.policy.reset != ResetPolicy::Never && self.policy.on_state != OnState::Allow;
        if !of_interest {
            return false;
        }
        let Some(reading) = Catalogue::ask(&self.catalogue, self.trusted.clone()) else { return false };
        let sql = reading.question(self.version.major);
        self.begin(me, Purpose::Catalogue(Box::new(reading), verdict), &[&sql, b"ROLLBACK"], out);
        true
    }
}

/// The client for which a server was at work.
fn holder<'a>(server: &Server, clients: &'a mut dyn Sessions<ClientTag, Client>) -> (ClientTag, &'a mut Client) {
    let tag = server.holder.expect("it was done for a holder");
    (tag, clients.get(tag).expect("the holder of a server has a session"))
}

/// The server does not accept the holder's settings: the holder is told in the server's words. The server has undone
/// all of them, since they came in one query.
fn reject(
    me: ServerTag,
    server: &mut Server,
    clients: &mut dyn Sessions<ClientTag, Client>,
    failure: &Failure,
    out: &mut Outbox,
) {
    let (tag, client) = holder(server, clients);
    let report =
        Report { severity: Severity::Fatal, code: &failure.code, message: &failure.message, hint: &failure.hint };
    client.fail(tag, &report, Blame::Client, out);
    // Some of it may be there.
    server.soil.add(Soil::ALL);
    client.release(tag, me, server, Verdict::Reset, out);
}
