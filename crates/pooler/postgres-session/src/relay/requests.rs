//! A client's message on its way to the server it holds: what must be known of it before it is forwarded, and in which
//! form it is. Only texts and names are looked at; everything else passes by.

use crate::{
    directory::{OnState, PoolMode},
    features::{
        plans,
        prepared::{
            deallocate, named, told,
            unnamed::{self, Inspection},
        },
        rejection::reject,
        sequences,
        settings::{
            bound_names::{note_bound_name, note_bound_names, values},
            reset,
        },
    },
    session::{Arrived, Client, Link, Server, Soil, request::Step},
    sql::{ALL_CHANNELS, Findings, Suspects, harmless, scan::scan, scan_beginning},
    wire::{front, take_text, take_u32},
};

/// Looks at a message before it is entered into the exchange.
#[inline]
pub(crate) fn inspect(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    if link.server.statements.is_about_to_repeat() {
        link.client.awaits_answers = true;
        return Step::Wait;
    }
    if link.client.copies.follow(link.client.mode, message) {
        link.server.lease_mut().may_copy = true;
    }
    if link.server.traces.may_have_any(Suspects::WATCHED_MESSAGES)
        && let Some(step) = reset::follow_amended(link.client, link.server, message)
    {
        return step;
    }
    if link.client.mode == PoolMode::Session {
        return inspect_in_session(link, message);
    }
    link.server.statements.follow_request(message);
    if message.header.kind == front::BIND {
        link.server.statements.forget_bound_last();
    }
    match message.header.kind {
        front::SYNC => {
            link.end_pipeline();
            Step::Forward
        }
        // The server discards it.
        _ if link.server.exchange.is_skipping() => Step::Forward,
        front::QUERY => inspect_query(inspection, link, message),
        front::FUNCTION_CALL => {
            if message.may_wait() {
                return Step::Wait;
            }
            inspect_function_call(link.server, message);
            Step::Forward
        }
        front::BIND if link.server.traces.may_have_any(Suspects::BOUND_NAME) && message.may_wait() => Step::Wait,
        front::DESCRIBE if link.server.statements.has_bound_last() && message.body().first() == Some(&b'P') => {
            if message.may_wait() {
                return Step::Wait;
            }
            if told::describe_portal(link.client, link.server, message) {
                Step::Replaced(message.at)
            } else {
                Step::Forward
            }
        }
        front::BIND | front::DESCRIBE
            if unnamed::is_at_hand(link.client_tag, link.client, link.server) && message.names_no_statement() =>
        {
            if message.header.kind == front::BIND {
                inspection.unbound = None;
                note_bound_names(link.server, message);
                link.server.note_bound(message, link.client.unnamed.deallocates_all());
            }
            Step::Forward
        }
        front::EXECUTE if link.server.statements.has_deallocating() => {
            named::follow_execute(link.client, link.server, message);
            Step::Forward
        }
        front::PARSE | front::BIND | front::DESCRIBE | front::CLOSE => inspect_statement(inspection, link, message),
        _ => Step::Forward,
    }
}

#[inline]
fn inspect_in_session(link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    if matches!(message.header.kind, front::QUERY | front::PARSE | front::FUNCTION_CALL)
        && !link.server.soil.contains(Soil::IRREVERSIBLE)
    {
        if message.may_wait() {
            return Step::Wait;
        }
        watch_session(link.client, link.server, message);
    }
    reset::follow_in_session(link, message)
}

#[inline]
fn inspect_statement(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    match message.statement_name() {
        None if message.may_wait() => Step::Wait,
        None | Some(None) => Step::Forward,
        Some(Some(name)) if name.is_empty() => unnamed::follow(inspection, link, message),
        Some(Some(name)) => named::follow(inspection.postgres, link, message, name),
    }
}

/// Looks at a text of a client in session mode: whether the server can be cleaned after it.
fn watch_session(client: &mut Client, server: &mut Server, message: &Arrived<'_>) {
    if message.header.kind == front::FUNCTION_CALL {
        return watch_call(server, message);
    }
    let mut text = message.body();
    if message.header.kind == front::PARSE && take_text(&mut text).is_none() {
        return;
    }
    if !message.is_whole() {
        return;
    }
    let mut findings = scan(text);
    server.note_reading(&findings);
    if findings.unlistens.iter().any(|channel| **channel == *ALL_CHANNELS) {
        client.habits.listens_alone = false;
    } else if findings.suspects.intersects(Suspects::LISTEN) && !findings.suspects.intersects(Suspects::OPAQUE) {
        client.habits.listens_alone = true;
    }
    let named = server.catalogue.shared().look_for_names(text, &mut findings.calls);
    if findings.suspects.intersects(Suspects::IRREVERSIBLE.union(Suspects::UNKNOWN_NAME))
        || named
        || server.catalogue.shared().any_text_may_be_irreversible()
    {
        server.soil.insert(Soil::IRREVERSIBLE);
    }
}

/// A FunctionCall, which may leave behind what no cleaning takes away.
fn watch_call(server: &mut Server, message: &Arrived<'_>) {
    if take_u32(&mut message.body()).is_none_or(harmless::is_irreversible_oid) {
        server.soil.insert(Soil::IRREVERSIBLE);
    }
}

/// A FunctionCall: the function is known to be harmless by its number, or may do anything.
fn inspect_function_call(server: &mut Server, message: &Arrived<'_>) {
    let mut body = message.body();
    if take_u32(&mut body).is_some_and(harmless::is_harmless_oid) {
        return;
    }
    watch_call(server, message);
    server.suspect(&Findings::of_function_call());
    if !message.is_whole() {
        return server.traces.insert(Suspects::UNKNOWN_NAME);
    }
    // Format codes and arguments are as those of a Bind.
    for value in values(body).into_iter().flatten() {
        note_bound_name(server, value);
    }
}

fn inspect_query(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    if message.may_wait() {
        return Step::Wait;
    }
    let mut amended = None;
    let looks = link.server.policy.on_state != OnState::Allow
        || link.server.statements.ours().is_some()
        || link.client.named.is_some();
    if looks && !link.server.exchange.is_skipping() {
        let text = message.is_whole().then(|| message.body());
        let findings = text.map_or_else(|| scan_beginning(message.body()), scan);
        let mut findings = link.server.judge(findings, text.unwrap_or_default());
        if message.is_whole()
            && let Some(given_up) = deallocate::answerable_deallocate(link.client, link.server, message.body())
        {
            // Though a message has come in part, such as the one that began a COPY which has ended on the client's
            // side.
            if link.server.exchange.is_between_requests() {
                link.client.awaits_answers = true;
                return Step::Wait;
            }
            if !link.client.mid_message && link.server.exchange.is_settled() && link.server.exchange.status() != b'E' {
                inspection.unbound = None;
                return deallocate::settle(link, message, &given_up);
            }
        }
        if let Some(step) = sequences::discard_first(link, &findings, message) {
            return step;
        }
        if let Some(step) = plans::discard_first(link, &findings) {
            return step;
        }
        if let Some(text) = text
            && let Some(step) = inspection.postgres.pin_before(link, (&findings, text), message)
        {
            return step;
        }
        if findings.suspects != Suspects::NONE {
            if link.server.policy.on_state == OnState::Reject && findings.suspects.intersects(Suspects::VISIBLY_LASTING)
            {
                reject(link, front::QUERY);
                return Step::Replaced(message.end());
            }
            if link.server.policy.on_state != OnState::Allow {
                amended = reset::amend_query(link, message, &mut findings);
            }
            if matches!(amended, Some(Step::Wait)) {
                return Step::Wait;
            }
            link.server.suspect(&findings);
        }
    }
    if let Some(step) = unnamed::follow_query(inspection, link, message) {
        return step;
    }
    amended.unwrap_or(Step::Forward)
}
