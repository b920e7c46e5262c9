//! PostgreSQL for a client: how messages are split, what is compared, and which rows must be in the ledger.

use super::requests::{Requests, message};
use crate::{
    databases::postgres as model,
    product::{
        checked_protocol::{CheckedProtocol, Kind, Message, Request},
        client_times::TimeOut,
    },
    random::Rng,
};

pub(super) struct PostgresProtocol {
    requests: Requests,
    /// The key for cancel requests, of the present connection.
    key: Option<[u8; 8]>,
}

impl PostgresProtocol {
    /// `pins`: it may send statements that pin it to a server. `replicates`: it asks for a dedicated one.
    pub(super) fn new(number: usize, user: &'static str, (pins, replicates): (bool, bool)) -> Self {
        Self { requests: Requests::new(number, user, (pins, replicates)), key: None }
    }
}

/// A row of one empty column.
const EMPTY: &[u8] = &[b'D', 0, 0, 0, 10, 0, 1, 0, 0, 0, 0];

/// Errors that a fault allows: lost connections, servers that shut down, too few servers.
fn is_fault(code: &str) -> bool {
    code.starts_with("08") || code.starts_with("57P") || code.starts_with("53") || code.starts_with("58")
}

/// A field of an error or notice.
fn field(body: &[u8], wanted: u8) -> String {
    let found = body.split(|byte| *byte == 0).find(|field| field.first() == Some(&wanted));
    found.map(|field| String::from_utf8_lossy(&field[1..]).into_owned()).unwrap_or_default()
}

impl CheckedProtocol for PostgresProtocol {
    type Database = model::Postgres;

    fn new_reference(&self) -> model::Postgres {
        model::Postgres::new()
    }

    fn first_request(&mut self, rng: &mut Rng) -> Request {
        self.key = None;
        let mut body = (3u32 << 16).to_be_bytes().to_vec();
        for (name, value) in self.requests.begin(rng) {
            body.extend(format!("{name}\0{value}\0").as_bytes());
        }
        body.push(0);
        let length = (body.len() as u32 + 4).to_be_bytes();
        Request { bytes: [&length[..], &body].concat(), answers: 1 }
    }

    fn next_request(&mut self, rng: &mut Rng) -> Request {
        self.requests.next(rng)
    }

    fn on_reference_message(&mut self, message: &Message) {
        if message.kind == Kind::End {
            self.requests.status = *message.text.last().expect("it has a status");
        }
    }

    fn on_message(&mut self, bytes: &[u8]) {
        if bytes[0] == b'K' && bytes.len() == 13 {
            self.key = Some(bytes[5..].try_into().expect("eight bytes"));
        }
    }

    fn is_idle(&self) -> bool {
        self.requests.status == b'I'
    }

    fn goodbye(&self) -> Vec<u8> {
        message(b'X', b"")
    }

    fn split_first(&mut self, bytes: &[u8], opening: bool) -> Option<(usize, Option<Message>)> {
        let length = 1 + u32::from_be_bytes(bytes.get(1..5)?.try_into().expect("four bytes")) as usize;
        let body = bytes.get(5..length)?;
        let kind = bytes[0];
        let message = match kind {
            b'K' => None,
            // The configuration changes it in some schedules, and no request depends on it.
            b'S' if body.starts_with(b"IntervalStyle\0") => None,
            b'S' => Some(Message { kind: Kind::Setting, text: body[..body.len() - 1].to_vec() }),
            b'E' | b'N' => {
                let (code, said) = (field(body, b'C'), field(body, b'M'));
                let text = format!("{} {} {code} {said}", char::from(kind), field(body, b'S'));
                let kind = match () {
                    () if kind == b'N' => Kind::Part,
                    () if code == "57014" => Kind::Cancelled,
                    () if is_fault(&code) => Kind::Fault,
                    () => Kind::Part,
                };
                Some(Message { kind, text: text.into_bytes() })
            }
            // Process ids differ.
            b'A' => Some(Message { kind: Kind::Aside, text: [b"A", &body[4..]].concat() }),
            b'Z' => Some(Message { kind: Kind::End, text: bytes[..length].to_vec() }),
            b'R' if opening => None,
            // A custom parameter that any client has set on the server is empty there, and not NULL.
            b'D' if body == [0, 1, 255, 255, 255, 255] => Some(Message { kind: Kind::Part, text: EMPTY.to_vec() }),
            _ => Some(Message { kind: Kind::Part, text: bytes[..length].to_vec() }),
        };
        Some((length, message))
    }

    fn sort_opening(&self, messages: &mut Vec<Message>) {
        let end = messages.pop();
        messages.sort_by(|a, b| a.text.cmp(&b.text));
        messages.extend(end);
    }

    /// In a failed transaction, the pooler may have to parse a statement again, which is refused before its Bind.
    fn is_equivalent(&self, expected: &Message, got: &Message, _: bool) -> bool {
        expected.text.starts_with(b"E ERROR") && got.text.starts_with(b"E ERROR 25P02")
    }

    fn ends_connection(&self, message: &Message) -> bool {
        message.text.starts_with(b"E FATAL 08006 the servers of this database have been replaced")
    }

    fn is_in_transaction_after(&self, end: &Message) -> bool {
        end.text.last() != Some(&b'I')
    }

    fn time_out(&self, message: &Message) -> Option<TimeOut> {
        let is = |code: &str| message.text.starts_with(format!("E FATAL {code} terminating").as_bytes());
        let idle = is("57P05").then_some(TimeOut::Idle);
        idle.or_else(|| is("25P04").then_some(TimeOut::Transaction))
    }

    fn is_departure(&self, message: &Message) -> bool {
        message.text.starts_with(b"E FATAL 57P01 terminating connection: Poolhouse is shutting down")
    }

    fn check(&mut self, product_database: &model::Postgres, reference: &model::Postgres) {
        let who = self.requests.who();
        let (real, reference) = (rows(product_database, &who), rows(reference, &who));
        assert!(
            self.requests.status != b'I' || real == reference,
            "{who} has {real:?} in the ledger instead of {reference:?}"
        );
        if self.requests.status == b'I' {
            self.requests.acknowledged = reference;
        }
    }

    fn check_after_fault(&mut self, product_database: &model::Postgres, _: &model::Postgres) {
        let who = self.requests.who();
        let real = rows(product_database, &who);
        let known = &self.requests.acknowledged;
        assert!(
            known.iter().all(|n| real.contains(n)),
            "{who} has {real:?} in the ledger, acknowledged were {known:?}"
        );
        let mut once = real.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), real.len(), "a row of {who} is there twice: {real:?}");
        self.requests.change_alias();
    }

    fn cancel(&self) -> Option<Vec<u8>> {
        let key = self.key?;
        Some([&16u32.to_be_bytes()[..], &80_877_102u32.to_be_bytes(), &key].concat())
    }
}

fn rows(database: &model::Postgres, who: &str) -> Vec<i64> {
    database.ledger().into_iter().filter(|(name, _)| name == who).map(|(_, n)| n).collect()
}
