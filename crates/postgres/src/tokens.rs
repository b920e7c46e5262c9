//! SQL as a row of tokens, as far as one must know it to tell words from what stands in quotes and comments. The rules are
//! those of PostgreSQL's manual, chapter "Lexical Structure", with standard_conforming_strings on. It knows no meaning.

/// One token; spaces and comments are none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token<'a> {
    /// A keyword or an identifier without quotes.
    Word(&'a [u8]),
    /// An identifier in double quotes: what stands between them.
    Quoted(&'a [u8]),
    /// A text constant of any kind: what stands between its quotes.
    Literal(&'a [u8]),
    /// A number, a parameter (`$1`).
    Number,
    /// Any other character.
    Symbol(u8),
}

/// The tokens of a text.
#[derive(Clone)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The tokens of `text`, which ends at a zero byte if there is one.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text }
    }

    /// How many bytes of the text follow the token taken last.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Skips a comment that nests; the rest begins behind its first two bytes.
    fn skip_comment(&mut self) {
        let mut depth = 1;
        while depth > 0 && !self.rest.is_empty() {
            match self.rest {
                [b'*', b'/', ..] => {
                    depth -= 1;
                    self.take(2);
                }
                [b'/', b'*', ..] => {
                    depth += 1;
                    self.take(2);
                }
                _ => _ = self.take(1),
            }
        }
    }

    /// What stands up to `quote`, which is taken, too. A doubled quote does not end it, nor one behind a backslash if
    /// `escapes`.
    fn quoted(&mut self, quote: u8, escapes: bool) -> &'a [u8] {
        let mut at = 0;
        while let Some(&byte) = self.rest.get(at) {
            if escapes && byte == b'\\' {
                at += 2;
            } else if byte != quote {
                at += 1;
            } else if self.rest.get(at + 1) == Some(&quote) {
                at += 2;
            } else {
                let body = self.take(at);
                self.take(1);
                return body;
            }
        }
        self.take(at)
    }

    /// A text in dollar quotes, if there is one at the front.
    fn dollar_quoted(&mut self) -> Option<&'a [u8]> {
        let tag = 1 + self.rest[1..].iter().take_while(|&&byte| is_word(byte) && byte != b'$').count();
        if self.rest.get(tag) != Some(&b'$') || self.rest[1].is_ascii_digit() {
            return None;
        }
        let delimiter = self.take(tag + 1);
        let end = self.rest.windows(delimiter.len()).position(|part| part == delimiter);
        let body = self.take(end.unwrap_or(self.rest.len()));
        self.take(delimiter.len());
        Some(body)
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    #[inline]
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let token = match *self.rest {
                [] | [0, ..] => return None,
                [b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c, ..] => {
                    self.take(1);
                    continue;
                }
                [b'-', b'-', ..] => {
                    let end = self.rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
                    self.take(end.unwrap_or(self.rest.len()));
                    continue;
                }
                [b'/', b'*', ..] => {
                    self.take(2);
                    self.skip_comment();
                    continue;
                }
                [b'e' | b'E', b'\'', ..] => {
                    self.take(2);
                    Token::Literal(self.quoted(b'\'', true))
                }
                [b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'', ..] => {
                    self.take(2);
                    Token::Literal(self.quoted(b'\'', false))
                }
                [b'u' | b'U', b'&', quote @ (b'\'' | b'"'), ..] => {
                    self.take(3);
                    let body = self.quoted(quote, false);
                    if quote == b'"' { Token::Quoted(body) } else { Token::Literal(body) }
                }
                [b'\'', ..] => {
                    self.take(1);
                    Token::Literal(self.quoted(b'\'', false))
                }
                [b'"', ..] => {
                    self.take(1);
                    Token::Quoted(self.quoted(b'"', false))
                }
                [b'$', ..] => match self.dollar_quoted() {
                    Some(body) => Token::Literal(body),
                    None => {
                        let digits = self.rest[1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                        self.take(1 + digits);
                        Token::Number
                    }
                },
                [byte, ..] if byte.is_ascii_digit() => {
                    let length = self.rest.iter().take_while(|&&b| is_word(b) || b == b'.').count();
                    self.take(length);
                    Token::Number
                }
                [byte, ..] if is_word(byte) => {
                    let length = self.rest.iter().take_while(|&&byte| is_word(byte)).count();
                    Token::Word(self.take(length))
                }
                [byte, ..] => {
                    self.take(1);
                    Token::Symbol(byte)
                }
            };
            return Some(token);
        }
    }
}

/// Whether a byte may stand within a word. Bytes above 127 may: they are parts of letters.
#[inline]
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(sql: &str) -> Vec<Token<'_>> {
        Tokens::new(sql.as_bytes()).collect()
    }

    #[test]
    fn quotes_and_comments_are_told_from_words() {
        use Token::{Literal, Number, Quoted, Symbol, Word};
        assert_eq!(
            words("SELECT a.\"B\"\"c\", 'it''s', E'\\'x', $1 -- no\n/* n /* m */ o */ FROM t_1;"),
            [
                Word(b"SELECT"),
                Word(b"a"),
                Symbol(b'.'),
                Quoted(b"B\"\"c"),
                Symbol(b','),
                Literal(b"it''s"),
                Symbol(b','),
                Literal(b"\\'x"),
                Symbol(b','),
                Number,
                Word(b"FROM"),
                Word(b"t_1"),
                Symbol(b';'),
            ]
        );
        assert_eq!(
            words("$$a;b$$ $x$ $$ $x$ 1.5e3 u&\"q\" x'ff'"),
            [Literal(b"a;b"), Literal(b" $$ "), Number, Quoted(b"q"), Literal(b"ff"),]
        );
    }

    #[test]
    fn a_text_without_an_end_ends_with_the_input() {
        for sql in ["'abc", "\"abc", "/* abc", "-- abc", "$a$ abc", "e'abc\\"] {
            assert!(words(sql).len() <= 1, "{sql}");
        }
    }
}
