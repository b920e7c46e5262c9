//! Messages of pub/sub and confirmations: arrays in RESP2, and the same as push messages in RESP3.

use super::number::number;
use crate::command::{SubscriptionCommand, Topic};

/// A message, or the reply to a command of a subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PubSubReply<'a> {
    /// A message for the subscribers of this name.
    Message(Topic, &'a [u8]),
    /// One name of a command is confirmed.
    Confirmed(SubscriptionCommand),
    /// The whole command is refused, with this error.
    Refused(&'a [u8]),
    Pong,
}

/// Reads it. The beginning of a message is enough, up to the name of the subscription. `None`: it is something else.
pub fn read_pubsub(bytes: &[u8]) -> Option<PubSubReply<'_>> {
    let (&kind, mut rest) = bytes.split_first()?;
    match kind {
        b'-' => return Some(PubSubReply::Refused(rest.trim_ascii_end())),
        b'+' if rest == b"PONG\r\n" => return Some(PubSubReply::Pong),
        b'*' | b'>' => {}
        _ => return None,
    }
    let (_, used) = number(rest).ok()??;
    rest = &rest[used..];
    let word = take_string(&mut rest)?;
    let done = |begins, topic| Some(PubSubReply::Confirmed(SubscriptionCommand { begins, topic }));
    match word {
        b"message" => Some(PubSubReply::Message(Topic::Channel, take_string(&mut rest)?)),
        b"pmessage" => Some(PubSubReply::Message(Topic::Pattern, take_string(&mut rest)?)),
        b"smessage" => Some(PubSubReply::Message(Topic::Shard, take_string(&mut rest)?)),
        b"subscribe" => done(true, Topic::Channel),
        b"psubscribe" => done(true, Topic::Pattern),
        b"ssubscribe" => done(true, Topic::Shard),
        b"unsubscribe" => done(false, Topic::Channel),
        b"punsubscribe" => done(false, Topic::Pattern),
        b"sunsubscribe" => done(false, Topic::Shard),
        // The reply to PING of a subscriber in RESP2.
        b"pong" => Some(PubSubReply::Pong),
        _ => None,
    }
}

/// Takes the head of an array of strings, and returns their number.
pub fn take_array_header(rest: &mut &[u8]) -> Option<u64> {
    let (count, used) = number(rest.strip_prefix(b"*")?).ok()??;
    *rest = &rest[1 + used..];
    u64::try_from(count).ok()
}

pub fn take_string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, used) = number(rest.strip_prefix(b"$")?).ok()??;
    let (string, behind) = rest[1 + used..].split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind.strip_prefix(b"\r\n")?;
    Some(string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_what_became_of_commands() {
        for kind in ["*", ">"] {
            let read = |rest: &str| read_pubsub(format!("{kind}{rest}").leak().as_bytes());
            let message = "3\r\n$7\r\nmessage\r\n$4\r\nn\r\nw\r\n$1\r\nx\r\n";
            assert_eq!(read(message), Some(PubSubReply::Message(Topic::Channel, b"n\r\nw")));
            let message = "4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$1\r\nx\r\n";
            assert_eq!(read(message), Some(PubSubReply::Message(Topic::Pattern, b"n*")));
            assert_eq!(
                read("3\r\n$8\r\nsmessage\r\n$1\r\ns\r\n$9\r\nbeg"),
                Some(PubSubReply::Message(Topic::Shard, b"s"))
            );
            let done = PubSubReply::Confirmed(SubscriptionCommand { begins: false, topic: Topic::Pattern });
            assert_eq!(read("3\r\n$12\r\npunsubscribe\r\n$1\r\nx\r\n:0\r\n"), Some(done));
        }
        assert_eq!(read_pubsub(b"-NOPERM no\r\n"), Some(PubSubReply::Refused(b"NOPERM no")));
        for pong in ["+PONG\r\n", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"] {
            assert_eq!(read_pubsub(pong.as_bytes()), Some(PubSubReply::Pong));
        }
    }

    #[test]
    fn anything_else_is_neither() {
        for bytes in
            ["", "+OK\r\n", "*", ">2\r\n$10\r\ninvalidate\r\n", "*3\r\n$7\r\nmessage\r\n$-1\r\n", "*3\r\n$7\r\nmess"]
        {
            assert_eq!(read_pubsub(bytes.as_bytes()), None, "{bytes:?}");
        }
    }
}
