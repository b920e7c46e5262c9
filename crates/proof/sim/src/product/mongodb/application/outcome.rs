//! The outcome of a command.

use mongodb_session::{
    bson::{Document, Value},
    wire::{self, Header},
};

use super::super::{answer_text, protocol::STATE_CHANGES};

#[derive(Clone, Debug)]
pub enum Outcome {
    /// Executed, with the rows of a batch and the id of the cursor, if the answer has these.
    Done {
        batch: Vec<String>,
        cursor: i64,
    },
    Refused(Refusal),
    /// The connection ended before an answer.
    Lost(String),
}

/// An error in place of an answer.
#[derive(Clone, Debug)]
pub struct Refusal {
    pub code: i64,
    pub text: String,
    /// It has the label RetryableWriteError.
    pub retryable: bool,
    /// It has the label TransientTransactionError.
    pub transient: bool,
}

impl Refusal {
    /// Whether the command was certainly not executed.
    pub fn is_not_executed(&self) -> bool {
        answer_text::says_not_executed(&self.text)
    }
}

fn batch(answer: Document<'_>) -> Option<(Vec<String>, i64)> {
    let cursor = answer.get("cursor").ok()??.document()?;
    let rows = cursor.get("firstBatch").ok()?.or(cursor.get("nextBatch").ok()?)?.array()?;
    let rows = rows.elements().flatten().filter_map(|row| row.value().ok()?.document()?.get("v").ok()??.text());
    Some((rows.map(str::to_owned).collect(), cursor.get("id").ok()??.integer()?))
}

impl Outcome {
    /// Reads the answer to a request. If another answer follows (`moreToCome`), also the id that it will refer to.
    pub fn read(message: &[u8], asked: i32) -> (Self, Option<i32>) {
        let header = Header::read(message).expect("it is whole").expect("a header that may be");
        assert_eq!(header.answers, asked, "an answer to another request");
        let more = wire::flags(message).filter(|flags| flags & wire::MORE_TO_COME != 0).map(|_| header.id);
        let answer = wire::reply_document(message, &header).expect("an answer that is well formed");
        let Some((code, text)) = answer_text::error(answer) else {
            assert_eq!(answer.get("ok").ok().flatten().map(Value::truth), Some(true), "an answer without a result");
            let (batch, cursor) = batch(answer).unwrap_or_default();
            return (Self::Done { batch, cursor }, more);
        };
        assert!(
            !STATE_CHANGES.contains(&code) || text.starts_with("Poolhouse:"),
            "a driver gets a state change error: {code} {text}"
        );
        let retryable = answer_text::has_label(answer, "RetryableWriteError");
        let transient = answer_text::has_label(answer, "TransientTransactionError");
        (Self::Refused(Refusal { code, text, retryable, transient }), more)
    }
}
