//! BSON, as far as a pooler needs it: a reader that finds elements without copying, and a writer of small documents.
//! See <https://bsonspec.org/spec.html>. The reader skips elements by their length.

/// Maximum length of an element's name, in bytes.
const MAX_NAME_LENGTH: usize = 64 * 1024;

/// Maximum number of elements in a document within a command that is searched, such as a read preference.
pub const MAX_NESTED_ELEMENTS: usize = 32;

/// Why bytes are no valid BSON or message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// A value of one of the types that Poolhouse reads.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    Double(f64),
    Text(&'a str),
    Document(Document<'a>),
    /// A document whose names are numbers.
    Array(Document<'a>),
    Binary(u8, &'a [u8]),
    Bool(bool),
    Int32(i32),
    Int64(i64),
    ObjectId([u8; 12]),
    /// Milliseconds since 1970.
    Time(i64),
    /// A replication timestamp: greater is later.
    Timestamp(u64),
    Null,
    Other(u8),
}

impl<'a> Value<'a> {
    /// A whole number of any numeric type: drivers and shells differ in the type that they send.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Int32(value) => Some(i64::from(value)),
            Self::Int64(value) => Some(value),
            Self::Double(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(value as i64),
            _ => None,
        }
    }

    /// Whether a server treats it as true.
    pub fn truth(self) -> bool {
        match self {
            Self::Bool(value) => value,
            Self::Null => false,
            Self::Double(value) => value != 0.0,
            other => other.integer() != Some(0),
        }
    }

    pub fn text(self) -> Option<&'a str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub fn document(self) -> Option<Document<'a>> {
        if let Self::Document(document) = self { Some(document) } else { None }
    }

    pub fn array(self) -> Option<Document<'a>> {
        if let Self::Array(array) = self { Some(array) } else { None }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    pub name: &'a str,
    kind: u8,
    raw: &'a [u8],
    /// Where its value begins in the document.
    pub at: usize,
}

impl<'a> Element<'a> {
    pub fn value(&self) -> Result<Value<'a>, Malformed> {
        let raw = self.raw;
        Ok(match self.kind {
            0x01 => Value::Double(f64::from_le_bytes(fixed(raw))),
            0x02 => {
                let text = raw[4..].strip_suffix(&[0]).ok_or(Malformed("a string without its end"))?;
                Value::Text(std::str::from_utf8(text).map_err(|_| Malformed("a string that is no UTF-8"))?)
            }
            0x03 => Value::Document(Document::read(raw)?),
            0x04 => Value::Array(Document::read(raw)?),
            0x05 => Value::Binary(raw[4], &raw[5..]),
            0x07 => Value::ObjectId(fixed(raw)),
            0x08 => Value::Bool(raw[0] != 0),
            0x09 => Value::Time(i64::from_le_bytes(fixed(raw))),
            0x11 => Value::Timestamp(u64::from_le_bytes(fixed(raw))),
            0x0a => Value::Null,
            0x10 => Value::Int32(i32::from_le_bytes(fixed(raw))),
            0x12 => Value::Int64(i64::from_le_bytes(fixed(raw))),
            other => Value::Other(other),
        })
    }

    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.kind);
        bytes.extend(self.name.as_bytes());
        bytes.push(0);
        bytes.extend(self.raw);
    }
}

fn fixed<const N: usize>(raw: &[u8]) -> [u8; N] {
    raw[..N].try_into().expect("as long as its type says")
}

/// A document or an array. Its length and its end are checked; elements are checked as they are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Document<'a>(&'a [u8]);

impl<'a> Document<'a> {
    pub fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.0);
    }

    /// Reads a document that takes up all of `bytes`.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match length(bytes) {
            Some(length) if length == bytes.len() && length >= 5 && bytes[length - 1] == 0 => Ok(Self(bytes)),
            _ => Err(Malformed("a document whose length is wrong")),
        }
    }

    /// Reads the document at the beginning of `bytes`. Returns the rest, too.
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Malformed> {
        let length = length(bytes).filter(|length| *length <= bytes.len());
        let (document, rest) = bytes.split_at(length.ok_or(Malformed("a document that does not end"))?);
        Ok((Self::read(document)?, rest))
    }

    /// The elements in order. The iterator ends after the first malformed one.
    pub fn elements(self) -> Elements<'a> {
        Elements { document: self.0, at: 4 }
    }

    pub fn get(self, name: &str) -> Result<Option<Value<'a>>, Malformed> {
        for element in self.elements() {
            let element = element?;
            if element.name == name {
                return element.value().map(Some);
            }
        }
        Ok(None)
    }

    /// The value of the element with this name, in a document within a command. Fails beyond [`MAX_NESTED_ELEMENTS`]:
    /// millions of elements would block a worker.
    pub fn get_nested(self, name: &str) -> Result<Option<Value<'a>>, Malformed> {
        for (count, element) in self.elements().enumerate() {
            let element = element?;
            if count == MAX_NESTED_ELEMENTS {
                return Err(Malformed("a document of too many elements within a command"));
            }
            if element.name == name {
                return element.value().map(Some);
            }
        }
        Ok(None)
    }
}

/// The length that a document declares.
pub fn length(bytes: &[u8]) -> Option<usize> {
    let declared = i32::from_le_bytes(*bytes.first_chunk()?);
    usize::try_from(declared).ok()
}

pub struct Elements<'a> {
    document: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let inside = &self.document[..self.document.len() - 1];
        if self.at >= inside.len() {
            return None;
        }
        let kind = inside[self.at];
        let read = (|| {
            let behind = &inside[self.at + 1..];
            let end = behind.iter().take(MAX_NAME_LENGTH).position(|byte| *byte == 0);
            let end = end.ok_or(Malformed("an element whose name does not end"))?;
            let name = std::str::from_utf8(&behind[..end]).map_err(|_| Malformed("a name that is no UTF-8"))?;
            let at = self.at + 1 + end + 1;
            let raw = inside.get(at..).unwrap_or_default();
            let length = value_length(kind, raw).ok_or(Malformed("an element of unknown type or wrong length"))?;
            let raw = raw.get(..length).ok_or(Malformed("an element that is longer than its document"))?;
            Ok(Element { name, kind, raw, at })
        })();
        self.at = match &read {
            Ok(element) => element.at + element.raw.len(),
            Err(_) => self.document.len(),
        };
        Some(read)
    }
}

/// The size of a value of this type that begins with `raw`, of which there may be less; `None` if the type is unknown
/// or `raw` is too short.
pub fn value_length(kind: u8, raw: &[u8]) -> Option<usize> {
    let declared = |least: usize, more: usize| {
        let declared = length(raw)?;
        (declared >= least).then(|| declared + more)
    };
    match kind {
        0x01 | 0x09 | 0x11 | 0x12 => Some(8),
        0x02 | 0x0d | 0x0e => declared(1, 4),
        0x03 | 0x04 => declared(5, 0),
        0x05 => declared(0, 5),
        0x06 | 0x0a | 0x7f | 0xff => Some(0),
        0x07 => Some(12),
        0x08 => Some(1),
        0x0b => {
            let mut ends = raw.iter().enumerate().filter(|(_, byte)| **byte == 0);
            ends.nth(1).map(|(at, _)| at + 1)
        }
        0x0c => declared(1, 16),
        0x0f => declared(14, 0),
        0x10 => Some(4),
        0x13 => Some(16),
        _ => None,
    }
}

pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    /// Where the open documents begin, the innermost last.
    open: Vec<usize>,
}

impl<'a> Writer<'a> {
    pub fn new(bytes: &'a mut Vec<u8>) -> Self {
        let mut writer = Self { bytes, open: Vec::new() };
        writer.begin();
        writer
    }

    fn begin(&mut self) {
        self.open.push(self.bytes.len());
        self.bytes.extend([0; 4]);
    }

    fn element(&mut self, kind: u8, name: &str, value: &[u8]) -> &mut Self {
        self.bytes.push(kind);
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.bytes.extend(value);
        self
    }

    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.element(0x02, name, &(value.len() as i32 + 1).to_le_bytes());
        self.bytes.extend(value.as_bytes());
        self.bytes.push(0);
        self
    }

    pub fn int32(&mut self, name: &str, value: i32) -> &mut Self {
        self.element(0x10, name, &value.to_le_bytes())
    }

    pub fn int64(&mut self, name: &str, value: i64) -> &mut Self {
        self.element(0x12, name, &value.to_le_bytes())
    }

    pub fn double(&mut self, name: &str, value: f64) -> &mut Self {
        self.element(0x01, name, &value.to_le_bytes())
    }

    pub fn bool(&mut self, name: &str, value: bool) -> &mut Self {
        self.element(0x08, name, &[u8::from(value)])
    }

    pub fn null(&mut self, name: &str) -> &mut Self {
        self.element(0x0a, name, &[])
    }

    /// A date in milliseconds since 1970.
    pub fn time(&mut self, name: &str, milliseconds: i64) -> &mut Self {
        self.element(0x09, name, &milliseconds.to_le_bytes())
    }

    pub fn timestamp(&mut self, name: &str, time: u64) -> &mut Self {
        self.element(0x11, name, &time.to_le_bytes())
    }

    pub fn embed(&mut self, name: &str, document: Document<'_>) -> &mut Self {
        self.element(0x03, name, document.0)
    }

    pub fn object_id(&mut self, name: &str, id: [u8; 12]) -> &mut Self {
        self.element(0x07, name, &id)
    }

    /// Binary data of the generic subtype.
    pub fn binary(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.element(0x05, name, &(value.len() as i32).to_le_bytes());
        self.bytes.push(0);
        self.bytes.extend(value);
        self
    }

    /// A UUID (subtype 4).
    pub fn uuid(&mut self, name: &str, id: [u8; 16]) -> &mut Self {
        self.element(0x05, name, &16i32.to_le_bytes());
        self.bytes.push(4);
        self.bytes.extend(id);
        self
    }

    pub fn copy(&mut self, element: &Element<'_>) -> &mut Self {
        element.append_to(self.bytes);
        self
    }

    pub fn document(&mut self, name: &str, write: impl FnOnce(&mut Self)) -> &mut Self {
        self.nested(0x03, name, write)
    }

    /// An array. Its elements have to be named "0", "1" and so on.
    pub fn array(&mut self, name: &str, write: impl FnOnce(&mut Self)) -> &mut Self {
        self.nested(0x04, name, write)
    }

    pub fn texts(&mut self, name: &str, values: &[&str]) -> &mut Self {
        self.array(name, |array| {
            for (index, value) in values.iter().enumerate() {
                array.text(&index.to_string(), value);
            }
        })
    }

    fn nested(&mut self, kind: u8, name: &str, write: impl FnOnce(&mut Self)) -> &mut Self {
        self.element(kind, name, &[]);
        self.begin();
        write(self);
        self.end();
        self
    }

    fn end(&mut self) {
        self.bytes.push(0);
        let open = self.open.pop().expect("a document that was begun");
        let length = (self.bytes.len() - open) as i32;
        self.bytes[open..open + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.int32("find", 1).text("$db", "app").int64("id", -7).bool("ok", true).double("d", 2.5);
        writer.document("lsid", |inner| {
            inner.binary("id", b"0123456789abcdef");
        });
        writer.texts("a", &["x", "y"]).time("t", 5).object_id("o", [9; 12]);
        drop(writer);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = sample();
        let document = Document::read(&bytes).unwrap();
        assert_eq!(document.get("$db").unwrap().unwrap().text(), Some("app"));
        assert_eq!(document.get("id").unwrap().unwrap().integer(), Some(-7));
        let lsid = document.get("lsid").unwrap().unwrap().document().unwrap();
        assert_eq!(lsid.get("id").unwrap(), Some(Value::Binary(0, b"0123456789abcdef")));
        assert_eq!(document.get("nothing").unwrap(), None);
        let array = document.get("a").unwrap().unwrap().array().unwrap();
        let texts: Vec<_> = array.elements().map(|e| e.unwrap().value().unwrap().text().unwrap()).collect();
        assert_eq!(texts, ["x", "y"]);
        let mut copy = Vec::new();
        {
            let mut writer = Writer::new(&mut copy);
            document.elements().for_each(|element| {
                writer.copy(&element.unwrap());
            });
        }
        assert_eq!(copy, bytes);
    }

    proptest! {
        #[test]
        fn a_changed_byte_makes_no_panic(at in 0usize..120, to in any::<u8>()) {
            let mut bytes = sample();
            let length = bytes.len();
            bytes[at % length] = to;
            if let Ok(document) = Document::read(&bytes) {
                for element in document.elements().flatten() {
                    let _ = element.value();
                }
            }
        }
    }
}
