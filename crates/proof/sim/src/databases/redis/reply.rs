//! What is answered, in the client's version of the protocol. It knows no commands.

/// Why a command is not carried out, in the words of Redis: a code and a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub Vec<u8>);

/// What a command comes to: its reply is written, or it is refused and nothing is written.
pub type Done = Result<(), Refusal>;

impl From<&str> for Refusal {
    fn from(words: &str) -> Self {
        Self(words.into())
    }
}

impl From<String> for Refusal {
    fn from(words: String) -> Self {
        Self(words.into())
    }
}

impl Refusal {
    /// Some words with what a client has said among them.
    pub fn quoting(before: &str, said: &[u8], behind: &str) -> Self {
        Self([before.as_bytes(), printable(said, 128), behind.as_bytes()].concat())
    }

    /// The same, behind the words of another.
    pub fn behind(mut self, mut before: Self) -> Self {
        before.0.append(&mut self.0);
        before
    }
}

/// What C prints of it: at most so much, and nothing from the first zero byte on.
pub fn printable(said: &[u8], most: usize) -> &[u8] {
    let said = &said[..said.len().min(most)];
    &said[..said.iter().position(|&byte| byte == 0).unwrap_or(said.len())]
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

    pub fn simple(&mut self, words: &str) {
        self.bytes.extend_from_slice(format!("+{words}\r\n").as_bytes());
    }

    pub fn ok(&mut self) {
        self.simple("OK");
    }

    pub fn number(&mut self, number: i64) {
        self.head(':', number);
    }

    /// How many there are of something.
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
            None => self.null(),
        }
    }

    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            2 => self.text(text),
            _ => {
                self.head('=', text.len() as i64 + 4);
                self.bytes.extend_from_slice(format!("txt:{text}\r\n").as_bytes());
            }
        }
    }

    pub fn null(&mut self) {
        self.bytes.extend_from_slice(if self.version == 2 { b"$-1\r\n" } else { b"_\r\n" });
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

    pub fn set(&mut self, length: usize) {
        self.head(if self.version == 2 { '*' } else { '~' }, length as i64);
    }

    /// What follows was not asked for.
    pub fn push(&mut self, length: usize) {
        self.head(if self.version == 2 { '*' } else { '>' }, length as i64);
    }

    pub fn texts<T: AsRef<[u8]>>(&mut self, texts: impl ExactSizeIterator<Item = T>) {
        self.array(texts.len());
        texts.for_each(|text| self.text(text));
    }

    /// An error is one line, whatever it quotes.
    pub fn error(&mut self, Refusal(words): &Refusal) {
        self.bytes.push(b'-');
        let end = words.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
        self.bytes.extend(words[..end].iter().map(|&byte| if b"\r\n".contains(&byte) { b' ' } else { byte }));
        self.bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same_in_their_own_way() {
        let said = |version| {
            let mut reply = Reply::new(version);
            reply.null();
            reply.null_array();
            reply.map(1);
            reply.set(1);
            reply.push(1);
            reply.verbatim("a");
            String::from_utf8(reply.bytes).expect("text")
        };
        assert_eq!(said(2), "$-1\r\n*-1\r\n*2\r\n*1\r\n*1\r\n$1\r\na\r\n");
        assert_eq!(said(3), "_\r\n_\r\n%1\r\n~1\r\n>1\r\n=5\r\ntxt:a\r\n");
    }

    #[test]
    fn what_an_error_quotes_does_not_break_its_line() {
        let mut reply = Reply::new(2);
        reply.error(&Refusal::quoting("ERR '", b"a\r\nb\0c", "'\r\n"));
        assert_eq!(reply.bytes, b"-ERR 'a  b'\r\n");
    }
}
