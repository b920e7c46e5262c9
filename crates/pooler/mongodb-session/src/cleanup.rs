//! Servers carry out cleanup tasks between the requests of clients.

use std::sync::Arc;

use seam::{Effect, Outbox, ServerTag};

use crate::{
    MongoDb, Server,
    bson::Document,
    cleanup_tasks::{AssignedTask, CleanupTask},
    reply_summary::ReplySummary,
    server::Role,
};

/// Maximum number of cleanup tasks that a server carries out before clients may use it.
const MAX_CONSECUTIVE_TASKS: u32 = 8;

impl MongoDb {
    /// Adds tasks for what a client of this user has left at a host.
    pub(crate) fn add_cleanup_tasks(
        &self,
        user: &Arc<str>,
        host: usize,
        tasks: impl IntoIterator<Item = CleanupTask>,
        out: &mut Outbox,
    ) {
        if let Ok(pool) = self.directory.route(user, host) {
            tasks.into_iter().for_each(|task| self.cleanup_tasks.add(pool, user, task));
            out.push(Effect::ResetOne { pool });
        }
    }

    /// A server has replied to Poolhouse itself: it gets the next task, or may be used.
    pub(crate) fn on_owed_reply(&self, me: ServerTag, server: &mut Server, answer: Document<'_>, out: &mut Outbox) {
        let Role::OwesReply(owed) = &mut server.role else { unreachable!("it was asked") };
        let (task, tasks) = (owed.take_task(), owed.tasks());
        if let Some(task) = task {
            self.finish_task(task, answer);
        }
        if tasks < MAX_CONSECUTIVE_TASKS
            && let Some(task) = self.cleanup_tasks.take(server.pool())
        {
            return server.assign(me, task, out);
        }
        server.role = Role::Idle;
        out.push(Effect::Ready { server: me });
        if self.cleanup_tasks.has_task(server.pool()) {
            out.push(Effect::ResetOne { pool: server.pool() });
        }
    }

    fn finish_task(&self, task: AssignedTask, answer: Document<'_>) {
        if let Some((session, number)) = task.aborts() {
            // A failed abort is retried once, as if the server had been lost.
            if !ReplySummary::read(answer).is_ok_and(|summary| summary.is_aborted(answer)) {
                return;
            }
            self.transactions.end(&session, number);
        }
        task.done();
    }

    pub(crate) fn carry_out_next_task(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        if !matches!(server.role, Role::Idle) {
            return;
        }
        match self.cleanup_tasks.take(server.pool()) {
            Some(task) => server.assign(me, task, out),
            None => out.push(Effect::Ready { server: me }),
        }
    }
}
