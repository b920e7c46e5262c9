//! What is to be ended at a host for clients that do not wait for it: cursors of a `killCursors` that are at another host than the one that
//! answers it, sessions that have ended, and, where drivers believe in a load balancer, the cursors and the transaction of a connection
//! that has ended: with `loadBalanced=true` these belong to the connection. A server connection of the pool that is idle sees to it at once,
//! or the next one that is done with a request.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::PoolId;

use crate::bson::Writer;

/// Cursors of a chore that are closed at most.
const MAX_CURSORS: usize = 1_000;

/// Chores of a pool at most; a server ends what nobody uses by itself.
const MAX_OF_POOL: usize = 1_000;

/// Sessions of a chore that are ended at most: drivers tell of so many at once.
const MAX_SESSIONS: usize = 10_000;

/// Sessions that all chores may name.
const MAX_SESSIONS_OF_ALL: usize = 200_000;

/// The id of a session, as drivers make it.
pub type SessionId = [u8; 16];

/// One request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Chore {
    /// Close cursors.
    Kill {
        /// The collection that it is of, with its database.
        of: Collection,
        /// Their ids at the host.
        cursors: Vec<i64>,
    },
    /// Abort a transaction.
    Abort {
        /// Its session.
        session: [u8; 16],
        /// Its number there.
        number: i64,
    },
    /// End sessions.
    End(Arc<[SessionId]>),
}

/// A collection of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collection {
    pub database: Box<str>,
    pub name: Box<str>,
}

/// See the file's head.
#[derive(Default)]
pub struct Chores(Mutex<Table>);

#[derive(Default)]
struct Table {
    chores: HashMap<PoolId, Vec<Chore>>,
    /// Sessions that these name.
    sessions: usize,
    /// Pools that have had a server: there may be something to be seen to.
    used: HashSet<PoolId>,
}

impl Chores {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A server of this pool is to see to it.
    pub fn add(&self, pool: PoolId, mut chore: Chore) {
        let mut table = self.table();
        match &mut chore {
            Chore::Kill { cursors, .. } => cursors.truncate(MAX_CURSORS),
            Chore::End(sessions) if table.sessions + sessions.len() > MAX_SESSIONS_OF_ALL => return,
            Chore::End(_) | Chore::Abort { .. } => {}
        }
        let named = chore.sessions();
        let of_pool = table.chores.entry(pool).or_default();
        if of_pool.len() < MAX_OF_POOL {
            of_pool.push(chore);
            table.sessions += named;
        }
    }

    /// Whether there is one.
    pub fn is_any(&self, pool: PoolId) -> bool {
        self.table().chores.contains_key(&pool)
    }

    /// The next one, if there is one.
    pub fn take(&self, pool: PoolId) -> Option<Chore> {
        let mut table = self.table();
        let of_pool = table.chores.get_mut(&pool)?;
        let chore = of_pool.pop();
        if of_pool.is_empty() {
            table.chores.remove(&pool);
        }
        table.sessions -= chore.as_ref().map_or(0, Chore::sessions);
        chore
    }

    /// A pool has a server.
    pub fn note_used(&self, pool: PoolId) {
        self.table().used.insert(pool);
    }

    /// Whether it ever had one.
    pub fn is_used(&self, pool: PoolId) -> bool {
        self.table().used.contains(&pool)
    }
}

impl Chore {
    /// How many sessions it ends.
    fn sessions(&self) -> usize {
        if let Self::End(sessions) = self { sessions.len() } else { 0 }
    }

    /// Writes the request.
    pub fn write(&self, body: &mut Writer<'_>) {
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
            Self::Abort { session, number } => {
                body.int32("abortTransaction", 1);
                body.document("lsid", |lsid| _ = lsid.uuid("id", *session));
                body.int64("txnNumber", *number).bool("autocommit", false).text("$db", "admin");
            }
            Self::End(sessions) => {
                body.array("endSessions", |ended| {
                    for (index, session) in sessions.iter().take(MAX_SESSIONS).enumerate() {
                        ended.document(&index.to_string(), |lsid| _ = lsid.uuid("id", *session));
                    }
                });
                body.text("$db", "admin");
            }
        }
    }
}

/// What belongs to a connection whose driver believes in a load balancer.
#[derive(Default, Debug)]
pub struct Belongings {
    /// The collection that the present request is about.
    pub about: Option<Collection>,
    /// Its cursors.
    pub cursors: Vec<OwnCursor>,
    /// The session and the number of its transaction.
    pub transaction: Option<([u8; 16], i64)>,
}

/// A cursor that ends with its connection.
#[derive(Debug)]
pub struct OwnCursor {
    /// What the client was told, which may be another cursor's when this one is closed.
    pub told: i64,
    /// Where it is, and its id there.
    pub host: usize,
    pub id: i64,
    pub of: Collection,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_that_have_ended_are_not_kept_without_end() {
        let chores = Chores::default();
        let ended: Arc<[SessionId]> = vec![[1; 16]; MAX_SESSIONS].into();
        for pool in 0..100 {
            chores.add(PoolId(pool), Chore::End(Arc::clone(&ended)));
        }
        let kept = (0..100).filter(|pool| chores.is_any(PoolId(*pool))).count();
        assert_eq!(kept, MAX_SESSIONS_OF_ALL / MAX_SESSIONS);
        assert!(chores.take(PoolId(0)).is_some() && chores.take(PoolId(0)).is_none());
        chores.add(PoolId(99), Chore::End(ended));
        assert!(chores.is_any(PoolId(99)), "there is room again");
    }
}
