//! A connection for repeated questions about a Redis, as `poolhouse doctor` asks them. Knows no command.

use std::time::Duration;

use settings::Secret;

use super::{link::Link, place::Place};
use crate::{TargetError, connection::Connection};

/// A connection.
pub struct Asker {
    connection: Connection<'static, Link>,
}

/// The answer to a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Some text: what is in a bulk string, or else the reply as it came.
    Text {
        /// All of it, or its beginning.
        text: String,
        /// All of it.
        is_whole: bool,
    },
    /// The server refuses it, in its own words.
    Refused(String),
}

impl Asker {
    /// Connects and logs in within so long.
    ///
    /// # Errors
    /// What is wrong with the URL, or why there is no connection; without the password.
    pub fn connect(url: &Secret, within: Duration) -> Result<Self, TargetError> {
        let place = Place::of(url, None)?;
        let address = place.endpoint.address.to_string();
        Ok(Self { connection: Connection::connect(place, address, within)? })
    }

    /// Asks one thing, and keeps up to `most` bytes of the answer. After an error the connection is of no use.
    ///
    /// # Errors
    /// The server is gone, does not keep to its protocol, or takes longer than `within`.
    pub fn ask(&mut self, words: &[&str], most: usize, within: Duration) -> Result<Reply, TargetError> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let link = self.connection.ask(|link, out| link.requester().ask_for_up_to(&words, most, out), within)?;
        let requester = link.requester();
        Ok(match requester.error() {
            Some(error) => Reply::Refused(error.to_string()),
            None => read(requester.kept()),
        })
    }
}

/// `$7\r\nfoo bar\r\n` is `foo bar`.
fn read(kept: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(kept);
    let bulk = text.strip_prefix('$').and_then(|rest| rest.split_once("\r\n"));
    let bulk = bulk.and_then(|(length, rest)| Some((length.parse::<usize>().ok()?, rest)));
    let Some((length, rest)) = bulk else { return Reply::Text { text: text.into_owned(), is_whole: true } };
    // Other bytes than UTF-8 are replaced by longer ones, so the length is that of what came.
    let head = text.len() - rest.len();
    let is_whole = kept.len() >= head.saturating_add(length);
    Reply::Text { text: rest.strip_suffix("\r\n").unwrap_or(rest).to_owned(), is_whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str, is_whole: bool) -> Reply {
        Reply::Text { text: text.to_owned(), is_whole }
    }

    #[test]
    fn a_bulk_string_is_its_text_and_what_was_cut_is_told_so() {
        assert_eq!(read(b"$7\r\nfoo\r\nbr\r\n"), text("foo\r\nbr", true));
        assert_eq!(read(b"$700\r\nfoo\r\nbar"), text("foo\r\nbar", false));
        assert_eq!(read(b"$3\r\n\xff\xfe\xfd\r\n"), text("\u{fffd}\u{fffd}\u{fffd}", true));
        assert_eq!(read(b"*1\r\n$1\r\na\r\n"), text("*1\r\n$1\r\na\r\n", true));
        assert_eq!(read(b"$-1\r\n"), text("$-1\r\n", true));
        assert_eq!(read(b"$18446744073709551615\r\nfoo"), text("foo", false));
    }
}
