//! Answers of the model.

use mongodb_session::wire::Header;

use super::*;

struct Table {
    database: MongoDb,
    now: Duration,
}

impl Table {
    fn new(database: MongoDb) -> Self {
        Self { database, now: Duration::from_secs(1) }
    }

    fn connect(&mut self, host: u16) -> Connection {
        self.database.connect_to(host, self.now)
    }

    /// Sends a request, and reads the answer if there is one.
    fn ask<R>(
        &mut self,
        from: Connection,
        write: impl FnOnce(&mut Writer<'_>),
        read: impl FnOnce(Document<'_>) -> R,
    ) -> Option<R> {
        let mut bytes = Vec::new();
        wire::request(&mut bytes, 5, write);
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.database.receive(from, first, self.now);
        self.database.receive(from, second, self.now);
        self.heard(from, read)
    }

    fn heard<R>(&mut self, by: Connection, read: impl FnOnce(Document<'_>) -> R) -> Option<R> {
        let (to, said) = self.database.take_output().pop()?;
        let header = Header::read(&said).expect("whole").expect("well formed");
        assert_eq!((to, header.answers), (by, 5));
        Some(read(wire::reply_document(&said, &header).expect("well formed")))
    }

    fn insert(&mut self, from: Connection, row: &str, number: i64) -> Option<i64> {
        let write = |body: &mut Writer<'_>| {
            body.text("insert", "c").int64("txnNumber", number);
            body.document("lsid", |lsid| _ = lsid.binary("id", &[7; 16]));
            body.array("documents", |rows| _ = rows.document("0", |document| _ = document.text("v", row)));
        };
        self.ask(from, write, code)
    }
}

/// The code of an error, or zero.
fn code(answer: Document<'_>) -> i64 {
    answer.get("code").expect("well formed").and_then(|code| code.integer()).unwrap_or(0)
}

fn cursor(answer: Document<'_>) -> (i64, usize) {
    let cursor = answer.get("cursor").expect("well formed").expect("a cursor").document().expect("a document");
    let batch = cursor.get("firstBatch").expect("well formed").or(cursor.get("nextBatch").expect("well formed"));
    let id = cursor.get("id").expect("well formed").expect("an id").integer().expect("a number");
    (id, batch.expect("a batch").array().expect("an array").elements().count())
}

fn find(body: &mut Writer<'_>) {
    body.text("find", "numbers").int32("batchSize", 2);
    body.document("filter", |filter| _ = filter.text("label", "a").int32("count", 3));
    body.document("$readPreference", |preference| _ = preference.text("mode", "nearest"));
}

#[test]
fn a_write_is_carried_out_once() {
    let mut table = Table::new(MongoDb::new(Kind::Standalone));
    let here = table.connect(0);
    assert_eq!([table.insert(here, "x", 1), table.insert(here, "x", 1)], [Some(0); 2]);
    assert_eq!(table.insert(here, "y", 2), Some(0));
    assert_eq!(table.insert(here, "x", 1), Some(225));
    assert_eq!(table.database.rows("c"), ["x", "y"]);
}

#[test]
fn a_secondary_refuses_writes_and_reads_that_a_primary_is_for() {
    let mut table = Table::new(MongoDb::new(Kind::Set));
    let there = table.connect(1);
    assert_eq!(table.insert(there, "x", 1), Some(10_107));
    assert_eq!(table.ask(there, |body| _ = body.text("find", "c"), code), Some(13_435));
    assert_eq!(table.ask(there, find, code), Some(0));
    assert_eq!(table.ask(there, |body| _ = body.int32("what", 1), code), Some(59));
}

#[test]
fn cursors_of_two_hosts_have_the_same_numbers() {
    let mut table = Table::new(MongoDb::new(Kind::Set));
    let (here, there) = (table.connect(0), table.connect(1));
    assert_eq!(table.ask(here, find, cursor), Some((FIRST_CURSOR, 2)));
    assert_eq!(table.ask(there, find, cursor), Some((FIRST_CURSOR, 2)));
    let more = |body: &mut Writer<'_>| _ = body.int64("getMore", FIRST_CURSOR).text("collection", "numbers");
    assert_eq!(table.ask(here, more, cursor), Some((0, 1)));
    assert_eq!(table.ask(here, more, code), Some(43));
    assert_eq!(table.ask(there, more, cursor), Some((0, 1)));
}

#[test]
fn a_primary_that_is_cut_off_acknowledges_nothing() {
    let mut table = Table::new(MongoDb::new(Kind::Set));
    let (old, new) = (table.connect(0), table.connect(1));
    let some = 18 * 1000;
    table.database.disturb(1 + some, false, table.now);
    table.now = table.database.due().expect("an election");
    table.database.tick(table.now);
    assert_eq!(table.insert(old, "x", 1), None);
    assert_eq!(table.insert(new, "y", 1), Some(0));
    table.now = table.database.due().expect("it finds out");
    table.database.tick(table.now);
    assert_eq!(table.heard(old, code), Some(11_602));
    assert_eq!(table.database.rows("c"), ["y"]);
}

/// Adds the elements of a command of a transaction.
fn within(body: &mut Writer<'_>, begins: bool, number: i64) {
    body.document("lsid", |lsid| _ = lsid.binary("id", &[7; 16])).int64("txnNumber", number).bool("autocommit", false);
    if begins {
        body.bool("startTransaction", true);
    }
}

fn write(collection: &str, row: &str, body: &mut Writer<'_>) {
    body.text("insert", collection);
    body.array("documents", |rows| _ = rows.document("0", |document| _ = document.text("v", row)));
}

impl Table {
    fn in_transaction(&mut self, from: Connection, row: &str, begins: bool, number: i64) -> Option<i64> {
        let statement = |body: &mut Writer<'_>| {
            write(HOT, row, body);
            within(body, begins, number);
        };
        self.ask(from, statement, code)
    }

    fn end(&mut self, from: Connection, how: &str, number: i64) -> Option<i64> {
        let ends = |body: &mut Writer<'_>| {
            body.int32(how, 1);
            within(body, false, number);
        };
        self.ask(from, ends, code)
    }

    fn has(&self, row: &str) -> RowState {
        self.database.row_state(HOT, row)
    }
}

#[test]
fn a_transaction_is_there_when_it_is_committed_and_its_commit_may_be_repeated() {
    let mut table = Table::new(MongoDb::new(Kind::Set));
    let (here, other) = (table.connect(0), table.connect(0));
    assert_eq!(table.in_transaction(here, "x", false, 1), Some(251));
    assert_eq!([table.in_transaction(here, "x", true, 1), table.in_transaction(other, "y", false, 1)], [Some(0); 2]);
    assert_eq!((table.has("x"), table.has("y")), (RowState::Absent, RowState::Absent));
    assert_eq!([table.end(other, "commitTransaction", 1), table.end(here, "commitTransaction", 1)], [Some(0); 2]);
    assert_eq!((table.has("x"), table.has("y")), (RowState::Kept(1), RowState::Kept(1)));
    assert_eq!([table.in_transaction(here, "z", true, 2), table.end(here, "abortTransaction", 2)], [Some(0); 2]);
    assert_eq!((table.has("z"), table.end(here, "commitTransaction", 2)), (RowState::Absent, Some(251)));
}

#[test]
fn a_write_to_the_locked_collection_waits_for_the_end_of_the_transaction() {
    let mut table = Table::new(MongoDb::new(Kind::Set));
    let (here, other) = (table.connect(0), table.connect(0));
    assert_eq!(table.in_transaction(here, "x", true, 1), Some(0));
    assert_eq!(table.ask(other, |body| write(HOT, "y", body), code), None);
    assert_eq!(table.has("y"), RowState::Absent);
    let mut commit = Vec::new();
    wire::request(&mut commit, 5, |body| {
        body.int32("commitTransaction", 1);
        within(body, false, 1);
    });
    table.database.receive(here, &commit, table.now);
    let answered: Vec<Connection> = table.database.take_output().into_iter().map(|(to, _)| to).collect();
    assert_eq!(answered, [other, here]);
    assert_eq!((table.has("x"), table.has("y")), (RowState::Kept(1), RowState::Kept(1)));
}

#[test]
fn an_election_ends_transactions_and_loses_what_only_the_primary_had() {
    let mut table = Table::new(MongoDb::new(Kind::Set));
    let here = table.connect(0);
    let quick = |body: &mut Writer<'_>| {
        write(HOT, "x", body);
        body.document("writeConcern", |concern| _ = concern.int32("w", 1));
    };
    assert_eq!(table.ask(here, quick, code), Some(0));
    assert_eq!(table.has("x"), RowState::Recent);
    assert_eq!(table.in_transaction(here, "y", true, 1), Some(0));
    // The elected host does not have the row.
    table.database.disturb(2 + 6, false, table.now);
    assert_eq!(table.has("x"), RowState::RolledBack);
    table.database.tick(table.now);
    let there = table.connect(1);
    assert_eq!(table.end(there, "commitTransaction", 1), Some(251));
    assert_eq!(table.database.rolled_back(), 1);
}

#[test]
fn a_batch_of_a_tailable_cursor_is_awaited() {
    let mut table = Table::new(MongoDb::new(Kind::Set));
    let (here, other) = (table.connect(0), table.connect(0));
    let tail = |body: &mut Writer<'_>| _ = body.text("find", "c").bool("tailable", true).bool("awaitData", true);
    assert_eq!(table.ask(here, tail, cursor), Some((FIRST_CURSOR, 0)));
    let more = |body: &mut Writer<'_>| {
        body.int64("getMore", FIRST_CURSOR).text("collection", "c").int64("maxTimeMS", 20);
    };
    assert_eq!(table.ask(here, more, cursor), None);
    table.now += Duration::from_millis(20);
    table.database.tick(table.now);
    assert_eq!(table.heard(here, cursor), Some((FIRST_CURSOR, 0)));
    assert_eq!(table.ask(here, more, cursor), None);
    let mut insert = Vec::new();
    wire::request(&mut insert, 5, |body| write("c", "x", body));
    table.database.receive(other, &insert, table.now);
    assert_eq!(table.heard(here, cursor), Some((FIRST_CURSOR, 1)));
}
