//! Commands of MongoDB as scripts hold them: documents in extended JSON, each over as many lines as it likes. A
//! `:variable` may stand for a value, where it keeps its type, and anywhere in a string. Commands that cannot be
//! measured are refused.

use std::fmt;

use mongodb_session::bson::Writer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{
    ScriptClient, Scripts,
    evaluate::Failure,
    expression::Mistake,
    names::{Names, VarId},
    sql::{Piece, pieces, starts_word},
    value::{Scalar, Value},
};
use crate::record::ErrorKind;

/// The only name of an object that stands for a variable.
const VARIABLE: &str = "$poolhouse_variable";
/// Bounds nesting, as servers do.
const MAX_NESTED: usize = 100;

/// Commands that belong to a connection or a session, and why not.
const REFUSED: [(&str, &str); 9] = [
    ("hello", "every connection says it once"),
    ("isMaster", "every connection says it once"),
    ("ismaster", "every connection says it once"),
    ("saslStart", "the login stands in the URL"),
    ("saslContinue", "the login stands in the URL"),
    ("authenticate", "the login stands in the URL"),
    ("getMore", "cursors are read to their end by themselves"),
    ("commitTransaction", "transactions are not available"),
    ("abortTransaction", "transactions are not available"),
];

/// A command, ready to be sent any number of times.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Command {
    fields: Vec<(Box<str>, Node)>,
    has_database: bool,
}

/// A value, or the variable that has it.
#[derive(Clone, PartialEq, Debug)]
enum Node {
    Null,
    Bool(bool),
    Int(i64),
    /// A number that is always written with 64 bits.
    Long(i64),
    Double(f64),
    /// Milliseconds since 1970.
    Time(i64),
    Id([u8; 12]),
    Text(Vec<Piece>),
    Variable(VarId),
    Document(Vec<(Box<str>, Node)>),
    Array(Vec<Node>),
}

/// The variables of a client.
pub(super) struct Variables<'a> {
    pub(super) client: &'a ScriptClient,
    pub(super) scripts: &'a Scripts,
}

impl Command {
    /// Appends the command, for this database unless it names another.
    pub(super) fn write(&self, database: &str, variables: &Variables<'_>, out: &mut Vec<u8>) -> Result<(), ErrorKind> {
        let mut result = Ok(());
        {
            let mut writer = Writer::new(out);
            for (name, node) in &self.fields {
                result = result.and_then(|()| write(name, node, variables, &mut writer));
            }
            if !self.has_database {
                writer.text("$db", database);
            }
        }
        result
    }

    pub(super) fn for_each_quoted_variable(&self, name: &mut dyn FnMut(VarId)) {
        self.fields.iter().for_each(|(_, node)| node.for_each_quoted_variable(name));
    }
}

impl Node {
    fn for_each_quoted_variable(&self, name: &mut dyn FnMut(VarId)) {
        match self {
            Self::Text(pieces) => pieces.iter().for_each(|piece| {
                if let Piece::Quoted(id) = piece {
                    name(*id);
                }
            }),
            Self::Document(fields) => fields.iter().for_each(|(_, node)| node.for_each_quoted_variable(name)),
            Self::Array(nodes) => nodes.iter().for_each(|node| node.for_each_quoted_variable(name)),
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Long(_) | Self::Double(_) => {}
            Self::Time(_) | Self::Id(_) | Self::Variable(_) => {}
        }
    }
}

fn write(name: &str, node: &Node, variables: &Variables<'_>, to: &mut Writer<'_>) -> Result<(), ErrorKind> {
    let mut result = Ok(());
    match node {
        Node::Null => _ = to.null(name),
        Node::Bool(truth) => _ = to.bool(name, *truth),
        Node::Int(number) => integer(name, *number, to),
        Node::Long(number) => _ = to.int64(name, *number),
        Node::Double(number) => _ = to.double(name, *number),
        Node::Time(time) => _ = to.time(name, *time),
        Node::Id(id) => _ = to.object_id(name, *id),
        Node::Text(pieces) => {
            let mut text = Vec::new();
            variables.client.write_pieces(variables.scripts, pieces, &mut text)?;
            to.text(name, &String::from_utf8_lossy(&text));
        }
        Node::Variable(id) => match &variables.client.values[id.index()] {
            Value::Scalar(scalar) => write_scalar(name, *scalar, to),
            Value::Text(text) => match Scalar::read(text) {
                Some(number @ (Scalar::Int(_) | Scalar::Double(_))) => write_scalar(name, number, to),
                _ => _ = to.text(name, text),
            },
            Value::Unset => return Err(variables.scripts.error(Failure::Undefined(*id))),
        },
        Node::Document(fields) => {
            to.document(name, |to| {
                for (name, node) in fields {
                    result = std::mem::replace(&mut result, Ok(())).and_then(|()| write(name, node, variables, to));
                }
            });
        }
        Node::Array(nodes) => {
            to.array(name, |to| {
                for (index, node) in nodes.iter().enumerate() {
                    let write = |()| write(&index.to_string(), node, variables, to);
                    result = std::mem::replace(&mut result, Ok(())).and_then(write);
                }
            });
        }
    }
    result
}

fn write_scalar(name: &str, scalar: Scalar, to: &mut Writer<'_>) {
    match scalar {
        Scalar::Null => _ = to.null(name),
        Scalar::Bool(truth) => _ = to.bool(name, truth),
        Scalar::Int(number) => integer(name, number, to),
        Scalar::Double(number) => _ = to.double(name, number),
    }
}

/// Writes a whole number as shells and drivers do.
fn integer(name: &str, number: i64, to: &mut Writer<'_>) {
    match i32::try_from(number) {
        Ok(small) => to.int32(name, small),
        Err(_) => to.int64(name, number),
    };
}

/// Reads the document that this text begins with, which stands at an offset of the script. Returns how long it is.
///
/// # Errors
/// It does not end, is no extended JSON, or cannot be measured.
pub(super) fn command(text: &str, offset: usize, names: &mut Names) -> Result<(Command, usize), Mistake> {
    if !text.starts_with('{') {
        return Err((offset, "write a command of MongoDB as a document, such as {\"ping\": 1}".to_owned()));
    }
    let (json, length) = plain(text).ok_or_else(|| (offset, "this document has no end".to_owned()))?;
    let wrong = |message: String| (offset, message);
    let read: Json = serde_json::from_str(&json).map_err(|error| wrong(format!("this is no JSON: {error}")))?;
    let Json::Object(fields) = read else { unreachable!("it begins with a brace") };
    let Some((name, _)) = fields.first() else {
        return Err(wrong("a command has a name: write {\"ping\": 1}".to_owned()));
    };
    if let Some((name, why)) = REFUSED.iter().find(|(refused, _)| refused == name) {
        return Err(wrong(format!("{name} cannot be used here: {why}")));
    }
    let has = |wanted: &str| fields.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    if has("lsid").is_some() || has("txnNumber").is_some() || has("startTransaction").is_some() {
        return Err(wrong("a command with a session of its own cannot be used here".to_owned()));
    }
    if matches!(has("tailable"), Some(Json::Bool(true))) {
        return Err(wrong("a tailable cursor has no end that could be measured".to_owned()));
    }
    let has_database = has("$db").is_some();
    let fields = object(fields, 0, names).map_err(wrong)?;
    Ok((Command { fields, has_database }, length))
}

/// The document in plain JSON, each `:variable` that stands for a value in an object of its own; and how long it was.
fn plain(text: &str) -> Option<(String, usize)> {
    let (mut json, mut depth, mut before) = (String::with_capacity(text.len()), 0_usize, '{');
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => {
                let mut escaped = false;
                json.push('"');
                loop {
                    let (_, char) = chars.next()?;
                    json.push(char);
                    match char {
                        '"' if !escaped => break,
                        '\\' => escaped = !escaped,
                        _ => escaped = false,
                    }
                }
            }
            // What follows a name in quotes parts it from its value; what follows anything else begins a variable.
            ':' if before != '"'
                && chars.peek().is_some_and(|(_, next)| next.is_ascii() && starts_word(*next as u8)) =>
            {
                let mut name = String::new();
                while let Some((_, next)) = chars.next_if(|(_, c)| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(next);
                }
                json.push_str(&format!("{{\"{VARIABLE}\":\"{name}\"}}"));
            }
            '{' | '[' => {
                depth += 1;
                json.push(char);
            }
            '}' | ']' => {
                depth = depth.checked_sub(1)?;
                json.push(char);
                if depth == 0 {
                    return Some((json, at + 1));
                }
            }
            _ => json.push(char),
        }
        if !char.is_whitespace() {
            before = char;
        }
    }
    None
}

fn object(fields: Vec<(String, Json)>, depth: usize, names: &mut Names) -> Result<Vec<(Box<str>, Node)>, String> {
    fields.into_iter().map(|(name, value)| Ok((name.into(), node(value, depth + 1, names)?))).collect()
}

fn node(json: Json, depth: usize, names: &mut Names) -> Result<Node, String> {
    if depth > MAX_NESTED {
        return Err(format!("more than {MAX_NESTED} documents within one another"));
    }
    Ok(match json {
        Json::Null => Node::Null,
        Json::Bool(truth) => Node::Bool(truth),
        Json::Int(number) => Node::Int(number),
        Json::Double(number) => Node::Double(number),
        Json::Text(text) => Node::Text(pieces(text.as_bytes(), names)?),
        Json::Array(values) => {
            Node::Array(values.into_iter().map(|value| node(value, depth + 1, names)).collect::<Result<_, _>>()?)
        }
        Json::Object(fields) => match special(&fields, names)? {
            Some(node) => node,
            None => Node::Document(object(fields, depth, names)?),
        },
    })
}

/// The types that JSON has not, in the words of MongoDB's extended JSON
/// (<https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/>), and our variables.
fn special(fields: &[(String, Json)], names: &mut Names) -> Result<Option<Node>, String> {
    let [(name, value)] = fields else { return Ok(None) };
    let node = match (name.as_str(), value) {
        (VARIABLE, Json::Text(name)) => Some(Node::Variable(names.intern(name)?)),
        ("$oid", Json::Text(hex)) => id(hex).map(Node::Id),
        ("$numberInt", Json::Text(text)) => text.parse::<i32>().ok().map(|number| Node::Int(number.into())),
        ("$numberLong", Json::Text(text)) => text.parse().ok().map(Node::Long),
        ("$numberDouble", Json::Text(text)) => text.parse().ok().map(Node::Double),
        ("$date", Json::Int(time)) => Some(Node::Time(*time)),
        ("$date", Json::Object(inner)) => match special(inner, names)? {
            Some(Node::Long(time)) => Some(Node::Time(time)),
            _ => None,
        },
        ("$oid" | "$numberInt" | "$numberLong" | "$numberDouble" | "$date", _) => None,
        ("$binary" | "$numberDecimal" | "$uuid" | "$timestamp" | "$regularExpression" | "$minKey" | "$maxKey", _) => {
            return Err(format!("{name} is not available here"));
        }
        _ => return Ok(None),
    };
    let wrong = || {
        format!("this is no {name}: write it as in MongoDB's extended JSON, a $date as {{\"$date\": 1700000000000}}")
    };
    node.ok_or_else(wrong).map(Some)
}

fn id(hex: &str) -> Option<[u8; 12]> {
    if hex.len() != 24 || !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut id = [0; 12];
    for (index, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[index * 2..][..2], 16).ok()?;
    }
    Some(id)
}

/// JSON whose objects keep the order of their names: the first one names the command.
enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Int(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Json, E> {
        i64::try_from(value).map(Json::Int).map_err(|_| E::custom("a whole number has at most 63 bits"))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Double(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Json, E> {
        Ok(Json::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = from.next_element()? {
            values.push(value);
        }
        Ok(Json::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = from.next_entry()? {
            fields.push(field);
        }
        Ok(Json::Object(fields))
    }
}
