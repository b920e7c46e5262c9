//! The ids of cursors in replies: clients know some cursors by other ids than their hosts.

use crate::{MongoDb, client::Client, cursors::Place, request::Kind};

impl MongoDb {
    /// A reply has the id of a cursor at this host: what the client is to be told in its place.
    pub(crate) fn name_cursor(&self, client: &mut Client, host: usize, id: i64) -> i64 {
        let told = self.told_of_cursor(client, host, id);
        if let Some(resources) = &mut client.resources {
            match client.destination.cursor() {
                Some(named) if told == 0 => resources.cursor_closed(named.told),
                _ if told == 0 => {}
                _ => {
                    let user = client.access.user();
                    resources.cursor_opened(told, host, id, |told| self.cursors.knows(user, told));
                }
            }
        }
        told
    }

    fn told_of_cursor(&self, client: &Client, host: usize, id: i64) -> i64 {
        let user = client.access.user();
        match client.destination.cursor() {
            Some(named) if id == 0 => {
                self.cursors.closed(user, named.told);
                0
            }
            Some(named) if id == named.own => {
                // From now on its host is known, if it was not.
                self.cursors.keep(user, named.told, Place { host, id, waits: client.request.awaits_data() });
                named.told
            }
            _ if id != 0 => {
                let waits = client.request.kind() == Kind::OpensStream;
                self.cursors.opened(user, Place { host, id, waits })
            }
            _ => 0,
        }
    }

    /// The cursor that a client reads on with is not at its host any more.
    pub(crate) fn lose_cursor(&self, client: &mut Client) {
        if let Some(named) = client.destination.cursor() {
            self.cursors.closed(client.access.user(), named.told);
            if let Some(resources) = &mut client.resources {
                resources.cursor_closed(named.told);
            }
        }
    }
}
