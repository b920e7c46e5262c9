//! Redis for a client: how replies are split, what is compared, and which rows must be in its list.

use super::requests::Requests;
use crate::{
    databases::redis as model,
    product::checked_protocol::{CheckedProtocol, Kind, Message, Request},
    random::Rng,
};

pub(super) struct RedisProtocol {
    requests: Requests,
}

impl RedisProtocol {
    pub(super) fn new(number: usize) -> Self {
        Self { requests: Requests::new(number) }
    }
}

/// The position behind the line that begins here.
fn line(bytes: &[u8], at: usize) -> Option<usize> {
    bytes[at..].windows(2).position(|pair| pair == b"\r\n").map(|length| at + length + 2)
}

/// The position behind the reply that begins here, if it is complete.
fn end_of(bytes: &[u8], at: usize) -> Option<usize> {
    let behind = line(bytes, at)?;
    let number = || std::str::from_utf8(&bytes[at + 1..behind - 2]).ok()?.parse::<i64>().ok();
    let many = match bytes[at] {
        b'$' | b'=' | b'!' => {
            let length = number().expect("a length");
            let end = if length < 0 { behind } else { behind + length as usize + 2 };
            return (end <= bytes.len()).then_some(end);
        }
        b'*' | b'~' | b'>' => number().expect("a count").max(0),
        b'%' | b'|' => 2 * number().expect("a count"),
        _ => 0,
    };
    let mut end = behind;
    for _ in 0..many {
        end = end_of(bytes, end).filter(|end| *end <= bytes.len())?;
    }
    Some(end)
}

/// `reply` without the id of the connection.
fn without_id(reply: &[u8]) -> Vec<u8> {
    let mark = b"$2\r\nid\r\n:";
    let Some(at) = reply.windows(mark.len()).position(|part| part == mark) else { return reply.to_vec() };
    let from = at + mark.len();
    let to = line(reply, from).expect("a number ends");
    [&reply[..from], &reply[to..]].concat()
}

impl CheckedProtocol for RedisProtocol {
    type Database = model::Redis;

    const LOSES_MESSAGES_AT_REPLACEMENT: bool = true;

    fn new_reference(&self) -> model::Redis {
        model::Redis::default()
    }

    fn first_request(&mut self, rng: &mut Rng) -> Request {
        self.requests.begin(rng)
    }

    fn next_request(&mut self, rng: &mut Rng) -> Request {
        self.requests.next(rng)
    }

    fn on_reference_message(&mut self, _: &Message) {}

    fn on_message(&mut self, _: &[u8]) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn goodbye(&self) -> Vec<u8> {
        Vec::new()
    }

    fn split_first(&mut self, bytes: &[u8], _: bool) -> Option<(usize, Option<Message>)> {
        if bytes.is_empty() {
            return None;
        }
        let length = end_of(bytes, 0)?;
        let reply = &bytes[..length];
        let contains = |word: &[u8]| reply.len() > 4 && reply.windows(word.len()).take(40).any(|part| part == word);
        let kind = match reply[0] {
            b'>' if contains(b"\r\nmessage\r\n") || contains(b"\r\npmessage\r\n") => Kind::Aside,
            b'*' if contains(b"$7\r\nmessage\r\n") || contains(b"$8\r\npmessage\r\n") => Kind::Aside,
            b'-' if contains(b"Poolhouse") => Kind::Fault,
            _ => Kind::End,
        };
        Some((length, Some(Message { kind, text: without_id(reply) })))
    }

    fn sort_opening(&self, _: &mut Vec<Message>) {}

    /// While subscriptions are restored after a fault, the count of PUBLISH may miss some, or include those of a lost
    /// server.
    fn is_equivalent(&self, expected: &Message, got: &Message, after_fault: bool) -> bool {
        after_fault && expected.text == b":1\r\n" && (got.text == b":0\r\n" || got.text == b":2\r\n")
    }

    fn check(&mut self, product_database: &model::Redis, reference: &model::Redis) {
        let key = self.requests.ledger_key();
        let (real, reference) = (product_database.list(&key), reference.list(&key));
        assert!(real == reference, "{} holds {real:?} instead of {reference:?}", String::from_utf8_lossy(&key));
        self.requests.acknowledged = reference;
    }

    fn check_after_fault(&mut self, product_database: &model::Redis, _: &model::Redis) {
        let real = product_database.list(&self.requests.ledger_key());
        let known = &self.requests.acknowledged;
        assert!(known.iter().all(|row| real.contains(row)), "a list holds {real:?}, acknowledged were {known:?}");
        let mut once = real.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), real.len(), "a row is there twice: {real:?}");
        self.requests.change_alias();
    }

    fn cancel(&self) -> Option<Vec<u8>> {
        None
    }
}
