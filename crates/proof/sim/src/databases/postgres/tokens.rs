//! Tokens of SQL. It knows no statements.

use super::failure::Failure;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A key word or a name, in small letters.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A text in single quotes or dollars.
    Text(String),
    Number(String),
    /// `$1`
    Parameter(usize),
    Symbol(char),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Splits a text into tokens. A backslash is special in an E'' literal only.
pub(super) fn tokenise(sql: &str) -> Result<Vec<Token>, Failure> {
    let mut tokeniser = Tokeniser { sql, at: 0, tokens: Vec::new() };
    while tokeniser.next()? {}
    Ok(tokeniser.tokens)
}

struct Tokeniser<'a> {
    sql: &'a str,
    at: usize,
    tokens: Vec<Token>,
}

impl Tokeniser<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.sql.as_bytes().get(self.at + ahead).copied().unwrap_or_default()
    }

    fn rest(&self) -> &str {
        &self.sql[self.at..]
    }

    fn failure(&self, message: &str, start: usize) -> Failure {
        let near = &self.sql[start..];
        Failure::new("42601", format!("{message} at or near \"{near}\"")).at(self.sql, start)
    }

    /// Reads a token. Returns false at the end.
    fn next(&mut self) -> Result<bool, Failure> {
        self.skip()?;
        let start = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok(false) };
        let kind = match first {
            '\'' => {
                self.at += 1;
                self.literal(false, start)?
            }
            'e' | 'E' if self.peek(1) == b'\'' => {
                self.at += 2;
                self.literal(true, start)?
            }
            '"' => self.quoted(start)?,
            '$' if self.peek(1).is_ascii_digit() => {
                self.at += 1;
                let digits = self.digits();
                Kind::Parameter(digits.parse().unwrap_or(usize::MAX))
            }
            '$' => match self.dollar(start)? {
                Some(kind) => kind,
                None => self.symbol(first),
            },
            '0'..='9' => {
                let mut number = self.digits();
                if self.peek(0) == b'.' {
                    self.at += 1;
                    number = format!("{number}.{}", self.digits());
                }
                Kind::Number(number)
            }
            _ if first.is_ascii_alphabetic() || first == '_' || !first.is_ascii() => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii();
                let length = self.rest().find(|c| !is_part(c)).unwrap_or(self.rest().len());
                let word = self.rest()[..length].to_ascii_lowercase();
                self.at += length;
                Kind::Word(word)
            }
            _ => self.symbol(first),
        };
        self.tokens.push(Token { kind, start, end: self.at });
        Ok(true)
    }

    fn symbol(&mut self, symbol: char) -> Kind {
        self.at += symbol.len_utf8();
        Kind::Symbol(symbol)
    }

    fn digits(&mut self) -> String {
        let length = self.rest().find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest().len());
        let digits = self.rest()[..length].to_owned();
        self.at += length;
        digits
    }

    /// Skips white space and comments.
    fn skip(&mut self) -> Result<(), Failure> {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\n' | b'\r' | 0x0C, _) => self.at += 1,
                (b'-', b'-') => self.at += self.rest().find(['\n', '\r']).unwrap_or(self.rest().len()),
                (b'/', b'*') => self.skip_comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn skip_comment(&mut self) -> Result<(), Failure> {
        let start = self.at;
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ => match self.rest().chars().next() {
                    Some(next) => self.at += next.len_utf8(),
                    None => return Err(self.failure("unterminated /* comment", start)),
                },
            }
        }
    }

    fn quoted(&mut self, start: usize) -> Result<Kind, Failure> {
        self.at += 1;
        let mut name = String::new();
        loop {
            let Some(next) = self.rest().chars().next() else {
                return Err(self.failure("unterminated quoted identifier", start));
            };
            self.at += next.len_utf8();
            if next == '"' {
                if self.peek(0) != b'"' {
                    break;
                }
                self.at += 1;
            }
            name.push(next);
        }
        if name.is_empty() {
            return Err(self.failure("zero-length delimited identifier", start));
        }
        Ok(Kind::Quoted(name))
    }

    /// The rest of a literal that has begun with its quote.
    fn literal(&mut self, escapes: bool, start: usize) -> Result<Kind, Failure> {
        let unterminated = "unterminated quoted string";
        let mut bytes = Vec::new();
        loop {
            let Some(next) = self.rest().chars().next() else { return Err(self.failure(unterminated, start)) };
            self.at += next.len_utf8();
            match next {
                '\'' if self.peek(0) == b'\'' => {
                    self.at += 1;
                    bytes.push(b'\'');
                }
                '\'' => break,
                '\\' if escapes => {
                    let hex = self.rest().get(1..3).filter(|_| self.peek(0) == b'x');
                    let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                    bytes.push(byte.ok_or_else(|| self.failure("the model knows the escape \\xXX only", start))?);
                    self.at += 3;
                }
                _ => bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        text.map(Kind::Text).ok_or_else(|| Failure::new("22021", "invalid byte sequence for encoding \"UTF8\""))
    }

    /// A dollar-quoted text, if this is one.
    fn dollar(&mut self, start: usize) -> Result<Option<Kind>, Failure> {
        let Some(length) = self.rest()[1..].find('$') else { return Ok(None) };
        let quote = self.rest()[..length + 2].to_owned();
        if !quote[1..=length].chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Ok(None);
        }
        let body = self.at + quote.len();
        let Some(end) = self.sql[body..].find(&quote) else {
            return Err(self.failure("unterminated dollar-quoted string", start));
        };
        self.at = body + end + quote.len();
        Ok(Some(Kind::Text(self.sql[body..body + end].to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Kind {
        Kind::Text(text.into())
    }

    #[test]
    fn words_texts_and_symbols_are_recognised() {
        let sql = "SeLeCT /* a /* b */ */ 'it''s\\', \"A\"\"b\" -- end\n, $1, 1.5;$a$'$a$ E'\\x41'";
        let kinds: Vec<Kind> = tokenise(sql).unwrap().into_iter().map(|token| token.kind).collect();
        assert_eq!(
            kinds,
            [
                Kind::Word("select".into()),
                text("it's\\"),
                Kind::Symbol(','),
                Kind::Quoted("A\"b".into()),
                Kind::Symbol(','),
                Kind::Parameter(1),
                Kind::Symbol(','),
                Kind::Number("1.5".into()),
                Kind::Symbol(';'),
                text("'"),
                text("A"),
            ]
        );
    }

    #[test]
    fn what_does_not_end_is_an_error() {
        for sql in ["'a", "\"a", "/* a", "$$a", "E'\\'", "\"\""] {
            assert_eq!(tokenise(sql).unwrap_err().code, "42601", "{sql}");
        }
        assert_eq!(tokenise(r"E'\xff'").unwrap_err().code, "22021");
    }
}
