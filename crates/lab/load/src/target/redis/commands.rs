//! Commands of scripts for Redis.

use clients::redis::{Requester, Words, kind_of};

use crate::{
    record::ErrorKind,
    script::{ScriptClient, Scripts, Step, TransactionEffect},
    target::run::{Refusal, ScriptExchange},
};

/// The kind of error of an EXEC whose transaction the server has discarded.
const EXEC_ABORTED: &str = "EXECABORT";

#[derive(Clone)]
pub(in crate::target) struct Commands {
    /// Memory for the command at hand.
    words: Words,
    /// What the command at hand does to the transaction if it succeeds.
    effect: TransactionEffect,
    transaction: Transaction,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transaction {
    None,
    /// Keys are watched, and no transaction is open.
    Watching,
    Open,
}

impl Transaction {
    /// The transaction after the answer to a command; `error` is the kind of its error.
    fn after(self, effect: TransactionEffect, error: Option<&str>) -> Self {
        match (effect, error) {
            // The server has discarded the transaction.
            (_, Some(EXEC_ABORTED)) => Self::None,
            (_, Some(_)) | (TransactionEffect::None, None) => self,
            (TransactionEffect::Watch, None) => Self::Watching,
            (TransactionEffect::Begin, None) => Self::Open,
            (TransactionEffect::End, None) => Self::None,
            (TransactionEffect::Unwatch, None) if self == Self::Open => Self::Open,
            (TransactionEffect::Unwatch, None) => Self::None,
        }
    }
}

impl Commands {
    pub(in crate::target) fn new() -> Self {
        Self { words: Words::default(), effect: TransactionEffect::None, transaction: Transaction::None }
    }
}

impl ScriptExchange for Commands {
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
        self.effect = request.transaction_effect();
        requester.request(&self.words, out);
        Ok(())
    }

    fn read_answer(&mut self, requester: &mut Requester, _: &mut ScriptClient, _: &Scripts) -> Result<(), Refusal> {
        self.transaction = self.transaction.after(self.effect, requester.error().map(|error| error.kind()));
        if let Some(error) = requester.error() {
            return Err(Refusal { kind: kind_of(error), said: Some(error.to_string()) });
        }
        Ok(())
    }

    fn in_transaction(&self, _: &Requester) -> bool {
        self.transaction != Transaction::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_lasts_until_the_server_ends_it() {
        use TransactionEffect::{Begin, End, None as Plain, Unwatch, Watch};
        for (answers, expected) in [
            (&[(Begin, None), (Unwatch, None)][..], Transaction::Open),
            (&[(Begin, None), (Unwatch, None), (End, None)], Transaction::None),
            (&[(Watch, None), (Unwatch, None)], Transaction::None),
            (&[(Watch, None), (Plain, Some("ERR"))], Transaction::Watching),
            (&[(Watch, None), (Begin, None)], Transaction::Open),
            (&[(Begin, None), (Plain, Some("ERR"))], Transaction::Open),
            (&[(Begin, None), (Plain, Some("ERR")), (End, Some(EXEC_ABORTED))], Transaction::None),
            (&[(Watch, None), (End, Some("ERR"))], Transaction::Watching),
        ] {
            let state = answers.iter().fold(Transaction::None, |state, (effect, error)| state.after(*effect, *error));
            assert_eq!(state, expected, "{answers:?}");
        }
    }
}
