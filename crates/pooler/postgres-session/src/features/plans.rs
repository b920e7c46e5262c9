//! Plans of functions, which keep the settings of the client that called a function first. PL/pgSQL reads the constants
//! in a function's statements when it plans these, by the settings of that moment (`'01/02/2020'` by DateStyle), and
//! keeps the plans to the session's end. PostgreSQL itself makes them anew where the search_path or the role is another
//! one, and nowhere else. It knows no SQL but one statement.

use crate::{
    directory::OnState,
    session::{Link, Phase, Pin, Purpose, request::Step},
    sql::{Findings, Suspects},
};

/// The SQL that makes a server plan anew.
pub(crate) const DISCARD: &[u8] = b"DISCARD PLANS";

/// A text with these findings is about to be forwarded. If it makes the client's first temporary object, returns what
/// to do first: PostgreSQL makes plans anew for the first temporary object of a session, which may hide what they use,
/// and not for later ones.
pub(crate) fn discard_first(link: &mut Link<'_>, findings: &Findings) -> Option<Step> {
    let first = link.server.needs_new_plans_for(findings)
        && !link.server.traces.may_have_any(Suspects::TEMPORARY)
        && link.client.pin != Some(Pin::Temporary);
    let can = matches!(link.server.policy.on_state, OnState::Replay | OnState::Pin);
    // Behind other requests without an answer there is no place for it.
    let now = link.server.exchange.is_settled() && link.server.exchange.status() != b'E' && link.server.work.is_none();
    if !(first && can && now) {
        return None;
    }
    link.server.traces.insert(Suspects::TEMPORARY);
    link.client.phase = Phase::ServerAtWork;
    link.server.begin_queries(link.server_tag, Purpose::Discard, &[DISCARD], link.out);
    Some(Step::Later)
}
