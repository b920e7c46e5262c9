//! Monitors: server connections that only check what their hosts are.

use std::time::Duration;

use seam::{Outbox, Peer, ServerTag};

use crate::{
    MongoDb, Server,
    bson::Document,
    server::Role,
    server_description::ServerDescription,
    topology::{CheckRequest, HelloReceived},
    wire,
};

/// A monitor whose host does not reply in this time is replaced; drivers wait as long (`connectTimeoutMS`).
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

impl MongoDb {
    pub(crate) fn on_monitor_reply(
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
        match ServerDescription::read(answer) {
            Err(error) => Server::fail(me, error.0, out),
            Ok(_) if again => self.check_host(me, server, key, CheckRequest::Scheduled, out),
            Ok(description) => {
                self.learn(host, description, HelloReceived { at: now, round_trip: Some(now.saturating_sub(at)) }, out)
            }
        }
    }

    pub(crate) fn check_host(&self, me: ServerTag, server: &mut Server, key: u64, ask: CheckRequest, out: &mut Outbox) {
        let (host, id) = (server.host(), server.next_id());
        let Role::Monitor(monitor) = &mut server.role else { return };
        if monitor.key() != key {
            return;
        }
        if !self.topology().is_configured(host) {
            return Server::fail(me, "its host is no longer configured", out);
        }
        let now = self.topology().now();
        match (monitor.asked_at(), ask) {
            (Some(at), _) if now >= at + REPLY_TIMEOUT => return Server::fail(me, "it does not answer", out),
            (Some(_), CheckRequest::Scheduled) | (None, CheckRequest::Repeat) => return,
            (Some(_), CheckRequest::Immediate | CheckRequest::Repeat) => return monitor.ask_again(),
            (None, CheckRequest::Scheduled | CheckRequest::Immediate) => monitor.ask(id, now),
        }
        server.set_id_used(id);
        out.insert(Peer::Server(me), |to| {
            wire::old_request(to, id, |body| {
                body.int32("isMaster", 1);
            });
        });
    }
}
