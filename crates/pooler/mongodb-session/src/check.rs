//! What a server owes to Poolhouse itself before clients may use it: the answer to a ping or to a chore.

use crate::chores::UnderWay;

/// What a server owes before clients may use it.
pub struct Check {
    /// The id of the request.
    awaited: i32,
    /// The request of a client that has left, which wanted no answer.
    unwanted: Option<i32>,
    chore: Option<Box<UnderWay>>,
    /// Chores that it was given, one after the other.
    chores: u32,
}

impl Check {
    pub fn of_ping(id: i32) -> Self {
        Self { awaited: id, unwanted: None, chore: None, chores: 0 }
    }

    /// A ping behind the request of a client that has left, which wanted no answer.
    pub fn of_sign(id: i32, request: i32) -> Self {
        Self { unwanted: Some(request), ..Self::of_ping(id) }
    }

    /// The chore that is the last of so many.
    pub fn of_chore(id: i32, chore: UnderWay, chores: u32) -> Self {
        Self { awaited: id, unwanted: None, chore: Some(Box::new(chore)), chores }
    }

    /// The chore that the server has answered, if it was one.
    pub fn take_chore(&mut self) -> Option<UnderWay> {
        Some(*self.chore.take()?)
    }

    pub fn chores(&self) -> u32 {
        self.chores
    }

    pub fn awaits(&self, id: i32) -> bool {
        self.awaited == id
    }

    /// There are servers that answer though no answer is wanted.
    pub fn ignores(&self, id: i32) -> bool {
        self.unwanted == Some(id)
    }
}
