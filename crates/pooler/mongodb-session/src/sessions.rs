//! What drivers say of their sessions: a session, its transaction and its cursors may be known to every host that was
//! used. `endSessions` is answered at once, as drivers do not wait for more, and the hosts hear of it. `killSessions`
//! and its kin go to one host after the other, and the client is told what went wrong at any of them.

use std::sync::Arc;

use seam::{ClientTag, Outbox};

use crate::{
    MongoDb,
    bson::{Document, Malformed, Value},
    chores::{Chore, Ending},
    client::{Client, State},
    command::{Command, SessionId},
    destination::Destination,
    errors::{Code, Failure},
};

/// Sessions that one command may be about; drivers tell of no more at once.
const MAX_SESSIONS: usize = 10_000;

/// Whether a command goes to one host after the other.
pub fn is_broadcast(name: &str) -> bool {
    matches!(name, "killSessions" | "killAllSessions" | "killAllSessionsByPattern")
}

impl MongoDb {
    /// The hosts that a user's requests may have gone to, as far as they are there, one that takes writes first.
    pub(crate) fn used_hosts(&self, user: &str) -> Vec<usize> {
        let mut hosts = self.topology().all();
        hosts.retain(|host| self.directory.route(user, *host).is_ok_and(|pool| self.chores.is_used(pool)));
        hosts
    }

    /// Takes `endSessions`; false if it is another command.
    pub(crate) fn end_sessions(
        &self,
        me: ClientTag,
        client: &Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<bool, Failure> {
        if command.name != "endSessions" {
            return Ok(false);
        }
        let malformed = |error: Malformed| Failure::new(Code::FailedToParse, format!("Poolhouse: {error}"));
        let ended = sessions(command.subject).map_err(malformed)?;
        self.note_over(client.access.user(), &ended);
        let chores = Chore::end(Ending::Unused, &ended);
        if !chores.is_empty() {
            for host in self.used_hosts(client.access.user()) {
                self.add_chores(client.access.user(), host, chores.iter().cloned(), out);
            }
        }
        client.answer(me, out, |answer| _ = answer.double("ok", 1.0));
        Ok(true)
    }

    /// These sessions are over, and so are their transactions.
    fn note_over(&self, user: &Arc<str>, sessions: &[SessionId]) {
        for session in sessions {
            self.transactions.is_over(&(Arc::clone(user), *session));
        }
    }

    /// A command goes to all hosts that were used.
    pub(crate) fn all_hosts(&self, client: &Client, command: &Command<'_>) -> Destination {
        let user = client.access.user();
        if command.name == "killSessions" {
            self.note_over(user, &sessions(command.subject).unwrap_or_default());
        }
        Destination::all(self.used_hosts(user))
    }

    /// Why this client may not end sessions of others, if the command would.
    pub(crate) fn may_kill(&self, command: &Command<'_>) -> Result<(), Failure> {
        let all = match (command.name, command.subject) {
            ("killAllSessions" | "killAllSessionsByPattern", _) => true,
            ("killSessions", Value::Array(named)) => named.elements().next().is_none(),
            _ => false,
        };
        if !all || !self.directory.shares_login() {
            return Ok(());
        }
        let name = command.name;
        let text = match name {
            "killSessions" => {
                "Poolhouse: killSessions without a session would end those of other users, too".to_owned()
            }
            _ => format!("Poolhouse: {name} would end the sessions of others, too"),
        };
        let text = format!("{text}: several users have one login at MongoDB here. Name sessions with killSessions");
        Err(Failure::new(Code::Unauthorized, text))
    }

    /// A host has answered a command that goes to all of them, with this error or with none, and is asked no more. True
    /// if another host is asked; otherwise it was the last.
    pub(crate) fn note_broadcast(
        &self,
        me: ClientTag,
        client: &mut Client,
        error: Option<Vec<u8>>,
        out: &mut Outbox,
    ) -> bool {
        client.destination.note_error(error);
        let asks = client.destination.is_broadcast() && client.destination.has_next_host();
        if asks {
            self.ask_next_host(me, client, out);
        }
        asks
    }

    /// The same, where there was no answer. False, too, if the command does not go to all hosts.
    pub(crate) fn note_broadcast_failure(
        &self,
        me: ClientTag,
        client: &mut Client,
        failure: &Failure,
        out: &mut Outbox,
    ) -> bool {
        if !client.destination.is_broadcast() {
            return false;
        }
        let mut told = Vec::new();
        failure.append(&mut told, client.request.answers(), None);
        self.note_broadcast(me, client, Some(told), out)
    }

    /// A client waits no longer for hosts to kill sessions: those that have not heard of it hear of it from whichever
    /// server is free.
    pub(crate) fn kill_at_the_rest(&self, client: &Client, out: &mut Outbox) {
        if !client.destination.is_broadcast() {
            return;
        }
        let Some(body) = client.held.bytes().get(client.request.body_at()..) else { return };
        let first = Document::split(body).ok().and_then(|(body, _)| body.elements().next()?.ok());
        let Some(first) = first.filter(|first| first.name == "killSessions") else { return };
        let Ok(named) = first.value() else { return };
        // A chore names sessions of its own login, and knows no other user's.
        if !named.array().is_some_and(is_by_id) {
            return;
        }
        let Ok(killed) = sessions(named) else { return };
        let chores = Chore::end(Ending::Killed, &killed);
        let waits = if let State::Queued { host, .. } = client.state { Some(host as usize) } else { None };
        for host in client.destination.next_hosts().iter().copied().chain(waits).filter(|_| !chores.is_empty()) {
            self.add_chores(client.access.user(), host, chores.iter().cloned(), out);
        }
    }
}

/// Whether all sessions of a command are named by nothing but their ids.
fn is_by_id(named: Document<'_>) -> bool {
    named.elements().all(|element| {
        let session = element.and_then(|element| element.value()).ok().and_then(Value::document);
        session.is_some_and(|session| session.elements().take(2).count() == 1)
    })
}

/// The sessions that a command names.
fn sessions(named: Value<'_>) -> Result<Vec<SessionId>, Malformed> {
    const WRONG: Malformed = Malformed("sessions are named by documents with an id of 16 bytes");
    let mut found = Vec::new();
    for element in named.array().ok_or(WRONG)?.elements() {
        if found.len() == MAX_SESSIONS {
            return Err(Malformed("a command about too many sessions"));
        }
        let session: Document<'_> = element?.value()?.document().ok_or(WRONG)?;
        let Some(Value::Binary(_, id)) = session.get_nested("id")? else { return Err(WRONG) };
        found.push(id.try_into().map_err(|_| WRONG)?);
    }
    Ok(found)
}
