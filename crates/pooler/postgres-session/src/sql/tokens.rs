//! SQL as a row of tokens, as far as one must know it to tell words from what stands in quotes and comments. The rules
//! are those of PostgreSQL's manual, chapter "Lexical Structure", and of its `scan.l` where that says more, with
//! standard_conforming_strings on; it is said of a text when that matters. It knows no meaning.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Token<'a> {
    /// A keyword or an identifier without quotes.
    Word(&'a [u8]),
    /// The body of an identifier in double quotes.
    Quoted(&'a [u8]),
    /// The body of a text constant of any kind.
    Literal(&'a [u8]),
    /// A text constant with the escapes of `U&`.
    Escaped,
    /// An identifier with the escapes of `U&`.
    EscapedName,
    Number,
    Symbol(u8),
}

#[derive(Clone)]
pub(crate) struct Tokens<'a> {
    rest: &'a [u8],
    /// A plain text constant has a backslash, which escapes with standard_conforming_strings off.
    pub(crate) backslash: bool,
    pub(crate) unclear: bool,
}

impl<'a> Tokens<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { rest: text, backslash: false, unclear: false }
    }

    /// Bytes of the text behind the token taken last.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Takes the first byte, and all behind it that are like it.
    #[inline]
    fn take_while(&mut self, like: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.rest;
        let length = rest[1..].iter().position(|&byte| !like(byte)).map_or(rest.len(), |more| 1 + more);
        let (taken, rest) = rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Takes a token whose first byte may begin several kinds; `None` if it was a comment.
    fn take_unusual(&mut self, first: u8) -> Option<Token<'a>> {
        Some(match *self.rest {
            [b'-', b'-', ..] => {
                let end = self.rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
                self.take(end.unwrap_or(self.rest.len()));
                return None;
            }
            [b'/', b'*', ..] => {
                self.take(2);
                self.skip_comment();
                return None;
            }
            [b'e' | b'E', b'\'', ..] => {
                self.take(2);
                Token::Literal(self.take_quoted(b'\'', true))
            }
            [b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'', ..] => {
                self.take(2);
                Token::Literal(self.take_quoted(b'\'', false))
            }
            [b'u' | b'U', b'&', quote @ (b'\'' | b'"'), ..] => {
                self.take(3);
                self.take_quoted(quote, false);
                if quote == b'"' { Token::EscapedName } else { Token::Escaped }
            }
            [b'\'', ..] => {
                self.take(1);
                Token::Literal(self.take_quoted(b'\'', false))
            }
            [b'"', ..] => {
                self.take(1);
                Token::Quoted(self.take_quoted(b'"', false))
            }
            [b'$', ..] => match self.take_dollar_quoted() {
                Some(body) => Token::Literal(body),
                None => {
                    self.take_while(|byte| byte.is_ascii_digit());
                    Token::Number
                }
            },
            _ if in_word(first) => Token::Word(self.take_while(in_word)),
            _ => {
                self.take(1);
                Token::Symbol(first)
            }
        })
    }

    /// Skips a nested comment; the rest begins behind its first two bytes.
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
        self.unclear |= depth > 0;
    }

    /// Takes a quoted text and its closing `quote`. A doubled quote does not close it, nor one behind a backslash if
    /// `escapes`. A text constant may go on behind a line break and another quote.
    fn take_quoted(&mut self, quote: u8, escapes: bool) -> &'a [u8] {
        let mut at = 0;
        while let Some(&byte) = self.rest.get(at) {
            if byte == b'\\' && quote == b'\'' {
                self.backslash |= !escapes;
                at += if escapes { 2 } else { 1 };
            } else if byte != quote {
                at += 1;
            } else if self.rest.get(at + 1) == Some(&quote) {
                at += 2;
            } else if let Some(length) = self.rest.get(at + 1..).filter(|_| quote == b'\'').and_then(continuation) {
                at += 1 + length;
            } else {
                let body = self.take(at);
                self.take(1);
                return body;
            }
        }
        self.unclear = true;
        self.take(at)
    }

    /// Takes a text in dollar quotes, if one is at the front.
    fn take_dollar_quoted(&mut self) -> Option<&'a [u8]> {
        let tag = 1 + self.rest[1..].iter().take_while(|&&byte| in_word(byte) && byte != b'$').count();
        if self.rest.get(tag) != Some(&b'$') || self.rest[1].is_ascii_digit() {
            return None;
        }
        let delimiter = self.take(tag + 1);
        let end = self.rest.windows(delimiter.len()).position(|part| part == delimiter);
        self.unclear |= end.is_none();
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
            let rest = self.rest;
            let first = *rest.first()?;
            match CLASS[usize::from(first)] {
                Class::Space => self.rest = &rest[1..],
                Class::Word => return Some(Token::Word(self.take_while(in_word))),
                Class::Digit => {
                    // Up to version 14 a word may follow without a space.
                    self.take_while(|byte| byte.is_ascii_digit() || byte == b'.');
                    return Some(Token::Number);
                }
                Class::Symbol => {
                    self.rest = &rest[1..];
                    return Some(Token::Symbol(first));
                }
                Class::End => return None,
                Class::Prefix | Class::Other => {
                    if let Some(token) = self.take_unusual(first) {
                        return Some(token);
                    }
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Class {
    End,
    Space,
    Word,
    Digit,
    Symbol,
    /// A word, or the beginning of a text constant.
    Prefix,
    /// A quotation, a comment or a parameter.
    Other,
}

const CLASS: [Class; 256] = {
    let mut classes = [Class::Symbol; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            0 => Class::End,
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Class::Space,
            b'0'..=b'9' => Class::Digit,
            b'-' | b'/' | b'\'' | b'"' | b'$' => Class::Other,
            b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'n' | b'N' | b'u' | b'U' => Class::Prefix,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => Class::Word,
            _ => Class::Symbol,
        };
        byte += 1;
    }
    classes
};

/// Whether a byte may stand within a word. Bytes above 127 may: they are parts of letters.
#[inline]
fn in_word(byte: u8) -> bool {
    IN_WORD[usize::from(byte)]
}

const IN_WORD: [bool; 256] = {
    let mut which = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        which[byte] = byte == b'$' as usize || matches!(CLASS[byte], Class::Word | Class::Prefix | Class::Digit);
        byte += 1;
    }
    which
};

pub(crate) fn is_word(token: Option<&Token<'_>>, other: &str) -> bool {
    matches!(token, Some(Token::Word(word)) if word.eq_ignore_ascii_case(other.as_bytes()))
}

/// The text between quotes, with each doubled quote made one.
pub(crate) fn undoubled(body: &[u8], quote: u8) -> Vec<u8> {
    let mut single = Vec::with_capacity(body.len());
    let mut bytes = body.iter();
    while let Some(&byte) = bytes.next() {
        single.push(byte);
        if byte == quote {
            bytes.next();
        }
    }
    single
}

/// The length from the end of a text constant up to and with the quote that continues it; `None` if none does.
fn continuation(bytes: &[u8]) -> Option<usize> {
    let mut line_break = false;
    let mut at = 0;
    loop {
        match bytes.get(at..)? {
            [b'\'', ..] => return line_break.then_some(at + 1),
            [b'\n' | b'\r', ..] => line_break = true,
            [b' ' | b'\t' | 0x0b | 0x0c, ..] => {}
            [b'-', b'-', rest @ ..] => {
                at += 2 + rest.iter().position(|&byte| byte == b'\n' || byte == b'\r')?;
                continue;
            }
            _ => return None,
        }
        at += 1;
    }
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
            [Literal(b"a;b"), Literal(b" $$ "), Number, Word(b"e3"), Token::EscapedName, Literal(b"ff"),]
        );
    }

    #[test]
    fn a_text_constant_goes_on_behind_a_line_break() {
        use Token::{Literal, Symbol, Word};
        // The second part is read as the first: its backslash escapes.
        let evil = "E'a'\n -- so\n 'b\\''; SET x";
        assert_eq!(words(evil), [Literal(b"a'\n -- so\n 'b\\'"), Symbol(b';'), Word(b"SET"), Word(b"x")]);
        assert_eq!(words("'a' 'b'"), [Literal(b"a"), Literal(b"b")]);
        assert_eq!(words("'a'\n'b'; x"), [Literal(b"a'\n'b"), Symbol(b';'), Word(b"x")]);
        assert_eq!(words("'a' /*\n*/ 'b'"), [Literal(b"a"), Literal(b"b")]);
    }

    #[test]
    fn what_may_be_read_otherwise_is_said() {
        let read = |sql: &str| {
            let mut tokens = Tokens::new(sql.as_bytes());
            while tokens.next().is_some() {}
            (tokens.backslash, tokens.unclear)
        };
        assert_eq!(read("select 'a', E'\\'', \"b\\\", $$\\$$"), (false, false));
        assert_eq!(read("select 'O\\'Brien'"), (true, true));
        assert_eq!(read("select '\\'"), (true, false));
        assert_eq!(words("U&\"\\0061\" u&'\\0061'"), [Token::EscapedName, Token::Escaped]);
        assert_eq!(read("select 'a"), (false, true));
        assert_eq!(read("select /* a"), (false, true));
    }

    #[test]
    fn a_text_without_an_end_ends_with_the_input() {
        for sql in ["'abc", "\"abc", "/* abc", "-- abc", "$a$ abc", "e'abc\\"] {
            assert!(words(sql).len() <= 1, "{sql}");
        }
    }
}
