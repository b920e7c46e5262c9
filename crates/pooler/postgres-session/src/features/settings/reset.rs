//! Amended texts on their way: which requests carry one, and what the client is told of their answers, as if the server
//! had got the client's own. How a text is amended is told in `sql::reset`.

use crate::{
    directory::OnState,
    exchange::Note,
    session::{Arrived, Client, Link, Server, copy, request::Step, reset::ResetEffect},
    sql::{
        ALL_PARAMETERS, Findings, Suspects,
        reset::{self, Outcome},
        scan::scan,
    },
    wire::{front, take_text, write_parse, write_query},
};

impl Server {
    /// A Bind of a statement with this text is forwarded.
    pub(crate) fn note_amended_bind(&mut self, mut bind: &[u8], text: &[u8]) {
        if let (Some(tag), Some(portal)) = (reset::tag_of_amended(text), take_text(&mut bind)) {
            self.traces.begin_amended().note_bind(portal, Some(tag));
        }
    }
}

/// Comes before all else: whether a message has to wait, or is about an amended statement.
#[cold]
pub(crate) fn follow_amended(client: &mut Client, server: &mut Server, message: &Arrived<'_>) -> Option<Step> {
    let under_way = server.traces.amended().is_some_and(|requests| requests.has_query());
    let request = !matches!(
        message.header.kind,
        front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL | front::FLUSH | front::TERMINATE
    );
    // An error before one of these must not be taken for its own; and what it forgets cannot be had behind it.
    let alone =
        server.traces.may_have_any(Suspects::RESET.union(Suspects::DEALLOCATE)) || !server.unlistened.is_empty();
    if request && (under_way || alone) && server.exchange.is_between_requests() {
        client.awaits_answers = true;
        return Some(Step::Wait);
    }
    let requests = server.traces.amended()?;
    if server.exchange.is_skipping() || !matches!(message.header.kind, front::BIND | front::EXECUTE) {
        return None;
    }
    let mut body = message.body();
    let Some(portal) = take_text(&mut body) else { return message.may_wait().then_some(Step::Wait) };
    if message.header.kind == front::EXECUTE {
        let tag = requests.tag_of(portal)?;
        server.exchange.note(Note::Amended(tag));
        return Some(Step::Replaced(message.at));
    }
    if !requests.has_named() {
        requests.note_bind(portal, None);
        return None;
    }
    let Some(name) = take_text(&mut body) else { return message.may_wait().then_some(Step::Wait) };
    let known = requests.effect_of(name);
    requests.note_bind(portal, known.amended);
    if known.unclear {
        server.note(&Findings {
            suspects: Suspects::RESET,
            resets: vec![Box::from(*ALL_PARAMETERS)],
            ..Findings::default()
        });
    }
    None
}

/// Amends a Query with these findings, if need be. `None`: it is forwarded as it is.
pub(crate) fn amend_query(link: &mut Link<'_>, message: &Arrived<'_>, findings: &mut Findings) -> Option<Step> {
    if !message.is_whole() || !findings.suspects.intersects(Suspects::RESETS) {
        return None;
    }
    let encoding = link.client.settings().current().reported.get(b"client_encoding");
    let wide = encoding.is_none_or(|encoding| encoding != b"UTF8");
    match reset::amend_query(message.body(), findings.resets.len(), wide, link.client.settings().start()) {
        Outcome::Unclear => None,
        Outcome::Same => {
            findings.settle_resets();
            None
        }
        Outcome::Amended(_) if link.server.exchange.is_between_requests() => {
            link.client.awaits_answers = true;
            Some(Step::Wait)
        }
        Outcome::Amended(_) if !link.server.exchange.is_settled() => None,
        Outcome::Amended(amended) => {
            *findings = scan(&amended.text);
            findings.settle_resets();
            link.write_to_server(|to| write_query(to, &amended.text));
            copy::enter_query(&mut link.server.exchange, Some(&amended.text));
            link.server.traces.begin_amended().begin_query(amended);
            Some(Step::Replaced(message.end()))
        }
    }
}

/// The body of a Parse behind its name, amended if need be. The findings become those of the returned text.
pub(crate) fn amend_parse(client: &Client, body: &[u8], findings: &mut Findings) -> Option<Vec<u8>> {
    if !findings.suspects.intersects(Suspects::RESETS) {
        return None;
    }
    match reset::amend_parse(body, findings.resets.len(), client.settings().start()) {
        Outcome::Unclear => None,
        Outcome::Same => {
            findings.settle_resets();
            None
        }
        Outcome::Amended(body) => {
            *findings = scan(&body);
            findings.settle_resets();
            Some(body)
        }
    }
}

/// Amends the body of a Parse of a named statement behind its name, if need be.
pub(crate) fn amend_named_parse(client: &Client, server: &Server, body: &[u8]) -> Option<Vec<u8>> {
    if server.policy.on_state == OnState::Allow {
        return None;
    }
    amend_parse(client, body, &mut scan(body))
}

/// Looks for resets in a message of a client in session mode.
#[inline]
pub(crate) fn follow_in_session(link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    let kind = message.header.kind;
    if kind == front::QUERY {
        link.server.unnamed.owner = None;
    }
    let own = link.client.settings().start().extras.is_empty();
    if own || !matches!(kind, front::QUERY | front::PARSE) {
        return Step::Forward;
    }
    follow_session_text(link, message)
}

#[cold]
fn follow_session_text(link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    if message.may_wait() {
        return Step::Wait;
    }
    let kind = message.header.kind;
    if kind == front::PARSE && message.body().first() == Some(&0) {
        // A question after this would destroy the unnamed statement.
        link.server.traces.settle_doubted_resets();
    }
    if link.server.exchange.is_skipping() || !message.is_whole() {
        return Step::Forward;
    }
    let mut text = message.body();
    let Some(name) = (if kind == front::PARSE { take_text(&mut text) } else { Some(&b""[..]) }) else {
        return Step::Forward;
    };
    let mut findings = scan(text);
    let mut step = Step::Forward;
    if kind == front::QUERY {
        if let Some(done) = amend_query(link, message, &mut findings) {
            step = done;
        }
    } else {
        let amended = amend_parse(link.client, text, &mut findings);
        let amended_as = amended.as_deref().and_then(reset::tag_of_amended);
        let unclear = amended_as.is_none() && findings.suspects.intersects(Suspects::RESET);
        if amended_as.is_some() || unclear || link.server.traces.amended().is_some() {
            // The unnamed statement is always replaced. A DO has the tag of an amended statement, and a COPY must be
            // known as one.
            let may_be_taken = name.is_empty() || copy::is_copy(text) || findings.suspects.intersects(Suspects::OPAQUE);
            // No error before it can have it skipped.
            let is_replaced = name.is_empty() && link.server.exchange.is_settled();
            link.server.traces.begin_amended().note_parse(
                name,
                ResetEffect { amended: amended_as, unclear },
                may_be_taken,
                is_replaced,
            );
        }
        if let Some(body) = amended {
            link.write_to_server(|to| write_parse(to, name, &body));
            link.server.exchange.enter_extended();
            step = Step::Replaced(message.end());
        }
    }
    if kind == front::QUERY && findings.suspects.intersects(Suspects::RESET) && !matches!(step, Step::Wait) {
        findings.suspects = Suspects::RESET;
        link.server.note(&findings);
    }
    step
}
