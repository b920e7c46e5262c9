//! Dialogues with the server.

use super::*;

/// A client that notes the kinds of messages, and the contents of some.
struct Client {
    connection: Connection,
    bytes: Vec<u8>,
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::message(&mut bytes, kind, |to| to.extend_from_slice(body));
    bytes
}

fn query(sql: &str) -> Vec<u8> {
    frame(b'Q', format!("{sql}\0").as_bytes())
}

/// Parse, Bind and Execute of the unnamed statement.
fn step(sql: &str) -> Vec<u8> {
    let parse = frame(b'P', format!("\0{sql}\0\0\0").as_bytes());
    [parse, frame(b'B', &[0; 8]), frame(b'E', &[0; 5])].concat()
}

fn sync() -> Vec<u8> {
    frame(b'S', b"")
}

fn start(server: &mut Postgres) -> Client {
    let connection = server.connect(Duration::ZERO);
    let body = b"\0\x03\0\0user\0app\0database\0db\0\0";
    let mut bytes = (body.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend_from_slice(body);
    server.receive(connection, &bytes, Duration::ZERO);
    let mut client = Client { connection, bytes: Vec::new() };
    assert!(client.received(server).ends_with("Z:I"));
    client
}

impl Client {
    /// The messages since the last call.
    fn received(&mut self, server: &mut Postgres) -> String {
        for (connection, bytes) in server.take_output() {
            if connection == self.connection {
                self.bytes.extend(bytes);
            }
        }
        let mut received = Vec::new();
        while let Ok(Some((kind, body))) = wire::take_message(&mut self.bytes) {
            let fields = String::from_utf8_lossy(&body).replace('\0', "|");
            let code = || fields.split('|').find_map(|field| field.strip_prefix('C')).unwrap_or_default();
            let tail = |from: usize| body.get(from..).map(|text| String::from_utf8_lossy(text).into_owned());
            received.push(match kind {
                b'C' | b'S' | b'Z' => format!("{}:{}", char::from(kind), fields.trim_end_matches('|')),
                b'E' | b'N' => format!("{}:{}", char::from(kind), code()),
                b'D' => format!("D:{}", tail(6).unwrap_or_default()),
                b'A' => format!("A:{}", tail(4).unwrap_or_default().replace('\0', "|")),
                kind => char::from(kind).to_string(),
            });
        }
        received.join(" ")
    }

    fn send(&mut self, server: &mut Postgres, bytes: &[u8]) -> String {
        server.receive(self.connection, bytes, Duration::ZERO);
        self.received(server)
    }

    fn ask(&mut self, server: &mut Postgres, sql: &str) -> String {
        self.send(server, &query(sql))
    }
}

#[test]
fn a_session_begins_with_what_is_reported() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    assert_eq!(client.ask(&mut server, "SHOW DateStyle"), "T D:ISO, MDY C:SHOW Z:I");
    assert!(server.leftovers(client.connection).is_empty());
}

#[test]
fn texts_come_in_any_pieces() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    let bytes = [query("SELECT 'x'"), step("SELECT 'y'"), sync()].concat();
    let mut received = Vec::new();
    for byte in bytes {
        received.push(client.send(&mut server, &[byte]));
    }
    assert_eq!(received.concat(), "T D:x C:SELECT 1 Z:I1 2 D:y C:SELECT 1 Z:I");
}

#[test]
fn what_fails_takes_its_transaction_with_it() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    let received = client.ask(&mut server, "INSERT INTO ledger VALUES ('a', 1); SELECT 1/0");
    assert_eq!(received, "C:INSERT 0 1 E:22012 Z:I");
    let received = client.ask(&mut server, "BEGIN; INSERT INTO ledger VALUES ('a', 2)");
    assert_eq!(received, "C:BEGIN C:INSERT 0 1 Z:T");
    assert!(server.in_transaction(client.connection) && server.ledger().is_empty());
    let steps = [step("SELECT 1/0"), step("SELECT 'x'"), sync()].concat();
    assert_eq!(client.send(&mut server, &steps), "1 E:22012 Z:E");
    assert_eq!(client.ask(&mut server, "SELECT 'x'"), "E:25P02 Z:E");
    assert_eq!(client.ask(&mut server, "COMMIT"), "C:ROLLBACK Z:I");
    client.ask(&mut server, "INSERT INTO ledger VALUES ('a', 3)");
    assert_eq!(server.ledger(), [("a".to_owned(), 3)]);
}

#[test]
fn settings_return_to_what_they_were_at_a_savepoint() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    client.ask(&mut server, "BEGIN; SET LOCAL lock_timeout = '5s'");
    let received = client.ask(
        &mut server,
        "SAVEPOINT poolhouse; SET LOCAL jit = off; SET LOCAL lock_timeout = 0; SHOW lock_timeout; \
         ROLLBACK TO SAVEPOINT poolhouse; RELEASE SAVEPOINT poolhouse",
    );
    assert_eq!(received, "C:SAVEPOINT C:SET C:SET T D:0 C:SHOW C:ROLLBACK C:RELEASE Z:T");
    assert_eq!(client.ask(&mut server, "SHOW lock_timeout; SHOW jit"), "T D:5s C:SHOW T D:on C:SHOW Z:T");
    assert_eq!(client.ask(&mut server, "RELEASE SAVEPOINT poolhouse"), "E:3B001 Z:E");
}

#[test]
fn locks_and_sleeps_take_their_time() {
    let mut server = Postgres::new();
    let (mut one, mut other) = (start(&mut server), start(&mut server));
    one.ask(&mut server, "SELECT pg_advisory_lock(7)");
    assert_eq!(other.ask(&mut server, "SELECT pg_advisory_lock(7); SELECT pg_sleep(0.25)"), "");
    one.ask(&mut server, "SELECT pg_advisory_unlock(7)");
    assert_eq!(server.due(), Some(Duration::from_millis(250)));
    server.tick(Duration::from_millis(250));
    assert_eq!(other.received(&mut server), "T D: C:SELECT 1 T D: C:SELECT 1 Z:I");
    assert_eq!(server.leftovers(other.connection), ["lock 7"]);
}

#[test]
fn a_cancel_request_ends_a_statement_that_waits() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    client.ask(&mut server, "SELECT pg_sleep(1)");
    let pid = 1000 + client.connection as u32;
    let cancel = [16, 1234 << 16 | 5678, pid, pid.wrapping_mul(2_654_435_761)];
    let other = server.connect(Duration::ZERO);
    server.receive(other, &cancel.map(u32::to_be_bytes).concat(), Duration::ZERO);
    assert_eq!(client.received(&mut server), "T E:57014 Z:I");
    assert_eq!(server.take_closed(), [other]);
}

#[test]
fn notifications_come_when_they_may() {
    let mut server = Postgres::new();
    let (mut one, other) = (start(&mut server), start(&mut server));
    assert_eq!(one.ask(&mut server, "LISTEN c; NOTIFY c, 'own'"), "C:LISTEN C:NOTIFY A:c|own| Z:I");
    server.receive(other.connection, &query("NOTIFY c, 'at once'"), Duration::ZERO);
    assert_eq!(one.received(&mut server), "A:c|at once|");
    one.ask(&mut server, "BEGIN");
    server.receive(other.connection, &query("NOTIFY c, 'later'"), Duration::ZERO);
    assert_eq!(one.received(&mut server), "");
    assert_eq!(one.ask(&mut server, "COMMIT"), "C:COMMIT A:c|later| Z:I");
}

#[test]
fn an_administrator_ends_sessions() {
    let mut server = Postgres::new();
    let (mut one, mut other) = (start(&mut server), start(&mut server));
    server.kill(one.connection, true, Duration::ZERO);
    assert_eq!(one.received(&mut server), "E:57P01");
    server.kill(other.connection, false, Duration::ZERO);
    assert_eq!(other.received(&mut server), "");
    assert_eq!(server.take_closed(), [one.connection, other.connection]);
}

#[test]
fn a_copy_takes_rows_until_its_end() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    let copy = [query("COPY ledger FROM STDIN"), frame(b'd', b"a\t1\na\t"), frame(b'd', b"2\n"), frame(b'c', b"")];
    assert_eq!(client.send(&mut server, &copy.concat()), "G C:COPY 2 Z:I");
    let copy = [step("COPY ledger FROM STDIN"), frame(b'd', b"b\tx\n"), frame(b'c', b""), sync()];
    assert_eq!(client.send(&mut server, &copy.concat()), "1 2 G E:22P02 Z:I");
    assert_eq!(server.ledger().len(), 2);
}

#[test]
fn what_a_session_leaves_behind_is_told_until_it_is_discarded() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    let soil = "SET app.x = '1'; SET work_mem = '8MB'; LISTEN c; CREATE TEMP TABLE t (v text); \
                SELECT pg_advisory_lock(1); DECLARE c CURSOR WITH HOLD FOR SELECT 'x'; PREPARE p AS SELECT 'x'";
    client.ask(&mut server, soil);
    assert_eq!(server.leftovers(client.connection).len(), 7);
    let parse = frame(b'P', b"\0DISCARD ALL\0\0\0");
    let bytes = [parse, frame(b'B', &[0; 8]), frame(b'C', b"S\0"), frame(b'E', &[0; 5]), query("SELECT 'x'")];
    assert_eq!(client.send(&mut server, &bytes.concat()), "1 2 3 C:DISCARD ALL T D:x C:SELECT 1 Z:I");
    assert_eq!(server.leftovers(client.connection), [""; 0]);
}
