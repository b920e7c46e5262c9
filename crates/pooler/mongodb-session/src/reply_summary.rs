//! What a pooler has to know about a server's reply: the cursor that it opens, whether a transaction is over, and
//! whether it is a state change error.
//!
//! A driver that gets a state change error marks the server unknown and clears its pool. Here the server is Poolhouse,
//! whose state has not changed. So these errors are rewritten as mongos does it: with code 6, another message and the
//! same labels.

use crate::{
    bson::{Document, Malformed, Value, Writer},
    errors::Code,
};

/// Codes of state change errors: see the drivers' specification "Server Discovery and Monitoring".
const STATE_CHANGES: [i64; 9] = [91, 189, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436, 17_405];

const CURSOR_NOT_FOUND: i64 = 43;

/// The server no longer has the transaction: `TransactionTooOld`, `NoSuchTransaction`, `TransactionCommitted`.
const NO_SUCH_TRANSACTION: [i64; 3] = [225, 251, 256];

/// In the reply to a commit this label tells that the server has aborted the transaction. In the reply to an abort it
/// adds nothing to the code.
const TRANSIENT_TRANSACTION_ERROR: &str = "TransientTransactionError";

/// Phrases of state change errors without a code, and replacements that drivers do not recognise.
const PHRASES: [(&str, &str); 3] =
    [("not master", "(NOT_PRIMARY)"), ("not primary", "(NOT_PRIMARY)"), ("node is recovering", "(NODE_IS_RECOVERING)")];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplySummary {
    /// The id of a cursor, and its offset in the document.
    pub cursor: Option<(i64, usize)>,
    pub state_changed: bool,
    /// The host does not know the cursor, and has done nothing.
    pub no_such_cursor: bool,
    /// The host no longer has the transaction.
    pub no_such_transaction: bool,
    /// It has the label `TransientTransactionError`.
    pub is_transient_transaction_error: bool,
}

impl ReplySummary {
    /// Whether the reply to an abort shows that the transaction is over. Drivers ignore errors of an abort (see the
    /// specification "Transactions"), but after any other error the server may still have it, with its locks.
    pub fn is_aborted(&self, answer: Document<'_>) -> bool {
        self.no_such_transaction || is_ok(answer)
    }

    /// Whether the reply to a commit shows that the transaction is over: it is committed, even if its write concern has
    /// failed (`ok` is 1 then), or the server has aborted it. After any other error it may be open: the command was
    /// refused before it reached the transaction, or was interrupted. Drivers call that an unknown commit result, and
    /// retry the commit.
    pub fn is_committed_or_gone(&self, answer: Document<'_>) -> bool {
        self.is_aborted(answer) || self.is_transient_transaction_error
    }

    pub fn read(answer: Document<'_>) -> Result<Self, Malformed> {
        let (mut summary, mut words) = (Self::default(), false);
        for element in answer.elements() {
            let element = element?;
            match (element.name, element.value()?) {
                ("cursor", Value::Document(cursor)) => {
                    for inner in cursor.elements() {
                        let inner = inner?;
                        if let ("id", Value::Int64(id)) = (inner.name, inner.value()?) {
                            summary.cursor = Some((id, element.at + inner.at));
                        }
                    }
                }
                ("code", code) => {
                    summary.state_changed |= is_state_change(code);
                    summary.no_such_cursor = code.integer() == Some(CURSOR_NOT_FOUND);
                    summary.no_such_transaction =
                        code.integer().is_some_and(|code| NO_SUCH_TRANSACTION.contains(&code));
                }
                ("errmsg", Value::Text(text)) => words = tells_state_change(text),
                ("errorLabels", Value::Array(labels)) => {
                    for label in labels.elements() {
                        summary.is_transient_transaction_error |=
                            label?.value()?.text() == Some(TRANSIENT_TRANSACTION_ERROR);
                    }
                }
                ("writeConcernError", Value::Document(error)) => {
                    let words = error.get("errmsg")?.and_then(Value::text).is_some_and(tells_state_change);
                    summary.state_changed |= error.get("code")?.map_or(words, is_state_change);
                }
                // Messages of write errors contain data, so only their codes count.
                ("writeErrors", Value::Array(errors)) => {
                    for error in errors.elements() {
                        if let Value::Document(error) = error?.value()? {
                            summary.state_changed |= error.get("code")?.is_some_and(is_state_change);
                        }
                    }
                }
                _ => {}
            }
        }
        // A client can have its own words repeated in a message, but only in an error with a code.
        summary.state_changed |= words && answer.get("code")?.is_none();
        Ok(summary)
    }
}

pub fn is_ok(answer: Document<'_>) -> bool {
    answer.get("ok").ok().flatten().is_none_or(Value::truth)
}

fn is_state_change(code: Value<'_>) -> bool {
    code.integer().is_some_and(|code| STATE_CHANGES.contains(&code))
}

pub fn is_state_change_code(code: i32) -> bool {
    STATE_CHANGES.contains(&code.into())
}

fn tells_state_change(text: &str) -> bool {
    PHRASES.iter().any(|(phrase, _)| text.contains(phrase))
}

/// A `writeConcernError` may have this label, too. The write itself is done, so there is no transaction to retry.
const RETRYABLE_WRITE_ERROR: &str = "RetryableWriteError";

/// Writes a state change error as mongos would, with this label if it has none: servers leave labels to the mongos.
pub fn rewrite_labelled(answer: Document<'_>, label: Option<&str>, to: &mut Writer<'_>) -> Result<(), Malformed> {
    rewrite(answer, to)?;
    let refused = answer.get("code")?.is_some();
    let unsure = answer.get("writeConcernError")?.is_some();
    if let Some(label) = label.filter(|label| refused || unsure && *label == RETRYABLE_WRITE_ERROR)
        && answer.get("errorLabels")?.is_none()
    {
        to.texts("errorLabels", &[label]);
    }
    Ok(())
}

fn rewrite(answer: Document<'_>, to: &mut Writer<'_>) -> Result<(), Malformed> {
    let changed = answer.get("code")?.is_none_or(is_state_change);
    for element in answer.elements() {
        let element = element?;
        match (element.name, element.value()?) {
            ("code", code) if is_state_change(code) => _ = to.int32("code", Code::HostUnreachable as i32),
            ("codeName", _) if answer.get("code")?.is_some_and(is_state_change) => {
                to.text("codeName", Code::HostUnreachable.name());
            }
            ("errmsg", Value::Text(text)) if changed => {
                let phrase = |text: String, (from, to): &(&str, &str)| text.replace(from, to);
                to.text("errmsg", &PHRASES.iter().fold(text.to_owned(), phrase));
            }
            (name @ "writeConcernError", Value::Document(error)) => {
                let mut inner = Ok(());
                to.document(name, |to| inner = rewrite(error, to));
                inner?;
            }
            (name @ "writeErrors", Value::Array(errors)) => {
                let mut inner = Ok(());
                to.array(name, |to| inner = rewrite_each(errors, to));
                inner?;
            }
            _ => _ = to.copy(&element),
        }
    }
    Ok(())
}

fn rewrite_each(errors: Document<'_>, to: &mut Writer<'_>) -> Result<(), Malformed> {
    for element in errors.elements() {
        let element = element?;
        match element.value()? {
            Value::Document(error) => {
                let mut inner = Ok(());
                to.document(element.name, |to| inner = rewrite(error, to));
                inner?;
            }
            _ => _ = to.copy(&element),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes));
        bytes
    }

    fn summary(bytes: &[u8]) -> ReplySummary {
        ReplySummary::read(Document::read(bytes).unwrap()).unwrap()
    }

    #[test]
    fn a_state_change_error_is_rewritten() {
        let bytes = written(|answer| {
            answer.double("ok", 0.0).text("errmsg", "not master; node is recovering").int32("code", 10_107);
            answer.text("codeName", "NotWritablePrimary").texts("errorLabels", &["RetryableWriteError"]);
            answer.document("writeConcernError", |error| {
                error.int32("code", 91).text("errmsg", "shutting down");
            });
            answer.array("writeErrors", |errors| {
                errors.document("0", |error| {
                    error.int32("index", 0).int32("code", 189);
                });
            });
        });
        assert!(summary(&bytes).state_changed);
        let rewritten = |label| written(|to| rewrite_labelled(Document::read(&bytes).unwrap(), label, to).unwrap());
        assert_eq!(rewritten(None), rewritten(Some("another")), "it has one");
        let reply = rewritten(None);
        assert!(!summary(&reply).state_changed);
        let reply = Document::read(&reply).unwrap();
        assert_eq!(reply.get("code").unwrap().unwrap().integer(), Some(6));
        assert_eq!(reply.get("codeName").unwrap().unwrap().text(), Some("HostUnreachable"));
        assert_eq!(reply.get("errmsg").unwrap().unwrap().text(), Some("(NOT_PRIMARY); (NODE_IS_RECOVERING)"));
        assert!(reply.get("errorLabels").unwrap().unwrap().array().is_some());
    }

    #[test]
    fn a_write_concern_that_fails_in_a_transaction_is_no_reason_to_begin_it_anew() {
        let bytes = written(|answer| {
            answer.double("ok", 1.0).document("writeConcernError", |error| _ = error.int32("code", 91));
        });
        let labels = |label| {
            let reply = written(|to| rewrite_labelled(Document::read(&bytes).unwrap(), Some(label), to).unwrap());
            Document::read(&reply).unwrap().get("errorLabels").unwrap().is_some()
        };
        assert!(!labels("TransientTransactionError") && labels("RetryableWriteError"));
    }

    /// What the reply to an abort and to a commit with this code and this label tells: whether the transaction is over.
    fn ends(ok: f64, code: Option<i32>, label: Option<&str>) -> [bool; 2] {
        let bytes = written(|answer| {
            answer.double("ok", ok);
            if let Some(code) = code {
                answer.text("errmsg", "no").int32("code", code);
            }
            if let Some(label) = label {
                answer.texts("errorLabels", &["another", label]);
            }
        });
        let (summary, reply) = (summary(&bytes), Document::read(&bytes).unwrap());
        [summary.is_aborted(reply), summary.is_committed_or_gone(reply)]
    }

    #[test]
    fn a_transaction_is_over_if_the_server_has_ended_it_or_does_not_have_it() {
        assert_eq!(ends(1.0, None, None), [true, true]);
        assert_eq!(ends(0.0, None, None), [false, false]);
        // `TransactionTooOld`, `NoSuchTransaction`, `TransactionCommitted`.
        for code in [225, 251, 256] {
            assert_eq!(ends(0.0, Some(code), None), [true, true], "{code}");
        }
        // `Unauthorized`, `MaxTimeMSExpired`, `ShutdownInProgress`, `PrimarySteppedDown`, `NotWritablePrimary`,
        // `Interrupted`.
        for code in [13, 50, 91, 189, 10_107, 11_601] {
            assert_eq!(ends(0.0, Some(code), Some("RetryableWriteError")), [false, false], "{code}");
        }
        // After a `WriteConflict` the whole transaction is retried. The label tells nothing of an abort.
        assert_eq!(ends(0.0, Some(112), Some("TransientTransactionError")), [false, true]);
        let unsure = written(|answer| {
            answer.double("ok", 1.0).document("writeConcernError", |error| _ = error.int32("code", 64));
        });
        let is_over = summary(&unsure).is_committed_or_gone(Document::read(&unsure).unwrap());
        assert!(is_over, "it is committed, though not yet everywhere");
    }
}
