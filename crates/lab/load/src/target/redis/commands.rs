//! Commands of scripts for Redis.

use clients::redis::{Requester, Words, kind_of};

use crate::{
    record::ErrorKind,
    script::{ScriptClient, Scripts, Step, Turn},
    target::run::{Operations, Refusal},
};

#[derive(Clone)]
pub(in crate::target) struct Commands {
    /// Memory for the command at hand.
    words: Words,
    /// What the command at hand means to the connection if it succeeds.
    turn: Turn,
    /// A transaction is open, or keys are watched.
    in_transaction: bool,
}

impl Commands {
    pub(in crate::target) fn new() -> Self {
        Self { words: Words::default(), turn: Turn::Plain, in_transaction: false }
    }
}

impl Operations for Commands {
    type Protocol = Requester;

    fn write_request(
        &mut self,
        requester: &mut Requester,
        step: &Step<'_>,
        (client, scripts): (&ScriptClient, &Scripts),
        out: &mut Vec<u8>,
    ) -> Result<(), ErrorKind> {
        let Step::Request(request) = step else { unreachable!("a script of commands holds no SQL") };
        self.words.clear();
        for word in 0..request.words() {
            self.words.push(|to| client.write_word(scripts, request, word, to))?;
        }
        self.turn = request.turn();
        requester.request(&self.words, out);
        Ok(())
    }

    fn read_answer(&mut self, requester: &mut Requester, _: &mut ScriptClient, _: &Scripts) -> Result<(), Refusal> {
        if let Some(error) = requester.error() {
            return Err(Refusal { kind: kind_of(error), said: Some(error.to_string()) });
        }
        match self.turn {
            Turn::Begins => self.in_transaction = true,
            Turn::Ends => self.in_transaction = false,
            Turn::Plain => {}
        }
        Ok(())
    }

    fn in_transaction(&self, _: &Requester) -> bool {
        self.in_transaction
    }
}
