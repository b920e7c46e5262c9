//! A command that waits for its answer, in whichever language: what scripts of Redis and of MongoDB ask.

use super::{
    mongodb,
    names::VarId,
    redis::{self, TransactionEffect},
    sql::Piece,
};

/// One command, ready to be sent any number of times.
#[derive(Clone, PartialEq, Debug)]
pub struct Request(pub(super) Words);

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Words {
    Redis(redis::Command),
    MongoDb(mongodb::Command),
}

impl Request {
    /// How many words a command of Redis has; at least one.
    pub fn words(&self) -> usize {
        match &self.0 {
            Words::Redis(command) => command.words.len(),
            Words::MongoDb(_) => 0,
        }
    }

    /// What it does to the transaction of its connection if it succeeds.
    pub fn transaction_effect(&self) -> TransactionEffect {
        match &self.0 {
            Words::Redis(command) => command.effect,
            Words::MongoDb(_) => TransactionEffect::None,
        }
    }

    /// Names the variables within strings of a command of MongoDB, which stay as they are if nothing sets them.
    pub(super) fn for_each_quoted_variable(&self, name: &mut dyn FnMut(VarId)) {
        if let Words::MongoDb(command) = &self.0 {
            command.for_each_quoted_variable(name);
        }
    }

    pub(super) fn word(&self, word: usize) -> &[Piece] {
        match &self.0 {
            Words::Redis(command) => &command.words[word],
            Words::MongoDb(_) => &[],
        }
    }
}
