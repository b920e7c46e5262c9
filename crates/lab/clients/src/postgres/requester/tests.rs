//! A requester against servers that tests play by hand.

use postgres_session::{ServerEncryption, ServerLogin, Tls, messages::Header};
use proptest::prelude::*;

use super::*;

fn login() -> ServerLogin {
    ServerLogin {
        database: "db".into(),
        user: "app".into(),
        password: Some("pencil".into()),
        parameters: vec![("search_path".into(), "poolhouse_bench".into())],
        ..ServerLogin::default()
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, kind, |to| to.extend_from_slice(body));
    bytes
}

fn welcome() -> Vec<u8> {
    [
        message(b'R', &[0; 4]),
        message(b'S', b"server_version\x0015.18\0"),
        message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// One connection with what it has sent and said.
struct Connection {
    login: SharedLogin,
    requester: Requester,
    sent: Vec<u8>,
    said: Vec<Verdict>,
}

impl Connection {
    fn open(login: ServerLogin) -> Self {
        let login = SharedLogin::new(login);
        let mut sent = Vec::new();
        let requester = Requester::begin(&login, &mut sent);
        Self { login, requester, sent, said: Vec::new() }
    }

    fn ready() -> Self {
        let mut connection = Self::open(login());
        connection.hear(&welcome(), usize::MAX).unwrap();
        assert_eq!(connection.said, [Verdict::Authenticated, Verdict::Ready]);
        connection.said.clear();
        connection.sent.clear();
        connection
    }

    fn hear(&mut self, bytes: &[u8], piece: usize) -> Result<(), Fault> {
        for mut input in bytes.chunks(piece) {
            loop {
                match self.requester.take(&self.login, &mut input, &mut self.sent)? {
                    Verdict::More => break,
                    verdict => self.said.push(verdict),
                }
            }
            assert!(input.is_empty(), "all input is taken");
        }
        Ok(())
    }
}

/// Two rows of two columns, and the end.
fn two_rows() -> Vec<u8> {
    let column = |name: &str| [name.as_bytes(), &[0], &[0; 18]].concat();
    [
        message(b'T', &[&[0, 2][..], &column("a"), &column("b")].concat()),
        message(b'D', b"\0\x02\0\0\0\x0242\xff\xff\xff\xff"),
        message(b'D', b"\0\x02\0\0\0\x0243\xff\xff\xff\xff"),
        message(b'C', b"SELECT 2\0"),
        message(b'Z', b"T"),
    ]
    .concat()
}

#[test]
fn a_login_is_told_step_by_step_in_whatever_pieces_it_comes() {
    for piece in [1, 2, 7, usize::MAX] {
        let mut connection = Connection::open(login());
        assert!(connection.sent.windows(16).any(|part| part == b"poolhouse_bench\0"));
        connection.hear(&welcome(), piece).unwrap();
        assert_eq!(connection.said, [Verdict::Authenticated, Verdict::Ready]);
        assert_eq!(connection.requester.version(), Some("15.18"));
    }
}

#[test]
fn a_refused_login_keeps_its_sqlstate() {
    let mut connection = Connection::open(login());
    let error = message(b'E', b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed\0\0");
    let fault = connection.hear(&error, 3).unwrap_err();
    assert!(fault.permanent && !fault.detour && !fault.violation);
    assert_eq!(fault.code, Some(*b"28P01"));
    assert!(fault.message.contains("password authentication failed"));
}

#[test]
fn a_server_that_turns_tls_away_is_asked_once_more_without() {
    let login = SharedLogin::new(ServerLogin {
        encryption: ServerEncryption { tls: Tls::Prefer, ..ServerEncryption::default() },
        ..login()
    });
    let rejection = message(b'E', b"SFATAL\0VFATAL\0C28000\0Mno pg_hba.conf entry\0\0");
    let mut out = Vec::new();
    let mut first = Requester::begin(&login, &mut out);
    assert_eq!(out, b"\0\0\0\x08\x04\xd2\x16\x2f");
    assert_eq!(first.take(&login, &mut &b"S"[..], &mut out), Ok(Verdict::StartTls));
    first.secured(&login, Secured::default(), &mut out).unwrap();
    assert!(first.take(&login, &mut &rejection[..], &mut out).unwrap_err().detour);
    out.clear();
    let mut second = Requester::begin(&login, &mut out);
    assert_eq!(&out[4..8], [0, 3, 0, 0], "it does not ask for TLS");
    assert!(!second.take(&login, &mut &rejection[..], &mut out).unwrap_err().detour, "one detour is enough");
}

#[test]
fn rows_are_counted_and_the_first_is_kept_when_it_is_wanted() {
    for piece in [1, 2, 5, 17, usize::MAX] {
        for wanted in [false, true] {
            let mut connection = Connection::ready();
            connection.requester.query("SELECT a, b FROM t", &mut connection.sent);
            if wanted {
                connection.requester.keep_row();
            }
            connection.hear(&two_rows(), piece).unwrap();
            assert_eq!(connection.said, [Verdict::Answered]);
            let answer = connection.requester.answer();
            assert_eq!((answer.rows, answer.last_rows, &answer.error), (2, 2, &None));
            assert_eq!(connection.requester.transaction(), TransactionStatus::Open);
            let row: Option<Row> = wanted.then(|| vec![("a".into(), Some("42".into())), ("b".into(), None)]);
            assert_eq!(answer.row(), row.as_ref());
        }
    }
}

#[test]
fn as_many_rows_are_kept_as_are_wanted_of_the_last_result() {
    for (most, kept) in [(0, 0), (1, 1), (2, 2), (9, 2)] {
        let mut connection = Connection::ready();
        connection.requester.query("SELECT 1; SELECT a, b FROM t", &mut connection.sent);
        connection.requester.keep_rows(most);
        let first = [two_rows(), two_rows()].map(|rows| rows[..rows.len() - 6].to_vec()).concat();
        connection.hear(&[first, message(b'Z', b"I")].concat(), 3).unwrap();
        let answer = connection.requester.answer();
        assert_eq!((answer.kept.len(), answer.last_rows, answer.rows), (kept, 2, 4));
    }
}

#[test]
fn rows_beyond_the_bound_are_not_kept_but_counted() {
    let mut connection = Connection::ready();
    connection.requester.query("SELECT a FROM t", &mut connection.sent);
    connection.requester.keep_rows(1_000);
    let large = [&b"\0\x01\0\x03\0\0"[..], &vec![b'x'; 3 << 16]].concat();
    connection.hear(&message(b'T', &[&b"\0\x01a\0"[..], &[0; 18]].concat()), usize::MAX).unwrap();
    for _ in 0..200 {
        connection.hear(&message(b'D', &large), usize::MAX).unwrap();
    }
    connection.hear(&message(b'Z', b"I"), usize::MAX).unwrap();
    let answer = connection.requester.answer();
    let bytes: usize = answer.kept.iter().map(|row| row[0].1.as_ref().unwrap().len()).sum();
    assert_eq!(answer.last_rows, 200);
    assert!((32 << 20..=33 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn names_of_columns_count_with_each_row_that_is_kept() {
    let mut connection = Connection::ready();
    connection.requester.query("SHOW POOLS", &mut connection.sent);
    connection.requester.keep_rows(20_000);
    let name = [&b"\0\x01"[..], &vec![b'n'; 100 << 10], &[0; 19]].concat();
    connection.hear(&message(b'T', &name), usize::MAX).unwrap();
    for _ in 0..1_000 {
        connection.hear(&message(b'D', b"\0\x01\xff\xff\xff\xff"), usize::MAX).unwrap();
    }
    connection.hear(&message(b'Z', b"I"), usize::MAX).unwrap();
    let kept = connection.requester.answer().kept.len();
    assert!((300..340).contains(&kept), "{kept} rows of 100 KiB each");
}

#[test]
fn the_first_error_is_kept_and_the_connection_goes_on() {
    let mut connection = Connection::ready();
    connection.requester.query("SELECT 1/0", &mut connection.sent);
    let error = |code: &str| message(b'E', format!("SERROR\0C{code}\0Mdivision by zero\0\0").as_bytes());
    connection.hear(&[error("22012"), error("XX000"), message(b'Z', b"E")].concat(), 4).unwrap();
    let error = connection.requester.answer().error.as_ref().unwrap();
    assert_eq!((error.code(), error.fatal), ("22012", false));
    assert_eq!(connection.requester.transaction(), TransactionStatus::Failed);
    connection.requester.query("ROLLBACK", &mut connection.sent);
    connection.hear(&[message(b'C', b"ROLLBACK\0"), message(b'Z', b"I")].concat(), 1).unwrap();
    assert_eq!(
        (connection.requester.answer().error.as_ref(), connection.requester.transaction()),
        (None, TransactionStatus::Idle)
    );
}

#[test]
fn a_statement_is_prepared_once_and_again_if_that_failed() {
    let mut connection = Connection::ready();
    let mut parameters = Parameters::default();
    let _: Result<(), ()> = parameters.push(|to| {
        to.push(b'7');
        Ok(true)
    });
    let _: Result<(), ()> = parameters.push(|_| Ok(false));
    let types = |sent: &[u8]| {
        let (mut at, mut types) = (0, String::new());
        while let Some(header) = Header::read(&sent[at..]) {
            types.push(char::from(header.kind));
            at += header.total();
        }
        types
    };
    connection.requester.prepared(3, "SELECT $1", &parameters, &mut connection.sent);
    assert_eq!(types(&connection.sent), "PBDES");
    connection.hear(&[message(b'E', b"SERROR\0C42601\0Msyntax\0\0"), message(b'Z', b"I")].concat(), 100).unwrap();
    for expected in ["PBDES", "BDES"] {
        connection.sent.clear();
        connection.requester.prepared(3, "SELECT $1", &parameters, &mut connection.sent);
        assert_eq!(types(&connection.sent), expected);
        connection.hear(&[message(b'1', b""), message(b'2', b""), message(b'Z', b"I")].concat(), 100).unwrap();
    }
    let bind = b"P_0003\0\0\0\0\x02\0\0\0\x017\xff\xff\xff\xff\0\0";
    assert!(connection.sent.windows(bind.len()).any(|part| part == bind));
}

#[test]
fn a_server_that_leaves_says_why() {
    let mut connection = Connection::ready();
    connection.hear(&message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0"), 9).unwrap();
    let error = connection.requester.farewell().unwrap();
    assert!(error.fatal && error.code() == "57P01");
}

#[test]
fn a_goodbye_behind_an_answer_does_not_spoil_it() {
    let mut connection = Connection::ready();
    connection.requester.query("SELECT 1", &mut connection.sent);
    let goodbye = message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0");
    connection.hear(&[two_rows(), goodbye].concat(), usize::MAX).unwrap();
    assert_eq!((&connection.said[..], connection.requester.answer().error.as_ref()), (&[Verdict::Answered][..], None));
    assert_eq!(connection.requester.farewell().unwrap().code(), "57P01");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_allocated() {
    let asked = |bytes: &[u8], kept: bool| {
        let mut connection = Connection::ready();
        connection.requester.query("SELECT 1", &mut connection.sent);
        if kept {
            connection.requester.keep_row();
        }
        connection.hear(bytes, usize::MAX).unwrap_err()
    };
    for bytes in [
        &b"E\x7f\xff\xff\xff"[..],
        b"D\xff\xff\xff\xff",
        b"Z\0\0\0\x04",
        b"Z\0\0\0\x05X",
        b"T\0\0\0\x03",
        b"G\0\0\0\x04",
        b"R\0\0\0\x08\0\0\0\0",
        b"?\0\0\0\x04",
    ] {
        assert!(asked(bytes, false).violation, "{bytes:?}");
    }
    assert!(asked(b"D\0\x10\0\0", true).violation, "a row that is kept is not large");
    assert!(asked(&message(b'D', b"\0\x01\0\0\0\x011"), true).violation, "a row needs a description");
    assert!(asked(&message(b'T', b"\0\x01a\0"), true).violation, "a description has types");
    let mut idle = Connection::ready();
    assert!(idle.hear(&message(b'Z', b"I"), usize::MAX).unwrap_err().violation, "no request is pending");
}

#[test]
fn large_rows_are_skipped_without_being_kept() {
    let mut connection = Connection::ready();
    connection.requester.query("SELECT repeat('x', 1000000)", &mut connection.sent);
    let row = message(b'D', &[&b"\0\x01\0\x0f\x42\x40"[..], &[b'x'; 1_000_000]].concat());
    connection.hear(&[row, message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat(), 4096).unwrap();
    assert_eq!((connection.said.as_slice(), connection.requester.answer().rows), (&[Verdict::Answered][..], 1));
}

/// Messages that a server might send, whole and with bodies that make sense or not.
fn messages() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(&b"RSKZTDC12EGHdcnNAIs?"[..]);
    let body = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        Just(b"I".to_vec()),
        Just([0; 4].to_vec()),
        Just(b"\0\x01a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec()),
        Just(b"\0\x01\0\0\0\x017".to_vec()),
        Just(b"SFATAL\0C57P01\0Mbye\0\0".to_vec()),
    ];
    let one = (kind, body).prop_map(|(kind, body)| message(kind, &body));
    prop::collection::vec(one, 0..20).prop_map(|messages| messages.concat())
}

proptest! {
    #[test]
    fn whatever_a_server_sends_in_whatever_pieces_means_the_same(
        bytes in messages(),
        kept: bool,
        welcomed: bool,
        piece in 1usize..50,
    ) {
        let hear = |piece: usize| {
            let mut connection = if welcomed { Connection::ready() } else { Connection::open(login()) };
            if welcomed {
                connection.requester.query("SELECT 1", &mut connection.sent);
                if kept {
                    connection.requester.keep_row();
                }
            }
            let end = connection.hear(&bytes, piece);
            let answer = connection.requester.answer().clone();
            // Of a login that fails, steps before that in the same piece are not told.
            let awaits_answer = connection.requester.awaits_answer();
            end.map(|()| (connection.said, answer, awaits_answer)).map_err(|fault| fault.permanent)
        };
        prop_assert_eq!(hear(piece), hear(usize::MAX));
    }
}

#[test]
fn where_many_iterations_are_asked_for_the_answer_comes_at_once_all_the_same() {
    let mut connection = Connection::open(login());
    connection.sent.clear();
    connection.hear(&message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"), usize::MAX).unwrap();
    let verifier = std::sync::Arc::new(scram::Verifier::from_password("pencil", b"salt", 20_000));
    let mut exchange = scram::Server::new(verifier, "server".into());
    let challenge = exchange.first(&connection.sent[23..]).unwrap();
    connection.sent.clear();
    connection.hear(&message(b'R', &[b"\0\0\0\x0b", &challenge[..]].concat()), usize::MAX).unwrap();
    assert!(exchange.last(&connection.sent[5..]).is_ok());
}
