//! What a player of one protocol says and expects: the trait that each protocol implements.

use std::fmt;

use crate::{databases::Database, random::Rng};

/// A message of the database, reduced to what is compared.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// Its text without what differs between any two sessions.
    pub text: Vec<u8>,
}

/// The part that a message plays in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Part,
    /// The last part of an answer.
    End,
    /// A message that was not asked for, such as a notification.
    Aside,
    /// A parameter's name and value, with a zero byte between. Only the value at the end of an answer is compared.
    Setting,
    /// An error that may replace any answer after a fault.
    Fault,
    /// An error that may replace any answer after a cancel request.
    Cancelled,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, String::from_utf8_lossy(&self.text))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub bytes: Vec<u8>,
    /// How many answers it gets; [`Request::AS_MANY_AS_COME`]: as many as the reference gives at once.
    pub answers: usize,
}

impl Request {
    /// Only the reference knows the number of answers.
    pub const AS_MANY_AS_COME: usize = usize::MAX;
}

/// The protocol as a player speaks it, and the requests that it draws.
pub trait Speech {
    /// The model of the database: the real one's, and the player's own copy, its reference.
    type Database: Database;

    /// Players subscribe through a server that all share. Messages published while it is replaced are lost, as
    /// documented.
    const FEELS_REPLACEMENTS: bool = false;

    /// A database for this player alone.
    fn reference(&self) -> Self::Database;

    /// The first bytes of a connection.
    fn open(&mut self, rng: &mut Rng) -> Request;

    /// Draws the next request; it may depend on the reference's answers so far.
    fn ask(&mut self, rng: &mut Rng) -> Request;

    /// The reference has sent this message.
    fn learn(&mut self, message: &Message);

    /// The product has sent this message, uncut.
    fn hear(&mut self, bytes: &[u8]);

    /// Whether no transaction is open. In one, notifications do not arrive.
    fn is_idle(&self) -> bool;

    /// The bytes of an orderly goodbye; empty if the client just closes.
    fn farewell(&self) -> Vec<u8>;

    /// The first message of `bytes` with its length, if it is complete; `None` as a message for one that is not
    /// compared.
    fn cut(&mut self, bytes: &[u8], opening: bool) -> Option<(usize, Option<Message>)>;

    /// Sorts the messages of the opening, whose order may differ.
    fn sort_opening(&self, messages: &mut Vec<Message>);

    /// Whether this is a documented difference. `hurt`: there was a fault.
    fn is_as_good(&self, expected: &Message, got: &Message, hurt: bool) -> bool;

    /// Every request is answered: the real database must hold the same of this player as the reference.
    fn check(&mut self, real: &Self::Database, own: &Self::Database);

    /// The connection ended with requests under way: what was acknowledged must be there.
    fn check_after_fault(&mut self, real: &Self::Database, own: &Self::Database);

    /// A request to cancel what is under way, to be sent on a connection of its own.
    fn cancel(&self) -> Option<Vec<u8>>;

    /// Whether it may pipeline requests.
    fn is_hasty(&self) -> bool {
        true
    }

    /// The request as it is sent to the product, where its ids differ from the reference's.
    fn addressed(&self, request: Vec<u8>) -> Vec<u8> {
        request
    }

    /// Whether this message may come at any time between transactions, and ends the connection.
    fn is_parting(&self, _message: &Message) -> bool {
        false
    }

    /// The request to repeat after this error, which came instead of an answer. The reference's answer is still due.
    fn again(&mut self, _error: &Message) -> Option<Vec<u8>> {
        None
    }

    /// Whether a connection uses what an earlier one opened, so that faults of that time may show.
    fn remembers(&self) -> bool {
        false
    }

    /// Every request is answered and there was no fault: unacknowledged writes must be there, too.
    fn check_unhurt(&mut self, _real: &Self::Database, _own: &Self::Database) {}
}
