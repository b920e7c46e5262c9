//! A client gets the server that it has asked for, for one purpose or another.

use seam::{ClientTag, Outbox, Peer, ServerTag, Verdict};

use super::{
    Client,
    lease::{Lease, Purpose},
};
use crate::{Redis, Server, server::ReplyKind};

impl Redis {
    pub(crate) fn on_granted(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
        let (lease, purpose) = client.lease.take_request().granted(tag);
        if matches!(lease, Lease::Held(_)) {
            server.lend(me);
        }
        client.lease = lease;
        match purpose {
            Purpose::Command { .. } => return self.patience.end(client.id),
            Purpose::Subscriptions => return self.found(me, client, tag, server, out),
            Purpose::Unblock { id, with_error } => {
                // The clients' answers say what is sent.
                server.expect(Some((me, client.id)), ReplyKind::Unblock);
                client.due += 1;
                return client.survey_for_unblock(me, &id, with_error, out);
            }
            Purpose::Select(database) if server.outside().is_some() => {
                client.lease.wait_for_database(database);
                return server.enter(tag, (me, client.id), out);
            }
            Purpose::Select(database) => {
                client.database = database;
                self.count_anew(me, client, out);
                out.insert(Peer::Client(me), |to| to.extend_from_slice(b"+OK\r\n"));
            }
            Purpose::Hello(version, name) => {
                client.version = version;
                self.count_anew(me, client, out);
                if let Some(name) = name {
                    client.set_name(name);
                }
                out.insert(Peer::Client(me), |to| server.hello().tell(version, client.id, to));
            }
        }
        client.part(me, tag, server, Verdict::Clean, out);
    }
}
