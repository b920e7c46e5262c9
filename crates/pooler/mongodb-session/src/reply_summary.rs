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
    /// The id of a cursor, and its place in the document.
    pub cursor: Option<(i64, usize)>,
    /// It is a state change error.
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
    fn a_cursor_is_found_with_its_place() {
        let bytes = written(|answer| {
            answer.document("cursor", |cursor| {
                cursor.array("firstBatch", |_| ()).int64("id", 77).text("ns", "app.c");
            });
            answer.double("ok", 1.0);
        });
        let (id, at) = summary(&bytes).cursor.unwrap();
        assert_eq!((id, &bytes[at..at + 8]), (77, &77i64.to_le_bytes()[..]));
        assert!(!summary(&bytes).state_changed);
    }

    #[test]
    fn what_tells_of_a_change_of_state_is_told_in_other_words() {
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
        let told = rewritten(None);
        assert!(!summary(&told).state_changed);
        let told = Document::read(&told).unwrap();
        assert_eq!(told.get("code").unwrap().unwrap().integer(), Some(6));
        assert_eq!(told.get("codeName").unwrap().unwrap().text(), Some("HostUnreachable"));
        assert_eq!(told.get("errmsg").unwrap().unwrap().text(), Some("(NOT_PRIMARY); (NODE_IS_RECOVERING)"));
        assert!(told.get("errorLabels").unwrap().unwrap().array().is_some());
    }

    #[test]
    fn a_write_concern_that_fails_in_a_transaction_is_no_reason_to_begin_it_anew() {
        let bytes = written(|answer| {
            answer.double("ok", 1.0).document("writeConcernError", |error| _ = error.int32("code", 91));
        });
        let labels = |label| {
            let told = written(|to| rewrite_labelled(Document::read(&bytes).unwrap(), Some(label), to).unwrap());
            Document::read(&told).unwrap().get("errorLabels").unwrap().is_some()
        };
        assert!(!labels("TransientTransactionError") && labels("RetryableWriteError"));
    }

    #[test]
    fn words_that_a_client_can_have_repeated_are_no_change_of_state() {
        let refused = |text: &str, code: Option<i32>| {
            written(|answer| {
                answer.double("ok", 0.0).text("errmsg", text);
                if let Some(code) = code {
                    answer.int32("code", code);
                }
            })
        };
        assert!(summary(&refused("not master", None)).state_changed);
        assert!(!summary(&refused("no such command: 'not primary'", Some(59))).state_changed);
        let duplicate = written(|answer| {
            answer.double("ok", 1.0).array("writeErrors", |errors| {
                errors.document("0", |error| _ = error.int32("code", 11_000).text("errmsg", "dup: not primary"));
            });
        });
        assert!(!summary(&duplicate).state_changed);
    }

    #[test]
    fn a_transaction_is_over_when_its_server_does_not_have_it_whatever_else_it_says() {
        let answer = |ok: f64, code: Option<i32>| {
            written(|answer| {
                answer.double("ok", ok);
                if let Some(code) = code {
                    answer.text("errmsg", "no").int32("code", code);
                }
            })
        };
        let is_aborted = |bytes: &[u8]| summary(bytes).is_aborted(Document::read(bytes).unwrap());
        assert!(is_aborted(&answer(1.0, None)));
        for (code, over) in
            [(225, true), (251, true), (256, true), (13, false), (50, false), (91, false), (10_107, false)]
        {
            assert_eq!(is_aborted(&answer(0.0, Some(code))), over, "{code}");
        }
        assert!(!is_aborted(&answer(0.0, None)));
    }

    #[test]
    fn a_commit_ends_its_transaction_when_it_is_done_or_when_the_transaction_is_to_be_begun_anew() {
        let answer = |ok: f64, code: Option<i32>, label: Option<&str>| {
            written(|answer| {
                answer.double("ok", ok);
                if let Some(code) = code {
                    answer.text("errmsg", "no").int32("code", code);
                }
                if let Some(label) = label {
                    answer.texts("errorLabels", &["another", label]);
                }
            })
        };
        let is_over = |bytes: &[u8]| summary(bytes).is_committed_or_gone(Document::read(bytes).unwrap());
        assert!(is_over(&answer(1.0, None, None)));
        let unsure = written(|answer| {
            answer.double("ok", 1.0).document("writeConcernError", |error| _ = error.int32("code", 64));
        });
        assert!(is_over(&unsure), "it is committed, though not yet everywhere");
        // `WriteConflict` with its label, `NoSuchTransaction`, `TransactionTooOld`, `TransactionCommitted`.
        assert!(is_over(&answer(0.0, Some(112), Some("TransientTransactionError"))));
        assert!([251, 225, 256].into_iter().all(|code| is_over(&answer(0.0, Some(code), None))));
        // `MaxTimeMSExpired`, `Unauthorized`, `Interrupted`, `PrimarySteppedDown`.
        for code in [50, 13, 11_601, 189] {
            assert!(!is_over(&answer(0.0, Some(code), Some("RetryableWriteError"))), "{code}");
        }
        let aborted = |bytes: &[u8]| summary(bytes).is_aborted(Document::read(bytes).unwrap());
        assert!(!aborted(&answer(0.0, Some(50), Some("TransientTransactionError"))), "of an abort it tells nothing");
    }

    #[test]
    fn other_errors_are_left_alone() {
        let bytes = written(|answer| {
            answer.double("ok", 0.0).text("errmsg", "no such command").int32("code", 59);
        });
        assert_eq!(summary(&bytes), ReplySummary::default());
    }
}
