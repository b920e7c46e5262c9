//! Finds the end of a reply. A reply is a tree, but the number of values that are to come is enough to find its end. So
//! a reply of any size and depth may pass in pieces, with a state of sixteen bytes.

use super::number::{Line, line, number};

/// Longest line of a reply, its end included, in bytes. Redis writes errors and states as lines; long ones are bulk
/// strings.
pub const MAX_LINE: usize = 64 * 1024;

/// Follows replies through the bytes of a server, which may arrive in pieces.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ReplyScanner {
    /// Values that are still to come until the reply is over; 0 between replies.
    values: u64,
    /// Bytes of a bulk string, its end included, that are still to come.
    bulk: u64,
}

/// How far a reply has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyEnd {
    /// The number of bytes that belong to it.
    pub taken: usize,
    /// The reply ends with them. If not, bytes behind them have to be passed again with more.
    pub over: bool,
}

/// A server broke the protocol. Its connection cannot be used any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MalformedReply {
    /// A value begins with this byte, which is not a type.
    UnknownType(u8),
    /// The number behind this type is malformed, or not allowed.
    Number(u8),
    /// A line without its end.
    Line,
    /// More values than can be counted.
    TooMany,
}

impl std::fmt::Display for MalformedReply {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownType(byte) => write!(to, "a reply of unknown type `{}`", byte.escape_ascii()),
            Self::Number(kind) => write!(to, "a malformed number behind `{}`", kind.escape_ascii()),
            Self::Line => write!(to, "a line without end"),
            Self::TooMany => write!(to, "a reply of too many values"),
        }
    }
}

impl std::error::Error for MalformedReply {}

impl ReplyScanner {
    pub fn is_between(&self) -> bool {
        self.values == 0
    }

    /// Goes on with a reply, or begins one, and stops at its end. The type of one that begins is its first byte.
    /// After an error the scanner is of no more use.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<ReplyEnd, MalformedReply> {
        let mut at = 0;
        if self.values == 0 && !bytes.is_empty() {
            self.values = 1;
        }
        while self.values > 0 {
            if self.bulk > 0 {
                let part = usize::try_from(self.bulk).map_or(bytes.len() - at, |bulk| bulk.min(bytes.len() - at));
                self.bulk -= part as u64;
                at += part;
                if self.bulk > 0 {
                    break;
                }
                self.values -= 1;
                continue;
            }
            let Some(taken) = self.value(&bytes[at..])? else { break };
            at += taken;
        }
        Ok(ReplyEnd { taken: at, over: self.values == 0 && at > 0 })
    }

    /// Takes the first line of a value. `None`: it has not arrived whole.
    fn value(&mut self, bytes: &[u8]) -> Result<Option<usize>, MalformedReply> {
        let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
        let (more, bulk, used) = match kind {
            // States, errors, integers, nulls, booleans, doubles and big numbers: a line each.
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => match line(&rest[..rest.len().min(MAX_LINE)]) {
                Line::Ends(end) => (0, 0, end + 2),
                Line::Open if rest.len() < MAX_LINE => return Ok(None),
                Line::Open | Line::Torn => return Err(MalformedReply::Line),
            },
            // Bulk strings, bulk errors and verbatim strings: their bytes and a line's end.
            b'$' | b'!' | b'=' => {
                let Some((length, used)) = count(kind, rest)? else { return Ok(None) };
                (0, length.map_or(0, |length| length + 2), used)
            }
            b'*' | b'~' | b'>' => {
                let Some((length, used)) = count(kind, rest)? else { return Ok(None) };
                (length.unwrap_or(0), 0, used)
            }
            // Pairs. Attributes come before the value that they belong to.
            b'%' | b'|' => {
                let Some((length, used)) = count(kind, rest)? else { return Ok(None) };
                let pairs = length.unwrap_or(0).checked_mul(2).ok_or(MalformedReply::TooMany)?;
                (pairs + u64::from(kind == b'|'), 0, used)
            }
            other => return Err(MalformedReply::UnknownType(other)),
        };
        self.bulk = bulk;
        if bulk == 0 {
            self.values = (self.values - 1).checked_add(more).ok_or(MalformedReply::TooMany)?;
        }
        Ok(Some(1 + used))
    }
}

/// The number behind a type; an inner `None` is the null of RESP2, which strings and arrays may be.
fn count(kind: u8, rest: &[u8]) -> Result<Option<(Option<u64>, usize)>, MalformedReply> {
    let wrong = MalformedReply::Number(kind);
    let Some((count, used)) = number(rest).map_err(|_| wrong)? else { return Ok(None) };
    match u64::try_from(count) {
        Ok(count) => Ok(Some((Some(count), used))),
        Err(_) if count == -1 && matches!(kind, b'$' | b'*') => Ok(Some((None, used))),
        Err(_) => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The end of one reply at the beginning of `bytes`, handed over at once.
    fn end(bytes: &[u8]) -> Option<usize> {
        let end = ReplyScanner::default().advance(bytes).expect("a reply");
        end.over.then_some(end.taken)
    }

    #[test]
    fn every_type_ends_where_the_specification_says() {
        for reply in [
            "+OK\r\n",
            "-ERR no such key\r\n",
            ":-5\r\n",
            "$5\r\nhe\r\no\r\n",
            "$0\r\n\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            "_\r\n",
            "#t\r\n",
            ",1.5e3\r\n",
            ",inf\r\n",
            "(3492890328409238509324850943850943825024385\r\n",
            "!5\r\nERR a\r\n",
            "=7\r\ntxt:abc\r\n",
            "%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n",
            "~2\r\n:1\r\n:2\r\n",
            ">3\r\n+message\r\n+channel\r\n$1\r\nx\r\n",
            "|1\r\n+ttl\r\n:3600\r\n*1\r\n:1\r\n",
            "*1\r\n|1\r\n+ttl\r\n:3600\r\n:1\r\n",
            "%0\r\n",
        ] {
            assert_eq!(end(reply.as_bytes()), Some(reply.len()), "{reply:?}");
            assert_eq!(end(format!("{reply}+next\r\n").as_bytes()), Some(reply.len()), "{reply:?}");
            for cut in 0..reply.len() {
                assert_eq!(end(&reply.as_bytes()[..cut]), None, "{reply:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        let error = |bytes: &str| ReplyScanner::default().advance(bytes.as_bytes()).expect_err(bytes);
        assert_eq!(error("HTTP/1.1 400\r\n"), MalformedReply::UnknownType(b'H'));
        assert_eq!(error("$?\r\n"), MalformedReply::Number(b'$'));
        assert_eq!(error("$-2\r\n"), MalformedReply::Number(b'$'));
        assert_eq!(error("%-1\r\n"), MalformedReply::Number(b'%'));
        assert_eq!(error("+a\rb\r\n"), MalformedReply::Line);
        assert_eq!(error("%9223372036854775807\r\n*9223372036854775807\r\n"), MalformedReply::TooMany);
        assert_eq!(error(&format!("+{}", "a".repeat(MAX_LINE))), MalformedReply::Line);
    }

    #[test]
    fn a_deep_reply_costs_no_more_than_a_flat_one() {
        let deep = [b"*1\r\n".repeat(100_000), b":1\r\n".to_vec()].concat();
        assert_eq!(end(&deep), Some(deep.len()));
        assert_eq!(size_of::<ReplyScanner>(), 16);
    }

    /// A reply of any shape, as bytes.
    fn reply() -> impl Strategy<Value = Vec<u8>> {
        let bulk = |mark: u8| {
            proptest::collection::vec(any::<u8>(), 0..40)
                .prop_map(move |body| [&[mark][..], format!("{}\r\n", body.len()).as_bytes(), &body, b"\r\n"].concat())
        };
        let leaf = prop_oneof![
            "[+-][ -~]{0,20}\r\n".prop_map(String::into_bytes),
            "[:(]-?[1-9][0-9]{0,15}\r\n".prop_map(String::into_bytes),
            prop_oneof!["_", "#t", "#f", ",3\\.5", "\\$-1", "\\*-1"]
                .prop_map(|text| format!("{text}\r\n").into_bytes()),
            bulk(b'$'),
            bulk(b'!'),
            bulk(b'='),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let all = |mark: &'static str, per: usize| {
                proptest::collection::vec(inner.clone(), 0..4).prop_map(move |values| {
                    let count = values.len() / per;
                    [format!("{mark}{count}\r\n").into_bytes(), values[..count * per].concat()].concat()
                })
            };
            let attribute = (all("|", 2), inner.clone()).prop_map(|(attribute, value)| [attribute, value].concat());
            prop_oneof![all("*", 1), all("~", 1), all(">", 1), all("%", 2), attribute]
        })
    }

    proptest! {
        /// However replies are cut into pieces, their ends are found.
        #[test]
        fn ends_are_found_in_any_pieces(
            replies in proptest::collection::vec(reply(), 1..6), cuts in proptest::collection::vec(1..50usize, 1..20),
        ) {
            let bytes = replies.concat();
            let mut expected = replies.iter().scan(0, |sum, reply| { *sum += reply.len(); Some(*sum) });
            let mut scanner = ReplyScanner::default();
            let (mut from, mut arrived, mut cuts) = (0, 0, cuts.into_iter().cycle());
            while from < bytes.len() {
                let end = scanner.advance(&bytes[from..arrived]).expect("replies");
                from += end.taken;
                if end.over {
                    prop_assert_eq!(Some(from), expected.next());
                    prop_assert!(scanner.is_between());
                } else {
                    prop_assert!(arrived < bytes.len(), "nothing is waited for behind the end");
                    arrived = (arrived + cuts.next().unwrap()).min(bytes.len());
                }
            }
            prop_assert_eq!(expected.next(), None);
        }

        /// Whatever a server writes, it is a reply or refused, and never read beyond.
        #[test]
        fn anything_may_come(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n'), Just(b'*'), Just(b'1')],
                0..200,
            ),
        ) {
            let mut scanner = ReplyScanner::default();
            if let Ok(end) = scanner.advance(&bytes) {
                prop_assert!(end.taken <= bytes.len());
            }
        }
    }
}
