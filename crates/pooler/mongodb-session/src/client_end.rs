//! How clients end: the driver turns one away, or its connection is gone.

use std::collections::BTreeMap;

use seam::{ClientTag, CloseReason, Effect, Outbox, Refusal, ServerTag, Sessions, Standing, Verdict};

use crate::{
    MongoDb,
    access::RefusalTime,
    chores::{Chore, Collection},
    client::{Client, State},
    command::Transaction,
    connection_resources::OwnedCursor,
    cursors::Place,
    errors::Failure,
    request::StartedTransaction,
    server::Server,
    waits::no_host,
};

impl MongoDb {
    /// The driver turns a client away.
    pub(crate) fn on_refused(&self, me: ClientTag, client: &mut Client, why: &Refusal, out: &mut Outbox) {
        let failure = match (client.state, why) {
            (State::Parked { .. }, Refusal::LoginTimeout) => no_host(client),
            _ => Failure::of_refusal(why),
        };
        if client.state == State::Idle && is_told_later(client, why) {
            // A client that has guessed passwords too often gets no other guess.
            let is_throttled = matches!(why, Refusal::Throttled { .. });
            let time = if is_throttled { RefusalTime::AfterHello } else { RefusalTime::AfterLogin };
            return client.access.refuse(time, failure);
        }
        if let (State::Parked { .. }, Refusal::QueryTimeout) = (client.state, why) {
            self.topology().forget(client.key);
            return self.give_up(me, client, &failure, out);
        }
        // A driver sends what is under way again on another connection, as when the database itself stops: whether it
        // was carried out is not known.
        let sent_again = matches!(why, Refusal::ShuttingDown | Refusal::Drained { at_login: false });
        let waits = matches!(client.state, State::Parked { .. } | State::Queued { .. } | State::Awaiting(_));
        // The answer to its login, or to its first request where no login is needed, is not sent.
        let at_login = matches!(why, Refusal::Drained { at_login: true })
            && matches!(client.state, State::Idle | State::Dropping { .. });
        let is_told = !client.request.is_reply_begun() && !sent_again && (waits || at_login);
        if is_told {
            client.tell_failure(me, &failure, out);
        }
        match (client.state, why) {
            (State::Awaiting(server), Refusal::QueryTimeout) if is_told => self.end_request(me, client, server, out),
            _ => client.close(me, CloseReason::Done, out),
        }
    }

    /// A request has taken too long, and only the request ends: a driver whose connection ends closes all its others.
    fn end_request(&self, me: ClientTag, client: &mut Client, server: ServerTag, out: &mut Outbox) {
        if let Some(resources) = &mut client.resources {
            resources.request_timed_out(client.request.transaction(), client.request.started_transaction());
        }
        out.push(Effect::Pinned { server, reason: None });
        out.push(Effect::Release { server, verdict: Verdict::Discard });
        self.kill_at_the_rest(client, out);
        self.forget_request(client);
        client.state = State::Idle;
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        out.push(Effect::Wake { client: me });
    }

    pub(crate) fn client_left(
        &self,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        self.kill_at_the_rest(client, out);
        self.forget_request(client);
        self.end_resources(client, out);
        client.closing = true;
        if client.access.is_counted() {
            self.topology().leave(client.key);
        }
        match client.state {
            State::Parked { .. } => self.topology().forget(client.key),
            // The server notices that its connection ends, and gives up the request.
            State::Sending { server, .. } => out.push(Effect::Release { server, verdict: Verdict::Discard }),
            State::Awaiting(tag) => {
                let verdict = servers.get(tag).expect("a held server lives").abandon();
                out.push(Effect::Release { server: tag, verdict });
            }
            State::Idle | State::Queued { .. } | State::Dropping { .. } => {}
        }
        client.state = State::Idle;
    }

    /// Closes the cursors and aborts the transaction of a client's connection, which ends.
    pub(crate) fn end_resources(&self, client: &mut Client, out: &mut Outbox) {
        let Some(resources) = client.resources.take() else { return };
        let ((cursors, transaction), user) = (resources.end(), client.access.user());
        let mut open = BTreeMap::<(usize, Collection), Vec<i64>>::new();
        for OwnedCursor { told, host, id, collection } in cursors {
            // The id of a cursor that the client has closed may be that of another user's cursor by now, which is at
            // another host.
            let is_same = |place: Place| (place.host, place.id) == (host, id);
            if self.cursors.find(user, told).is_some_and(is_same) {
                self.cursors.closed(user, told);
                open.entry((host, collection)).or_default().push(id);
            }
        }
        for ((host, collection), cursors) in open {
            self.add_chores(user, host, Chore::kill(&collection, &cursors), out);
        }
        let is_sent = matches!(client.state, State::Sending { .. } | State::Awaiting(_));
        let waits = matches!(client.state, State::Parked { .. } | State::Queued { .. });
        let started = client.request.started_transaction().filter(|_| is_sent);
        if let Some(StartedTransaction { id, host }) = started.or(transaction) {
            // A commit may be under way, or wait here for a server. A driver that has lost its connection sends the
            // commit again over another one, and an abort would come between. MongoDB itself aborts a transaction that
            // stays open for too long.
            if !((is_sent || waits) && client.request.transaction() == Transaction::Commits) {
                self.add_chores(user, host, [Chore::Abort(id)], out);
            }
        }
    }
}

/// Whether an idle client that is turned away for this reason hears of it when it sends a command.
fn is_told_later(client: &Client, why: &Refusal) -> bool {
    match why {
        Refusal::Full { .. } => true,
        Refusal::TooManyClients { .. } | Refusal::Throttled { .. } => !client.access.is_counted(),
        _ => false,
    }
}
