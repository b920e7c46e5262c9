//! Answers to what Poolhouse itself asks of a server: to take over a client's settings, to be cleaned, to show that it
//! lives. They are swallowed, and each is passed on to who has asked.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer, ServerTag, Sessions, Verdict};

use crate::{
    session::{
        client::{Client, Phase},
        own_queries::Purpose,
        server::{Server, Stage},
        shared::Postgres,
        soil::Soil,
    },
    wire::{
        error::{Failure, Report, Severity},
        message::IDLE,
    },
};

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
                server.settings.replace_extras(extras, &self.parameters);
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
                server.settings.apply(&settings, &self.parameters);
                let (tag, client) = holder(server, clients);
                self.bring_up(tag, client, server, out);
                self.corrected(tag, client, server, out);
            }
            (Purpose::Unlisten(channels), None) => {
                let (tag, client) = holder(server, clients);
                self.unlistened(tag, client, me, server, &channels, out);
            }
            (Purpose::Forget, None) => {
                let (tag, client) = holder(server, clients);
                self.bring_up(tag, client, server, out);
                client.phase = Phase::Ready;
                out.push(Effect::Wake { client: tag });
            }
            (Purpose::Defaults(question), failure) => {
                self.defaults_answered(me, server, clients, (*question, failure, work.cancelled), out);
            }
            (Purpose::Listen(channels), failure) => self.listened(me, server, &channels, failure.as_ref(), out),
            (Purpose::CleanListener, failure) => self.listener_cleaned(me, server, failure, out),
            (Purpose::Retire, failure) => self.retired(me, server, failure.as_ref(), out),
            (Purpose::Lookup(lookup), failure) => self.lookup_answered(me, server, clients, (lookup, failure), out),
            (Purpose::Connect, failure) => self.connect_query_ready(me, server, None, failure, out),
            (Purpose::Connected(set), failure) => self.connect_query_ready(me, server, Some(&set), failure, out),
            (Purpose::Check, None) => server.become_ready(me, out),
        }
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
