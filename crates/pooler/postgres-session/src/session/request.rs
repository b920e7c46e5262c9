//! A message of a client that holds a server, as far as it has arrived, and what becomes of it.

use std::ops::Range;

use crate::wire::{HEADER, Header, front, take_text};

/// What becomes of a message.
pub(crate) enum Step {
    /// The message is entered into the exchange and forwarded as it is.
    Forward,
    /// More of the message, or of the answers, has to come first.
    Wait,
    /// The message was entered and forwarded in another form up to here; its rest follows as it is.
    Replaced(usize),
    /// The message was answered without the server.
    Answered,
    /// The server is asked something first; then the message is handed over again.
    Later,
    /// Too many requests are unanswered.
    TooMany,
}

/// A message, as far as it has arrived.
pub(crate) struct Arrived<'a> {
    pub(crate) header: Header,
    pub(crate) bytes: &'a [u8],
    /// Where the message begins in `bytes`.
    pub(crate) at: usize,
    /// No more of the message can be waited for.
    pub(crate) full: bool,
}

impl<'a> Arrived<'a> {
    /// The part of the body that has arrived.
    pub(crate) fn body(&self) -> &'a [u8] {
        let end = self.end();
        &self.bytes[self.at + HEADER..end.min(self.bytes.len())]
    }

    /// Where the message ends, in the input or beyond it.
    pub(crate) fn end(&self) -> usize {
        self.at + self.header.total()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.end() <= self.bytes.len()
    }

    /// The rest of the message may still come while it waits.
    pub(crate) fn may_wait(&self) -> bool {
        !self.is_whole() && !self.full
    }

    /// Whether it is certainly a Bind of the unnamed statement, or about a portal.
    pub(crate) fn names_no_statement(&self) -> bool {
        match self.header.kind {
            front::BIND => self.body().starts_with(&[0, 0]),
            _ => self.body().first() == Some(&b'P'),
        }
    }

    /// The span of the name of the statement that the message is about; `None` if it has not come yet, an inner `None`
    /// if the message is about a portal.
    pub(crate) fn statement_name(&self) -> Option<Option<Range<usize>>> {
        let mut body = self.body();
        let name = match self.header.kind {
            front::PARSE => take_text(&mut body)?,
            front::BIND => {
                take_text(&mut body)?;
                take_text(&mut body)?
            }
            _ => {
                if *body.first()? != b'S' {
                    return Some(None);
                }
                body = &body[1..];
                take_text(&mut body)?
            }
        };
        // The text ends with the zero byte before what is left.
        let end = self.at + HEADER + self.body().len() - body.len() - 1;
        Some(Some(end - name.len()..end))
    }
}
