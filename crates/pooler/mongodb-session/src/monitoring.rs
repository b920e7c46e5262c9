//! The connections to hosts over which Poolhouse asks what the hosts are, and nothing else.

use std::time::Duration;

use seam::{Outbox, Peer, ServerTag};

use crate::{
    MongoDb, Server,
    bson::Document,
    facts::Facts,
    server::Role,
    topology::{Ask, Heard},
    wire,
};

/// A host that does not answer for so long gets another connection; drivers wait as long (`connectTimeoutMS`).
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

impl MongoDb {
    /// A host has answered what it is.
    pub(crate) fn hear_monitor(
        &self,
        me: ServerTag,
        server: &mut Server,
        (answer, now): (Document<'_>, Duration),
        out: &mut Outbox,
    ) {
        let host = server.host();
        let Role::Monitor(monitor) = &mut server.role else { unreachable!("a monitor has asked") };
        let (key, question) = (monitor.key(), monitor.take_question());
        let (at, again) = question.expect("it has asked");
        match Facts::read(answer) {
            Err(error) => return Server::fail(me, error.0, out),
            Ok(_) if again => self.beat(me, server, key, Ask::Beat, out),
            Ok(facts) => self.learn(host, facts, Heard { at: now, took: Some(now.saturating_sub(at)) }, out),
        }
    }

    /// A monitor is to ask what its host is.
    pub(crate) fn beat(&self, me: ServerTag, server: &mut Server, key: u64, ask: Ask, out: &mut Outbox) {
        let (host, id) = (server.host(), server.next_id());
        let Role::Monitor(monitor) = &mut server.role else { return };
        if monitor.key() != key {
            return;
        }
        if !self.topology().is_present(host) {
            return Server::fail(me, "its host is no longer configured", out);
        }
        let now = self.topology().now;
        match (monitor.asked_at(), ask) {
            (Some(at), _) if now >= at + REPLY_TIMEOUT => return Server::fail(me, "it does not answer", out),
            (Some(_), Ask::Beat) | (None, Ask::Doubt) => return,
            (Some(_), Ask::Urgent | Ask::Doubt) => return monitor.ask_again(),
            (None, Ask::Beat | Ask::Urgent) => monitor.ask(id, now),
        }
        server.set_id_used(id);
        out.insert(Peer::Server(me), |to| {
            wire::old_request(to, id, |body| {
                body.int32("isMaster", 1);
            });
        });
    }
}
