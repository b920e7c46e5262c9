//! Answers that take their time, or follow each other unasked: the next batch of a cursor that goes on for ever is
//! waited for (`awaitData`), and a client that can read them gets all batches of a cursor for one request
//! (`exhaustAllowed`).

use std::time::Duration;

use mongodb_session::{
    bson::{Document, Value},
    wire::{self, Answers, EXHAUST_ALLOWED, MORE_TO_COME},
};

use super::{MongoDb, message::Request};
use crate::databases::Connection;

/// The ids of answers to which others refer.
const FIRST_ANSWER: i32 = 7_000;

/// A connection that waits for more of a cursor.
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
    /// How many of a user may wait at a host, where none of them vanishes.
    pub most: Option<usize>,
}

impl Streams {
    /// When the next wait ends.
    pub fn due(&self) -> Option<Duration> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    /// Who waited there does so no longer.
    pub fn give_up(&mut self, connection: Connection) {
        self.waiting.retain(|waiting| waiting.from != connection);
    }
}

fn integer(body: Document<'_>, name: &str) -> Option<i64> {
    body.get(name).ok().flatten().and_then(Value::integer)
}

impl MongoDb {
    /// Asks for the next batch; `None` if it is not answered now, or has been.
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
                self.say(from, answers, &answer);
                break;
            }
            self.say_more(from, answers, &answer, number);
            answers.id = number;
        }
        None
    }

    /// Says something behind which more comes unasked.
    fn say_more(&mut self, to: Connection, answers: Answers, said: &[u8], number: i32) {
        self.say(to, answers, said);
        let (_, message) = self.output.last_mut().expect("it was just said");
        message[4..8].copy_from_slice(&number.to_le_bytes());
        message[16..20].copy_from_slice(&MORE_TO_COME.to_le_bytes());
    }

    /// Who waits gets what is new, or nothing when it has waited long enough.
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
                self.say(from, request.answers, &answer);
                self.read_on(from);
            }
        }
    }
}
