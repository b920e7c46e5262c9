//! What a client sends, and what it compares: the trait that each protocol implements.

use std::fmt;

use super::client_times::TimeOut;
use crate::{databases::Database, random::Rng};

/// A message of the database, reduced to the part that is compared.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// Its text without parts that differ between two sessions.
    pub text: Vec<u8>,
}

/// The role of a message in an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Part,
    /// The last part of an answer.
    End,
    /// A message that no request asked for, such as a notification.
    Aside,
    /// The name and value of a parameter, separated by a zero byte. Only its value at the end of an answer is compared.
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
    /// Number of answers; [`Request::AS_MANY_AS_COME`]: as many as the reference gives.
    pub answers: usize,
}

impl Request {
    pub const AS_MANY_AS_COME: usize = usize::MAX;
}

pub trait CheckedProtocol {
    /// The model of the database, of which the reference is another copy.
    type Database: Database;

    /// All subscriptions share a server. Messages published while it is replaced are lost, as documented.
    const LOSES_MESSAGES_AT_REPLACEMENT: bool = false;

    fn new_reference(&self) -> Self::Database;

    fn first_request(&mut self, rng: &mut Rng) -> Request;

    /// Draws a request, which may depend on the answers of the reference so far.
    fn next_request(&mut self, rng: &mut Rng) -> Request;

    fn on_reference_message(&mut self, message: &Message);

    /// Handles a whole message of the product.
    fn on_message(&mut self, bytes: &[u8]);

    /// Whether no transaction is open. In one, notifications do not arrive.
    fn is_idle(&self) -> bool;

    /// The last message of a client; empty if it only closes.
    fn goodbye(&self) -> Vec<u8>;

    /// The length of the first message, if it is complete, and the message, unless it is not compared. The protocol
    /// may note what it saw.
    fn split_first(&mut self, bytes: &[u8], opening: bool) -> Option<(usize, Option<Message>)>;

    /// Sorts the messages of the opening, whose order is not defined.
    fn sort_opening(&self, messages: &mut Vec<Message>);

    /// Whether this is a documented difference.
    fn is_equivalent(&self, expected: &Message, got: &Message, after_fault: bool) -> bool;

    /// Checks, when every request is answered, that the database behind the product holds the same as the reference.
    fn check(&mut self, product_database: &Self::Database, reference: &Self::Database);

    /// Checks, when the connection has ended during a request, that the database behind the product holds all
    /// acknowledged writes.
    fn check_after_fault(&mut self, product_database: &Self::Database, reference: &Self::Database);

    /// The message that cancels the present request, for a connection of its own.
    fn cancel(&self) -> Option<Vec<u8>>;

    /// Whether it may pipeline requests.
    fn may_pipeline(&self) -> bool {
        true
    }

    /// The request with the ids of the product, where they differ from the reference's.
    fn for_product(&self, request: Vec<u8>) -> Vec<u8> {
        request
    }

    /// Whether this message may end the connection at any time between transactions.
    fn ends_connection(&self, _message: &Message) -> bool {
        false
    }

    /// Whether a transaction is open behind an answer that ends with this message.
    fn is_in_transaction_after(&self, _end: &Message) -> bool {
        false
    }

    /// The time-out of which this message is the error.
    fn time_out(&self, _message: &Message) -> Option<TimeOut> {
        None
    }

    /// Whether this message sends an idle client away because the workers are about to end.
    fn is_departure(&self, _message: &Message) -> bool {
        false
    }

    /// The request to repeat after this error. The answer is still due.
    fn retry(&mut self, _error: &Message) -> Option<Vec<u8>> {
        None
    }

    /// Whether a connection uses state of an earlier one, so that faults of that time may show.
    fn uses_earlier_state(&self) -> bool {
        false
    }

    /// Checks, when every request is answered without a fault, that unacknowledged writes are there, too.
    fn check_without_fault(&mut self, _product_database: &Self::Database, _reference: &Self::Database) {}
}
