//! Requests that may begin a COPY FROM STDIN: a simple query of which one statement is a COPY, and an Execute whose
//! portal was made of such a statement. A request taken for one by mistake only delays the requests behind it.

use memchr::memchr;

use crate::{
    directory::PoolMode,
    exchange::Exchange,
    session::request::Arrived,
    sql::tokens::{Token, Tokens},
    wire::{front, take_text},
};

/// Statements of a client that may be a COPY.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopyCandidates {
    unnamed: Unnamed,
    /// A named statement whose text is not kept may be a COPY.
    named: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Unnamed {
    #[default]
    No,
    Yes,
    /// A COPY was replaced by a Parse that the server may yet discard.
    Replaced,
}

impl CopyCandidates {
    /// A message is about to be forwarded that prepares a statement or makes a portal. True if the portal may be a
    /// COPY.
    #[inline]
    pub(crate) fn follow(&mut self, mode: PoolMode, message: &Arrived<'_>) -> bool {
        match message.header.kind {
            front::PARSE => self.note_parse(mode, message),
            front::BIND => return self.named || self.unnamed != Unnamed::No,
            _ => {}
        }
        false
    }

    fn note_parse(&mut self, mode: PoolMode, message: &Arrived<'_>) {
        let mut text = message.body();
        let name = take_text(&mut text);
        // Of one that is too long to be looked at, only a comment can hide what it is.
        let is_copy = is_copy(text);
        match name {
            Some(b"") if is_copy => self.unnamed = Unnamed::Yes,
            Some(b"") if self.unnamed == Unnamed::Yes => self.unnamed = Unnamed::Replaced,
            Some(b"") => {}
            _ => self.named |= is_copy && (mode == PoolMode::Session || !message.is_whole()),
        }
    }

    /// All requests have been answered.
    #[inline]
    pub(crate) fn note_settled(&mut self) {
        if self.unnamed == Unnamed::Replaced {
            self.unnamed = Unnamed::No;
        }
    }

    /// A request has failed: the server may have discarded the Parse that replaced a COPY.
    pub(crate) fn note_failure(&mut self) {
        if self.unnamed == Unnamed::Replaced {
            self.unnamed = Unnamed::Yes;
        }
    }
}

/// Whether a text, which holds one statement, is a COPY.
pub(crate) fn is_copy(text: &[u8]) -> bool {
    let mut tokens = Tokens::new(text);
    let first = tokens.find(|token| *token != Token::Symbol(b';'));
    matches!(first, Some(Token::Word(word)) if word.eq_ignore_ascii_case(b"copy"))
}

/// Whether the text of a simple query may hold a COPY.
fn may_copy(text: &[u8]) -> bool {
    let behind = memchr(b';', text).map_or(&[][..], |first| &text[first..]);
    is_copy(text) || behind.windows(4).any(|part| part.eq_ignore_ascii_case(b"copy"))
}

/// A Query is forwarded; `text` is `None` if it is too long to be read.
#[inline]
pub(crate) fn enter_query(exchange: &mut Exchange, text: Option<&[u8]>) {
    if text.is_none_or(may_copy) {
        exchange.enter_copy_query();
    } else {
        exchange.enter_query();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_seen_behind_comments_and_empty_statements() {
        for sql in ["copy t from stdin", " ;/* a /* b */ */ -- c\n;COPY t FROM STDIN", "Copy\tt from stdin"] {
            assert!(is_copy(sql.as_bytes()) && may_copy(sql.as_bytes()), "{sql}");
        }
        for sql in ["select copy", "copyright", "", "begin", "/* copy */ select 1", "\"copy\" x"] {
            assert!(!is_copy(sql.as_bytes()) && !may_copy(sql.as_bytes()), "{sql}");
        }
        assert!(may_copy(b"begin; copy t from stdin; commit"));
        assert!(!is_copy(b"begin; copy t from stdin"));
    }
}
