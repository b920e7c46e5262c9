//! Redis as a player speaks it: how replies are cut, what of them is compared, and which rows must be in its list.

use super::programs::Programs;
use crate::{
    databases::redis as model,
    product::speech::{Kind, Message, Request, Speech},
    random::Rng,
};

pub(super) struct Voice {
    programs: Programs,
}

impl Voice {
    pub(super) fn new(number: usize) -> Self {
        Self { programs: Programs::new(number) }
    }
}

/// Where the line that begins here ends, behind its CRLF.
fn line(bytes: &[u8], at: usize) -> Option<usize> {
    bytes[at..].windows(2).position(|pair| pair == b"\r\n").map(|length| at + length + 2)
}

/// Where the reply that begins here ends.
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
        if end == bytes.len() {
            // Whether that was the last one shows the count.
            continue;
        }
    }
    Some(end)
}

/// `reply` without the number of the connection, which differs.
fn without_id(reply: &[u8]) -> Vec<u8> {
    let mark = b"$2\r\nid\r\n:";
    let Some(at) = reply.windows(mark.len()).position(|part| part == mark) else { return reply.to_vec() };
    let from = at + mark.len();
    let to = line(reply, from).expect("a number ends");
    [&reply[..from], &reply[to..]].concat()
}

impl Speech for Voice {
    type Database = model::Redis;

    const FEELS_REPLACEMENTS: bool = true;

    fn reference(&self) -> model::Redis {
        model::Redis::default()
    }

    fn open(&mut self, rng: &mut Rng) -> Request {
        self.programs.begin(rng)
    }

    fn ask(&mut self, rng: &mut Rng) -> Request {
        self.programs.next(rng)
    }

    fn learn(&mut self, _: &Message) {}

    fn hear(&mut self, _: &[u8]) {}

    fn is_idle(&self) -> bool {
        true
    }

    fn farewell(&self) -> Vec<u8> {
        Vec::new()
    }

    fn cut(&mut self, bytes: &[u8], _: bool) -> Option<(usize, Option<Message>)> {
        if bytes.is_empty() {
            return None;
        }
        let length = end_of(bytes, 0)?;
        let reply = &bytes[..length];
        let told = |word: &[u8]| reply.len() > 4 && reply.windows(word.len()).take(40).any(|part| part == word);
        let kind = match reply[0] {
            b'>' if told(b"\r\nmessage\r\n") || told(b"\r\npmessage\r\n") => Kind::Aside,
            b'*' if told(b"$7\r\nmessage\r\n") || told(b"$8\r\npmessage\r\n") => Kind::Aside,
            b'-' if told(b"Poolhouse") => Kind::Fault,
            _ => Kind::End,
        };
        Some((length, Some(Message { kind, text: without_id(reply) })))
    }

    fn sort_opening(&self, _: &mut Vec<Message>) {}

    /// While subscriptions are restored after a fault, PUBLISH counts those who have theirs already, or a server that
    /// is lost and does not know it.
    fn is_as_good(&self, expected: &Message, got: &Message, hurt: bool) -> bool {
        hurt && expected.text == b":1\r\n" && (got.text == b":0\r\n" || got.text == b":2\r\n")
    }

    fn check(&mut self, real: &model::Redis, own: &model::Redis) {
        let key = self.programs.ledger();
        let (real, own) = (real.list(&key), own.list(&key));
        assert!(real == own, "{} holds {real:?} instead of {own:?}", String::from_utf8_lossy(&key));
        self.programs.acknowledged = own;
    }

    fn check_after_fault(&mut self, real: &model::Redis, _: &model::Redis) {
        let real = real.list(&self.programs.ledger());
        let known = &self.programs.acknowledged;
        assert!(known.iter().all(|row| real.contains(row)), "a list holds {real:?}, acknowledged were {known:?}");
        let mut once = real.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), real.len(), "a row is there twice: {real:?}");
        self.programs.become_another();
    }

    fn cancel(&self) -> Option<Vec<u8>> {
        None
    }
}
