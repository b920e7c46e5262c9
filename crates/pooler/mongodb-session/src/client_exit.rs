//! How clients end: the driver refuses one, or its connection is gone.

use std::collections::BTreeMap;

use seam::{CloseReason, Effect, Outbox, Refusal, ServerTag, Standing, Verdict};

use crate::{
    MongoDb, Servers,
    access::RefusalTime,
    cleanup_tasks::{CleanupTask, Namespace},
    client::{Client, State},
    command::Transaction,
    connection_resources::OwnedCursor,
    cursors::CursorLocation,
    errors::Failure,
    request::StartedTransaction,
    waiting::no_host,
};

impl MongoDb {
    pub(crate) fn on_refused(&self, client: &mut Client, why: &Refusal, out: &mut Outbox) {
        let failure = match (client.state, why) {
            (State::WaitingForHost { .. }, Refusal::LoginTimeout) => no_host(client),
            _ => Failure::refused(why),
        };
        if client.state == State::Idle && is_refused_later(client, why) {
            // A throttled client gets no login at all.
            let is_throttled = matches!(why, Refusal::Throttled { .. });
            let time = if is_throttled { RefusalTime::AfterHello } else { RefusalTime::AfterLogin };
            return client.access.refuse(time, failure);
        }
        if let (State::WaitingForHost { .. }, Refusal::QueryTimeout) = (client.state, why) {
            self.topology().clients.stop_waiting(client.key);
            return self.fail_waiting(client, &failure, out);
        }
        // Drivers retry these on another connection, as when MongoDB itself shuts down: whether the request was carried
        // out is unknown.
        let sent_again = matches!(
            why,
            Refusal::ShuttingDown | Refusal::Drained { at_login: false } | Refusal::Disabled { at_login: false }
        );
        let waits = matches!(
            client.state,
            State::WaitingForHost { .. } | State::WaitingForServer { .. } | State::AwaitingReply(_)
        );
        // The reply to the login, or to the first request where no login is needed, has not been sent.
        let at_login = matches!(why, Refusal::Drained { at_login: true } | Refusal::Disabled { at_login: true })
            && matches!(client.state, State::Idle | State::DiscardingRest { .. });
        let is_told = !client.request.is_reply_begun() && !sent_again && (waits || at_login);
        if is_told {
            client.send_failure(&failure, out);
        }
        match (client.state, why) {
            (State::AwaitingReply(server), Refusal::QueryTimeout) if is_told => self.end_request(client, server, out),
            _ => client.close(CloseReason::Done, out),
        }
    }

    /// Ends a request that took too long, but keeps the connection: a driver that loses one closes all its others.
    fn end_request(&self, client: &mut Client, server: ServerTag, out: &mut Outbox) {
        if let Some(resources) = &mut client.resources {
            resources.request_timed_out(client.request.transaction(), client.request.started_transaction());
        }
        out.push(Effect::Pinned { server, reason: None });
        out.push(Effect::Release { server, verdict: Verdict::Discard });
        self.kill_at_other_hosts(client, out);
        self.forget_request(client);
        client.state = State::Idle;
        out.push(Effect::Standing { client: client.tag, standing: Standing::Idle });
        out.push(Effect::Wake { client: client.tag });
    }

    pub(crate) fn on_client_gone(&self, client: &mut Client, servers: &mut Servers<'_>, out: &mut Outbox) {
        self.kill_at_other_hosts(client, out);
        self.forget_request(client);
        self.end_resources(client, out);
        client.closing = true;
        if client.access.is_counted() {
            self.topology().clients.leave(client.key);
        }
        match client.state {
            State::WaitingForHost { .. } => self.topology().clients.stop_waiting(client.key),
            // The host aborts the request when it notices that the connection is closed.
            State::Sending { server, .. } => out.push(Effect::Release { server, verdict: Verdict::Discard }),
            State::AwaitingReply(tag) => {
                let verdict = servers.get(tag).expect("a held server lives").abandon();
                out.push(Effect::Release { server: tag, verdict });
            }
            State::Idle | State::WaitingForServer { .. } | State::DiscardingRest { .. } => {}
        }
        client.state = State::Idle;
    }

    /// Closes the cursors and aborts the transaction that end with a client's connection.
    pub(crate) fn end_resources(&self, client: &mut Client, out: &mut Outbox) {
        let Some(resources) = client.resources.take() else { return };
        let ((cursors, transaction), user) = (resources.end(), client.access.user());
        let mut open = BTreeMap::<(usize, Namespace), Vec<i64>>::new();
        for OwnedCursor { client_id, host, host_id, namespace } in cursors {
            // After a cursor was closed, its id may have been given to a cursor at another host.
            let is_same = |location: CursorLocation| (location.host, location.id) == (host, host_id);
            if self.cursors.find(user, client_id).is_some_and(is_same) {
                self.cursors.remove(user, client_id);
                open.entry((host, namespace)).or_default().push(host_id);
            }
        }
        for ((host, namespace), cursors) in open {
            self.add_cleanup_tasks(user, host, CleanupTask::kill(&namespace, &cursors), out);
        }
        let is_sent = matches!(client.state, State::Sending { .. } | State::AwaitingReply(_));
        let waits = matches!(client.state, State::WaitingForHost { .. } | State::WaitingForServer { .. });
        let started = client.request.started_transaction().filter(|_| is_sent);
        if let Some(StartedTransaction { id, host }) = started.or(transaction) {
            // No abort while a commit is under way or queued: the driver retries a commit over another connection, and
            // the abort would come between. MongoDB aborts transactions that stay open too long.
            if !((is_sent || waits) && client.request.transaction() == Transaction::Commits) {
                self.add_cleanup_tasks(user, host, [CleanupTask::Abort(id)], out);
            }
        }
    }
}

/// Whether an idle client is told of this refusal only when it sends a command.
fn is_refused_later(client: &Client, why: &Refusal) -> bool {
    match why {
        Refusal::Full { .. } => true,
        Refusal::TooManyClients { .. } | Refusal::Throttled { .. } => !client.access.is_counted(),
        _ => false,
    }
}
