//! What a task of an application knows when it judges an answer, and how it goes on then.

use std::time::Duration;

use mongodb_session::bson::Writer;

use super::{
    answer::Refusal,
    judge::{Judge, Row},
};
use crate::{
    databases::mongodb::{HOT, MongoDb},
    random::Rng,
};

pub struct Court<'a> {
    pub judge: &'a mut Judge,
    pub real: &'a MongoDb,
    /// There was a fault since the command was asked, or shortly before.
    pub hurt: bool,
    /// Others have what is hot for themselves at times.
    pub rng: &'a mut Rng,
    /// The number of the session's last write or transaction.
    pub last_number: &'a mut i64,
}

pub enum Next {
    /// With the next command, after a while.
    Ask(Duration),
    Over,
}

/// With the next command, at once.
pub const ASK: Next = Next::Ask(Duration::ZERO);

impl Court<'_> {
    /// An error that stands for a fault, and for nothing else.
    pub fn excuse(&self, what: &str, refusal: &Refusal) {
        let known = refusal.text.starts_with("Poolhouse:") || refusal.code == 6;
        assert!(self.hurt && known, "{what} is refused: {refusal:?}");
    }

    /// The same, where the connection was lost.
    pub fn excuse_loss(&self, what: &str, why: &str) {
        assert!(self.hurt, "{what} loses its connection: {why}");
    }
}

/// Writes the command that writes a row.
pub fn write_row(body: &mut Writer<'_>, (collection, row): &Row) {
    if collection == HOT {
        body.text("update", collection);
        body.array("updates", |updates| {
            updates.document("0", |update| {
                update.document("q", |q| _ = q.int32("_id", 1));
                update.document("u", |u| _ = u.document("$push", |push| _ = push.text("v", row)));
            });
        });
    } else {
        body.text("insert", collection);
        body.array("documents", |documents| _ = documents.document("0", |document| _ = document.text("v", row)));
    }
}
