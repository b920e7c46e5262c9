//! Random commands to MongoDB, as drivers send them, that touch no other client's rows and cursors.

use mongodb_session::{
    bson::Writer,
    wire::{self, MORE_TO_COME},
};

use crate::random::Rng;

/// A cursor id that no host ever gives.
const NO_CURSOR: i64 = 77;

/// The most open cursors of a client.
const MAX_CURSORS: usize = 6;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    pub reference_id: i64,
    pub product_id: i64,
    pub collection: String,
}

#[derive(Clone, Default, Debug)]
pub struct SentRequest {
    pub id: i32,
    /// The request with the ids of the product.
    pub bytes: Vec<u8>,
    /// The row that it writes.
    pub row: Option<String>,
    /// A driver may retry it: a write with a number, or the first command of a read.
    pub repeatable_write: bool,
    pub repeatable_read: bool,
    /// The collection of the cursor that it opens.
    pub opens: Option<String>,
    /// The cursor whose next batch it reads.
    pub reads: Option<Cursor>,
    /// Number of cursors that it closes.
    pub closes: usize,
    pub silent: bool,
    /// It names a cursor that does not exist.
    pub names_no_cursor: bool,
    /// A driver has retried it.
    pub retried: bool,
    /// Whether an attempt was executed is unknown.
    pub unknown: bool,
}

pub struct Requests {
    number: usize,
    /// Part of its collections and session. It changes after a fault, when the fate of its last commands is unknown.
    alias: u32,
    connection_count: u32,
    last_row: u32,
    last_number: i64,
    last_id: i32,
    pub cursors: Vec<Cursor>,
}

impl Requests {
    pub fn new(number: usize) -> Self {
        let last_id = (number % 1000) as i32 * 1_000_000;
        Self { number, alias: 0, connection_count: 0, last_row: 0, last_number: 0, last_id, cursors: Vec::new() }
    }

    /// The collection of its acknowledged rows.
    pub fn ledger_name(&self) -> String {
        format!("rows.p{}x{}", self.number, self.alias)
    }

    /// The collection of its unacknowledged rows.
    pub fn unacknowledged_name(&self) -> String {
        format!("silent.p{}x{}l{}", self.number, self.alias, self.connection_count)
    }

    pub fn change_alias(&mut self) {
        self.alias += 1;
        self.cursors.clear();
    }

    /// The id of its session, which no damage turns into another client's.
    fn session(&self) -> [u8; 16] {
        let mut rng = Rng::new((self.number as u64) << 20 | u64::from(self.alias));
        (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_le_bytes()
    }

    pub fn next_id(&mut self) -> i32 {
        self.last_id += 1;
        self.last_id
    }

    fn new_row(&mut self) -> String {
        self.last_row += 1;
        format!("{}of{}", self.last_row, self.number)
    }

    pub fn begin_connection(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        self.connection_count += 1;
        self.draw_hello(rng)
    }

    fn draw_hello(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        let id = self.next_id();
        let mut bytes = Vec::new();
        if rng.percent(50) {
            wire::old_request(&mut bytes, id, |body| {
                body.int32("isMaster", 1).bool("helloOk", true);
            });
        } else {
            wire::request(&mut bytes, id, |body| {
                body.int32("hello", 1).text("$db", "admin");
            });
        }
        (bytes.clone(), SentRequest { id, bytes, ..SentRequest::default() })
    }

    /// The next request with the ids of the reference, and what is known of it.
    pub fn next(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        match rng.below(24) {
            0..=4 => self.insert(rng, true),
            5 => self.update(),
            6 => self.insert(rng, false),
            7 | 8 => self.insert_unacknowledged(rng),
            9 | 10 => self.read_ledger(rng),
            11..=13 if self.cursors.len() < MAX_CURSORS => self.read_numbers(rng),
            20 if !self.cursors.is_empty() => self.close(rng),
            21 => self.plain(|body| _ = body.int32("ping", 1)),
            22 => self.plain(|body| _ = body.text("noSuchCommand", "x")),
            23 if rng.percent(50) => self.draw_hello(rng),
            23 => {
                let (bytes, sent) = self.plain(|body| {
                    body.int64("getMore", NO_CURSOR).text("collection", "numbers");
                });
                (bytes, SentRequest { names_no_cursor: true, ..sent })
            }
            _ if !self.cursors.is_empty() => self.read_next_batch(rng),
            _ => self.read_numbers(rng),
        }
    }

    /// A command with the same bytes for the reference and the product.
    fn plain(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> (Vec<u8>, SentRequest) {
        let (id, session) = (self.next_id(), self.session());
        let mut bytes = Vec::new();
        wire::request(&mut bytes, id, |body| {
            write(body);
            append_session(body, &session);
        });
        (bytes.clone(), SentRequest { id, bytes, ..SentRequest::default() })
    }

    fn insert(&mut self, rng: &mut Rng, numbered: bool) -> (Vec<u8>, SentRequest) {
        let (collection, row) = (self.ledger_name(), self.new_row());
        self.last_number += i64::from(numbered);
        let number = numbered.then_some(self.last_number);
        let (bytes, sent) = self.insertion(rng, &collection, &row, number, false);
        (bytes, SentRequest { row: Some(row), repeatable_write: numbered, ..sent })
    }

    fn insert_unacknowledged(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        let (collection, row) = (self.unacknowledged_name(), self.new_row());
        self.insertion(rng, &collection, &row, None, true)
    }

    /// An insert whose documents are in the body, or in a section before or after it.
    fn insertion(
        &mut self,
        rng: &mut Rng,
        collection: &str,
        row: &str,
        number: Option<i64>,
        silent: bool,
    ) -> (Vec<u8>, SentRequest) {
        let (id, session) = (self.next_id(), self.session());
        let pad = "#".repeat(rng.pick(&[0, 0, 10, 400, 3000, 20_000]));
        let place = rng.below(3);
        let id_of_row = self.last_row as i32;
        let write_row = |document: &mut Writer<'_>| {
            document.int32("_id", id_of_row).text("v", row).text("pad", &pad);
        };
        let mut body = Vec::new();
        {
            let mut body = Writer::new(&mut body);
            body.text("insert", collection);
            if place == 0 {
                body.array("documents", |documents| _ = documents.document("0", write_row));
            }
            if let Some(number) = number {
                body.int64("txnNumber", number);
            }
            if silent {
                body.document("writeConcern", |concern| _ = concern.int32("w", 0));
            }
            append_session(&mut body, &session);
        }
        let mut sections = [&[0][..], &body].concat();
        if place > 0 {
            let mut document = Vec::new();
            write_row(&mut Writer::new(&mut document));
            let length = (4 + "documents\0".len() + document.len()) as i32;
            let section = [&[1][..], &length.to_le_bytes(), b"documents\0", &document].concat();
            sections = if place == 1 { [section, sections].concat() } else { [sections, section].concat() };
        }
        let length = (16 + 4 + sections.len()) as i32;
        let mut bytes = Vec::new();
        for word in [length, id, 0, 2013, if silent { MORE_TO_COME as i32 } else { 0 }] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(sections);
        (bytes.clone(), SentRequest { id, bytes, silent, ..SentRequest::default() })
    }

    fn update(&mut self) -> (Vec<u8>, SentRequest) {
        let (collection, row) = (self.ledger_name(), self.new_row());
        self.last_number += 1;
        let number = self.last_number;
        let (bytes, sent) = self.plain(|body| {
            body.text("update", &collection).int64("txnNumber", number);
            body.array("updates", |updates| {
                updates.document("0", |update| {
                    update.document("q", |q| _ = q.int32("_id", 1));
                    update.document("u", |u| _ = u.document("$push", |push| _ = push.text("v", &row)));
                });
            });
        });
        (bytes, SentRequest { row: Some(row), repeatable_write: true, ..sent })
    }

    fn read_ledger(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        let (collection, prefers) = (self.ledger_name(), rng.percent(50));
        let size = if self.cursors.len() < MAX_CURSORS { rng.pick(&[2, 3, 1000]) } else { 1000 };
        let (bytes, sent) = self.plain(|body| {
            body.text("find", &collection).int32("batchSize", size);
            if prefers {
                body.document("$readPreference", |preference| _ = preference.text("mode", "primary"));
            }
        });
        (bytes, SentRequest { repeatable_read: true, opens: Some(collection), ..sent })
    }

    /// Reads documents that are the same at every host.
    fn read_numbers(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        let modes = ["primary", "primaryPreferred", "secondaryPreferred", "secondaryPreferred", "nearest", "secondary"];
        let mode = rng.pick(&modes);
        let (count, width) = (rng.below(14) as i32, rng.pick(&[0, 0, 30, 300, 5000]));
        let size = if self.cursors.len() < MAX_CURSORS { rng.below(6) as i32 } else { 1000 };
        let label = self.new_row();
        let (bytes, sent) = self.plain(|body| {
            body.text("find", "numbers").int32("batchSize", size);
            body.document("filter", |filter| {
                filter.text("label", &label).int32("count", count).int32("width", width);
            });
            body.document("$readPreference", |preference| _ = preference.text("mode", mode));
        });
        (bytes, SentRequest { repeatable_read: true, opens: Some("numbers".into()), ..sent })
    }

    fn read_next_batch(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        let cursor = self.cursors[rng.index(self.cursors.len())].clone();
        let size = 1 + rng.below(5) as i32;
        let (id, session) = (self.next_id(), self.session());
        let message = |number: i64| {
            let mut bytes = Vec::new();
            wire::request(&mut bytes, id, |body| {
                body.int64("getMore", number).text("collection", &cursor.collection).int32("batchSize", size);
                append_session(body, &session);
            });
            bytes
        };
        let (for_reference, bytes) = (message(cursor.reference_id), message(cursor.product_id));
        (for_reference, SentRequest { id, bytes, reads: Some(cursor), ..SentRequest::default() })
    }

    /// Closes a cursor, or two of the same collection.
    fn close(&mut self, rng: &mut Rng) -> (Vec<u8>, SentRequest) {
        let mut gone = vec![self.cursors.remove(rng.index(self.cursors.len()))];
        let other = self.cursors.iter().position(|cursor| cursor.collection == gone[0].collection);
        if let Some(other) = other.filter(|_| rng.percent(60)) {
            gone.push(self.cursors.remove(other));
        }
        let (id, session) = (self.next_id(), self.session());
        let message = |number: fn(&Cursor) -> i64| {
            let mut bytes = Vec::new();
            wire::request(&mut bytes, id, |body| {
                body.text("killCursors", &gone[0].collection);
                body.array("cursors", |cursors| {
                    for (place, cursor) in gone.iter().enumerate() {
                        cursors.int64(&place.to_string(), number(cursor));
                    }
                });
                append_session(body, &session);
            });
            bytes
        };
        let (for_reference, bytes) = (message(|cursor| cursor.reference_id), message(|cursor| cursor.product_id));
        (for_reference, SentRequest { id, bytes, closes: gone.len(), ..SentRequest::default() })
    }
}

fn append_session(body: &mut Writer<'_>, session: &[u8]) {
    body.document("lsid", |lsid| _ = lsid.binary("id", session));
    body.text("$db", "app");
}
