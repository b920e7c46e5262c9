//! Telling an operator what is there, and closing what he names.

use seam::{Protocol, Refusal};

use super::{Worker, calls::call, clients::ClientConn, lease::Lease, servers::Phase};
use crate::{
    orders::DatabaseName,
    reactor::Reactor,
    snapshot::{ClientFilter, ClientInfo, ServerInfo},
};

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Busy ones and holders by how long they have been in their states.
    pub(super) fn inspect_clients(&self, which: ClientFilter, limit: usize) -> Vec<ClientInfo> {
        let one = |(slot, client): (usize, &ClientConn<P::Client>)| {
            let server = match client.lease {
                Lease::Held { server } | Lease::Shared { server, .. } => Some(server),
                Lease::None | Lease::Waiting { .. } | Lease::Joining { .. } => None,
            };
            let pool = match client.lease {
                Lease::Held { server } | Lease::Shared { server, .. } => Some(self.servers[server as usize].pool.id),
                Lease::Waiting { pool, .. } | Lease::Joining { pool } => Some(pool),
                Lease::None => client.pool,
            };
            let listener = &self.process.listeners[usize::from(client.listener)];
            ClientInfo {
                id: self.client_id(client),
                address: self.client_address(slot),
                listener: listener.name.clone(),
                protocol: listener.protocol,
                database: self.database(slot),
                user: self.user(slot),
                state: client.state.as_str(),
                state_for: self.now - client.since,
                connected_for: self.now - client.born,
                pool,
                server: server.map(|slot| self.server_tag(slot as usize).0),
                pinned: server.and_then(|slot| self.servers[slot as usize].pinned),
                login_user: self.login_user(slot),
                local: self.reactor.local(client.conn).map(|address| address.to_string()).unwrap_or_default(),
                process: self.reactor.peer_process(client.conn),
                tls: self.reactor.tls_of(client.conn).unwrap_or_default(),
                about: call(|| self.shared.protocol.describe_client(&client.session)).unwrap_or_default(),
            }
        };
        if which == ClientFilter::All {
            return self.clients.iter().take(limit).map(one).collect();
        }
        let is_meant = |(_, client): &(usize, &ClientConn<P::Client>)| match client.lease {
            Lease::None => false,
            Lease::Waiting { .. } | Lease::Joining { .. } => which == ClientFilter::Busy,
            Lease::Held { .. } | Lease::Shared { .. } => true,
        };
        let mut all: Vec<_> = self.clients.iter().filter(is_meant).collect();
        all.sort_by_key(|(_, client)| client.since);
        all.into_iter().take(limit).map(one).collect()
    }

    pub(super) fn inspect_servers(&self, limit: usize) -> Vec<ServerInfo> {
        let one = |(slot, server): (usize, &super::servers::ServerConn<P::Server>)| ServerInfo {
            id: self.server_tag(slot).0,
            protocol: server.pool.spec().protocol,
            database: server.pool.spec().database.clone(),
            user: server.pool.spec().user.clone(),
            address: server.address.to_string(),
            state: match server.phase {
                Phase::Starting(_) => "connecting",
                Phase::Cleaning | Phase::Probing => "checking",
                Phase::Live if server.usage.is_in_use() => "in_use",
                Phase::Live => "idle",
            },
            state_for: self.now - server.since,
            age: self.now - server.born,
            backend: self.backend(slot),
            is_stale: server.pool.lock().pool.is_stale(server.id),
            local: self.reactor.local(server.conn).map(|address| address.to_string()).unwrap_or_default(),
            tls: self.reactor.tls_of(server.conn).unwrap_or_default(),
            about: call(|| self.shared.protocol.describe_server(&server.session)).unwrap_or_default(),
            client: server.usage.holder().map(|client| self.client_id(&self.clients[client])),
            pinned: server.pinned,
            worker: self.number,
        };
        self.servers.iter().filter(|(_, server)| !server.pool.spec().hidden).take(limit).map(one).collect()
    }

    /// The id of a client for operators. Unlike a tag it is never used again, so a late order hits no other client.
    fn client_id(&self, client: &super::clients::ClientConn<P::Client>) -> u64 {
        u64::from(client.serial) * self.shared.mailboxes.len() as u64 + u64::from(self.number)
    }

    /// Closes a client on an operator's behalf. False if there is none.
    pub(super) fn kill(&mut self, id: u64) -> bool {
        let found = self.clients.iter().find(|(_, client)| !client.life.is_closing() && self.client_id(client) == id);
        let Some(slot) = found.map(|(slot, _)| slot) else { return false };
        self.refuse(slot, Refusal::Killed);
        true
    }

    /// Closes all clients of a database, or of all, on an operator's behalf.
    pub(super) fn kill_clients_of(&mut self, database: Option<&DatabaseName>) {
        let is_meant = |client: &ClientConn<P::Client>| {
            client.pool.is_some_and(|pool| {
                let spec = self.pools.used(pool).spec();
                !spec.hidden && database.is_none_or(|name| spec.is_called(name))
            })
        };
        let meant: Vec<usize> =
            self.clients.iter().filter(|(_, client)| is_meant(client)).map(|(slot, _)| slot).collect();
        for slot in meant {
            self.refuse(slot, Refusal::DatabaseKilled);
        }
    }
}
