//! Commands about a Redis itself over one connection, one after the other, as `poolhouse doctor` sends them.

use std::time::Duration;

use settings::Secret;

use super::{options::ConnectOptions, requester::Requester};
use crate::{TargetError, blocking::BlockingClient};

/// A connection for queries.
pub struct Querier {
    client: BlockingClient<'static, Requester>,
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

impl Querier {
    /// Connects and logs in within `timeout`.
    ///
    /// # Errors
    /// What is wrong with the URL, or why there is no connection; without the password.
    pub fn connect(url: &Secret, timeout: Duration) -> Result<Self, TargetError> {
        Ok(Self { client: BlockingClient::connect(ConnectOptions::of(url, None)?, timeout)? })
    }

    /// Sends a command, and keeps up to `max_bytes` bytes of the reply. After an error the connection is of no use.
    ///
    /// # Errors
    /// The server is gone, does not keep to its protocol, or takes longer than `timeout`.
    pub fn query(&mut self, words: &[&str], max_bytes: usize, timeout: Duration) -> Result<Reply, TargetError> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let write =
            |requester: &mut Requester, out: &mut Vec<u8>| requester.request_reply_up_to(&words, max_bytes, out);
        let requester = self.client.request(write, timeout)?;
        Ok(match requester.error() {
            Some(error) => Reply::Refused(error.to_string()),
            None => read(requester.reply()),
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
