//! Awaited batches of tailable cursors (`awaitData`), and all batches of a cursor for one request (`exhaustAllowed`).

use std::time::Duration;

use mongodb_session::{
    bson::{Document, Value},
    wire::{self, Answers, EXHAUST_ALLOWED, MORE_TO_COME},
};

use super::{MongoDb, message::Request};
use crate::databases::Connection;

/// The first id of answers to which later answers refer.
const FIRST_ANSWER: i32 = 7_000;

/// A request that waits for the next batch.
pub struct Waiting {
    from: Connection,
    host: usize,
    user: usize,
    cursor: i64,
    message: Vec<u8>,
    until: Duration,
}

#[derive(Default)]
pub struct Streams {
    waiting: Vec<Waiting>,
    /// Limit of the requests of a user that wait at a host; for schedules in which no application vanishes.
    pub most: Option<usize>,
}

impl Streams {
    pub fn due(&self) -> Option<Duration> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    /// Drops the requests of a connection that wait.
    pub fn forget_connection(&mut self, connection: Connection) {
        self.waiting.retain(|waiting| waiting.from != connection);
    }
}

fn integer(body: Document<'_>, name: &str) -> Option<i64> {
    body.get(name).ok().flatten().and_then(Value::integer)
}

impl MongoDb {
    /// Executes a getMore; `None` if it is not answered now, or was answered here.
    pub(super) fn next_batch(
        &mut self,
        from: Connection,
        id: i64,
        request: &Request<'_>,
        message: &[u8],
    ) -> Option<Vec<u8>> {
        let (host, user) = (self.sessions[&from].host, self.sessions[&from].user);
        let patience = integer(request.body, "maxTimeMS").unwrap_or(0).clamp(0, 1000);
        if patience > 0 && self.has_nothing_new(host, id) {
            let until = self.now + Duration::from_millis(patience as u64);
            self.sessions.get_mut(&from).expect("it speaks").waits = true;
            let waiting = Waiting { from, host, user, cursor: id, message: message.to_vec(), until };
            self.streams.waiting.push(waiting);
            let of = |waiting: &&Waiting| (waiting.host, waiting.user) == (host, user);
            let count = self.streams.waiting.iter().filter(of).count();
            assert!(self.streams.most.is_none_or(|most| count <= most), "{count} wait at host {host} of user {user}");
            return None;
        }
        if wire::flags(message).unwrap_or(0) & EXHAUST_ALLOWED == 0 {
            return Some(self.get_more(from, id, request.body));
        }
        let mut answers = request.answers;
        for number in FIRST_ANSWER.. {
            let answer = self.get_more(from, id, request.body);
            if !self.hosts[host].cursors.contains_key(&id) || self.has_nothing_new(host, id) {
                self.send_answer(from, answers, &answer);
                break;
            }
            self.send_part(from, answers, &answer, number);
            answers.id = number;
        }
        None
    }

    /// Sends an answer that another one follows (`moreToCome`).
    fn send_part(&mut self, to: Connection, answers: Answers, said: &[u8], number: i32) {
        self.send_answer(to, answers, said);
        let (_, message) = self.output.last_mut().expect("it was just said");
        message[4..8].copy_from_slice(&number.to_le_bytes());
        message[16..20].copy_from_slice(&MORE_TO_COME.to_le_bytes());
    }

    /// Answers requests for which there is a new row, or whose time is over.
    pub(super) fn feed_streams(&mut self) {
        let now = self.now;
        let (over, waiting) = std::mem::take(&mut self.streams.waiting)
            .into_iter()
            .partition(|waiting| waiting.until <= now || !self.has_nothing_new(waiting.host, waiting.cursor));
        self.streams.waiting = waiting;
        for Waiting { from, cursor, message, .. } in over {
            let Ok(request) = Request::read(&message) else { continue };
            if self.sessions.contains_key(&from) {
                let answer = self.get_more(from, cursor, request.body);
                self.send_answer(from, request.answers, &answer);
                self.read_on(from);
            }
        }
    }
}
