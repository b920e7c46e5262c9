//! What a pooler has to know about a command: what it names, and its part in a transaction.

use crate::bson::{Document, Malformed, Value};

/// Maximum number of elements in a command. Commands have a few dozen at most, and reading millions would block a
/// worker.
const MAX_ELEMENTS: usize = 1_000;

#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// The name of the body's first element.
    pub name: &'a str,
    /// The first element's value: often a collection.
    pub subject: Value<'a>,
    /// Where that value is in the body.
    pub subject_at: usize,
    /// `$db`.
    pub database: &'a str,
    /// `lsid.id`.
    session: Option<SessionId>,
    /// `txnNumber`.
    number: Option<i64>,
    /// The mode of its read preference.
    pub preference: Option<&'a str>,
    pub transaction: Transaction,
    pub body: Document<'a>,
}

/// The id of a logical session (`lsid.id`).
pub type SessionId = [u8; 16];

/// `lsid.id` and `txnNumber` of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransactionId {
    pub session: SessionId,
    pub number: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transaction {
    None,
    /// No part, but the command has a `txnNumber`, so the server detects a retry.
    RetryableWrite,
    Starts,
    Continues,
    Commits,
    Aborts,
}

impl Transaction {
    pub fn is_within(self) -> bool {
        !matches!(self, Self::None | Self::RetryableWrite)
    }

    pub fn ends(self) -> bool {
        matches!(self, Self::Commits | Self::Aborts)
    }
}

impl<'a> Command<'a> {
    /// Reads a body. `database` is that of an OP_QUERY, which is outside its body.
    pub fn read(body: Document<'a>, database: &'a str) -> Result<Self, Malformed> {
        let mut elements = body.elements();
        let first = elements.next().ok_or(Malformed("an empty command"))??;
        let (mut autocommit, mut starts) = (true, false);
        let mut seen = [false; 3];
        let mut once = |index: usize| match std::mem::replace(&mut seen[index], true) {
            true => Err(Malformed("a command that says a thing twice")),
            false => Ok(()),
        };
        let mut command = Self {
            name: first.name,
            subject: first.value()?,
            subject_at: first.at,
            preference: None,
            database,
            session: None,
            number: None,
            transaction: Transaction::None,
            body,
        };
        for (count, element) in elements.enumerate() {
            let element = element?;
            if count == MAX_ELEMENTS {
                return Err(Malformed("a command of too many elements"));
            }
            match element.name {
                // A server may use the first or the last of two elements with one name, and routing must agree with it.
                name if name == first.name => return Err(Malformed("a command that says its name twice")),
                "$db" => {
                    once(0)?;
                    command.database = element.value()?.text().ok_or(Malformed("`$db` is no string"))?;
                }
                "lsid" => {
                    once(1)?;
                    command.session = session(element.value()?)?;
                }
                "cursors" => once(2)?,
                "$readPreference" => {
                    let preference =
                        element.value()?.document().map(|document| document.get_nested("mode")).transpose()?;
                    command.preference = preference.flatten().and_then(Value::text);
                }
                "txnNumber" => command.number = element.value()?.integer(),
                "autocommit" => autocommit = element.value()?.truth(),
                "startTransaction" => starts = element.value()?.truth(),
                _ => {}
            }
        }
        command.transaction = match (autocommit, starts, command.name) {
            (true, ..) if command.number.is_some() => Transaction::RetryableWrite,
            (true, ..) => Transaction::None,
            (false, _, "commitTransaction") => Transaction::Commits,
            (false, _, "abortTransaction") => Transaction::Aborts,
            (false, true, _) => Transaction::Starts,
            (false, false, _) => Transaction::Continues,
        };
        Ok(command)
    }

    pub fn transaction_id(&self) -> Option<TransactionId> {
        let (session, number) = self.session.zip(self.number).filter(|_| self.transaction.is_within())?;
        Some(TransactionId { session, number })
    }
}

fn session(lsid: Value<'_>) -> Result<Option<SessionId>, Malformed> {
    const WRONG: Malformed = Malformed("`lsid` has no id of 16 bytes");
    let id = lsid.document().ok_or(WRONG)?.get_nested("id")?;
    match id {
        Some(Value::Binary(_, id)) => id.try_into().map(Some).map_err(|_| WRONG),
        _ => Err(WRONG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bson::{MAX_NESTED_ELEMENTS, Writer};

    fn read<R>(write: impl FnOnce(&mut Writer<'_>), check: impl FnOnce(Result<Command<'_>, Malformed>) -> R) -> R {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes));
        check(Command::read(Document::read(&bytes).unwrap(), "test"))
    }

    #[test]
    fn a_command_has_so_many_elements_and_no_more() {
        let of = |count: usize| {
            move |body: &mut Writer<'_>| {
                body.int32("ping", 1);
                (0..count).for_each(|number| _ = body.null(&number.to_string()));
            }
        };
        read(of(MAX_ELEMENTS), |command| assert!(command.is_ok()));
        read(of(MAX_ELEMENTS + 1), |command| assert_eq!(command.unwrap_err().0, "a command of too many elements"));
    }

    #[test]
    fn so_do_documents_in_it_that_are_looked_into() {
        for (name, last) in [("$readPreference", "mode"), ("lsid", "id")] {
            let of = |count: usize| {
                move |body: &mut Writer<'_>| {
                    body.int32("find", 1).document(name, |within| {
                        (1..count).for_each(|number| _ = within.null(&number.to_string()));
                        within.binary(last, b"0123456789abcdef");
                    });
                }
            };
            read(of(MAX_NESTED_ELEMENTS), |command| assert!(command.is_ok(), "{name}"));
            let error = "a document of too many elements within a command";
            read(of(MAX_NESTED_ELEMENTS + 1), |command| assert_eq!(command.unwrap_err().0, error, "{name}"));
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        read(|_| (), |command| assert_eq!(command.unwrap_err().0, "an empty command"));
        let no_text = |body: &mut Writer<'_>| {
            body.int32("ping", 1).int32("$db", 1);
        };
        read(no_text, |command| assert_eq!(command.unwrap_err().0, "`$db` is no string"));
        let short = |body: &mut Writer<'_>| {
            body.int32("ping", 1).document("lsid", |lsid| {
                lsid.binary("id", b"short");
            });
        };
        read(short, |command| assert!(command.is_err()));
    }
}
