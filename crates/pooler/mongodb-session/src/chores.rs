//! What is to be ended at a host for clients that do not wait for it: cursors of a `killCursors` that are at another
//! host than the one that answers it, sessions that have ended or are to be killed, and, where drivers believe in a
//! load balancer, the cursors and the transaction of a connection that has ended: with `loadBalanced=true` these belong
//! to the connection. A server connection of the pool that is idle sees to it at once, or the next one that is done
//! with a request. If it is lost before it has answered, or has not aborted what it was to abort, one is asked once
//! more: each of these may be done twice. Nobody has so much to be done that there is no room for what others leave.
//! What no server can see to, because its host is out of reach, is dropped when it is too late for it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seam::PoolId;

use crate::{
    bson::Writer,
    command::{SessionId, TransactionId},
    room::{Room, has_room},
    transactions::Session,
};

/// Cursors of a chore that are closed at most.
const MAX_CURSORS: usize = 1_000;

/// Chores of a pool at most; a server ends what nobody uses by itself.
const MAX_OF_POOL: usize = 2_000;

/// Sessions of a chore. Drivers tell of 10,000 at once; a request about so few is small enough that a socket takes it
/// at once, or a server that is given back with it would not count as clean.
const MAX_SESSIONS: usize = 500;

/// Sessions that all chores may name.
const MAX_SESSIONS_OF_ALL: usize = 200_000;

/// A server forgets a session that nobody has used for so long (`localLogicalSessionTimeoutMinutes`), with its cursors
/// and its transaction.
const LIFE: Duration = Duration::from_secs(30 * 60);

/// The same of sessions that are to be killed. Their ids stay in use, so that a kill that comes late would end what
/// somebody has begun since. What holds up others in them is over by then: a server aborts a transaction that is a
/// minute old, and gives up what a connection that is lost had asked for.
const LIFE_OF_KILL: Duration = Duration::from_secs(2 * 60);

/// How often it is looked for what is to be dropped.
const SWEEP: Duration = Duration::from_secs(10);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chore {
    Kill {
        /// The collection that it is of, with its database.
        of: Collection,
        cursors: Vec<i64>,
    },
    Abort(TransactionId),
    End {
        /// The command that does so.
        how: Ending,
        sessions: Arc<[SessionId]>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Nobody uses them any more: `endSessions`.
    Unused,
    /// What goes on in them ends with them, at once: `killSessions`.
    Killed,
}

/// A collection of a database.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Collection {
    pub database: Box<str>,
    pub name: Box<str>,
}

#[derive(Default)]
pub struct Chores(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    now: Duration,
    swept: Duration,
    chores: HashMap<PoolId, VecDeque<Due>>,
    /// Sessions that these name.
    sessions: Room,
    /// Pools that have had a server: there may be something to be seen to. Each of their servers has another of these
    /// counts.
    used: HashMap<PoolId, Used>,
    /// Pools that have got a chore back, and whose servers have not heard of it.
    returned: BTreeSet<PoolId>,
    /// How many of which pools a server would have come to too late, since it was looked last.
    late: BTreeMap<PoolId, usize>,
}

/// A chore that waits for a server.
#[derive(Debug)]
struct Due {
    chore: Chore,
    /// The user of the client that has left it.
    user: Arc<str>,
    since: Duration,
    /// A server was lost that had been asked.
    again: bool,
}

/// That a server of a pool lives.
pub type Used = Arc<()>;

/// A chore that a server has been asked to see to. If this is dropped before it is done, it is to be done once more.
pub struct UnderWay {
    due: Option<Due>,
    pool: PoolId,
    table: Arc<Mutex<Table>>,
}

impl Table {
    /// A server of this pool is to see to it; false if there is too much already.
    fn put(&mut self, pool: PoolId, due: Due) -> bool {
        let of_pool = self.chores.get(&pool);
        let count = of_pool.map_or(0, VecDeque::len);
        let own_of_pool = || of_pool.into_iter().flatten().filter(|other| other.user == due.user).count();
        // Counting is for those where it matters.
        let fits = has_room(count, count, 1, MAX_OF_POOL) || has_room(own_of_pool(), count, 1, MAX_OF_POOL);
        if !fits || !self.sessions.take(&due.user, due.chore.sessions(), MAX_SESSIONS_OF_ALL) {
            return false;
        }
        self.chores.entry(pool).or_default().push_back(due);
        true
    }

    /// The next one for which it is not too late.
    fn take(&mut self, pool: PoolId) -> Option<Due> {
        loop {
            let due = self.pop(pool)?;
            if !due.is_late(self.now) {
                return Some(due);
            }
            self.note_late(pool, 1);
        }
    }

    fn note_late(&mut self, pool: PoolId, count: usize) {
        *self.late.entry(pool).or_default() += count;
    }

    fn pop(&mut self, pool: PoolId) -> Option<Due> {
        let of_pool = self.chores.get_mut(&pool)?;
        let due = of_pool.pop_front();
        if of_pool.is_empty() {
            self.chores.remove(&pool);
        }
        let due = due?;
        self.sessions.give_back(&due.user, due.chore.sessions());
        Some(due)
    }

    /// Drops what has waited for too long. Returns how many of which pools were dropped since it was asked last.
    fn sweep(&mut self) -> Vec<(PoolId, usize)> {
        self.swept = self.now;
        let (now, sessions, late) = (self.now, &mut self.sessions, &mut self.late);
        self.chores.retain(|pool, of_pool| {
            let before = of_pool.len();
            of_pool.retain(|due| {
                let drops = due.is_late(now);
                if drops {
                    sessions.give_back(&due.user, due.chore.sessions());
                }
                !drops
            });
            if of_pool.len() < before {
                *late.entry(*pool).or_default() += before - of_pool.len();
            }
            !of_pool.is_empty()
        });
        std::mem::take(late).into_iter().collect()
    }
}

impl Due {
    /// Whether it has waited for so long that it must not be done any more.
    fn is_late(&self, now: Duration) -> bool {
        now >= self.since + self.chore.life()
    }
}

fn locked(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chores {
    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.0)
    }

    /// A server of this pool is to see to what a client of this user has left.
    pub fn add(&self, pool: PoolId, user: &Arc<str>, chore: Chore) {
        let mut table = self.table();
        let due = Due { chore, user: Arc::clone(user), since: table.now, again: false };
        table.put(pool, due);
    }

    /// So much time has passed. Returns how many chores of which pools are dropped, because nobody could see to them
    /// for so long.
    pub fn on_tick(&self, now: Duration) -> Vec<(PoolId, usize)> {
        let mut table = self.table();
        table.now = table.now.max(now);
        if table.now < table.swept + SWEEP { Vec::new() } else { table.sweep() }
    }

    pub fn is_any(&self, pool: PoolId) -> bool {
        self.table().chores.contains_key(&pool)
    }

    /// The next one, if there is one.
    pub fn take(&self, pool: PoolId) -> Option<UnderWay> {
        let due = self.table().take(pool)?;
        Some(UnderWay { due: Some(due), pool, table: Arc::clone(&self.0) })
    }

    /// Pools that have got a chore back since this was asked last.
    pub fn returned(&self) -> Vec<PoolId> {
        let mut table = self.table();
        let returned = std::mem::take(&mut table.returned);
        returned.into_iter().filter(|pool| table.chores.contains_key(pool)).collect()
    }

    /// A pool has a server, for as long as that keeps this.
    pub fn note_used(&self, pool: PoolId) -> Used {
        Arc::clone(self.table().used.entry(pool).or_default())
    }

    /// Whether it ever had one.
    pub fn is_used(&self, pool: PoolId) -> bool {
        self.table().used.contains_key(&pool)
    }

    /// A pool is gone, and with it what was to be done there.
    pub fn forget(&self, pool: PoolId) {
        let mut table = self.table();
        while table.pop(pool).is_some() {}
        table.used.remove(&pool);
        table.returned.remove(&pool);
        table.late.remove(&pool);
    }

    /// Forgets what is to be done in pools that are configured no longer, and those of them that have no server any
    /// more.
    pub fn keep_only(&self, is_configured: impl Fn(PoolId) -> bool) {
        let mut table = self.table();
        let gone: Vec<PoolId> = table.chores.keys().copied().filter(|pool| !is_configured(*pool)).collect();
        for pool in gone {
            while table.pop(pool).is_some() {}
        }
        table.used.retain(|pool, used| Arc::strong_count(used) > 1 || is_configured(*pool));
    }
}

impl UnderWay {
    pub fn write(&self, body: &mut Writer<'_>) {
        if let Some(due) = &self.due {
            due.chore.write(body);
        }
    }

    /// The transaction that it is to abort: whose it is, and its number.
    pub fn aborts(&self) -> Option<(Session, i64)> {
        match self.due.as_ref()? {
            Due { chore: Chore::Abort(id), user, .. } => Some(((Arc::clone(user), id.session), id.number)),
            _ => None,
        }
    }

    /// The server has done it.
    pub fn done(mut self) {
        self.due = None;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Some(due) = self.due.take().filter(|due| !due.again) else { return };
        let mut table = locked(&self.table);
        if due.is_late(table.now) {
            table.note_late(self.pool, 1);
        } else if table.put(self.pool, Due { again: true, ..due }) {
            table.returned.insert(self.pool);
        }
    }
}

impl Chore {
    /// Closes these cursors of a collection, so many at a time.
    pub fn kill(of: &Collection, cursors: &[i64]) -> impl Iterator<Item = Self> {
        cursors.chunks(MAX_CURSORS).map(|cursors| Self::Kill { of: of.clone(), cursors: cursors.into() })
    }

    /// Ends these sessions, so many at a time.
    pub fn end(how: Ending, sessions: &[SessionId]) -> Vec<Self> {
        sessions.chunks(MAX_SESSIONS).map(|sessions| Self::End { how, sessions: sessions.into() }).collect()
    }

    /// How long it may wait for a server.
    fn life(&self) -> Duration {
        match self {
            Self::End { how: Ending::Killed, .. } => LIFE_OF_KILL,
            Self::Kill { .. } | Self::Abort(_) | Self::End { how: Ending::Unused, .. } => LIFE,
        }
    }

    /// How many sessions it ends.
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
                    Ending::Unused => "endSessions",
                    Ending::Killed => "killSessions",
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

    fn ended(count: usize) -> Chore {
        Chore::End { how: Ending::Unused, sessions: vec![[1; 16]; count].into() }
    }

    fn abort(number: i64) -> Chore {
        Chore::Abort(TransactionId { session: [1; 16], number })
    }

    fn users() -> [Arc<str>; 2] {
        ["u".into(), "v".into()]
    }

    #[test]
    fn sessions_that_have_ended_are_not_kept_without_end() {
        let (chores, [one, _]) = (Chores::default(), users());
        for pool in 0..100 {
            chores.add(PoolId(pool), &one, ended(MANY));
        }
        let kept = (0..100).filter(|pool| chores.is_any(PoolId(*pool))).count();
        assert_eq!(kept, MAX_SESSIONS_OF_ALL / MANY / 2);
        chores.take(PoolId(0)).unwrap().done();
        assert!(chores.take(PoolId(0)).is_none());
        chores.add(PoolId(99), &one, ended(MANY));
        assert!(chores.is_any(PoolId(99)), "there is room again");
    }

    #[test]
    fn nobody_has_so_many_sessions_ended_that_another_finds_no_room() {
        let (chores, [one, other]) = (Chores::default(), users());
        for pool in 0..100 {
            chores.add(PoolId(pool), &one, ended(MANY));
        }
        chores.add(PoolId(100), &other, ended(MANY));
        assert!(chores.is_any(PoolId(100)));
    }

    #[test]
    fn what_names_no_session_has_room_though_the_sessions_of_others_have_come_since() {
        let (chores, [one, other]) = (Chores::default(), users());
        for pool in 0..100 {
            chores.add(PoolId(pool), &one, ended(MANY));
        }
        for pool in 100..200 {
            chores.add(PoolId(pool), &other, ended(MANY));
        }
        chores.add(PoolId(200), &one, abort(1));
        assert!(chores.is_any(PoolId(200)));
    }

    #[test]
    fn nobody_leaves_so_much_in_a_pool_that_another_finds_no_room() {
        let (chores, [one, other]) = (Chores::default(), users());
        (0..10_000).for_each(|number| chores.add(PoolId(1), &one, abort(number)));
        let of_one = chores.table().chores[&PoolId(1)].len();
        assert_eq!(of_one, MAX_OF_POOL / 2);
        (0..10_000).for_each(|number| chores.add(PoolId(1), &other, abort(number)));
        let of_other = chores.table().chores[&PoolId(1)].len() - of_one;
        assert_eq!(of_other, MAX_OF_POOL / 4, "as much as is still left then");
    }

    #[test]
    fn what_a_lost_server_has_not_answered_is_done_once_more_by_another() {
        let (chores, [user, _], pool) = (Chores::default(), users(), PoolId(7));
        chores.add(pool, &user, ended(3));
        let under_way = chores.take(pool).unwrap();
        assert!(!chores.is_any(pool) && chores.returned().is_empty() && chores.table().sessions.taken() == 0);
        drop(under_way);
        assert_eq!((chores.returned(), chores.returned()), (vec![pool], vec![]));
        assert_eq!(chores.table().sessions.taken(), 3);
        let again = chores.take(pool).unwrap();
        assert!(matches!(&again.due, Some(due) if due.chore == ended(3)));
        drop(again);
        assert!(!chores.is_any(pool) && chores.returned().is_empty(), "it may be what has ended both");
        chores.add(pool, &user, ended(3));
        chores.take(pool).unwrap().done();
        assert!(!chores.is_any(pool) && chores.returned().is_empty() && chores.table().sessions.taken() == 0);
    }

    #[test]
    fn pools_that_are_gone_are_forgotten_with_what_was_to_be_done_there() {
        let (chores, [user, _]) = (Chores::default(), users());
        let (stays, goes, lives) = (PoolId(1), PoolId(2), PoolId(3));
        let [first, second, server] = [stays, goes, lives].map(|pool| chores.note_used(pool));
        drop((first, second));
        chores.add(stays, &user, ended(1));
        chores.add(goes, &user, ended(2));
        drop(chores.take(goes));
        chores.keep_only(|pool| pool == stays);
        assert!(chores.is_any(stays) && !chores.is_any(goes) && chores.returned().is_empty());
        assert_eq!([stays, goes, lives].map(|pool| chores.is_used(pool)), [true, false, true]);
        assert_eq!(chores.table().sessions.taken(), 1);
        drop(server);
        chores.keep_only(|pool| pool == stays);
        assert!(!chores.is_used(lives), "its last server is gone");
    }

    #[test]
    fn what_no_server_can_see_to_is_dropped_when_its_host_has_ended_it_by_itself() {
        let (chores, [user, _], [one, other]) = (Chores::default(), users(), [PoolId(1), PoolId(2)]);
        let begin = Duration::from_secs(5);
        assert!(chores.on_tick(begin).is_empty());
        chores.add(one, &user, ended(2));
        chores.add(one, &user, abort(1));
        chores.add(other, &user, Chore::End { how: Ending::Killed, sessions: [[1; 16]].into() });
        assert!(chores.on_tick(begin + LIFE_OF_KILL - Duration::from_secs(1)).is_empty() && chores.is_any(other));
        assert_eq!(chores.on_tick(begin + LIFE_OF_KILL + SWEEP), [(other, 1)]);
        assert!(!chores.is_any(other) && chores.is_any(one));
        // What comes back has waited since it was left first.
        let lost = chores.take(one);
        assert!(chores.on_tick(begin + LIFE - Duration::from_secs(1)).is_empty());
        drop(lost);
        assert_eq!(chores.returned(), [one]);
        assert_eq!(chores.on_tick(begin + LIFE + SWEEP), [(one, 2)]);
        assert!(chores.take(one).is_none() && chores.table().sessions.taken() == 0);
        assert!(chores.on_tick(begin + 2 * LIFE).is_empty(), "told once");
    }

    #[test]
    fn nothing_is_seen_to_too_late_between_two_looks_for_it() {
        let (chores, [user, _], pool) = (Chores::default(), users(), PoolId(1));
        let killed = || Chore::End { how: Ending::Killed, sessions: [[1; 16]].into() };
        let second = Duration::from_secs(1);
        chores.add(pool, &user, killed());
        chores.add(pool, &user, killed());
        chores.add(pool, &user, ended(2));
        let under_way = chores.take(pool);
        assert!(chores.on_tick(LIFE_OF_KILL - second).is_empty() && chores.on_tick(LIFE_OF_KILL + second).is_empty());
        drop(under_way);
        assert!(chores.returned().is_empty());
        let next = chores.take(pool).unwrap();
        assert!(matches!(&next.due, Some(due) if due.chore == ended(2)));
        assert_eq!((chores.on_tick(LIFE_OF_KILL + SWEEP), chores.table().sessions.taken()), (vec![(pool, 2)], 0));
    }

    #[test]
    fn many_cursors_are_closed_in_several_requests() {
        let of = Collection { database: "app".into(), name: "things".into() };
        let cursors: Vec<i64> = (0..2_500).collect();
        let kills: Vec<Chore> = Chore::kill(&of, &cursors).collect();
        let named = |chore: &Chore| if let Chore::Kill { cursors, .. } = chore { cursors.len() } else { 0 };
        assert_eq!(kills.iter().map(named).collect::<Vec<_>>(), [1_000, 1_000, 500]);
    }

    #[test]
    fn many_sessions_are_ended_in_several_requests() {
        let ends = Chore::end(Ending::Unused, &vec![[1; 16]; 1_200]);
        assert_eq!(ends.iter().map(Chore::sessions).collect::<Vec<_>>(), [500, 500, 200]);
    }

    #[test]
    fn what_was_left_first_is_done_first() {
        let (chores, [user, _]) = (Chores::default(), users());
        (0..3).for_each(|number| chores.add(PoolId(1), &user, abort(number)));
        let first = chores.take(PoolId(1)).unwrap();
        assert!(matches!(&first.due, Some(due) if due.chore == abort(0)));
    }
}
