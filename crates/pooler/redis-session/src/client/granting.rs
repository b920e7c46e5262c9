//! A client gets the server that it has asked for, for one purpose or another.

use seam::{ClientTag, LeaseKind, Outbox, Peer, ServerTag, Verdict};

use super::{Client, Lease, Purpose};
use crate::{Redis, Server, command::AboutClients, server::ReplyKind};

impl Redis {
    pub(crate) fn on_granted(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        server: &mut Server,
        out: &mut Outbox,
    ) {
        let Lease::Asked(kind, purpose) = std::mem::replace(&mut client.lease, Lease::None) else {
            unreachable!("a grant that nobody asked for");
        };
        client.lease = match kind {
            LeaseKind::Exclusive | LeaseKind::Lasting | LeaseKind::Unused => {
                server.lend(me);
                Lease::Held(tag)
            }
            LeaseKind::Shared => Lease::Shared(tag),
        };
        match purpose {
            Purpose::Commands => return self.patience.end(client.id),
            Purpose::Subscriptions => return self.found(me, client, tag, server, out),
            Purpose::Unblock(whom) => {
                // What is sent says what the clients answer.
                server.expect(Some((me, client.id)), ReplyKind::Unblock);
                client.due += 1;
                let how: &[u8] = if client.unblocks_with_error { b"ERROR" } else { b"TIMEOUT" };
                return client.ask_all(me, AboutClients::Unblock, &[&whom, how], out);
            }
            Purpose::Select(database) if server.outside().is_some() => {
                client.selects = Some(database);
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
