//! How a request of a client's ended, where that means more than being passed on: errors, and completions that tell what
//! the server has forgotten, or that the client is to be told otherwise.

use protocol::{Effect, Peer};

use crate::{
    Postgres,
    amend::Tag,
    error::{Failure, code},
    exchange::Note,
    message::{HEADER, back, write},
    named,
    retold::Told,
    scan::Suspects,
    server::{Relay, Server, Step},
};

impl Postgres {
    /// A CommandComplete whose tag may be of interest.
    pub(crate) fn done(&self, relay: &mut Relay<'_, '_>, server: &mut Server, end: usize) -> Step {
        let note = server.exchange.answered(back::COMMAND_COMPLETE);
        let tag = relay.bytes.get(relay.at + HEADER..end).unwrap_or_default();
        let told = match (note, &mut server.retold) {
            (Some(Note::Retold(tag)), _) => Told::As(tag),
            (_, Some(retold)) => retold.tell(tag),
            _ => Told::Same,
        };
        match told {
            Told::Same => {}
            Told::Nothing => return Step::Drop,
            Told::As(_) if tag.is_empty() => {
                return Step::Broken("a CommandComplete that is too long".to_owned());
            }
            Told::As(told) => {
                relay.flush(server, relay.at);
                relay.run = end;
                let told: &[u8] = if told == Tag::Reset { b"RESET\0" } else { b"SET\0" };
                let holder = server.holder.expect("a client is served");
                relay.out.insert(Peer::Client(holder), |to| {
                    write(to, back::COMMAND_COMPLETE, |to| to.extend_from_slice(told));
                });
                return Step::Handled;
            }
        }
        let forgets = server.suspects.any(Suspects::FORGET);
        match tag {
            b"DISCARD ALL\0" if forgets => self.forgotten(relay, server, true),
            b"DEALLOCATE ALL\0" if forgets => self.forgotten(relay, server, false),
            // Of a statement that is not known by its name: it may have been one of ours.
            b"DEALLOCATE\0" | b"DO\0" if forgets => {
                server.prepared.iter_mut().for_each(|prepared| prepared.doubt_all());
            }
            b"ROLLBACK\0" => server.unlistens.clear(),
            _ => {}
        }
        match note {
            None => Step::Forward,
            Some(_) => Step::Broken("a Parse or Close answered by a CommandComplete".to_owned()),
        }
    }

    /// The server has forgotten all prepared statements; with `all`, everything else, too.
    fn forgotten(&self, relay: &mut Relay<'_, '_>, server: &mut Server, all: bool) {
        if let Some(prepared) = &mut server.prepared {
            prepared.clear();
        }
        server.discarded |= all;
        let tag = server.holder.expect("a client is served");
        let client = relay.client(tag);
        if let Some(named) = &mut client.named {
            named.clear();
        }
        if all && client.listening.is_some() {
            let client = relay.clients.get(tag).expect("the holder of a server has a session");
            self.unlisten_all(client, relay.out);
        }
    }

    /// An ErrorResponse for the holder.
    pub(crate) fn error(&self, relay: &mut Relay<'_, '_>, server: &mut Server, whole: bool, end: usize) -> Step {
        server.unlistens.clear();
        let body = whole.then(|| &relay.bytes[relay.at + HEADER..end]);
        let repeated = server.is_to_repeat(body.unwrap_or_default());
        server.exchange.answered(back::ERROR_RESPONSE);
        if let Some(body) = body {
            server.note_fatal(body);
            if server.for_writes && Failure::read(body).code == code::READ_ONLY_SQL_TRANSACTION {
                relay.out.push(Effect::Outdated { server: relay.me });
            }
        }
        let tag = server.holder.expect("a client is served");
        let client = relay.clients.get(tag).expect("the holder of a server has a session");
        let mut renamed = named::failed(body, client, server);
        if repeated {
            return Step::Drop;
        }
        if let Some(retold) = &server.retold {
            renamed = renamed.as_deref().or(body).and_then(|body| retold.relocate(body)).or(renamed);
        }
        let Some(renamed) = renamed else { return Step::Forward };
        relay.flush(server, relay.at);
        relay.run = end;
        relay.out.insert(Peer::Client(tag), |to| {
            write(to, back::ERROR_RESPONSE, |to| to.extend_from_slice(&renamed));
        });
        Step::Handled
    }
}
