//! Cursor ids in replies: the client may know a cursor by another id than its host.

use crate::{MongoDb, client::Client, cursors::CursorLocation, request::RequestKind};

impl MongoDb {
    /// Notes the cursor of a reply, which has this id at this host. Returns the id that the client gets.
    pub(crate) fn note_cursor(&self, client: &mut Client, host: usize, id: i64) -> i64 {
        let client_id = self.register_cursor(client, host, id);
        if let Some(resources) = &mut client.resources {
            match client.destination.cursor() {
                Some(named) if client_id == 0 => resources.cursor_closed(named.client_id),
                _ if client_id == 0 => {}
                _ => {
                    let user = client.access.user();
                    resources.cursor_opened(client_id, host, id, |client_id| self.cursors.contains(user, client_id));
                }
            }
        }
        client_id
    }

    /// Adds, updates or removes the cursor of a reply in the table. Returns the id that the client knows.
    fn register_cursor(&self, client: &Client, host: usize, id: i64) -> i64 {
        let user = client.access.user();
        match client.destination.cursor() {
            Some(named) if id == 0 => {
                self.cursors.remove(user, named.client_id);
                0
            }
            Some(named) if id == named.host_id => {
                // The host was unknown if another Poolhouse has opened the cursor.
                self.cursors.set_location(
                    user,
                    named.client_id,
                    CursorLocation { host, id, awaits_data: client.request.awaits_data() },
                );
                named.client_id
            }
            _ if id != 0 => {
                let waits = client.request.kind() == RequestKind::OpensStream;
                self.cursors.add(user, CursorLocation { host, id, awaits_data: waits })
            }
            _ => 0,
        }
    }

    /// The host does not know the cursor of a `getMore`.
    pub(crate) fn lose_cursor(&self, client: &mut Client) {
        if let Some(named) = client.destination.cursor() {
            self.cursors.remove(client.access.user(), named.client_id);
            if let Some(resources) = &mut client.resources {
                resources.cursor_closed(named.client_id);
            }
        }
    }
}
