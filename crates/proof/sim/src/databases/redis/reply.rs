//! Replies in the client's version of the protocol. It knows no commands.

/// Why a command is not run, in the words of Redis: a code and a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub Vec<u8>);

/// The result of a command: its reply is written, or it is refused and nothing is written.
pub type Done = Result<(), Refusal>;

impl From<&str> for Refusal {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

pub struct Reply {
    pub bytes: Vec<u8>,
    /// 2 or 3.
    pub version: u8,
}

impl Reply {
    pub fn new(version: u8) -> Self {
        Self { bytes: Vec::new(), version }
    }

    fn head(&mut self, mark: char, number: i64) {
        self.bytes.extend_from_slice(format!("{mark}{number}\r\n").as_bytes());
    }

    pub fn simple(&mut self, text: &str) {
        self.bytes.extend_from_slice(format!("+{text}\r\n").as_bytes());
    }

    pub fn ok(&mut self) {
        self.simple("OK");
    }

    pub fn number(&mut self, number: i64) {
        self.head(':', number);
    }

    pub fn count(&mut self, count: usize) {
        self.head(':', count as i64);
    }

    pub fn text(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        self.head('$', text.len() as i64);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    pub fn maybe(&mut self, text: Option<&Vec<u8>>) {
        match text {
            Some(text) => self.text(text),
            None => self.bytes.extend_from_slice(if self.version == 2 { b"$-1\r\n" } else { b"_\r\n" }),
        }
    }

    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(if self.version == 2 { b"*-1\r\n" } else { b"_\r\n" });
    }

    pub fn array(&mut self, length: usize) {
        self.head('*', length as i64);
    }

    pub fn map(&mut self, pairs: usize) {
        match self.version {
            2 => self.array(2 * pairs),
            _ => self.head('%', pairs as i64),
        }
    }

    /// Begins a message that no command asked for.
    pub fn push(&mut self, length: usize) {
        self.head(if self.version == 2 { '*' } else { '>' }, length as i64);
    }

    pub fn texts<T: AsRef<[u8]>>(&mut self, texts: impl ExactSizeIterator<Item = T>) {
        self.array(texts.len());
        texts.for_each(|text| self.text(text));
    }

    /// An error is one line, whatever it quotes.
    pub fn error(&mut self, Refusal(text): &Refusal) {
        self.bytes.push(b'-');
        let end = text.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
        self.bytes.extend(text[..end].iter().map(|&byte| if b"\r\n".contains(&byte) { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_quotes_several_lines_is_one_line() {
        let mut reply = Reply::new(2);
        reply.error(&"ERR 'a\r\nb'\r\n".into());
        assert_eq!(reply.bytes, b"-ERR 'a  b'\r\n");
    }
}
