//! Answers to queries of Poolhouse itself: they go to no client, and each is handed to the feature that has asked.

use seam::{Blame, CloseReason, Effect, Peer, Verdict};

use crate::{
    session::{Link, OwnQueries, Phase, Postgres, Purpose, Server, ServerSide, Soil, Stage},
    sql::Pairs,
    wire::{Failure, IDLE},
};

/// What a ReadyForQuery means while the server answers queries of Poolhouse.
enum Outcome {
    More,
    Broken(String),
    /// The query has failed within the holder's transaction, and the transaction with it.
    FailedInTransaction(Failure),
    /// A time-out or a cancel request has ended the query, which is tried again.
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
        let fails_in_transaction = status == b'E' && self.exchange.status() != IDLE && work.failure.is_some();
        if fails_in_transaction && matches!(work.purpose, Purpose::Discard) {
            // The request that the discard precedes was not sent: no answer to it can tell of the failure.
            return Outcome::Done(work);
        }
        if fails_in_transaction
            && matches!(work.purpose, Purpose::Survey(_) | Purpose::Correct(_))
            && let Some(failure) = work.failure.take()
        {
            return Outcome::FailedInTransaction(failure);
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
    pub(crate) fn work_ready(&self, side: &mut ServerSide<'_>, status: u8) {
        match side.server.own_query_outcome(status) {
            Outcome::More => {}
            Outcome::Broken(what) => self.protocol_broken(side, &what),
            Outcome::FailedInTransaction(failure) => {
                self.failed_in_transaction(&mut side.link(), &failure);
            }
            Outcome::Repeat(work) => side.server.repeat_own_queries(side.server_tag, *work, side.out),
            Outcome::Done(work) => self.work_answered(side, *work),
        }
    }

    fn work_answered(&self, side: &mut ServerSide<'_>, OwnQueries { purpose, failure, cancelled, .. }: OwnQueries) {
        match (purpose, failure) {
            (Purpose::Catalogue(reading, verdict), failure) => {
                self.catalogue_answered(side, *reading, failure, verdict)
            }
            (Purpose::Defaults(question), failure) => self.defaults_answered(side, (*question, failure, cancelled)),
            (Purpose::Listen(channels), failure) => self.hub_listened(side, &channels, failure.as_ref()),
            (Purpose::CleanListener, failure) => self.listener_cleaned(side, failure),
            (Purpose::Retire, failure) => self.hub_retired(side, failure.as_ref()),
            (Purpose::Lookup(lookup), failure) => self.lookup_answered(side, (lookup, failure)),
            (Purpose::Connect, failure) => self.connect_query_ready(side, None, failure),
            (Purpose::Connected(set), failure) => self.connect_query_ready(side, Some(&set), failure),
            (Purpose::Preface(preface), None) => self.preface_succeeded(side, (*preface, cancelled)),
            (Purpose::Preface(_), Some(_)) => unreachable!("its first error is the end of it"),
            (Purpose::Reset { cleaned, statements }, None) => self.reset_answered(side, cleaned, statements),
            (Purpose::Check, None) => side.server.become_ready(side.server_tag, side.out),
            (Purpose::Reset { .. } | Purpose::Check, Some(failure)) => {
                side.server.stage = Stage::Closed;
                let reason = CloseReason::Error(Blame::Server, failure.text());
                side.out.push(Effect::Close { peer: Peer::Server(side.server_tag), reason });
            }
            (Purpose::Learn(extras), failure) => self.settings_learned(&mut side.link(), extras, failure),
            (Purpose::Survey(survey), None) => self.surveyed(&mut side.link(), survey),
            (Purpose::Survey(survey), Some(_)) => self.retry_survey(&mut side.link(), survey),
            (Purpose::Unlisten(channels), None) => self.unlisten_answered(&mut side.link(), &channels),
            (Purpose::Correct(settings), None) => {
                let link = &mut side.link();
                link.server.settings.apply(&settings, &self.parameters);
                self.tell_reported(link);
                self.corrected(link);
            }
            (Purpose::Discard, None) => {
                let link = &mut side.link();
                self.tell_reported(link);
                link.client.phase = Phase::Ready;
                link.wake();
            }
            (Purpose::Discard | Purpose::Unlisten(_) | Purpose::Correct(_), Some(failure)) => {
                fail_holder(&mut side.link(), &failure);
            }
        }
    }

    /// The server has taken the settings of a client that logs in, or refused them.
    fn settings_learned(&self, link: &mut Link<'_>, extras: Pairs, failure: Option<Failure>) {
        match failure {
            None => {
                link.server.settings.replace_extras(extras, &self.parameters);
                self.parameters_learned(link);
            }
            Some(failure) if !self.ask_another_server(link, &extras) => fail_holder(link, &failure),
            Some(_) => {}
        }
    }
}

/// A query of Poolhouse for the holder has failed: the holder's connection ends with the server's error. Part of the
/// query may have been carried out, so the server is cleaned of everything.
fn fail_holder(link: &mut Link<'_>, failure: &Failure) {
    link.fail(&failure.report(), Blame::Client);
    link.server.soil.insert(Soil::ALL);
    link.release(Verdict::Reset);
}
