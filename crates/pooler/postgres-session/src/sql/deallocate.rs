//! Reads DEALLOCATE where it stands alone: which statement it names.

use crate::sql::tokens::{Token, Tokens, is_word, undoubled};

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Deallocate {
    All,
    /// The statement of this name, in PostgreSQL's spelling.
    One(Vec<u8>),
}

pub(crate) fn deallocates_all(text: &[u8]) -> bool {
    let may = text.first().is_some_and(|byte| byte.is_ascii_whitespace() || matches!(byte, b'd' | b'D' | b'-' | b'/'));
    may && (discards_all(text) || deallocates(text) == Some(Deallocate::All))
}

fn discards_all(text: &[u8]) -> bool {
    let mut tokens = Tokens::new(text);
    let mut is = |other: &[u8]| matches!(tokens.next(), Some(Token::Word(word)) if word.eq_ignore_ascii_case(other));
    is(b"discard")
        && is(b"all")
        && matches!((tokens.next(), tokens.next()), (None, _) | (Some(Token::Symbol(b';')), None))
}

pub(crate) fn deallocates(text: &[u8]) -> Option<Deallocate> {
    let mut tokens = Tokens::new(text);
    if !is_word(tokens.next().as_ref(), "deallocate") {
        return None;
    }
    let mut token = tokens.next();
    if is_word(token.as_ref(), "prepare") {
        // It is also a name that a statement may have.
        match tokens.clone().next() {
            None | Some(Token::Symbol(b';')) => {}
            _ => token = tokens.next(),
        }
    }
    let what = match token {
        Some(Token::Word(word)) if word.eq_ignore_ascii_case(b"all") => Deallocate::All,
        Some(Token::Word(word)) => Deallocate::One(word.to_ascii_lowercase()),
        Some(Token::Quoted(word)) => Deallocate::One(undoubled(word, b'"')),
        _ => return None,
    };
    match (tokens.next(), tokens.next()) {
        (None, _) | (Some(Token::Symbol(b';')), None) => Some(what),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_deallocate_is_recognised() {
        let one = |name: &str| Some(Deallocate::One(name.into()));
        assert_eq!(deallocates(b"DEALLOCATE ALL"), Some(Deallocate::All));
        assert_eq!(deallocates(b"deallocate prepare Foo;"), one("foo"));
        assert_eq!(deallocates(b"DEALLOCATE \"_pg3_0\""), one("_pg3_0"));
        assert_eq!(deallocates(b"DEALLOCATE \"a\"\"b\""), one("a\"b"));
        assert_eq!(deallocates(b"DEALLOCATE prepare;"), one("prepare"));
        assert_eq!(deallocates(b"DEALLOCATE prepare prepare"), one("prepare"));
        assert_eq!(deallocates(b"DEALLOCATE PREPARE ALL"), Some(Deallocate::All));
        assert_eq!(deallocates(b"DEALLOCATE a; select 1"), None);
        assert_eq!(deallocates(b"select 1"), None);
    }

    #[test]
    fn what_forgets_everything_is_recognised() {
        for sql in [&b"DEALLOCATE ALL"[..], b"discard all;", b"/* all */ Discard All", b"deallocate prepare all"] {
            assert!(deallocates_all(sql), "{}", String::from_utf8_lossy(sql));
        }
        for sql in [&b"DEALLOCATE a"[..], b"discard plans", b"discard all; select 1", b"select 'discard all'", b""] {
            assert!(!deallocates_all(sql), "{}", String::from_utf8_lossy(sql));
        }
    }

    #[test]
    fn no_text_is_too_strange() {
        for sql in [&b"deallocate \""[..], b"deallocate", b"deallocate prepare", b"deallocate \xff", b"'", b"\xff;\0"] {
            deallocates(sql);
        }
    }
}
