//! Commands about a MongoDB itself over one connection, one after the other, as `poolhouse doctor` sends them. Commands
//! and answers are JSON; values of BSON without a counterpart in JSON become null.

use std::time::Duration;

use mongodb_session::bson::{Document, Malformed, Value as Bson, Writer};
use serde_json::{Map, Number, Value};
use settings::Secret;

use super::{options::ConnectOptions, requester::Requester};
use crate::{TargetError, blocking::BlockingClient};

/// Nesting of an answer; deeper values become null.
const MAX_DEPTH: usize = 12;
/// Elements of an answer; the rest is left out.
const MAX_ELEMENTS: usize = 500_000;

/// A connection for queries.
pub struct Querier {
    client: BlockingClient<'static, Requester>,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    /// It was carried out.
    Done(Value),
    /// The server refuses it.
    Refused {
        /// The number of the error in MongoDB's list.
        code: i32,
        /// For people.
        message: String,
    },
}

impl Querier {
    /// Connects and logs in within `timeout`.
    ///
    /// # Errors
    /// What is wrong with the URL, or why there is no connection; without the password.
    pub fn connect(url: &Secret, timeout: Duration) -> Result<Self, TargetError> {
        Ok(Self { client: BlockingClient::connect(ConnectOptions::of(url, None)?, timeout)? })
    }

    /// Sends a command to `database`; the command's name is its first element. Of an answer in batches the last one is
    /// kept. After an error the connection is of no use.
    ///
    /// # Errors
    /// The server is gone, does not keep to its protocol, or takes longer than `timeout`.
    pub fn query(
        &mut self,
        database: &str,
        command: &[(&str, Value)],
        timeout: Duration,
    ) -> Result<Reply, TargetError> {
        let mut bytes = Vec::new();
        {
            let mut writer = Writer::new(&mut bytes);
            command.iter().for_each(|(name, value)| write(&mut writer, name, value));
            writer.text("$db", database);
        }
        let requester = self.client.request(|requester, out| requester.request_reply(&bytes, out), timeout)?;
        if let Some(error) = requester.error() {
            return Ok(Reply::Refused { code: error.code, message: error.to_string() });
        }
        let read = requester.reply().ok_or(Malformed("an answer that is no document")).and_then(to_bounded_json);
        read.map(Reply::Done).map_err(|Malformed(what)| TargetError::target(format!("this is no MongoDB: {what}")))
    }
}

fn write(to: &mut Writer<'_>, name: &str, value: &Value) {
    match value {
        Value::Null => _ = to.null(name),
        Value::Bool(value) => _ = to.bool(name, *value),
        Value::Number(number) => write_number(to, name, number),
        Value::String(text) => _ = to.text(name, text),
        Value::Array(values) => {
            to.array(name, |all| {
                values.iter().enumerate().for_each(|(n, value)| write(all, &n.to_string(), value));
            });
        }
        Value::Object(values) => {
            to.document(name, |all| values.iter().for_each(|(name, value)| write(all, name, value)));
        }
    }
}

fn write_number(to: &mut Writer<'_>, name: &str, number: &Number) {
    match number.as_i64() {
        Some(whole) => match i32::try_from(whole) {
            Ok(small) => _ = to.int32(name, small),
            Err(_) => _ = to.int64(name, whole),
        },
        None => _ = to.double(name, number.as_f64().unwrap_or(f64::NAN)),
    }
}

/// The answer as JSON: values below [`MAX_DEPTH`] become null, and elements beyond [`MAX_ELEMENTS`] are left out.
fn to_bounded_json(document: Document<'_>) -> Result<Value, Malformed> {
    let mut left = MAX_ELEMENTS;
    json(Bson::Document(document), MAX_DEPTH, &mut left)
}

fn json(value: Bson<'_>, depth: usize, left: &mut usize) -> Result<Value, Malformed> {
    Ok(match value {
        Bson::Bool(value) => Value::Bool(value),
        Bson::Int32(value) => value.into(),
        // A time is told in milliseconds of the Unix epoch.
        Bson::Int64(value) | Bson::Time(value) => value.into(),
        // NaN and the infinities are no numbers of JSON.
        Bson::Double(value) => Number::from_f64(value).map_or(Value::Null, Value::Number),
        Bson::Text(text) => Value::String(text.to_owned()),
        Bson::Document(_) | Bson::Array(_) if depth == 0 => Value::Null,
        Bson::Document(document) => {
            let mut map = Map::new();
            for element in document.elements() {
                let element = element?;
                let Some(fewer) = left.checked_sub(1) else { break };
                *left = fewer;
                map.insert(element.name.to_owned(), json(element.value()?, depth - 1, left)?);
            }
            Value::Object(map)
        }
        Bson::Array(array) => {
            let mut values = Vec::new();
            for element in array.elements() {
                let Some(fewer) = left.checked_sub(1) else { break };
                *left = fewer;
                values.push(json(element?.value()?, depth - 1, left)?);
            }
            Value::Array(values)
        }
        Bson::Binary(..) | Bson::ObjectId(_) | Bson::Timestamp(_) | Bson::Null | Bson::Other(_) => Value::Null,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn there_and_back(command: &[(&str, Value)]) -> Value {
        let mut bytes = Vec::new();
        {
            let mut writer = Writer::new(&mut bytes);
            command.iter().for_each(|(name, value)| write(&mut writer, name, value));
        }
        to_bounded_json(Document::read(&bytes).unwrap()).unwrap()
    }

    #[test]
    fn what_json_has_is_the_same_there_and_back() {
        let stages = json!([
            { "$currentOp": { "allUsers": true } },
            { "$limit": 5 },
            { "$match": { "n": -7.5, "big": 1_i64 << 40 } },
        ]);
        let command = [("aggregate", json!(1)), ("pipeline", stages.clone()), ("none", Value::Null)];
        assert_eq!(there_and_back(&command), json!({ "aggregate": 1, "pipeline": stages, "none": null }));
    }

    #[test]
    fn what_json_lacks_is_left_out() {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).double("nan", f64::NAN).object_id("id", [7; 12]).time("at", 5).binary("b", &[1]);
        let document = Document::read(&bytes).unwrap();
        assert_eq!(to_bounded_json(document).unwrap(), json!({ "nan": null, "id": null, "at": 5, "b": null }));
    }

    #[test]
    fn what_is_deep_or_long_is_cut() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!({ "in": deep });
        }
        let mut told = there_and_back(&[("a", deep)]);
        let mut depth = 0;
        while let Some(inner) = told.as_object_mut().and_then(|map| map.values_mut().next().map(Value::take)) {
            (told, depth) = (inner, depth + 1);
        }
        assert_eq!(depth, MAX_DEPTH);
        let long = Value::Array(vec![json!(1); MAX_ELEMENTS + 9]);
        let told = there_and_back(&[("a", long)]);
        assert_eq!(told["a"].as_array().map(Vec::len), Some(MAX_ELEMENTS - 1));
    }
}
