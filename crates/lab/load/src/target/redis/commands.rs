//! Commands of scripts for Redis.

use clients::redis::{Link, Words, kind_of};

use crate::{
    record::ErrorKind,
    script::{Client, Scripts, Step, Turn},
    target::run::{Operations, Refusal},
};

#[derive(Clone)]
pub(super) struct Commands {
    /// Memory for the command at hand.
    words: Words,
    /// What the command at hand means to the connection if it succeeds.
    turn: Turn,
    /// A transaction is open, or keys are watched.
    in_transaction: bool,
}

impl Commands {
    pub(super) fn new() -> Self {
        Self { words: Words::default(), turn: Turn::Plain, in_transaction: false }
    }
}

impl Operations for Commands {
    type Link = Link;

    fn ask(
        &mut self,
        link: &mut Link,
        step: &Step<'_>,
        (client, scripts): (&Client, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        let Step::Ask(request) = step else { unreachable!("a script of commands holds no SQL") };
        self.words.clear();
        for word in 0..request.words() {
            self.words.push(|to| client.write_word(scripts, request, word, to))?;
        }
        self.turn = request.turn();
        link.requester().ask(&self.words, out);
        Ok(())
    }

    fn read_answer(&mut self, link: &mut Link, _: &mut Client, _: &Scripts) -> Result<(), Refusal> {
        if let Some(error) = link.requester().error() {
            return Err(Refusal { kind: kind_of(error), said: Some(error.to_string()) });
        }
        match self.turn {
            Turn::Begins => self.in_transaction = true,
            Turn::Ends => self.in_transaction = false,
            Turn::Plain => {}
        }
        Ok(())
    }

    fn in_transaction(&self, _: &mut Link) -> bool {
        self.in_transaction
    }
}
