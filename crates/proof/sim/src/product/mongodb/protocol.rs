//! MongoDB for a client: what of an answer is compared, what a driver retries, and which rows must be there.

use mongodb_session::{
    bson::Document,
    wire::{self, Header},
};

use super::{
    answer_text,
    requests::{Cursor, Requests, SentRequest},
};
use crate::{
    databases::mongodb as model,
    product::checked_protocol::{CheckedProtocol, Kind, Message, Request},
    random::Rng,
};

/// State change errors, of which a client must see none but Poolhouse's own.
pub const STATE_CHANGES: [i64; 9] = [91, 189, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436, 17_405];

/// Codes after which a driver retries a read, by the specification "Retryable Reads".
const READ_AGAIN: [i64; 13] = [6, 7, 89, 91, 134, 189, 262, 9001, 10_107, 11_600, 11_602, 13_435, 13_436];

pub struct MongoDbProtocol {
    requests: Requests,
    kind: model::Kind,
    sent: SentRequest,
    /// The cursor id in the message that `split_first` saw last.
    split_cursor_id: Option<i64>,
    /// The cursor id in the last message of the reference.
    reference_cursor_id: Option<i64>,
    acknowledged: Vec<String>,
    /// Rows whose write was certainly refused.
    refused: Vec<String>,
}

impl MongoDbProtocol {
    pub fn new(number: usize, kind: model::Kind) -> Self {
        let (acknowledged, refused) = (Vec::new(), Vec::new());
        let sent = SentRequest::default();
        Self {
            requests: Requests::new(number),
            kind,
            sent,
            split_cursor_id: None,
            reference_cursor_id: None,
            acknowledged,
            refused,
        }
    }

    fn kind(&self, code: i64, text: &str) -> Kind {
        match code {
            _ if text.starts_with("Poolhouse:") => Kind::Fault,
            6 => Kind::Fault,
            // A host that was down has lost its cursors.
            43 if !self.sent.names_no_cursor => Kind::Fault,
            _ => Kind::End,
        }
    }

    fn note_error(&mut self, answer: Document<'_>, code: i64, text: &str) {
        assert!(
            !STATE_CHANGES.contains(&code) || text.starts_with("Poolhouse:"),
            "a driver gets a state change error: {code} {text}"
        );
        let labelled = answer_text::has_label(answer, "RetryableWriteError");
        assert!(
            !labelled || self.sent.repeatable_write,
            "a driver is asked to repeat a command that is not repeatable: {text}"
        );
        self.sent.unknown |= !answer_text::says_not_executed(text);
        if !self.sent.unknown {
            self.refused.extend(self.sent.row.clone());
        }
    }

    fn note_success(&mut self, product_id: Option<i64>) {
        if let Some(row) = &self.sent.row {
            self.refused.retain(|refused| refused != row);
        }
        if let (Some(collection), Some(reference_id), Some(product_id)) =
            (self.sent.opens.clone(), self.reference_cursor_id, product_id)
            && reference_id != 0
        {
            assert!(
                self.requests.cursors.iter().all(|cursor| cursor.product_id != product_id),
                "two open cursors are called {product_id}"
            );
            self.requests.cursors.push(Cursor { reference_id, product_id, collection });
        }
        if let (Some(cursor), Some(product_id)) = (&self.sent.reads, product_id) {
            assert!(
                product_id == 0 || product_id == cursor.product_id,
                "cursor {} is called {product_id} now",
                cursor.product_id
            );
        }
    }

    fn note_request(&mut self, (bytes, sent): (Vec<u8>, SentRequest)) -> Request {
        self.sent = sent;
        self.reference_cursor_id = None;
        let answers = usize::from(!self.sent.silent);
        Request { bytes, answers }
    }
}

impl CheckedProtocol for MongoDbProtocol {
    type Database = model::MongoDb;

    fn new_reference(&self) -> model::MongoDb {
        model::MongoDb::reference(self.kind)
    }

    fn first_request(&mut self, rng: &mut Rng) -> Request {
        let hello = self.requests.begin_connection(rng);
        self.note_request(hello)
    }

    fn next_request(&mut self, rng: &mut Rng) -> Request {
        let next = self.requests.next(rng);
        self.note_request(next)
    }

    fn on_reference_message(&mut self, _: &Message) {
        self.reference_cursor_id = self.split_cursor_id;
        if let (Some(cursor), Some(0)) = (&self.sent.reads, self.reference_cursor_id) {
            self.requests.cursors.retain(|known| known != cursor);
        }
    }

    fn on_message(&mut self, bytes: &[u8]) {
        let header = Header::read(bytes).expect("it was cut").expect("it was cut");
        assert_eq!(header.answers, self.sent.id, "an answer to another request");
        let answer = wire::reply_document(bytes, &header).expect("it was cut");
        match answer_text::error(answer) {
            Some((code, text)) => self.note_error(answer, code, &text),
            None => self.note_success(self.split_cursor_id),
        }
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn goodbye(&self) -> Vec<u8> {
        Vec::new()
    }

    fn split_first(&mut self, bytes: &[u8], _: bool) -> Option<(usize, Option<Message>)> {
        let header = Header::read(bytes)?.expect("a header that may be");
        let message = bytes.get(..header.length)?;
        let answer = wire::reply_document(message, &header).expect("an answer that is well formed");
        let text = answer_text::text(answer).expect("a document that is well formed");
        self.split_cursor_id = answer_text::cursor(answer);
        let kind = answer_text::error(answer).map_or(Kind::End, |(code, text)| self.kind(code, &text));
        Some((header.length, Some(Message { kind, text: text.into_bytes() })))
    }

    fn sort_opening(&self, _: &mut Vec<Message>) {}

    /// A host that was down has lost its cursors, and killCursors counts the cursors of one host only.
    fn is_equivalent(&self, expected: &Message, got: &Message, after_fault: bool) -> bool {
        let closes = self.sent.closes;
        let counts = |message: &Message, killed: usize| {
            message
                .text
                .starts_with(format!("cursorsKilled: {killed}, cursorsNotFound: {}", closes - killed).as_bytes())
        };
        let least = if after_fault { 0 } else { 1 };
        closes > 0 && counts(expected, closes) && (least..closes).any(|killed| counts(got, killed))
    }

    fn check(&mut self, product_database: &model::MongoDb, reference: &model::MongoDb) {
        let ledger = self.requests.ledger_name();
        let (real, reference) = (product_database.rows(&ledger), reference.rows(&ledger));
        assert!(real == reference, "{ledger} has {real:?} instead of {reference:?}");
        self.acknowledged = reference;
    }

    fn check_without_fault(&mut self, product_database: &model::MongoDb, reference: &model::MongoDb) {
        let silent = self.requests.unacknowledged_name();
        let (real, reference) = (product_database.rows(&silent), reference.rows(&silent));
        assert!(real == reference, "{silent} has {real:?} instead of {reference:?}");
    }

    fn check_after_fault(&mut self, product_database: &model::MongoDb, _: &model::MongoDb) {
        let real = product_database.rows(&self.requests.ledger_name());
        let done = self.refused.iter().find(|row| real.contains(row));
        assert!(done.is_none(), "{done:?} is written, although its client got an error that says it is not");
        let known = &self.acknowledged;
        assert!(known.iter().all(|row| real.contains(row)), "a ledger has {real:?}, acknowledged were {known:?}");
        let mut once = real.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), real.len(), "a row is there twice: {real:?}");
        self.requests.change_alias();
        self.acknowledged.clear();
        self.refused.clear();
    }

    fn cancel(&self) -> Option<Vec<u8>> {
        None
    }

    fn may_pipeline(&self) -> bool {
        false
    }

    fn for_product(&self, _: Vec<u8>) -> Vec<u8> {
        self.sent.bytes.clone()
    }

    /// A driver retries once: a write with a number if the error has the label, the first command of a read if the code
    /// is in the list.
    fn retry(&mut self, error: &Message) -> Option<Vec<u8>> {
        let text = String::from_utf8_lossy(&error.text);
        let write = self.sent.repeatable_write && text.contains("RetryableWriteError");
        let read =
            self.sent.repeatable_read && READ_AGAIN.iter().any(|code| text.contains(&format!("code: Int32({code}),")));
        if std::mem::replace(&mut self.sent.retried, true) || !(write || read) {
            return None;
        }
        // If the client leaves now, the outcome of the retry is unknown.
        self.refused.retain(|refused| Some(refused) != self.sent.row.as_ref());
        self.sent.id = self.requests.next_id();
        self.sent.bytes[4..8].copy_from_slice(&self.sent.id.to_le_bytes());
        Some(self.sent.bytes.clone())
    }

    fn uses_earlier_state(&self) -> bool {
        !self.requests.cursors.is_empty()
    }
}
