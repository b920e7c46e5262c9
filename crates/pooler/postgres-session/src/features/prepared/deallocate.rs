//! DEALLOCATE of what the server knows by another name, or not at all: it is answered in the server's place.

use crate::{
    exchange::Note,
    features::prepared::unnamed,
    session::{Arrived, Client, Link, Server, request::Step},
    sql::{Deallocate, Suspects, deallocates},
    wire::{IDLE, back, front, message::write, write_ready, write_text},
};

/// The statements that a text deallocates, if Poolhouse can answer it: the server knows them by another name, or not at
/// all.
pub(crate) fn answerable_deallocate(client: &Client, server: &Server, text: &[u8]) -> Option<Deallocate> {
    let named = client.named.as_ref()?;
    let may = text.first().is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b'd' | b'D' | b'-' | b'/'));
    let given_up = if may { deallocates(text)? } else { return None };
    let ours = match &given_up {
        Deallocate::One(name) => named.may_have(name),
        // Those prepared in SQL are the server's to forget.
        Deallocate::All => client.pin.is_none() && !server.traces.may_have_any(Suspects::PREPARE),
    };
    ours.then_some(given_up)
}

/// Answers such a text: at once outside of a transaction. Within one the server closes the unnamed portal, as a query
/// would.
pub(crate) fn settle(link: &mut Link<'_>, message: &Arrived<'_>, given_up: &Deallocate) -> Step {
    let named = link.client.named.as_mut().expect("it has statements");
    match given_up {
        Deallocate::One(name) => named.remove(name),
        Deallocate::All => named.clear(),
    }
    unnamed::invalidate(link.client_tag, link.client, link.server);
    let all = *given_up == Deallocate::All;
    if link.server.exchange.status() == IDLE {
        link.write_to_client(|to| {
            write_complete(to, all);
            write_ready(to, IDLE);
        });
        return Step::Answered;
    }
    link.write_to_server(|to| {
        write(to, front::CLOSE, |to| to.extend_from_slice(b"P\0"));
        write(to, front::SYNC, |_| {});
    });
    link.server.exchange.note(Note::Deallocated { all });
    link.server.exchange.enter_sync();
    Step::Replaced(message.end())
}

pub(crate) fn write_complete(to: &mut Vec<u8>, all: bool) {
    write(to, back::COMMAND_COMPLETE, |to| write_text(to, if all { "DEALLOCATE ALL" } else { "DEALLOCATE" }));
}
