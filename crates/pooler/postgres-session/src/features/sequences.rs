//! `currval` and `lastval` tell what `nextval` gave the session before. A client that asks for them gets a server that
//! knows only its own, and keeps that server once it has advanced a sequence. Before its first question Poolhouse
//! cannot know that it will ask: it is then told that there is no such value.

use seam::ClientTag;

use crate::{
    directory::OnState,
    features::rejection::refuse,
    session::{Arrived, Client, ClientId, Link, Phase, Purpose, Server, request::Step},
    sql::{Findings, Suspects},
    wire::front,
};

/// The SQL that makes a server forget the last values of sequences.
pub(crate) const DISCARD: &[u8] = b"DISCARD SEQUENCES;";

/// Precedes a request whose answer might be another client's value.
const UNDEFINED_VALUE: &[u8] = b"DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '55000', \
    MESSAGE = 'lastval is not yet defined in this session', \
    HINT = 'Ask for it in the transaction of its nextval, or use RETURNING.'; END $poolhouse$";

/// The client is granted the server. True if the server has to forget last values first.
#[inline]
pub(crate) fn begin_lease(me: ClientTag, client: &Client, server: &mut Server) -> bool {
    let asker = client.habits.asks_last_values.then_some(ClientId(me, client.secret));
    server.sequences.begin_lease(asker)
}

/// A text with these findings is about to be forwarded. If it is the first that asks for a last value, returns what to
/// do first.
pub(crate) fn discard_first(link: &mut Link<'_>, findings: &Findings, message: &Arrived<'_>) -> Option<Step> {
    let asks = findings.suspects.intersects(Suspects::LAST_VALUE) && link.server.policy.on_state != OnState::Allow;
    // In a transaction that has failed, PostgreSQL answers no question.
    if !asks || link.client.habits.asks_last_values || link.server.exchange.status() == b'E' {
        return None;
    }
    if link.server.traces.may_have_any(Suspects::SEQUENCE) {
        // It asks for what it has just got.
        link.client.habits.asks_last_values = true;
        return None;
    }
    if link.server.exchange.is_settled() {
        link.client.habits.asks_last_values = true;
        link.client.phase = Phase::ServerAtWork;
        link.server.sequences.give_to(ClientId(link.client_tag, link.client.secret));
        link.server.begin_queries(link.server_tag, Purpose::Discard, &[DISCARD], link.out);
        return Some(Step::Later);
    }
    if link.server.exchange.is_between_requests() {
        link.client.awaits_answers = true;
        return Some(Step::Wait);
    }
    refuse(link, message.header.kind, UNDEFINED_VALUE, None);
    (message.header.kind == front::QUERY).then_some(Step::Replaced(message.end()))
}
