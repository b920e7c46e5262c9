//! Random commands to Redis that touch no other client's keys and channels, so that the reference knows every answer.

use crate::{product::checked_protocol::Request, random::Rng};

pub(super) struct Requests {
    number: usize,
    /// Part of its keys. It changes after a fault, when the fate of its last commands is unknown.
    alias: u32,
    next_row: u32,
    /// It may subscribe on this connection. Then it uses RESP3, and no transactions, in which subscriptions cannot
    /// change.
    subscribes: bool,
    listening: bool,
    queueing: bool,
    /// Rows that are in its list for certain.
    pub(super) acknowledged: Vec<Vec<u8>>,
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

impl Requests {
    pub(super) fn new(number: usize) -> Self {
        Self {
            number,
            alias: 0,
            next_row: 1,
            subscribes: false,
            listening: false,
            queueing: false,
            acknowledged: Vec::new(),
        }
    }

    /// The key of the list of its rows.
    pub(super) fn ledger_key(&self) -> Vec<u8> {
        self.key("rows").into_bytes()
    }

    fn key(&self, name: &str) -> String {
        format!("p{}x{}:{name}", self.number, self.alias)
    }

    pub(super) fn change_alias(&mut self) {
        self.alias += 1;
        self.acknowledged.clear();
    }

    pub(super) fn begin(&mut self, rng: &mut Rng) -> Request {
        self.queueing = false;
        self.listening = false;
        let resp3 = rng.percent(40);
        self.subscribes = resp3 && rng.percent(50);
        one(if resp3 { command(&["HELLO", "3"]) } else { command(&["PING"]) })
    }

    pub(super) fn next(&mut self, rng: &mut Rng) -> Request {
        let mut request = Request::default();
        let many = if rng.percent(25) { 2 + rng.below(6) } else { 1 };
        for _ in 0..many {
            let next = self.draw_command(rng);
            request.bytes.extend(next.bytes);
            request.answers += next.answers;
        }
        request
    }

    fn draw_command(&mut self, rng: &mut Rng) -> Request {
        let key = self.key(rng.pick(&["a", "b", "c"]));
        let list = self.key(rng.pick(&["l", "m"]));
        let rows = self.key("rows");
        let value = format!("v{}of{}", self.new_row(), self.number);
        let channel = format!("c{}", self.number);
        // Also right after a PUBLISH to itself, whose message takes another connection than its replies.
        if self.subscribes && rng.percent(15) {
            let verb = rng.pick(&["SUBSCRIBE", "UNSUBSCRIBE"]);
            self.listening = verb == "SUBSCRIBE";
            return one(command(&[verb, &channel]));
        }
        let words: Vec<&str> = match rng.below(34) {
            0..=3 => vec!["GET", &key],
            4..=6 => vec!["SET", &key, &value],
            7 => vec!["DEL", &key],
            8 => vec!["INCR", &key],
            9 => vec!["APPEND", &key, &value],
            10..=13 => vec!["RPUSH", &rows, &value],
            14 => vec!["LRANGE", &rows, "0", "-1"],
            15 => vec!["LPUSH", &list, &value],
            16 => vec!["RPOP", &list],
            17 => vec!["MGET", &key, &rows],
            18 => vec!["PING", &value],
            19 => vec!["ECHO", &value],
            20 if !self.queueing && !self.subscribes => {
                self.queueing = true;
                vec!["MULTI"]
            }
            21 | 23 | 24 if self.queueing => {
                self.queueing = false;
                vec![rng.pick(&["EXEC", "EXEC", "DISCARD"])]
            }
            21 if !self.subscribes => vec!["WATCH", &key],
            22 => vec!["UNWATCH"],
            23 => vec!["BLPOP", &list, "0.01"],
            24 => vec!["CLIENT", "SETNAME", &value],
            25 => vec!["CLIENT", "GETNAME"],
            26 => vec!["EVAL", "return redis.call('get', KEYS[1])", "1", &key],
            27 => vec!["EVAL", "return redis.call('incr', KEYS[1])", "1", &key],
            28 => vec!["NOSUCHCOMMAND", &value],
            29 => vec!["GET"],
            // While a subscription ends the count that PUBLISH returns is undefined.
            30..=32 if self.listening => vec!["PUBLISH", &channel, &value],
            33 if !self.queueing => {
                let bytes = [command(&["SELECT", "1"]), command(&["SET", &key, &value]), command(&["SELECT", "0"])];
                return Request { bytes: bytes.concat(), answers: 3 };
            }
            _ => vec!["EXISTS", &key],
        };
        one(command(&words))
    }

    fn new_row(&mut self) -> u32 {
        self.next_row += 1;
        self.next_row - 1
    }
}

fn one(bytes: Vec<u8>) -> Request {
    Request { bytes, answers: 1 }
}
