//! Answers to what Poolhouse itself asks of a server: to take over a client's settings, to be cleaned, to show that it
//! lives. They are swallowed, and each is passed on to who has asked.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag, Sessions, Verdict};

use crate::{
    session::{
        client::{Client, Phase},
        link::Link,
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

/// What a ReadyForQuery means while the server answers queries of Poolhouse.
enum Outcome {
    More,
    Broken(String),
    /// It failed within the holder's transaction, which has failed with it.
    FailedWithin(Failure),
    /// A time-out or a cancel request ended it; it is tried again.
    Repeat(Box<OwnQueries>),
    Done(Box<OwnQueries>),
}

impl Server {
    /// Enters a ReadyForQuery that answers a query of Poolhouse.
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
        let within = matches!(work.purpose, Purpose::Survey(_) | Purpose::Correct(_) | Purpose::Discard);
        if status != IDLE && !(within && work.failure.is_none() && status == self.exchange.status()) {
            let behind = work.failure.as_ref().map(|failure| format!(" behind {}", failure.text())).unwrap_or_default();
            return Outcome::Broken(format!("a transaction that does not end{behind}"));
        }
        if status == IDLE && work.is_to_repeat() { Outcome::Repeat(work) } else { Outcome::Done(work) }
    }
}

impl Postgres {
    /// A ReadyForQuery came that answers a query of Poolhouse.
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
                self.failed_within(&mut Link::of_holder(me, server, clients, out), &failure);
            }
            Outcome::Repeat(work) => server.repeat_own_queries(me, *work, out),
            Outcome::Done(work) => self.work_answered(me, server, clients, *work, out),
        }
    }

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

    fn done_for_holder(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        purpose: Purpose,
        out: &mut Outbox,
    ) {
        let link = &mut Link::of_holder(me, server, clients, out);
        match purpose {
            Purpose::Learn(extras) => {
                link.server.settings.replace_extras(extras, &self.parameters);
                self.learned(link);
            }
            Purpose::Survey(survey) => self.surveyed(link, survey),
            Purpose::Correct(settings) => {
                link.server.settings.apply(&settings, &self.parameters);
                self.tell_reported(link);
                self.corrected(link);
            }
            Purpose::Unlisten(channels) => self.unlistened(link, &channels),
            Purpose::Discard => {
                self.tell_reported(link);
                link.client.phase = Phase::Ready;
                link.out.push(Effect::Wake { client: link.client_tag });
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
                let link = &mut Link::of_holder(me, server, clients, out);
                if !self.learns_elsewhere(link, &extras) {
                    fail_holder(link, &failure);
                }
            }
            Purpose::Survey(survey) => {
                self.retry_survey(&mut Link::of_holder(me, server, clients, out), survey);
            }
            Purpose::Discard | Purpose::Unlisten(_) | Purpose::Correct(_) => {
                fail_holder(&mut Link::of_holder(me, server, clients, out), &failure);
            }
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

/// What the server was asked for its holder has failed: the holder's connection ends with the server's error. Part of it
/// may have been carried out, so the server is cleaned of everything.
fn fail_holder(link: &mut Link<'_>, failure: &Failure) {
    let report =
        Report { severity: Severity::Fatal, code: &failure.code, message: &failure.message, hint: &failure.hint };
    link.client.fail(link.client_tag, &report, Blame::Client, link.out);
    link.server.soil.insert(Soil::ALL);
    link.release(Verdict::Reset);
}
