//! Whole dialogues with the server.

use super::*;

/// A client that notes what it is told: the kinds of messages, and for some of them what is in them.
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
    assert!(client.told(server).ends_with("Z:I"));
    client
}

impl Client {
    /// What came since it was asked last.
    fn told(&mut self, server: &mut Postgres) -> String {
        for (connection, bytes) in server.take_output() {
            if connection == self.connection {
                self.bytes.extend(bytes);
            }
        }
        let mut told = Vec::new();
        while let Ok(Some((kind, body))) = wire::take_message(&mut self.bytes) {
            let fields = String::from_utf8_lossy(&body).replace('\0', "|");
            let code = || fields.split('|').find_map(|field| field.strip_prefix('C')).unwrap_or_default();
            let tail = |from: usize| body.get(from..).map(|text| String::from_utf8_lossy(text).into_owned());
            told.push(match kind {
                b'C' | b'S' | b'Z' => format!("{}:{}", char::from(kind), fields.trim_end_matches('|')),
                b'E' | b'N' => format!("{}:{}", char::from(kind), code()),
                b'D' => format!("D:{}", tail(6).unwrap_or_default()),
                b'A' => format!("A:{}", tail(4).unwrap_or_default().replace('\0', "|")),
                kind => char::from(kind).to_string(),
            });
        }
        told.join(" ")
    }

    fn say(&mut self, server: &mut Postgres, bytes: &[u8]) -> String {
        server.receive(self.connection, bytes, Duration::ZERO);
        self.told(server)
    }

    fn ask(&mut self, server: &mut Postgres, sql: &str) -> String {
        self.say(server, &query(sql))
    }
}

#[test]
fn a_session_begins_with_what_is_reported() {
    let mut server = Postgres::new();
    let connection = server.connect(Duration::ZERO);
    server.receive(connection, &[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f], Duration::ZERO);
    assert_eq!(server.take_output(), [(connection, b"N".to_vec())]);
    let mut client = start(&mut server);
    assert_eq!(client.ask(&mut server, "SHOW DateStyle"), "T D:ISO, MDY C:SHOW Z:I");
    assert!(server.leftovers(client.connection).is_empty());
}

#[test]
fn texts_come_in_any_pieces() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    let bytes = [query("SELECT 'x'"), step("SELECT 'y'"), sync()].concat();
    let mut told = Vec::new();
    for byte in bytes {
        told.push(client.say(&mut server, &[byte]));
    }
    assert_eq!(told.concat(), "T D:x C:SELECT 1 Z:I1 2 D:y C:SELECT 1 Z:I");
}

#[test]
fn what_fails_takes_its_transaction_with_it() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    let told = client.ask(&mut server, "INSERT INTO ledger VALUES ('a', 1); SELECT 1/0");
    assert_eq!(told, "C:INSERT 0 1 E:22012 Z:I");
    let told = client.ask(&mut server, "BEGIN; INSERT INTO ledger VALUES ('a', 2)");
    assert_eq!(told, "C:BEGIN C:INSERT 0 1 Z:T");
    assert!(server.in_transaction(client.connection) && server.ledger().is_empty());
    let steps = [step("SELECT 1/0"), step("SELECT 'x'"), sync()].concat();
    assert_eq!(client.say(&mut server, &steps), "1 E:22012 Z:E");
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
    assert_eq!(other.told(&mut server), "T D: C:SELECT 1 T D: C:SELECT 1 Z:I");
    assert_eq!(server.leftovers(other.connection), ["lock 7"]);
}

#[test]
fn time_outs_and_cancels_end_what_waits() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    client.ask(&mut server, "SET statement_timeout = '100ms'");
    client.ask(&mut server, "SELECT pg_sleep(1)");
    assert_eq!(server.due(), Some(Duration::from_millis(100)));
    server.tick(Duration::from_millis(100));
    assert_eq!(client.told(&mut server), "T E:57014 Z:I");
    client.ask(&mut server, "SELECT pg_sleep(1)");
    let pid = server.pid(client.connection).unwrap();
    let cancel = [16, 1234 << 16 | 5678, pid, pid.wrapping_mul(2_654_435_761)];
    let other = server.connect(Duration::ZERO);
    server.receive(other, &cancel.map(u32::to_be_bytes).concat(), Duration::ZERO);
    assert_eq!(client.told(&mut server), "T E:57014 Z:I");
    assert_eq!(server.take_closed(), [other]);
}

#[test]
fn who_does_nothing_for_too_long_is_sent_away() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    client.ask(&mut server, "SET idle_in_transaction_session_timeout = 50; BEGIN");
    server.tick(server.due().unwrap());
    assert_eq!(client.told(&mut server), "E:25P03");
    assert!(server.open().is_empty());
}

#[test]
fn notifications_come_when_they_may() {
    let mut server = Postgres::new();
    let (mut one, other) = (start(&mut server), start(&mut server));
    assert_eq!(one.ask(&mut server, "LISTEN c; NOTIFY c, 'own'"), "C:LISTEN C:NOTIFY A:c|own| Z:I");
    server.receive(other.connection, &query("NOTIFY c, 'at once'"), Duration::ZERO);
    assert_eq!(one.told(&mut server), "A:c|at once|");
    one.ask(&mut server, "BEGIN");
    server.receive(other.connection, &query("NOTIFY c, 'later'"), Duration::ZERO);
    assert_eq!(one.told(&mut server), "");
    assert_eq!(one.ask(&mut server, "COMMIT"), "C:COMMIT A:c|later| Z:I");
}

#[test]
fn an_administrator_ends_sessions() {
    let mut server = Postgres::new();
    let (mut one, mut other) = (start(&mut server), start(&mut server));
    server.kill(one.connection, true, Duration::ZERO);
    assert_eq!(one.told(&mut server), "E:57P01");
    server.kill(other.connection, false, Duration::ZERO);
    assert_eq!(other.told(&mut server), "");
    assert_eq!(server.take_closed(), [one.connection, other.connection]);
}

#[test]
fn a_copy_takes_rows_until_its_end() {
    let mut server = Postgres::new();
    let mut client = start(&mut server);
    let copy = [query("COPY ledger FROM STDIN"), frame(b'd', b"a\t1\na\t"), frame(b'd', b"2\n"), frame(b'c', b"")];
    assert_eq!(client.say(&mut server, &copy.concat()), "G C:COPY 2 Z:I");
    let copy = [step("COPY ledger FROM STDIN"), frame(b'd', b"b\tx\n"), frame(b'c', b""), sync()];
    assert_eq!(client.say(&mut server, &copy.concat()), "1 2 G E:22P02 Z:I");
    assert_eq!(server.ledger().len(), 2);
}

/// As Poolhouse writes them.
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
        let soil = "SET app.x = '1'; SET work_mem = '8MB'; LISTEN c; CREATE TEMP TABLE t (v text); SELECT pg_advisory_lock(1); \
                    DECLARE c CURSOR WITH HOLD FOR SELECT 'x'; PREPARE p AS SELECT 'x'";
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
        let told = client.say(&mut server, &bytes);
        assert!(told.starts_with("1 2 C:BEGIN 1 2 C:RESET"), "{told}");
        assert!(told.ends_with("1 2 C:COMMIT T D:x C:SELECT 1 Z:I"), "{told}");
        assert_eq!(server.leftovers(client.connection), [""; 0]);
    }

    #[test]
    fn discard_all_is_a_step_too() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        soil(&mut server, &mut client);
        let parse = frame(b'P', b"\0DISCARD ALL\0\0\0");
        let bytes = [parse, frame(b'B', &[0; 8]), frame(b'C', b"S\0"), frame(b'E', &[0; 5]), query("SELECT 'x'")];
        assert_eq!(client.say(&mut server, &bytes.concat()), "1 2 3 C:DISCARD ALL T D:x C:SELECT 1 Z:I");
        assert_eq!(server.leftovers(client.connection), [""; 0]);
    }

    #[test]
    fn a_preface_that_fails_has_the_request_fail() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        let bytes = [step(BEGIN), query("SET \"nosuch\" = 'x';COMMIT"), query("SELECT 'x'")].concat();
        assert_eq!(client.say(&mut server, &bytes), "1 2 C:BEGIN E:42704 Z:E E:25P02 Z:E");
        assert_eq!(client.ask(&mut server, "ROLLBACK"), "C:ROLLBACK Z:I");
    }

    #[test]
    fn the_catalogue_tells_nothing_suspicious() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        let sql = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY, NOT DEFERRABLE;SET LOCAL SESSION AUTHORIZATION DEFAULT;\
            SET LOCAL ROLE NONE;SET LOCAL search_path = pg_catalog, pg_temp;SET LOCAL statement_timeout = '1500ms';SET LOCAL lock_timeout = '1s';\
            SET LOCAL jit = off;SET LOCAL standard_conforming_strings = on;SET LOCAL client_encoding = SQL_ASCII;\
            WITH marks AS MATERIALIZED (SELECT 1) SELECT 'm', '', mark, '', n::text, '', '' FROM now;\
            SELECT CASE WHEN p.prorettype IN ('trigger'::regtype) THEN 't' ELSE 'f' END FROM pg_proc AS p;\
            WITH e(place, tree) AS MATERIALIZED (SELECT 1) SELECT 'x', '', '' FROM e WHERE tree ~ concat(':relid ', '\\M');COMMIT";
        let told = client.ask(&mut server, sql);
        assert!(told.contains("T D:m"), "{told}");
        assert!(told.ends_with("C:SELECT 1 T C:SELECT 0 T C:SELECT 0 C:COMMIT Z:I"), "{told}");
    }

    #[test]
    fn a_survey_tells_what_is_there() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        soil(&mut server, &mut client);
        let sql = "/* poolhouse */ SELECT 'p'::pg_catalog.text, 'temporary'::pg_catalog.text, NULL::pg_catalog.text \
            UNION ALL SELECT 'p', 'prepare', NULL WHERE EXISTS (SELECT 1 FROM pg_catalog.pg_prepared_statements \
            WHERE from_sql OR name OPERATOR(pg_catalog.!~) '^(poolhouse_[0-9a-f]{16}_|PGBOUNCER_)[0-9]+$'::pg_catalog.text) \
            UNION ALL SELECT 's', name, setting FROM pg_catalog.pg_settings UNION ALL SELECT 's', 'app.x', \
            pg_catalog.current_setting('app.x', true)";
        let told = client.ask(&mut server, sql);
        // Four pins, the channel, one setting that is known to the server, and the custom one.
        assert!(told.ends_with("C:SELECT 7 Z:I"), "{told}");
    }

    #[test]
    fn what_is_put_before_requests_fails_as_it_is_meant_to() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        let failing =
            "DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'm', HINT = 'h'; END $poolhouse$";
        assert_eq!(client.ask(&mut server, failing), "E:55000 Z:I");
        let reset =
            "/* poolhouse: RESET */ DO $poolhouse$ BEGIN RESET ALL;SET \"search_path\" = 's1','A b'; END $poolhouse$";
        assert_eq!(client.say(&mut server, &[step(reset), sync()].concat()), "1 2 C:DO Z:I");
        assert_eq!(client.ask(&mut server, "SHOW search_path"), "T D:s1, \"A b\" C:SHOW Z:I");
        let hub = "UNLISTEN \"a\";LISTEN \"B c\";";
        assert_eq!(client.ask(&mut server, hub), "C:UNLISTEN C:LISTEN Z:I");
        assert_eq!(client.ask(&mut server, ""), "I Z:I");
        let standby =
            "SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only')";
        assert!(client.ask(&mut server, standby).ends_with("C:SELECT 1 Z:I"));
    }

    #[test]
    fn statements_of_its_own_names_are_statements_like_others() {
        let mut server = Postgres::new();
        let mut client = start(&mut server);
        let name = "poolhouse_00000000000000aa_00";
        let taken = frame(b'P', format!("{name}\0\0\0\0").as_bytes());
        let bytes = [frame(b'C', format!("S{name}\0").as_bytes()), taken.clone(), taken, sync()].concat();
        assert_eq!(client.say(&mut server, &bytes), "3 1 E:42P05 Z:I");
        let bytes = [step(&format!("DEALLOCATE {name}")), sync()].concat();
        assert_eq!(client.say(&mut server, &bytes), "1 2 C:DEALLOCATE Z:I");
    }
}
