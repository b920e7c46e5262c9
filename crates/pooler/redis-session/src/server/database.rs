//! A server whose logical database could not be selected at the login, because Redis was executing a script: meanwhile
//! SELECT fails. The first command for the server waits until SELECT was tried again. If it fails again, the command is
//! answered with its error, as Redis itself would answer.

use seam::{Outbox, Peer, ServerTag};

use super::{Recipient, ReplyKind, Server};
use crate::resp;

impl Server {
    /// Redis's error to SELECT; `None` if the server is in its database.
    pub(crate) fn select_error(&self) -> Option<&str> {
        self.hello.unselected.as_ref().map(|unselected| &*unselected.error)
    }

    pub(crate) fn is_selecting(&self) -> bool {
        !self.selecting_for.is_empty()
    }

    /// A client has a command for the server, which is not in its database: SELECT is tried again.
    pub(crate) fn select_again(&mut self, me: ServerTag, recipient: Recipient, out: &mut Outbox) {
        let unselected = self.hello.unselected.as_ref().expect("the database is not selected");
        if self.selecting_for.is_empty() {
            let database = unselected.database.to_string();
            out.insert(Peer::Server(me), |to| resp::command(to, &[b"SELECT", database.as_bytes()]));
            self.expect(None, ReplyKind::Select);
        }
        if !self.selecting_for.contains(&recipient) {
            self.selecting_for.push(recipient);
        }
    }

    /// SELECT was answered. Returns the clients that wait for it.
    pub(crate) fn on_select_reply(&mut self, succeeded: bool) -> Vec<Recipient> {
        if succeeded {
            self.hello.unselected = None;
        }
        std::mem::take(&mut self.selecting_for)
    }
}
