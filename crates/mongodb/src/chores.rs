//! What is to be ended at a host for clients that do not wait for it: cursors of a `killCursors` that are at another host than the one that
//! answers it, and, where drivers believe in a load balancer, the cursors and the transaction of a connection that has ended: with
//! `loadBalanced=true` these belong to the connection. The next server connection of the pool that is done with a request sees to it.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use protocol::PoolId;

use crate::bson::Writer;

/// Cursors of a chore that are closed at most.
const MAX_CURSORS: usize = 1_000;

/// Chores of a pool at most; a server ends what nobody uses by itself.
const MAX_OF_POOL: usize = 1_000;

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
}

/// A collection of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collection {
    pub database: Box<str>,
    pub name: Box<str>,
}

/// See the file's head.
#[derive(Default)]
pub struct Chores(Mutex<HashMap<PoolId, Vec<Chore>>>);

impl Chores {
    /// A server of this pool is to see to it.
    pub fn add(&self, pool: PoolId, mut chore: Chore) {
        if let Chore::Kill { cursors, .. } = &mut chore {
            cursors.truncate(MAX_CURSORS);
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pool = all.entry(pool).or_default();
        if of_pool.len() < MAX_OF_POOL {
            of_pool.push(chore);
        }
    }

    /// The next one, if there is one.
    pub fn take(&self, pool: PoolId) -> Option<Chore> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pool = all.get_mut(&pool)?;
        let chore = of_pool.pop();
        if of_pool.is_empty() {
            all.remove(&pool);
        }
        chore
    }
}

impl Chore {
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
