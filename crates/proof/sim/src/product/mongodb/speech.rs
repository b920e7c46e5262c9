//! MongoDB as a player speaks it: what of an answer is compared, what a driver asks once more, and which rows must be
//! there.

use mongodb_session::{
    bson::Document,
    wire::{self, Header},
};

use super::{
    programs::{Asked, Cursor, Programs},
    texts,
};
use crate::{
    databases::mongodb as model,
    product::speech::{Kind, Message, Request, Speech},
    random::Rng,
};

/// Codes that drivers take for a change of state of whom they speak with: Poolhouse's state never changes.
pub const STATE_CHANGES: [i64; 9] = [91, 189, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436, 17_405];

/// Codes of errors after which a driver reads once more, as the specification "Retryable Reads" has them.
const READ_AGAIN: [i64; 13] = [6, 7, 89, 91, 134, 189, 262, 9001, 10_107, 11_600, 11_602, 13_435, 13_436];

/// The beginnings of errors that say that nothing was carried out, or words within them.
const NOT_DONE: [&str; 5] = [
    "(NOT_PRIMARY)",
    "Poolhouse: no server connection became free",
    "Poolhouse: no connection to MongoDB",
    "Poolhouse: too many requests wait",
    "Poolhouse: no host of MongoDB",
];

pub struct Voice {
    programs: Programs,
    /// It speaks with one of these.
    kind: model::Kind,
    asked: Asked,
    /// The id of the cursor in the message that was cut last, and in the reference's last.
    cut: Option<i64>,
    own: Option<i64>,
    /// Rows that are there for certain.
    acknowledged: Vec<String>,
    /// Rows of which it was told that they were not written.
    refused: Vec<String>,
}

impl Voice {
    pub fn new(number: usize, kind: model::Kind) -> Self {
        let (acknowledged, refused) = (Vec::new(), Vec::new());
        let asked = Asked::default();
        Self { programs: Programs::new(number), kind, asked, cut: None, own: None, acknowledged, refused }
    }

    /// What an error in place of an answer is.
    fn kind(&self, code: i64, text: &str) -> Kind {
        match code {
            _ if text.starts_with("Poolhouse:") => Kind::Fault,
            6 => Kind::Fault,
            // A host that was down knows no cursor of before.
            43 if !self.asked.knows_better => Kind::Fault,
            _ => Kind::End,
        }
    }

    fn hear_error(&mut self, answer: Document<'_>, code: i64, text: &str) {
        assert!(
            !STATE_CHANGES.contains(&code) || text.starts_with("Poolhouse:"),
            "a driver is told of a change of state: {code} {text}"
        );
        let labelled = texts::has_label(answer, "RetryableWriteError");
        assert!(!labelled || self.asked.repeatable_write, "a driver is to repeat what would be done twice: {text}");
        let not_done = NOT_DONE.iter().any(|words| text.contains(words));
        self.asked.unknown |= !not_done;
        if !self.asked.unknown {
            self.refused.extend(self.asked.row.clone());
        }
    }

    fn hear_answer(&mut self, told: Option<i64>) {
        if let Some(row) = &self.asked.row {
            self.refused.retain(|refused| refused != row);
        }
        if let (Some(collection), Some(own), Some(told)) = (self.asked.opens.clone(), self.own, told)
            && own != 0
        {
            assert!(
                self.programs.cursors.iter().all(|cursor| cursor.told != told),
                "two open cursors are called {told}"
            );
            self.programs.cursors.push(Cursor { own, told, collection });
        }
        if let (Some(cursor), Some(told)) = (&self.asked.reads, told) {
            assert!(told == 0 || told == cursor.told, "cursor {} is called {told} now", cursor.told);
        }
    }

    fn ask_with(&mut self, (bytes, asked): (Vec<u8>, Asked)) -> Request {
        self.asked = asked;
        self.own = None;
        let answers = usize::from(!self.asked.silent);
        Request { bytes, answers }
    }
}

impl Speech for Voice {
    type Database = model::MongoDb;

    fn reference(&self) -> model::MongoDb {
        model::MongoDb::own(self.kind)
    }

    fn open(&mut self, rng: &mut Rng) -> Request {
        let hello = self.programs.hello(rng);
        self.ask_with(hello)
    }

    fn ask(&mut self, rng: &mut Rng) -> Request {
        let next = self.programs.next(rng);
        self.ask_with(next)
    }

    fn learn(&mut self, _: &Message) {
        self.own = self.cut;
        if let (Some(cursor), Some(0)) = (&self.asked.reads, self.own) {
            self.programs.cursors.retain(|known| known != cursor);
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        let header = Header::read(bytes).expect("it was cut").expect("it was cut");
        assert_eq!(header.answers, self.asked.id, "an answer to another request");
        let answer = wire::reply_document(bytes, &header).expect("it was cut");
        match texts::error(answer) {
            Some((code, text)) => self.hear_error(answer, code, &text),
            None => self.hear_answer(self.cut),
        }
    }

    fn is_idle(&self) -> bool {
        true
    }

    fn farewell(&self) -> Vec<u8> {
        Vec::new()
    }

    fn cut(&mut self, bytes: &[u8], _: bool) -> Option<(usize, Option<Message>)> {
        let header = Header::read(bytes)?.expect("a header that may be");
        let message = bytes.get(..header.length)?;
        let answer = wire::reply_document(message, &header).expect("an answer that is well formed");
        let text = texts::text(answer).expect("a document that is well formed");
        self.cut = texts::cursor(answer);
        let kind = texts::error(answer).map_or(Kind::End, |(code, text)| self.kind(code, &text));
        Some((header.length, Some(Message { kind, text: text.into_bytes() })))
    }

    fn sort_opening(&self, _: &mut Vec<Message>) {}

    /// A host that was down since has no cursor of before, and one host tells nothing of those at another.
    fn is_as_good(&self, expected: &Message, got: &Message, hurt: bool) -> bool {
        let closes = self.asked.closes;
        let told = |message: &Message, killed: usize| {
            message
                .text
                .starts_with(format!("cursorsKilled: {killed}, cursorsNotFound: {}", closes - killed).as_bytes())
        };
        let least = if hurt { 0 } else { 1 };
        closes > 0 && told(expected, closes) && (least..closes).any(|killed| told(got, killed))
    }

    fn check(&mut self, real: &model::MongoDb, own: &model::MongoDb) {
        let ledger = self.programs.ledger();
        let (real, own) = (real.rows(&ledger), own.rows(&ledger));
        assert!(real == own, "{ledger} has {real:?} instead of {own:?}");
        self.acknowledged = own;
    }

    fn check_unhurt(&mut self, real: &model::MongoDb, own: &model::MongoDb) {
        let silent = self.programs.unacknowledged();
        let (real, own) = (real.rows(&silent), own.rows(&silent));
        assert!(real == own, "{silent} has {real:?} instead of {own:?}");
    }

    fn check_after_fault(&mut self, real: &model::MongoDb, _: &model::MongoDb) {
        let real = real.rows(&self.programs.ledger());
        let done = self.refused.iter().find(|row| real.contains(row));
        assert!(done.is_none(), "{done:?} is written, and its client was told that it is not");
        let known = &self.acknowledged;
        assert!(known.iter().all(|row| real.contains(row)), "a ledger has {real:?}, acknowledged were {known:?}");
        let mut once = real.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), real.len(), "a row is there twice: {real:?}");
        self.programs.become_another();
        self.acknowledged.clear();
        self.refused.clear();
    }

    fn cancel(&self) -> Option<Vec<u8>> {
        None
    }

    fn is_hasty(&self) -> bool {
        false
    }

    fn addressed(&self, _: Vec<u8>) -> Vec<u8> {
        self.asked.bytes.clone()
    }

    /// A driver repeats once: a write that has a number if the error has the label, and a read that begins if the code
    /// is one of a list.
    fn again(&mut self, error: &Message) -> Option<Vec<u8>> {
        let text = String::from_utf8_lossy(&error.text);
        let write = self.asked.repeatable_write && text.contains("RetryableWriteError");
        let read =
            self.asked.repeatable_read && READ_AGAIN.iter().any(|code| text.contains(&format!("code: Int32({code}),")));
        if std::mem::replace(&mut self.asked.again, true) || !(write || read) {
            return None;
        }
        // Whoever leaves now does not know what becomes of the second attempt.
        self.refused.retain(|refused| Some(refused) != self.asked.row.as_ref());
        self.asked.id = self.programs.next_id();
        self.asked.bytes[4..8].copy_from_slice(&self.asked.id.to_le_bytes());
        Some(self.asked.bytes.clone())
    }

    fn remembers(&self) -> bool {
        !self.programs.cursors.is_empty()
    }
}
