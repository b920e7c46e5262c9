//! Answers to what Poolhouse itself asks of a server: to take over a client's settings, to be cleaned, to show that it
//! lives. They are swallowed, and each is passed on to who has asked.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag, Sessions, Verdict};

use crate::{
    session::{
        client::{Client, Phase},
        own_queries::{OwnQueries, Purpose},
        server::{Server, Stage},
        shared::Postgres,
        soil::Soil,
    },
    wire::{
        error::{Failure, Report, Severity},
        message::IDLE,
    },
};

/// What a ReadyForQuery means for a query of ours.
enum Outcome {
    /// More of them are to come.
    More,
    /// The server broke the protocol.
    Broken(String),
    /// It failed within the holder's transaction, which has failed by that.
    FailedWithin(Failure),
    /// It was ended from outside, and is tried again.
    Repeat(Box<OwnQueries>),
    Done(Box<OwnQueries>),
}

impl Server {
    /// Enters a ReadyForQuery of this status, while the server is at work for us.
    fn own_query_outcome(&mut self, status: u8) -> Outcome {
        let work = self.work.as_mut().expect("the server is at work for us");
        if !std::mem::take(&mut work.answered) {
            return Outcome::Broken("a ReadyForQuery without an answer".to_owned());
        }
        if work.pending == 0 {
            return Outcome::Broken("a ReadyForQuery without a Sync".to_owned());
        }
        self.unsynced = false;
        work.pending -= 1;
        if work.pending > 0 {
            return Outcome::More;
        }
        let mut work = self.work.take().expect("the server is at work for us");
        if let (b'E', Purpose::Survey(_) | Purpose::Correct(_)) = (status, &work.purpose)
            && self.exchange.status() != IDLE
            && let Some(failure) = work.failure.take()
        {
            return Outcome::FailedWithin(failure);
        }
        let within = matches!(work.purpose, Purpose::Survey(_) | Purpose::Correct(_) | Purpose::Forget);
        if status != IDLE && !(within && work.failure.is_none() && status == self.exchange.status()) {
            let behind = work.failure.as_ref().map(|failure| format!(" behind {}", failure.text())).unwrap_or_default();
            return Outcome::Broken(format!("a transaction that does not end{behind}"));
        }
        if status == IDLE && work.is_to_repeat() { Outcome::Repeat(work) } else { Outcome::Done(work) }
    }
}

impl Postgres {
    /// A ReadyForQuery came while the server is at work for us.
    pub(crate) fn work_ready(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        status: u8,
        out: &mut Outbox,
    ) {
        match server.own_query_outcome(status) {
            Outcome::More => {}
            Outcome::Broken(what) => self.broken(me, server, clients, &what, out),
            Outcome::FailedWithin(failure) => {
                let (tag, client) = holder(server, clients);
                self.failed_within(tag, client, server, &failure, out);
            }
            Outcome::Repeat(work) => server.begin_again(me, *work, out),
            Outcome::Done(work) => self.work_answered(me, server, clients, *work, out),
        }
    }

    /// A query of ours is answered, whether it failed or not. What is done then is up to who has asked.
    fn work_answered(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        OwnQueries { purpose, failure, cancelled, .. }: OwnQueries,
        out: &mut Outbox,
    ) {
        match (purpose, failure) {
            (Purpose::Catalogue(reading, verdict), failure) => {
                self.catalogue_answered(me, server, *reading, failure, verdict, out);
            }
            (Purpose::Defaults(question), failure) => {
                self.defaults_answered(me, server, clients, (*question, failure, cancelled), out);
            }
            (Purpose::Listen(channels), failure) => self.listened(me, server, &channels, failure.as_ref(), out),
            (Purpose::CleanListener, failure) => self.listener_cleaned(me, server, failure, out),
            (Purpose::Retire, failure) => self.retired(me, server, failure.as_ref(), out),
            (Purpose::Lookup(lookup), failure) => self.lookup_answered(me, server, clients, (lookup, failure), out),
            (Purpose::Connect, failure) => self.connect_query_ready(me, server, None, failure, out),
            (Purpose::Connected(set), failure) => self.connect_query_ready(me, server, Some(&set), failure, out),
            (Purpose::Preface(preface), None) => self.prefaced(me, server, clients, (*preface, cancelled), out),
            (Purpose::Reset { cleaned, statements }, None) => self.was_reset(me, server, cleaned, statements, out),
            (Purpose::Check, None) => server.become_ready(me, out),
            (purpose, None) => self.done_for_holder(me, server, clients, purpose, out),
            (purpose, Some(failure)) => self.work_failed(me, server, clients, (purpose, failure), out),
        }
    }

    /// What was done for the server's holder went well.
    fn done_for_holder(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        purpose: Purpose,
        out: &mut Outbox,
    ) {
        let (tag, client) = holder(server, clients);
        match purpose {
            Purpose::Learn(extras) => {
                server.settings.replace_extras(extras, &self.parameters);
                self.learned(tag, client, me, server, out);
            }
            Purpose::Survey(survey) => self.surveyed(tag, client, me, server, survey, out),
            Purpose::Correct(settings) => {
                server.settings.apply(&settings, &self.parameters);
                self.bring_up(tag, client, server, out);
                self.corrected(tag, client, server, out);
            }
            Purpose::Unlisten(channels) => self.unlistened(tag, client, me, server, &channels, out),
            Purpose::Forget => {
                self.bring_up(tag, client, server, out);
                client.phase = Phase::Ready;
                out.push(Effect::Wake { client: tag });
            }
            Purpose::Preface(_)
            | Purpose::Reset { .. }
            | Purpose::Catalogue(..)
            | Purpose::Check
            | Purpose::Listen(_)
            | Purpose::Retire
            | Purpose::CleanListener
            | Purpose::Connect
            | Purpose::Connected(_)
            | Purpose::Lookup(_)
            | Purpose::Defaults(_) => unreachable!("this work has no holder"),
        }
    }

    /// What was asked of the server failed.
    fn work_failed(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        (purpose, failure): (Purpose, Failure),
        out: &mut Outbox,
    ) {
        match purpose {
            Purpose::Learn(extras) => {
                let (tag, client) = holder(server, clients);
                if !self.learns_elsewhere(tag, client, me, server, &extras, out) {
                    reject(me, server, clients, &failure, out);
                }
            }
            Purpose::Survey(survey) => {
                let (tag, client) = holder(server, clients);
                self.survey_failed(tag, client, me, server, survey, out);
            }
            // A server that failed to UNLISTEN still listens for its holder: `reject` has it cleaned of everything.
            Purpose::Forget | Purpose::Unlisten(_) | Purpose::Correct(_) => reject(me, server, clients, &failure, out),
            Purpose::Reset { .. } | Purpose::Check => {
                server.stage = Stage::Closed;
                let reason = CloseReason::Error(Blame::Server, failure.text());
                out.push(Effect::Close { peer: Peer::Server(me), reason });
            }
            Purpose::Preface(_) => unreachable!("its first error is the end of it"),
            Purpose::Catalogue(..)
            | Purpose::Listen(_)
            | Purpose::Retire
            | Purpose::CleanListener
            | Purpose::Connect
            | Purpose::Connected(_)
            | Purpose::Lookup(_)
            | Purpose::Defaults(_) => unreachable!("the feature that asked handles the failure"),
        }
    }
}

/// The client for which a server was at work.
fn holder<'a>(server: &Server, clients: &'a mut dyn Sessions<ClientTag, Client>) -> (ClientTag, &'a mut Client) {
    let tag = server.holder().expect("it was done for a holder");
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
