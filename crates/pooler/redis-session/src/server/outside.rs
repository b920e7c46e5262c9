//! A server whose logical database could not be selected when it logged in: a script ran, and Redis lets nobody into
//! another database meanwhile. The first command for it waits until that has been tried again. If Redis still says no,
//! that is what the command is told, as it would be by Redis itself.

use seam::{Outbox, Peer, ServerTag};

use super::{ReplyKind, Server, Whom};
use crate::resp;

impl Server {
    /// What Redis said when the database was to be selected; `None`: it is.
    pub(crate) fn select_error(&self) -> Option<&str> {
        self.hello.outside.as_ref().map(|outside| &*outside.why)
    }

    /// Whether a client waits for its database to be selected.
    pub(crate) fn is_selecting(&self) -> bool {
        !self.entering.is_empty()
    }

    /// A client has a command for the server, which is not in its database: that is tried again.
    pub(crate) fn select_again(&mut self, me: ServerTag, whom: Whom, out: &mut Outbox) {
        let outside = self.hello.outside.as_ref().expect("it is not in its database");
        if self.entering.is_empty() {
            let database = outside.database.to_string();
            out.insert(Peer::Server(me), |to| resp::command(to, &[b"SELECT", database.as_bytes()]));
            self.expect(None, ReplyKind::Select);
        }
        if !self.entering.contains(&whom) {
            self.entering.push(whom);
        }
    }

    /// That has been answered: with success, or not. Returns those who wait for it.
    pub(crate) fn selected(&mut self, selected: bool) -> Vec<Whom> {
        if selected {
            self.hello.outside = None;
        }
        std::mem::take(&mut self.entering)
    }
}
