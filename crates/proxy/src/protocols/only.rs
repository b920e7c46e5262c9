//! The sessions on the other side of a relay as one protocol sees them: only those of its own kind are there.

use protocol::{ClientTag, ServerTag, Sessions};

use super::{Client, Server};

/// Those of one kind.
pub struct Only<'a, Tag, S>(pub &'a mut dyn Sessions<Tag, S>);

impl Sessions<ServerTag, postgres::Server> for Only<'_, ServerTag, Server> {
    #[inline]
    fn get(&mut self, tag: ServerTag) -> Option<&mut postgres::Server> {
        match self.0.get(tag)? {
            Server::Postgres(server) => Some(server),
            Server::Redis(_) => None,
        }
    }
}

impl Sessions<ServerTag, redis::Server> for Only<'_, ServerTag, Server> {
    #[inline]
    fn get(&mut self, tag: ServerTag) -> Option<&mut redis::Server> {
        match self.0.get(tag)? {
            Server::Redis(server) => Some(server),
            Server::Postgres(_) => None,
        }
    }
}

impl Sessions<ClientTag, postgres::Client> for Only<'_, ClientTag, Client> {
    #[inline]
    fn get(&mut self, tag: ClientTag) -> Option<&mut postgres::Client> {
        match self.0.get(tag)? {
            Client::Postgres(client) => Some(client),
            Client::Redis(_) => None,
        }
    }
}

impl Sessions<ClientTag, redis::Client> for Only<'_, ClientTag, Client> {
    #[inline]
    fn get(&mut self, tag: ClientTag) -> Option<&mut redis::Client> {
        match self.0.get(tag)? {
            Client::Redis(client) => Some(client),
            Client::Postgres(_) => None,
        }
    }
}
