//! Cleanup tasks: what is to be ended at a host without a client that waits for it. They are the cursors of a
//! `killCursors` at other hosts than the one that answers it, ended and killed sessions, and, with `loadBalanced=true`,
//! the cursors and the transaction of a closed connection.
//!
//! An idle server of the pool carries out a task at once, or else the next server that becomes free. If it is lost
//! before it has replied, or has failed to abort, the task is retried once: each task may be carried out twice. One
//! user's tasks leave room for those of others. A task that waits too long, because its host is unreachable, is
//! dropped.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seam::PoolId;

use crate::{
    bson::Writer,
    command::{SessionId, TransactionId},
    quota::{Quota, fits_quota},
    transactions::Session,
};

const MAX_CURSORS_PER_TASK: usize = 1_000;

/// A server would end by itself, after a while, what a dropped task was to end.
const MAX_TASKS_PER_POOL: usize = 2_000;

/// Drivers end up to 10,000 sessions at once. A request with all of them would not fit into a socket's buffer, and its
/// server would not count as clean.
const MAX_SESSIONS_PER_TASK: usize = 500;

/// Maximum number of sessions in all tasks.
const MAX_SESSIONS: usize = 200_000;

/// A server forgets an idle session after this time (`localLogicalSessionTimeoutMinutes`), with its cursors and its
/// transaction.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How long a task to kill sessions may wait. Clients go on using the ids of killed sessions, so an expired kill would
/// end new work. A transaction is aborted after a minute anyway, and so is a command whose connection is closed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2 * 60);

const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CleanupTask {
    Kill { of: Namespace, cursors: Vec<i64> },
    Abort(TransactionId),
    End { how: SessionEnd, sessions: Arc<[SessionId]> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEnd {
    /// `endSessions`: the client no longer uses them.
    Ended,
    /// `killSessions`: what runs in them is to be aborted.
    Killed,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Namespace {
    pub database: Box<str>,
    pub name: Box<str>,
}

#[derive(Default)]
pub struct CleanupTasks(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    now: Duration,
    last_sweep: Duration,
    tasks: HashMap<PoolId, VecDeque<PendingTask>>,
    /// The number of sessions in these tasks.
    sessions: Quota,
    /// Pools that have a server. Each server has a clone of its pool's value.
    used: HashMap<PoolId, PoolInUse>,
    /// Pools with a task that came back, of which no server has been told.
    returned: BTreeSet<PoolId>,
    /// The number of expired tasks of each pool since the last sweep.
    expired: BTreeMap<PoolId, usize>,
}

#[derive(Debug)]
struct PendingTask {
    task: CleanupTask,
    /// The user of the client that left it.
    user: Arc<str>,
    since: Duration,
    /// A server that had been given it was lost.
    is_retry: bool,
}

/// A clone of this is kept by every server of a pool.
pub type PoolInUse = Arc<()>;

/// A task that a server has been given. Dropped before it is done, it goes back to the table for one more try.
pub struct AssignedTask {
    task: Option<PendingTask>,
    pool: PoolId,
    table: Arc<Mutex<Table>>,
}

impl Table {
    /// Adds a task. False if there are too many.
    fn put(&mut self, pool: PoolId, task: PendingTask) -> bool {
        let of_pool = self.tasks.get(&pool);
        let count = of_pool.map_or(0, VecDeque::len);
        let own_of_pool = || of_pool.into_iter().flatten().filter(|other| other.user == task.user).count();
        // Counting is needed only when the pool's table is more than half full.
        let fits =
            fits_quota(count, count, 1, MAX_TASKS_PER_POOL) || fits_quota(own_of_pool(), count, 1, MAX_TASKS_PER_POOL);
        if !fits || !self.sessions.take(&task.user, task.task.sessions(), MAX_SESSIONS) {
            return false;
        }
        self.tasks.entry(pool).or_default().push_back(task);
        true
    }

    fn take(&mut self, pool: PoolId) -> Option<PendingTask> {
        loop {
            let task = self.pop(pool)?;
            if !task.is_expired(self.now) {
                return Some(task);
            }
            self.count_expired(pool, 1);
        }
    }

    fn count_expired(&mut self, pool: PoolId, count: usize) {
        *self.expired.entry(pool).or_default() += count;
    }

    fn pop(&mut self, pool: PoolId) -> Option<PendingTask> {
        let of_pool = self.tasks.get_mut(&pool)?;
        let task = of_pool.pop_front();
        if of_pool.is_empty() {
            self.tasks.remove(&pool);
        }
        let task = task?;
        self.sessions.give_back(&task.user, task.task.sessions());
        Some(task)
    }

    /// Drops expired tasks. Returns the number for each pool since the last call.
    fn sweep(&mut self) -> Vec<(PoolId, usize)> {
        self.last_sweep = self.now;
        let (now, sessions, expired) = (self.now, &mut self.sessions, &mut self.expired);
        self.tasks.retain(|pool, of_pool| {
            let before = of_pool.len();
            of_pool.retain(|task| {
                let drops = task.is_expired(now);
                if drops {
                    sessions.give_back(&task.user, task.task.sessions());
                }
                !drops
            });
            if of_pool.len() < before {
                *expired.entry(*pool).or_default() += before - of_pool.len();
            }
            !of_pool.is_empty()
        });
        std::mem::take(expired).into_iter().collect()
    }
}

impl PendingTask {
    fn is_expired(&self, now: Duration) -> bool {
        now >= self.since + self.task.max_wait()
    }
}

fn locked(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CleanupTasks {
    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.0)
    }

    pub fn add(&self, pool: PoolId, user: &Arc<str>, task: CleanupTask) {
        let mut table = self.table();
        let task = PendingTask { task, user: Arc::clone(user), since: table.now, is_retry: false };
        table.put(pool, task);
    }

    /// Returns the number of expired tasks for each pool.
    pub fn on_tick(&self, now: Duration) -> Vec<(PoolId, usize)> {
        let mut table = self.table();
        table.now = table.now.max(now);
        if table.now < table.last_sweep + SWEEP_INTERVAL { Vec::new() } else { table.sweep() }
    }

    pub fn has_task(&self, pool: PoolId) -> bool {
        self.table().tasks.contains_key(&pool)
    }

    pub fn take(&self, pool: PoolId) -> Option<AssignedTask> {
        let task = self.table().take(pool)?;
        Some(AssignedTask { task: Some(task), pool, table: Arc::clone(&self.0) })
    }

    /// Pools with a task that came back since the last call.
    pub fn take_returned(&self) -> Vec<PoolId> {
        let mut table = self.table();
        let returned = std::mem::take(&mut table.returned);
        returned.into_iter().filter(|pool| table.tasks.contains_key(pool)).collect()
    }

    /// Marks a pool as in use for as long as a server keeps the result.
    pub fn mark_used(&self, pool: PoolId) -> PoolInUse {
        Arc::clone(self.table().used.entry(pool).or_default())
    }

    /// Whether a pool is or was in use.
    pub fn is_used(&self, pool: PoolId) -> bool {
        self.table().used.contains_key(&pool)
    }

    pub fn forget(&self, pool: PoolId) {
        let mut table = self.table();
        while table.pop(pool).is_some() {}
        table.used.remove(&pool);
        table.returned.remove(&pool);
        table.expired.remove(&pool);
    }

    /// Removes the tasks of pools that are no longer configured, and those pools themselves once they have no server.
    pub fn retain_only(&self, is_configured: impl Fn(PoolId) -> bool) {
        let mut table = self.table();
        let gone: Vec<PoolId> = table.tasks.keys().copied().filter(|pool| !is_configured(*pool)).collect();
        for pool in gone {
            while table.pop(pool).is_some() {}
        }
        table.used.retain(|pool, used| Arc::strong_count(used) > 1 || is_configured(*pool));
    }
}

impl AssignedTask {
    pub fn write(&self, body: &mut Writer<'_>) {
        if let Some(task) = &self.task {
            task.task.write(body);
        }
    }

    pub fn aborts(&self) -> Option<(Session, i64)> {
        match self.task.as_ref()? {
            PendingTask { task: CleanupTask::Abort(id), user, .. } => Some(((Arc::clone(user), id.session), id.number)),
            _ => None,
        }
    }

    pub fn done(mut self) {
        self.task = None;
    }
}

impl Drop for AssignedTask {
    fn drop(&mut self) {
        let Some(task) = self.task.take().filter(|task| !task.is_retry) else { return };
        let mut table = locked(&self.table);
        if task.is_expired(table.now) {
            table.count_expired(self.pool, 1);
        } else if table.put(self.pool, PendingTask { is_retry: true, ..task }) {
            table.returned.insert(self.pool);
        }
    }
}

impl CleanupTask {
    pub fn kill(of: &Namespace, cursors: &[i64]) -> impl Iterator<Item = Self> {
        cursors.chunks(MAX_CURSORS_PER_TASK).map(|cursors| Self::Kill { of: of.clone(), cursors: cursors.into() })
    }

    pub fn end(how: SessionEnd, sessions: &[SessionId]) -> Vec<Self> {
        sessions.chunks(MAX_SESSIONS_PER_TASK).map(|sessions| Self::End { how, sessions: sessions.into() }).collect()
    }

    fn max_wait(&self) -> Duration {
        match self {
            Self::End { how: SessionEnd::Killed, .. } => KILL_TIMEOUT,
            Self::Kill { .. } | Self::Abort(_) | Self::End { how: SessionEnd::Ended, .. } => SESSION_TIMEOUT,
        }
    }

    fn sessions(&self) -> usize {
        if let Self::End { sessions, .. } = self { sessions.len() } else { 0 }
    }

    fn write(&self, body: &mut Writer<'_>) {
        match self {
            Self::Kill { of, cursors } => {
                body.text("killCursors", &of.name);
                body.array("cursors", |ids| {
                    for (index, cursor) in cursors.iter().enumerate() {
                        ids.int64(&index.to_string(), *cursor);
                    }
                });
                body.text("$db", &of.database);
            }
            Self::Abort(TransactionId { session, number }) => {
                body.int32("abortTransaction", 1);
                body.document("lsid", |lsid| _ = lsid.uuid("id", *session));
                body.int64("txnNumber", *number).bool("autocommit", false).text("$db", "admin");
            }
            Self::End { how, sessions } => {
                let command = match how {
                    SessionEnd::Ended => "endSessions",
                    SessionEnd::Killed => "killSessions",
                };
                body.array(command, |ended| {
                    for (index, session) in sessions.iter().enumerate() {
                        ended.document(&index.to_string(), |lsid| _ = lsid.uuid("id", *session));
                    }
                });
                body.text("$db", "admin");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 10_000;

    fn ended(count: usize) -> CleanupTask {
        CleanupTask::End { how: SessionEnd::Ended, sessions: vec![[1; 16]; count].into() }
    }

    fn abort(number: i64) -> CleanupTask {
        CleanupTask::Abort(TransactionId { session: [1; 16], number })
    }

    fn users() -> [Arc<str>; 2] {
        ["u".into(), "v".into()]
    }

    #[test]
    fn the_sessions_of_one_user_leave_quota_for_those_of_another_and_for_tasks_without_sessions() {
        let (tasks, [one, other]) = (CleanupTasks::default(), users());
        for pool in 0..100 {
            tasks.add(PoolId(pool), &one, ended(MANY));
        }
        let added = (0..100).filter(|pool| tasks.has_task(PoolId(*pool))).count();
        assert_eq!(added, MAX_SESSIONS / MANY / 2);
        for pool in 100..200 {
            tasks.add(PoolId(pool), &other, ended(MANY));
        }
        assert!(tasks.has_task(PoolId(100)));
        tasks.add(PoolId(200), &one, abort(1));
        assert!(tasks.has_task(PoolId(200)), "it names no session");
        tasks.take(PoolId(100)).unwrap().done();
        tasks.add(PoolId(201), &other, ended(MANY / 2));
        assert!(tasks.has_task(PoolId(201)), "what is done is given back");
    }

    #[test]
    fn the_tasks_of_one_user_in_a_pool_leave_some_for_another() {
        let (tasks, [one, other]) = (CleanupTasks::default(), users());
        (0..10_000).for_each(|number| tasks.add(PoolId(1), &one, abort(number)));
        let of_one = tasks.table().tasks[&PoolId(1)].len();
        assert_eq!(of_one, MAX_TASKS_PER_POOL / 2);
        (0..10_000).for_each(|number| tasks.add(PoolId(1), &other, abort(number)));
        let of_other = tasks.table().tasks[&PoolId(1)].len() - of_one;
        assert_eq!(of_other, MAX_TASKS_PER_POOL / 4, "as much as is still left then");
    }

    #[test]
    fn what_a_lost_server_has_not_answered_is_done_once_more_by_another() {
        let (tasks, [user, _], pool) = (CleanupTasks::default(), users(), PoolId(7));
        tasks.add(pool, &user, ended(3));
        let under_way = tasks.take(pool).unwrap();
        assert!(!tasks.has_task(pool) && tasks.take_returned().is_empty() && tasks.table().sessions.taken() == 0);
        drop(under_way);
        assert_eq!((tasks.take_returned(), tasks.take_returned()), (vec![pool], vec![]));
        assert_eq!(tasks.table().sessions.taken(), 3);
        let again = tasks.take(pool).unwrap();
        assert!(matches!(&again.task, Some(task) if task.task == ended(3)));
        drop(again);
        assert!(!tasks.has_task(pool) && tasks.take_returned().is_empty(), "it may be what has ended both");
        tasks.add(pool, &user, ended(3));
        tasks.take(pool).unwrap().done();
        assert!(!tasks.has_task(pool) && tasks.take_returned().is_empty() && tasks.table().sessions.taken() == 0);
    }

    #[test]
    fn pools_that_are_gone_are_forgotten_with_what_was_to_be_done_there() {
        let (tasks, [user, _]) = (CleanupTasks::default(), users());
        let (stays, goes, lives) = (PoolId(1), PoolId(2), PoolId(3));
        let [first, second, server] = [stays, goes, lives].map(|pool| tasks.mark_used(pool));
        drop((first, second));
        tasks.add(stays, &user, ended(1));
        tasks.add(goes, &user, ended(2));
        drop(tasks.take(goes));
        tasks.retain_only(|pool| pool == stays);
        assert!(tasks.has_task(stays) && !tasks.has_task(goes) && tasks.take_returned().is_empty());
        assert_eq!([stays, goes, lives].map(|pool| tasks.is_used(pool)), [true, false, true]);
        assert_eq!(tasks.table().sessions.taken(), 1);
        drop(server);
        tasks.retain_only(|pool| pool == stays);
        assert!(!tasks.is_used(lives), "its last server is gone");
    }

    #[test]
    fn what_no_server_can_see_to_is_dropped_when_its_host_has_ended_it_by_itself() {
        let (tasks, [user, _], [one, other]) = (CleanupTasks::default(), users(), [PoolId(1), PoolId(2)]);
        let begin = Duration::from_secs(5);
        assert!(tasks.on_tick(begin).is_empty());
        tasks.add(one, &user, ended(2));
        tasks.add(one, &user, abort(1));
        tasks.add(other, &user, CleanupTask::End { how: SessionEnd::Killed, sessions: [[1; 16]].into() });
        assert!(tasks.on_tick(begin + KILL_TIMEOUT - Duration::from_secs(1)).is_empty() && tasks.has_task(other));
        assert_eq!(tasks.on_tick(begin + KILL_TIMEOUT + SWEEP_INTERVAL), [(other, 1)]);
        assert!(!tasks.has_task(other) && tasks.has_task(one));
        // A task that comes back keeps the time at which it was added.
        let lost = tasks.take(one);
        assert!(tasks.on_tick(begin + SESSION_TIMEOUT - Duration::from_secs(1)).is_empty());
        drop(lost);
        assert_eq!(tasks.take_returned(), [one]);
        assert_eq!(tasks.on_tick(begin + SESSION_TIMEOUT + SWEEP_INTERVAL), [(one, 2)]);
        assert!(tasks.take(one).is_none() && tasks.table().sessions.taken() == 0);
        assert!(tasks.on_tick(begin + 2 * SESSION_TIMEOUT).is_empty(), "told once");
    }

    #[test]
    fn nothing_is_seen_to_too_late_between_two_looks_for_it() {
        let (tasks, [user, _], pool) = (CleanupTasks::default(), users(), PoolId(1));
        let killed = || CleanupTask::End { how: SessionEnd::Killed, sessions: [[1; 16]].into() };
        let second = Duration::from_secs(1);
        tasks.add(pool, &user, killed());
        tasks.add(pool, &user, killed());
        tasks.add(pool, &user, ended(2));
        let under_way = tasks.take(pool);
        assert!(tasks.on_tick(KILL_TIMEOUT - second).is_empty() && tasks.on_tick(KILL_TIMEOUT + second).is_empty());
        drop(under_way);
        assert!(tasks.take_returned().is_empty());
        let next = tasks.take(pool).unwrap();
        assert!(matches!(&next.task, Some(task) if task.task == ended(2)));
        assert_eq!(
            (tasks.on_tick(KILL_TIMEOUT + SWEEP_INTERVAL), tasks.table().sessions.taken()),
            (vec![(pool, 2)], 0)
        );
    }
}
