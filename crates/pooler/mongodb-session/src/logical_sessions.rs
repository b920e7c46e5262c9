//! Commands about sessions, which every host may know. `endSessions` is answered at once, and cleanup tasks tell the
//! hosts. `killSessions` and similar commands are broadcasts: they go to one host after the other, and the client gets
//! the first error.

use std::sync::Arc;

use seam::Outbox;

use crate::{
    MongoDb,
    bson::{Document, Malformed, Value},
    cleanup_tasks::{CleanupTask, SessionEnd},
    client::{Client, State},
    command::{Command, SessionId},
    destination::Destination,
    errors::{Code, Failure},
};

/// Maximum number of sessions in a command; drivers send no more at once.
const MAX_SESSIONS: usize = 10_000;

/// Whether a command goes to all hosts, one after the other.
pub fn is_broadcast(name: &str) -> bool {
    matches!(name, "killSessions" | "killAllSessions" | "killAllSessionsByPattern")
}

impl MongoDb {
    /// The hosts that are up and have served this user, a writable one first.
    pub(crate) fn used_hosts(&self, user: &str) -> Vec<usize> {
        let mut hosts = self.topology().reachable_hosts();
        hosts.retain(|host| self.directory.route(user, *host).is_ok_and(|pool| self.cleanup_tasks.is_used(pool)));
        hosts
    }

    /// Answers `endSessions`. False for any other command.
    pub(crate) fn end_sessions(
        &self,
        client: &Client,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Result<bool, Failure> {
        if command.name != "endSessions" {
            return Ok(false);
        }
        let ended = sessions(command.subject)?;
        self.end_transactions(client.access.user(), &ended);
        let tasks = CleanupTask::end(SessionEnd::Ended, &ended);
        if !tasks.is_empty() {
            for host in self.used_hosts(client.access.user()) {
                self.add_cleanup_tasks(client.access.user(), host, tasks.iter().cloned(), out);
            }
        }
        client.answer(out, |answer| _ = answer.double("ok", 1.0));
        Ok(true)
    }

    fn end_transactions(&self, user: &Arc<str>, sessions: &[SessionId]) {
        for session in sessions {
            self.transactions.end_with_session(&(Arc::clone(user), *session));
        }
    }

    /// Begins a broadcast to all hosts that have served the client's user. `killSessions` ends its transactions in the
    /// table.
    pub(crate) fn begin_broadcast(&self, client: &Client, command: &Command<'_>) -> Destination {
        let user = client.access.user();
        if command.name == "killSessions" {
            self.end_transactions(user, &sessions(command.subject).unwrap_or_default());
        }
        Destination::all(self.used_hosts(user))
    }

    /// Refuses a command that would kill other users' sessions.
    pub(crate) fn check_may_kill(&self, command: &Command<'_>) -> Result<(), Failure> {
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

    /// A host has answered a broadcast, with an error or without. Returns whether another host is asked now.
    pub(crate) fn advance_broadcast(&self, client: &mut Client, error: Option<Vec<u8>>, out: &mut Outbox) -> bool {
        client.destination.note_error(error);
        let asks = client.destination.is_broadcast() && client.destination.has_next_host();
        if asks {
            self.ask_next_host(client, out);
        }
        asks
    }

    /// The same where a host has not replied. False for a request that is no broadcast.
    pub(crate) fn advance_broadcast_after_failure(
        &self,
        client: &mut Client,
        failure: &Failure,
        out: &mut Outbox,
    ) -> bool {
        if !client.destination.is_broadcast() {
            return false;
        }
        let mut reply = Vec::new();
        failure.append(&mut reply, client.request.answers(), None);
        self.advance_broadcast(client, Some(reply), out)
    }

    /// The client of a broadcast is gone: cleanup tasks kill the sessions at the hosts that remain.
    pub(crate) fn kill_at_other_hosts(&self, client: &Client, out: &mut Outbox) {
        if !client.destination.is_broadcast() {
            return;
        }
        let Some(body) = client.held.bytes().get(client.request.body_at()..) else { return };
        let first = Document::split(body).ok().and_then(|(body, _)| body.elements().next()?.ok());
        let Some(first) = first.filter(|first| first.name == "killSessions") else { return };
        let Ok(named) = first.value() else { return };
        // A cleanup task can only name sessions of its own login.
        if !named.array().is_some_and(is_by_id) {
            return;
        }
        let Ok(killed) = sessions(named) else { return };
        let tasks = CleanupTask::end(SessionEnd::Killed, &killed);
        let waits = if let State::WaitingForServer { host, .. } = client.state { Some(host as usize) } else { None };
        for host in client.destination.next_hosts().iter().copied().chain(waits).filter(|_| !tasks.is_empty()) {
            self.add_cleanup_tasks(client.access.user(), host, tasks.iter().cloned(), out);
        }
    }
}

/// Whether all sessions of a command are named by their id alone.
fn is_by_id(named: Document<'_>) -> bool {
    named.elements().all(|element| {
        let session = element.and_then(|element| element.value()).ok().and_then(Value::document);
        session.is_some_and(|session| session.elements().take(2).count() == 1)
    })
}

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
