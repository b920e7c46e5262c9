//! A command that waits for its answer, in whichever language: what scripts of Redis and of MongoDB ask.

use super::{
    mongodb,
    redis::{self, Turn},
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

    /// What it means to the connection.
    pub fn turn(&self) -> Turn {
        match &self.0 {
            Words::Redis(command) => command.turn,
            Words::MongoDb(_) => Turn::Plain,
        }
    }

    pub(super) fn word(&self, word: usize) -> &[Piece] {
        match &self.0 {
            Words::Redis(command) => &command.words[word],
            Words::MongoDb(_) => &[],
        }
    }
}
