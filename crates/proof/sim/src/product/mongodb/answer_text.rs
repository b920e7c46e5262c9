//! Answers as texts for comparison, without parts that differ between servers and between attempts.

use mongodb_session::bson::{Document, Malformed, Value};

/// Fields of a `hello` that are compared. Only members of a replica set have those from `hosts` on.
const HELLO: [&str; 15] = [
    "ismaster",
    "isWritablePrimary",
    "helloOk",
    "msg",
    "minWireVersion",
    "maxWireVersion",
    "logicalSessionTimeoutMinutes",
    "ok",
    "hosts",
    "setName",
    "setVersion",
    "secondary",
    "primary",
    "me",
    "electionId",
];

/// Parts of errors that say that the command was not executed.
const NOT_EXECUTED: [&str; 7] = [
    "(NOT_PRIMARY)",
    "Poolhouse: no server connection became free",
    "Poolhouse: no connection to MongoDB",
    "Poolhouse: too many requests wait",
    "Poolhouse: no host of MongoDB",
    "Poolhouse: this request would keep",
    "Poolhouse: the primary at which",
];

pub fn text(answer: Document<'_>) -> Result<String, Malformed> {
    let mut text = String::new();
    if answer.get("maxWireVersion")?.is_some() {
        for name in HELLO {
            if let Some(value) = answer.get(name)? {
                text += &format!("{name}: {value:?}, ");
            }
        }
        return Ok(text);
    }
    write(answer, "", &mut text)?;
    Ok(text)
}

fn write(document: Document<'_>, within: &str, to: &mut String) -> Result<(), Malformed> {
    for element in document.elements() {
        let element = element?;
        let value = element.value()?;
        match (within, element.name, value) {
            // Only a retried write that was already executed has this field.
            ("", "retriedStmtIds", _) => {}
            ("cursor", "id", Value::Int64(id)) => *to += if id == 0 { "over, " } else { "open, " },
            ("", name @ ("cursorsKilled" | "cursorsNotFound"), Value::Array(ids)) => {
                *to += &format!("{name}: {}, ", ids.elements().count());
            }
            (_, name, Value::Document(inner)) => {
                *to += &format!("{name}: {{");
                write(inner, name, to)?;
                *to += "}, ";
            }
            (_, name, Value::Array(inner)) => {
                *to += &format!("{name}: [");
                write(inner, name, to)?;
                *to += "], ";
            }
            (_, name, value) => *to += &format!("{name}: {value:?}, "),
        }
    }
    Ok(())
}

/// The cursor id of an answer.
pub fn cursor(answer: Document<'_>) -> Option<i64> {
    answer.get("cursor").ok()??.document()?.get("id").ok()??.integer()
}

/// The code and the text of an error.
pub fn error(answer: Document<'_>) -> Option<(i64, String)> {
    if answer.get("ok").ok()??.truth() {
        return None;
    }
    let text = answer.get("errmsg").ok().flatten().and_then(Value::text).unwrap_or_default().to_owned();
    Some((answer.get("code").ok().flatten().and_then(Value::integer).unwrap_or(0), text))
}

/// Whether the text of an error says that the command was certainly not executed.
pub fn says_not_executed(error: &str) -> bool {
    NOT_EXECUTED.iter().any(|words| error.contains(words))
}

pub fn has_label(answer: Document<'_>, label: &str) -> bool {
    let labels = answer.get("errorLabels").ok().flatten().and_then(Value::array);
    let labels = labels.into_iter().flat_map(Document::elements).flatten();
    labels.filter_map(|element| element.value().ok()?.text()).any(|found| found == label)
}
