//! Chores, which servers carry out between the requests of clients.

use std::sync::Arc;

use seam::{Effect, Outbox, ServerTag};

use crate::{
    MongoDb, Server,
    bson::Document,
    chores::{Chore, UnderWay},
    reply_summary::ReplySummary,
    server::Role,
};

/// Chores that a server carries out before clients may use it.
const MAX_CHORES_IN_A_ROW: u32 = 8;

impl MongoDb {
    /// A server of a host is to carry out chores that a client of this user has left there.
    pub(crate) fn add_chores(
        &self,
        user: &Arc<str>,
        host: usize,
        chores: impl IntoIterator<Item = Chore>,
        out: &mut Outbox,
    ) {
        if let Ok(pool) = self.directory.route(user, host) {
            chores.into_iter().for_each(|chore| self.chores.add(pool, user, chore));
            out.push(Effect::ResetOne { pool });
        }
    }

    /// A server has answered a request of Poolhouse itself: it carries out the next chore, or may be used.
    pub(crate) fn on_checked(&self, me: ServerTag, server: &mut Server, answer: Document<'_>, out: &mut Outbox) {
        let Role::Checked(check) = &mut server.role else { unreachable!("it was asked") };
        let (chore, chores) = (check.take_chore(), check.chores());
        if let Some(chore) = chore {
            self.end_chore(chore, answer);
        }
        if chores < MAX_CHORES_IN_A_ROW
            && let Some(chore) = self.chores.take(server.pool())
        {
            return server.see_to(me, chore, out);
        }
        server.role = Role::Idle;
        out.push(Effect::Ready { server: me });
        if self.chores.is_any(server.pool()) {
            out.push(Effect::ResetOne { pool: server.pool() });
        }
    }

    /// A server has answered a chore.
    fn end_chore(&self, chore: UnderWay, answer: Document<'_>) {
        if let Some((session, number)) = chore.aborts() {
            // A failed abort is tried again once, like one whose server is lost.
            if !ReplySummary::read(answer).is_ok_and(|summary| summary.is_aborted(answer)) {
                return;
            }
            self.transactions.ended(&session, number);
        }
        chore.done();
    }

    /// A server carries out a chore, if there is any, unless it does so already.
    pub(crate) fn on_errand(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if !matches!(server.role, Role::Idle) {
            return;
        }
        match self.chores.take(server.pool()) {
            Some(chore) => server.see_to(me, chore, out),
            None => out.push(Effect::Ready { server: me }),
        }
    }
}
