//! What a player asks of MongoDB: commands as drivers send them, which touch no other client's rows and cursors.

use mongodb_session::{
    bson::Writer,
    wire::{self, MORE_TO_COME},
};

use crate::random::Rng;

/// The id of a cursor that no host ever opens.
const NO_CURSOR: i64 = 77;

/// Open cursors of a player at most.
const MAX_CURSORS: usize = 6;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// Its id at the reference.
    pub own: i64,
    /// The id that the product has told.
    pub told: i64,
    pub collection: String,
}

#[derive(Clone, Default, Debug)]
pub struct Asked {
    pub id: i32,
    /// As the product is told it.
    pub bytes: Vec<u8>,
    /// The row that it is to write.
    pub row: Option<String>,
    /// It may be repeated: a write of which the server knows its number, or a read that begins.
    pub repeatable_write: bool,
    pub repeatable_read: bool,
    /// The collection of the cursor that it opens.
    pub opens: Option<String>,
    /// The cursor that it goes on with.
    pub reads: Option<Cursor>,
    /// How many cursors it closes.
    pub closes: usize,
    pub silent: bool,
    /// It names a cursor that there is not.
    pub knows_better: bool,
    pub again: bool,
    /// Whether an attempt was carried out is not known.
    pub unknown: bool,
}

/// The commands of one player.
pub struct Programs {
    number: usize,
    /// Its collections and its session change after a fault, when it is not known what became of its last commands.
    alias: u32,
    life: u32,
    last_row: u32,
    last_number: i64,
    last_id: i32,
    pub cursors: Vec<Cursor>,
}

impl Programs {
    pub fn new(number: usize) -> Self {
        let last_id = (number % 1000) as i32 * 1_000_000;
        Self { number, alias: 0, life: 0, last_row: 0, last_number: 0, last_id, cursors: Vec::new() }
    }

    /// Its rows are acknowledged here.
    pub fn ledger(&self) -> String {
        format!("rows.p{}x{}", self.number, self.alias)
    }

    /// A write whose rows are not acknowledged.
    pub fn unacknowledged(&self) -> String {
        format!("silent.p{}x{}l{}", self.number, self.alias, self.life)
    }

    pub fn become_another(&mut self) {
        self.alias += 1;
        self.cursors.clear();
    }

    /// The id of its session: no damage makes another player's of it.
    fn session(&self) -> [u8; 16] {
        let mut rng = Rng::new((self.number as u64) << 20 | u64::from(self.alias));
        (u128::from(rng.next()) << 64 | u128::from(rng.next())).to_le_bytes()
    }

    pub fn next_id(&mut self) -> i32 {
        self.last_id += 1;
        self.last_id
    }

    fn row(&mut self) -> String {
        self.last_row += 1;
        format!("{}of{}", self.last_row, self.number)
    }

    pub fn hello(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
        self.life += 1;
        self.greeting(rng)
    }

    fn greeting(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
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
        (bytes.clone(), Asked { id, bytes, ..Asked::default() })
    }

    /// What it asks next: as the reference is told it, and what is to be known of it.
    pub fn next(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
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
            23 if rng.percent(50) => self.greeting(rng),
            23 => {
                let (bytes, asked) = self.plain(|body| {
                    body.int64("getMore", NO_CURSOR).text("collection", "numbers");
                });
                (bytes, Asked { knows_better: true, ..asked })
            }
            _ if !self.cursors.is_empty() => self.read_on(rng),
            _ => self.read_numbers(rng),
        }
    }

    /// A command: what the reference and the product are told alike.
    fn plain(&mut self, write: impl FnOnce(&mut Writer<'_>)) -> (Vec<u8>, Asked) {
        let (id, session) = (self.next_id(), self.session());
        let mut bytes = Vec::new();
        wire::request(&mut bytes, id, |body| {
            write(body);
            belongs(body, &session);
        });
        (bytes.clone(), Asked { id, bytes, ..Asked::default() })
    }

    fn insert(&mut self, rng: &mut Rng, numbered: bool) -> (Vec<u8>, Asked) {
        let (collection, row) = (self.ledger(), self.row());
        self.last_number += i64::from(numbered);
        let number = numbered.then_some(self.last_number);
        let (bytes, asked) = self.insertion(rng, &collection, &row, number, false);
        (bytes, Asked { row: Some(row), repeatable_write: numbered, ..asked })
    }

    /// A row whose write is not acknowledged.
    fn insert_unacknowledged(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
        let (collection, row) = (self.unacknowledged(), self.row());
        self.insertion(rng, &collection, &row, None, true)
    }

    /// The documents are in the body, in front of it or behind it.
    fn insertion(
        &mut self,
        rng: &mut Rng,
        collection: &str,
        row: &str,
        number: Option<i64>,
        silent: bool,
    ) -> (Vec<u8>, Asked) {
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
            belongs(&mut body, &session);
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
        (bytes.clone(), Asked { id, bytes, silent, ..Asked::default() })
    }

    fn update(&mut self) -> (Vec<u8>, Asked) {
        let (collection, row) = (self.ledger(), self.row());
        self.last_number += 1;
        let number = self.last_number;
        let (bytes, asked) = self.plain(|body| {
            body.text("update", &collection).int64("txnNumber", number);
            body.array("updates", |updates| {
                updates.document("0", |update| {
                    update.document("q", |q| _ = q.int32("_id", 1));
                    update.document("u", |u| _ = u.document("$push", |push| _ = push.text("v", &row)));
                });
            });
        });
        (bytes, Asked { row: Some(row), repeatable_write: true, ..asked })
    }

    fn read_ledger(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
        let (collection, prefers) = (self.ledger(), rng.percent(50));
        let size = if self.cursors.len() < MAX_CURSORS { rng.pick(&[2, 3, 1000]) } else { 1000 };
        let (bytes, asked) = self.plain(|body| {
            body.text("find", &collection).int32("batchSize", size);
            if prefers {
                body.document("$readPreference", |preference| _ = preference.text("mode", "primary"));
            }
        });
        (bytes, Asked { repeatable_read: true, opens: Some(collection), ..asked })
    }

    /// Reads what is the same at every host.
    fn read_numbers(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
        let modes = ["primary", "primaryPreferred", "secondaryPreferred", "secondaryPreferred", "nearest", "secondary"];
        let mode = rng.pick(&modes);
        let (count, width) = (rng.below(14) as i32, rng.pick(&[0, 0, 30, 300, 5000]));
        let size = if self.cursors.len() < MAX_CURSORS { rng.below(6) as i32 } else { 1000 };
        let label = self.row();
        let (bytes, asked) = self.plain(|body| {
            body.text("find", "numbers").int32("batchSize", size);
            body.document("filter", |filter| {
                filter.text("label", &label).int32("count", count).int32("width", width);
            });
            body.document("$readPreference", |preference| _ = preference.text("mode", mode));
        });
        (bytes, Asked { repeatable_read: true, opens: Some("numbers".into()), ..asked })
    }

    fn read_on(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
        let cursor = self.cursors[rng.index(self.cursors.len())].clone();
        let size = 1 + rng.below(5) as i32;
        let (id, session) = (self.next_id(), self.session());
        let message = |number: i64| {
            let mut bytes = Vec::new();
            wire::request(&mut bytes, id, |body| {
                body.int64("getMore", number).text("collection", &cursor.collection).int32("batchSize", size);
                belongs(body, &session);
            });
            bytes
        };
        let (own, bytes) = (message(cursor.own), message(cursor.told));
        (own, Asked { id, bytes, reads: Some(cursor), ..Asked::default() })
    }

    /// Closes a cursor, or two of one collection.
    fn close(&mut self, rng: &mut Rng) -> (Vec<u8>, Asked) {
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
                belongs(body, &session);
            });
            bytes
        };
        let own = message(|cursor| cursor.own);
        (own, Asked { id, bytes: message(|cursor| cursor.told), closes: gone.len(), ..Asked::default() })
    }
}

fn belongs(body: &mut Writer<'_>, session: &[u8]) {
    body.document("lsid", |lsid| _ = lsid.binary("id", session));
    body.text("$db", "app");
}
