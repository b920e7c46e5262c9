//! Cutting SQL into words, texts and symbols, as PostgreSQL does. It knows no statements.

use super::failure::Failure;

/// Longest name in bytes; what is longer is cut off.
const MAX_NAME: usize = 63;

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
    /// `::`
    Cast,
}

/// A piece of SQL, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

#[derive(Default, Debug)]
pub(super) struct Tokens {
    pub(super) list: Vec<Token>,
    /// Byte offsets of string literals with a backslash escape that standard_conforming_strings would disable, each
    /// with the character after its first backslash.
    pub(super) odd: Vec<(usize, char)>,
}

/// Cuts a text. `standard`: a backslash in an ordinary text is nothing special.
pub(super) fn cut(sql: &str, standard: bool) -> Result<Tokens, Failure> {
    let mut cutter = Cutter { sql, at: 0, standard, tokens: Tokens::default() };
    while cutter.next()? {}
    Ok(cutter.tokens)
}

struct Cutter<'a> {
    sql: &'a str,
    at: usize,
    standard: bool,
    tokens: Tokens,
}

impl Cutter<'_> {
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

    /// Takes one more token; false at the end.
    fn next(&mut self) -> Result<bool, Failure> {
        self.skip()?;
        let start = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok(false) };
        let kind = match first {
            '\'' => {
                self.at += 1;
                self.literal(!self.standard, start)?
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
                Kind::Word(cut_off(word))
            }
            ':' if self.peek(1) == b':' => {
                self.at += 2;
                Kind::Cast
            }
            _ => self.symbol(first),
        };
        self.tokens.list.push(Token { kind, start, end: self.at });
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
        Ok(Kind::Quoted(cut_off(name)))
    }

    /// The rest of a text that has begun with its quote.
    fn literal(&mut self, escapes: bool, start: usize) -> Result<Kind, Failure> {
        let explicit = self.sql.as_bytes()[start] != b'\'';
        let mut bytes = Vec::new();
        let mut odd = None;
        loop {
            let Some(next) = self.rest().chars().next() else {
                return Err(self.failure("unterminated quoted string", start));
            };
            self.at += next.len_utf8();
            match next {
                '\'' if self.peek(0) == b'\'' => {
                    self.at += 1;
                    bytes.push(b'\'');
                }
                '\'' => break,
                '\\' if escapes => {
                    let next = self.rest().chars().next().unwrap_or_default();
                    odd.get_or_insert((start, next));
                    self.escape(&mut bytes, start)?;
                }
                _ => bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.tokens.odd.extend(odd.filter(|_| !explicit));
        match String::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => Ok(Kind::Text(text)),
            Ok(_) => Err(invalid_bytes(&[0])),
            Err(error) => Err(invalid_bytes(&error.as_bytes()[error.utf8_error().valid_up_to()..])),
        }
    }

    /// What stands behind a backslash.
    fn escape(&mut self, bytes: &mut Vec<u8>, start: usize) -> Result<(), Failure> {
        let Some(next) = self.rest().chars().next() else {
            return Err(self.failure("unterminated quoted string", start));
        };
        self.at += next.len_utf8();
        let byte = match next {
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'x' if self.peek(0).is_ascii_hexdigit() => self.number(2, 16) as u8,
            '0'..='7' => {
                self.at -= 1;
                self.number(3, 8) as u8
            }
            'u' | 'U' => {
                let digits = if next == 'u' { 4 } else { 8 };
                let is_hex = |place: usize| self.peek(place).is_ascii_hexdigit();
                if !(0..digits).all(is_hex) {
                    return Err(Failure::new("22025", "invalid Unicode escape")
                        .hint("Unicode escapes must be \\uXXXX or \\UXXXXXXXX.")
                        .at(self.sql, self.at - 2));
                }
                let at = self.at - 2;
                let Some(character) = char::from_u32(self.number(digits, 16)) else {
                    return Err(self.failure("invalid Unicode escape value", at));
                };
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => {
                bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
        };
        bytes.push(byte);
        Ok(())
    }

    /// At most so many digits.
    fn number(&mut self, most: usize, base: u32) -> u32 {
        let mut number = 0;
        for _ in 0..most {
            let Some(digit) = char::from(self.peek(0)).to_digit(base) else { break };
            number = number * base + digit;
            self.at += 1;
        }
        number
    }

    /// A text in dollars, if this is one.
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

/// A name at the length that names may have.
fn cut_off(mut name: String) -> String {
    if name.len() > MAX_NAME {
        let end = (0..=MAX_NAME).rev().find(|&end| name.is_char_boundary(end)).unwrap_or_default();
        name.truncate(end);
    }
    name
}

/// Bytes that are no text.
pub(super) fn invalid_bytes(bytes: &[u8]) -> Failure {
    let length = match bytes.first() {
        Some(0xC2..=0xDF) => 2,
        Some(0xE0..=0xEF) => 3,
        Some(0xF0..=0xF4) => 4,
        _ => 1,
    };
    let shown: Vec<String> = bytes.iter().take(length).map(|byte| format!("0x{byte:02x}")).collect();
    Failure::new("22021", format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(sql: &str) -> Vec<Kind> {
        cut(sql, true).unwrap().list.into_iter().map(|token| token.kind).collect()
    }

    fn text(text: &str) -> Kind {
        Kind::Text(text.into())
    }

    #[test]
    fn words_texts_and_symbols_are_told_apart() {
        assert_eq!(
            kinds("SeLeCT /* a /* b */ */ 'it''s', \"A\"\"b\"::x -- end\n, $1, 1.5;$a$'$a$"),
            [
                Kind::Word("select".into()),
                text("it's"),
                Kind::Symbol(','),
                Kind::Quoted("A\"b".into()),
                Kind::Cast,
                Kind::Word("x".into()),
                Kind::Symbol(','),
                Kind::Parameter(1),
                Kind::Symbol(','),
                Kind::Number("1.5".into()),
                Kind::Symbol(';'),
                text("'"),
            ]
        );
    }

    #[test]
    fn backslashes_mean_what_the_setting_says() {
        assert_eq!(kinds(r"'a\' E'\'\\\x41\u00e4\n\101'"), [text("a\\"), text("'\\Aä\nA")]);
        let tokens = cut(r"'a\'b'", false).unwrap();
        assert_eq!(tokens.list[0].kind, text("a'b"));
        assert_eq!(tokens.odd, [(0, '\'')]);
    }

    #[test]
    fn what_does_not_end_is_an_error() {
        for sql in ["'a", "\"a", "/* a", "$$a", "E'\\'", "\"\""] {
            assert_eq!(cut(sql, true).unwrap_err().code, "42601", "{sql}");
        }
        assert_eq!(cut(r"E'\xff'", true).unwrap_err().code, "22021");
    }
}
