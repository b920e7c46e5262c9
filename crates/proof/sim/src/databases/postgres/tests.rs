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

/// Statements as Poolhouse writes them.
mod of_poolhouse {
    use super::*;

    const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED, NOT DEFERRABLE";
    const PIECES: [&str; 8] = [
        "RESET SESSION AUTHORIZATION",
        "RESET ROLE",
        "RESET ALL",
        "CLOSE ALL",
        "UNLISTEN *",
        "DISCARD TEMP",
        "DISCARD SEQUENCES",
        "SELECT pg_catalog.pg_advisory_unlock_all()",
    ];

    fn soil(server: &mut Postgres, client: &mut Client) {
        let soil = "SET app.x = '1'; SET work_mem = '8MB'; LISTEN c; CREATE TEMP TABLE t (v text); \
                    SELECT pg_advisory_lock(1); DECLARE c CURSOR WITH HOLD FOR SELECT 'x'; PREPARE p AS SELECT 'x'";
        client.ask(server, soil);
        assert_eq!(server.leftovers(client.connection).len(), 7);
    }

    #[test]
    fn a_cleaning_as_a_query_leaves_nothing() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        soil(&mut server, &mut client);
        let sql = format!("{BEGIN};{};DEALLOCATE ALL;SET \"app\".\"x\" = '';COMMIT", PIECES.join(";"));
        assert!(client.ask(&mut server, &sql).ends_with("C:DEALLOCATE ALL C:SET C:COMMIT Z:I"));
        assert_eq!(server.leftovers(client.connection), [""; 0]);
    }

    #[test]
    fn a_cleaning_by_kept_steps_leaves_nothing() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        soil(&mut server, &mut client);
        let mut bytes = Vec::new();
        for (number, sql) in std::iter::once(BEGIN).chain(PIECES).enumerate() {
            let name = format!("poolhouse_00000000000000aa_000{number}");
            bytes.extend(frame(b'P', format!("{name}\0{sql}\0\0\0").as_bytes()));
            bytes.extend(frame(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes()));
            bytes.extend(frame(b'E', &[0; 5]));
        }
        bytes.extend(step("DEALLOCATE p"));
        bytes.extend(step("COMMIT"));
        bytes.extend(query("SELECT 'x'"));
        let received = client.send(&mut server, &bytes);
        assert!(received.starts_with("1 2 C:BEGIN 1 2 C:RESET"), "{received}");
        assert!(received.ends_with("1 2 C:COMMIT T D:x C:SELECT 1 Z:I"), "{received}");
        assert_eq!(server.leftovers(client.connection), [""; 0]);
    }

    #[test]
    fn discard_all_is_a_step_too() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        soil(&mut server, &mut client);
        let parse = frame(b'P', b"\0DISCARD ALL\0\0\0");
        let bytes = [parse, frame(b'B', &[0; 8]), frame(b'C', b"S\0"), frame(b'E', &[0; 5]), query("SELECT 'x'")];
        assert_eq!(client.send(&mut server, &bytes.concat()), "1 2 3 C:DISCARD ALL T D:x C:SELECT 1 Z:I");
        assert_eq!(server.leftovers(client.connection), [""; 0]);
    }

    #[test]
    fn a_preface_that_fails_has_the_request_fail() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        let bytes = [step(BEGIN), query("SET \"nosuch\" = 'x';COMMIT"), query("SELECT 'x'")].concat();
        assert_eq!(client.send(&mut server, &bytes), "1 2 C:BEGIN E:42704 Z:E E:25P02 Z:E");
        assert_eq!(client.ask(&mut server, "ROLLBACK"), "C:ROLLBACK Z:I");
    }

    #[test]
    fn a_survey_tells_what_is_there() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        soil(&mut server, &mut client);
        let sql = "/* poolhouse */ SELECT 'p'::pg_catalog.text, 'temporary'::pg_catalog.text, NULL::pg_catalog.text \
            UNION ALL SELECT 'p', 'prepare', NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_prepared_statements \
            WHERE from_sql OR name OPERATOR(pg_catalog.!~) \
            '^(poolhouse_[0-9a-f]{16}_|PGBOUNCER_)[0-9]+$'::pg_catalog.text) \
            UNION ALL SELECT 's', name, setting FROM pg_catalog.pg_settings UNION ALL SELECT 's', 'app.x', \
            pg_catalog.current_setting('app.x', true)";
        let received = client.ask(&mut server, sql);
        // Four pins, the channel, one setting that is known to the server, and the custom one.
        assert!(received.ends_with("C:SELECT 7 Z:I"), "{received}");
    }

    #[test]
    fn what_the_pooler_puts_before_requests_is_run() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        let reset = "/* poolhouse: RESET */ DO $poolhouse$ BEGIN RESET ALL;SET \"app\".\"x\" = 'A b'; END $poolhouse$";
        assert_eq!(client.send(&mut server, &[step(reset), sync()].concat()), "1 2 C:DO Z:I");
        assert_eq!(client.ask(&mut server, "SHOW app.x"), "T D:A b C:SHOW Z:I");
        let hub = "UNLISTEN \"a\";LISTEN \"B c\";";
        assert_eq!(client.ask(&mut server, hub), "C:UNLISTEN C:LISTEN Z:I");
        assert_eq!(client.ask(&mut server, ""), "I Z:I");
    }

    #[test]
    fn statements_with_names_of_the_pooler_are_like_others() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        let name = "poolhouse_00000000000000aa_00";
        let taken = frame(b'P', format!("{name}\0\0\0\0").as_bytes());
        let bytes = [frame(b'C', format!("S{name}\0").as_bytes()), taken.clone(), taken, sync()].concat();
        assert_eq!(client.send(&mut server, &bytes), "3 1 E:42P05 Z:I");
        let bytes = [step(&format!("DEALLOCATE {name}")), sync()].concat();
        assert_eq!(client.send(&mut server, &bytes), "1 2 C:DEALLOCATE Z:I");
    }
}
