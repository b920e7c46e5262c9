//! DEALLOCATE of what the server knows by another name, or not at all: it is answered in the server's place.

use protocol::{ClientTag, Outbox, Peer};

use crate::{
    session::{client::Client, server::Server},
    sql::{
        deallocate::{Deallocate, deallocates},
        suspects::Suspects,
    },
    wire::message::{back, write, write_ready, write_text},
};

/// What a text deallocates that the server knows by another name, or not at all.
pub(crate) fn gives_up(client: &Client, server: &Server, text: &[u8]) -> Option<Deallocate> {
    let named = client.named.as_ref()?;
    let may = text.first().is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b'd' | b'D' | b'-' | b'/'));
    let given_up = if may { deallocates(text)? } else { return None };
    let ours = match &given_up {
        Deallocate::One(name) => named.may_have(name),
        // Those prepared in SQL are the server's to forget.
        Deallocate::All => client.pin.is_none() && !server.suspects.any(Suspects::PREPARE),
    };
    ours.then_some(given_up)
}

/// Answers such a text in the place of the server.
pub(crate) fn answer(me: ClientTag, client: &mut Client, server: &Server, given_up: &Deallocate, out: &mut Outbox) {
    let named = client.named.as_mut().expect("it has statements");
    let word = match given_up {
        Deallocate::One(name) => {
            named.remove(name);
            "DEALLOCATE"
        }
        Deallocate::All => {
            named.clear();
            "DEALLOCATE ALL"
        }
    };
    out.insert(Peer::Client(me), |to| {
        write(to, back::COMMAND_COMPLETE, |to| write_text(to, word));
        write_ready(to, server.exchange.status());
    });
}
