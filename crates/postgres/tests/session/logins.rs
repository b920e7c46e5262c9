//! Logins: of clients to Poolhouse and of Poolhouse to servers.

use std::sync::Arc;

use postgres::{PoolMode, Proof, md5_hash};
use protocol::{Blame, ClientTag, CloseReason, LeaseFailure, Refusal, ServerTag, Verdict};

use crate::world::{Doors, Pieces, World, message, messages, server_welcome, startup};

fn in_all_pieces(dialogue: impl Fn(Pieces)) {
    let splits = (1..60).map(Pieces::SplitAt);
    for pieces in [Pieces::Whole, Pieces::Of(1), Pieces::Of(3)].into_iter().chain(splits) {
        dialogue(pieces);
    }
}

fn world(proof: Proof, pieces: Pieces) -> (World, ServerTag) {
    let mut world = World::new(Doors::new(PoolMode::Transaction, proof, None));
    let server = world.connect_server();
    world.server_got(server);
    world.server_says(server, &server_welcome());
    world.pieces = pieces;
    (world, server)
}

fn scram_proof() -> Proof {
    Proof::Scram(Arc::new(scram::Verifier::from_password("pencil", b"salt", 2)))
}

/// The types of messages.
fn types(mut bytes: &[u8]) -> String {
    let mut types = String::new();
    while bytes.len() >= 5 {
        types.push(char::from(bytes[0]));
        bytes = &bytes[1 + u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize..];
    }
    types
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "~")
}

fn error(world: &mut World, client: ClientTag) -> String {
    assert!(world.clients.0[&client.0].closed.is_some(), "an error at login ends the connection");
    text(&world.client_got(client))
}

/// Plays the client of a SCRAM exchange; the last thing it received.
fn scram_login(world: &mut World, user: &str, password: &str) -> (ClientTag, Vec<u8>) {
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", user)]));
    assert_eq!(text(&world.client_got(client)[5..]), "~~~\u{a}SCRAM-SHA-256~~");
    let (mut exchange, first) = scram::Client::new("nonce".into());
    let mut body = b"SCRAM-SHA-256\0".to_vec();
    body.extend((first.len() as u32).to_be_bytes());
    body.extend(first);
    world.client_says(client, &message(b'p', &body));
    let challenge = world.client_got(client);
    assert_eq!(challenge[..9], [b'R', 0, 0, 0, challenge.len() as u8 - 1, 0, 0, 0, 11]);
    let last = exchange.respond(&challenge[9..], password, &scram::KeyCache::default()).unwrap();
    world.client_says(client, &message(b'p', &last));
    let outcome = world.client_got(client);
    if outcome[0] == b'R' {
        let end = 1 + u32::from_be_bytes(outcome[1..5].try_into().unwrap()) as usize;
        exchange.verify(&outcome[9..end]).unwrap();
    }
    (client, outcome)
}

#[test]
fn a_trusted_client_learns_its_parameters() {
    in_all_pieces(|pieces| {
        let (mut world, _) = world(Proof::Trust, pieces);
        let client = world.connect_client();
        world.client_says(client, &startup(3 << 16, &[("user", "app"), ("application_name", "psql")]));
        let got = world.client_got(client);
        assert_eq!(types(&got), "RSSSSSKZ");
        assert!(text(&got).contains("application_name~psql~") && text(&got).contains("server_version~17.2~"));
        assert!(world.clients.0[&client.0].logged_in);
        assert!(world.releases.is_empty(), "a name that is taken as it is need not be learned");
    });
}

#[test]
fn start_up_settings_are_learned_from_a_server_once() {
    in_all_pieces(|pieces| {
        let (mut world, server) = world(Proof::Trust, pieces);
        let settings = [("user", "app"), ("TimeZone", "cet"), ("options", "-c search_path=a,b")];
        let one = world.connect_client();
        // A first query that does not wait for the welcome.
        world.client_says(one, &[startup(3 << 16, &settings), messages("Q:hello")].concat());
        let sql = "SET \"TimeZone\" = 'cet';SELECT pg_catalog.set_config('search_path','a,b',false);\0";
        assert_eq!(text(&world.server_got(server)), text(&message(b'Q', sql.as_bytes())));
        assert_eq!(world.client_got(one), b"");
        world.server_says(server, &messages("C:SET~ T:~~ D:a,b C:SELECT_1~ S:TimeZone~CET~ Z:I"));
        let got = world.client_got(one);
        assert_eq!(types(&got), "RSSSSSKZ");
        assert!(text(&got).contains("TimeZone~CET~") && !text(&got).contains("search_path"));
        // The server has its settings already.
        assert_eq!(world.server_got(server), messages("Q:hello"));
        world.server_says(server, &messages("C:OK~ Z:I"));

        let two = world.connect_client();
        world.client_says(two, &startup(3 << 16, &settings));
        assert_eq!(types(&world.client_got(two)), "RSSSSSKZ");

        // A client without them sets everything back.
        let three = world.connect_client();
        world.client_says(three, &startup(3 << 16, &[("user", "app")]));
        world.client_says(three, &messages("Q:hello"));
        crate::dialogues::assert_prefaced(
            &mut world,
            server,
            "RESET \"search_path\";SET \"TimeZone\" = 'UTC';",
            "hello",
        );
    });
}

#[test]
fn settings_that_the_server_refuses_end_the_login_in_its_words() {
    in_all_pieces(|pieces| {
        let (mut world, server) = world(Proof::Trust, pieces);
        let client = world.connect_client();
        world.client_says(client, &startup(3 << 16, &[("user", "app"), ("foo", "bar")]));
        world.server_says(server, &messages("E:SERROR~VERROR~C42704~Munrecognized_parameter_foo~~ Z:I"));
        let error = error(&mut world, client);
        assert!(error.contains("FATAL") && error.contains("42704") && error.contains("unrecognized parameter foo"));
        assert_eq!(world.releases, [(server, Verdict::Reset)]);
    });
}

#[test]
fn a_login_fails_when_no_server_can_tell_the_parameters() {
    let mut world = World::trusting(PoolMode::Transaction);
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    assert_eq!(world.waiters, [client]);
    let waited = std::time::Duration::from_secs(30);
    world.fail_lease(client, LeaseFailure::Unavailable { waited, last_error: None });
    assert!(error(&mut world, client).contains("57P03"));
}

#[test]
fn a_login_asks_another_server_when_the_first_dies_and_fails_with_the_second() {
    let (mut world, server) = world(Proof::Trust, Pieces::Whole);
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app"), ("TimeZone", "cet")]));
    world.server_dies(server);
    assert!(world.clients.0[&client.0].closed.is_none() && world.client_got(client).is_empty());
    assert_eq!(world.waiters, [client]);
    let second = world.connect_server();
    world.server_says(second, &server_welcome());
    assert!(world.waiters.is_empty());
    world.server_dies(second);
    assert!(error(&mut world, client).contains("08006"));
}

#[test]
fn a_password_is_proved_by_scram() {
    in_all_pieces(|pieces| {
        let (mut world, _) = world(scram_proof(), pieces);
        let (client, outcome) = scram_login(&mut world, "app", "pencil");
        assert_eq!(types(&outcome), "RRSSSSSKZ");
        assert!(world.clients.0[&client.0].logged_in);
        assert_eq!(world.auth_failures, 0);
    });
}

#[test]
fn a_wrong_password_and_an_unknown_user_fail_alike() {
    in_all_pieces(|pieces| {
        let (mut world, _) = world(scram_proof(), pieces);
        let (_, wrong) = scram_login(&mut world, "anyone", "wrong");
        let (_, unknown) = scram_login(&mut world, "nobody", "pencil");
        assert!(text(&wrong).contains("28P01"));
        assert_eq!(text(&wrong).replace("anyone", "nobody"), text(&unknown));
        assert_eq!(world.auth_failures, 2);
    });
}

#[test]
fn an_unknown_user_is_asked_for_the_same_as_one_who_exists() {
    let md5 = Proof::Md5(md5_hash("secret", "app").into());
    let rare = Proof::Scram(Arc::new(scram::Verifier::from_password("pencil", &[7; 20], 3)));
    for proof in [md5, scram_proof(), rare] {
        let (mut world, _) = world(proof, Pieces::Whole);
        let asked = |world: &mut World, user| {
            let client = world.connect_client();
            world.client_says(client, &startup(3 << 16, &[("user", user)]));
            let offered = world.client_got(client);
            if offered[8] == 5 {
                // The answer to anything is that the password is wrong.
                world.client_says(client, &message(b'p', b"md50123456789abcdef0123456789abcdef\0"));
                let answer = text(&world.client_got(client)).replace("nobody", "anyone");
                return (offered[..9].to_vec(), answer, 0);
            }
            world.client_says(client, &message(b'p', b"SCRAM-SHA-256\0\0\0\0\x0an,,n=,r=ab"));
            let challenge = text(&world.client_got(client));
            let salt = challenge.split(",s=").nth(1).unwrap().split(',').next().unwrap();
            (offered, challenge.split(",i=").nth(1).unwrap().to_owned(), salt.len())
        };
        assert_eq!(asked(&mut world, "anyone"), asked(&mut world, "nobody"));
    }
}

#[test]
fn a_password_is_proved_by_md5() {
    in_all_pieces(|pieces| {
        for (password, right) in [("secret", true), ("wrong", false)] {
            let (mut world, _) = world(Proof::Md5(md5_hash("secret", "app").into()), pieces);
            let client = world.connect_client();
            world.client_says(client, &startup(3 << 16, &[("user", "app")]));
            let challenge = world.client_got(client);
            assert_eq!(challenge[..9], [b'R', 0, 0, 0, 12, 0, 0, 0, 5]);
            // What is stored, with the salt for a user's name.
            let digits = md5_hash(password, "app")[3..].to_owned();
            let mut answer = digest(&[digits.as_bytes(), &challenge[9..]].concat()).into_bytes();
            answer.push(0);
            world.client_says(client, &message(b'p', &answer));
            assert_eq!(world.clients.0[&client.0].logged_in, right);
            assert_eq!(text(&world.client_got(client)).contains("28P01"), !right);
        }
    });
}

fn digest(bytes: &[u8]) -> String {
    use md5::{Digest, Md5};
    let hex: String = Md5::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("md5{hex}")
}

#[test]
fn encryption_is_declined_once_of_each_kind() {
    in_all_pieces(|pieces| {
        let (mut world, _) = world(Proof::Trust, pieces);
        let client = world.connect_client();
        let ssl = [8u32.to_be_bytes(), 80_877_103u32.to_be_bytes()].concat();
        let gss = [8u32.to_be_bytes(), 80_877_104u32.to_be_bytes()].concat();
        world.client_says(client, &gss);
        world.client_says(client, &ssl);
        assert_eq!(world.client_got(client), b"NN");
        world.client_says(client, &startup(3 << 16, &[("user", "app")]));
        assert!(world.clients.0[&client.0].logged_in);

        let client = world.connect_client();
        world.client_says(client, &[ssl.clone(), ssl.clone()].concat());
        assert!(error(&mut world, client).contains("08P01"));
    });
}

#[test]
fn newer_protocols_are_negotiated_down() {
    in_all_pieces(|pieces| {
        let (mut world, _) = world(Proof::Trust, pieces);
        let client = world.connect_client();
        world.client_says(client, &startup((3 << 16) + 9999, &[("user", "app"), ("_pq_.new", "1")]));
        let got = world.client_got(client);
        assert_eq!(types(&got), "vRSSSSSKZ");
        assert_eq!(got[5..22], *b"\0\x03\0\x02\0\0\0\x01_pq_.new\0");
    });
}

#[test]
fn protocol_3_2_is_spoken_without_negotiation_and_has_a_longer_key() {
    in_all_pieces(|pieces| {
        let (mut world, _) = world(Proof::Trust, pieces);
        for (minor, length) in [(0, 4u32), (2, 8)] {
            let client = world.connect_client();
            world.client_says(client, &startup((3 << 16) + minor, &[("user", "app")]));
            let got = world.client_got(client);
            assert_eq!(types(&got), "RSSSSSKZ");
            let key = got.len() - b"Z____I".len() - length as usize - 9;
            assert_eq!((got[key], &got[key + 1..key + 5]), (b'K', &(8 + length).to_be_bytes()[..]));
        }
    });
}

#[test]
fn a_cancel_request_names_its_target() {
    in_all_pieces(|pieces| {
        let (mut world, _) = world(Proof::Trust, pieces);
        let client = world.connect_client();
        let words = [16u32, 80_877_102, 1 << 16 | 77, 1234].map(u32::to_be_bytes).concat();
        world.client_says(client, &words);
        assert!(world.log.contains(&"cancel 77 1234".to_owned()));
        assert_eq!(world.clients.0[&client.0].closed, Some(CloseReason::Done));
        assert_eq!(world.client_got(client), b"");
    });
}

#[test]
fn a_cancel_request_for_another_node_is_only_logged() {
    let (mut world, _) = world(Proof::Trust, Pieces::Whole);
    let client = world.connect_client();
    let words = [16u32, 80_877_102, 3 << 24 | 1 << 16 | 77, 1234].map(u32::to_be_bytes).concat();
    world.client_says(client, &words);
    let closed = &world.clients.0[&client.0].closed;
    assert!(matches!(closed, Some(CloseReason::Error(Blame::Client, text)) if text.contains("node 3 came to node 0")));
    assert!(!world.log.iter().any(|line| line.starts_with("cancel")));
}

#[test]
fn whoever_cannot_be_served_is_told_why() {
    let go = |bytes: &[u8]| {
        in_all_pieces(|pieces| {
            let (mut world, _) = world(Proof::Trust, pieces);
            let client = world.connect_client();
            world.client_says(client, bytes);
            assert!(matches!(world.clients.0[&client.0].closed, Some(CloseReason::Error(Blame::Client, _))));
        });
        let (mut world, _) = world(Proof::Trust, Pieces::Whole);
        let client = world.connect_client();
        world.client_says(client, bytes);
        error(&mut world, client)
    };
    let v3 = 3 << 16;
    assert!(go(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(go(&[0x16, 3, 1, 0, 200, 1]).contains("sslnegotiation"));
    assert!(go(&[0, 0, 0, 3]).contains("length 3"));
    assert!(go(&startup(2 << 16, &[])).contains("unsupported frontend protocol 2.0"));
    assert!(go(&startup(v3, &[])).contains("28000"));
    assert!(go(&startup(v3, &[("user", "app"), ("replication", "true")])).contains("0A000"));
    assert!(go(&startup(v3, &[("user", "app"), ("options", "-d 5")])).contains("22023"));
    assert!(go(&startup(v3, &[("user", "app"), ("database", "nowhere")])).contains("3D000"));
    let forbidden = go(&startup(v3, &[("user", "remote")]));
    assert!(forbidden.contains("28000") && forbidden.contains("only from loopback: true"));
}

#[test]
fn a_surplus_client_is_told_when_it_can_understand() {
    let (mut world, _) = world(Proof::Trust, Pieces::Whole);
    let client = world.connect_client();
    let mut out = protocol::Outbox::new();
    let session = &mut world.clients.0.get_mut(&client.0).unwrap().session;
    let why = Refusal::TooManyClients { limit: 5 };
    protocol::Protocol::refuse(&world.postgres, client, session, why, &mut out);
    assert!(out.effects.is_empty());
    let ssl = [8u32.to_be_bytes(), 80_877_103u32.to_be_bytes()].concat();
    world.client_says(client, &ssl);
    assert_eq!(world.client_got(client), b"N");
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    let error = error(&mut world, client);
    assert!(error.contains("53300") && error.contains("hard_limit = 5"));
}

// ---- servers ----

fn starting(password: Option<&str>, pieces: Pieces) -> (World, ServerTag) {
    let password = password.map(Arc::from);
    let mut world = World::new(Doors::new(PoolMode::Transaction, Proof::Trust, password));
    let server = world.connect_server();
    let expected = [("user", "app"), ("database", "db"), ("application_name", "ph")];
    assert_eq!(world.server_got(server), startup(3 << 16, &expected));
    world.pieces = pieces;
    (world, server)
}

/// An authentication request.
pub fn request(kind: u8, body: &[u8]) -> Vec<u8> {
    message(b'R', &[&[0, 0, 0, kind], body].concat())
}

/// How a server's start failed: for good or not, and why.
pub fn failed(world: &World, server: ServerTag) -> (bool, String) {
    match &world.servers.0[&server.0].closed {
        Some(CloseReason::StartFailed { permanent, message }) => (*permanent, message.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn poolhouse_proves_its_password_by_scram() {
    in_all_pieces(|pieces| {
        let (mut world, server) = starting(Some("pencil"), pieces);
        world.server_says(server, &request(10, b"SCRAM-SHA-1\0SCRAM-SHA-256\0\0"));
        let first = world.server_got(server);
        let verifier = Arc::new(scram::Verifier::from_password("pencil", b"salt", 2));
        let mut exchange = scram::Server::new(verifier, "server".into());
        assert!(first[5..].starts_with(b"SCRAM-SHA-256\0"));
        let challenge = exchange.first(&first[23..]).unwrap();
        world.server_says(server, &request(11, &challenge));
        let last = world.server_got(server);
        let outcome = exchange.last(&last[5..]).unwrap();
        world.server_says(server, &request(12, &outcome));
        world.server_says(server, &server_welcome());
        assert_eq!(world.idle, [server]);
        assert_eq!(world.log, [format!("authenticated {}", server.0), format!("ready {}", server.0)]);
    });
}

#[test]
fn a_server_that_does_not_know_the_password_is_not_trusted() {
    in_all_pieces(|pieces| {
        let (mut world, server) = starting(Some("pencil"), pieces);
        world.server_says(server, &request(10, b"SCRAM-SHA-256\0\0"));
        world.server_says(server, &server_welcome());
        assert!(failed(&world, server).0);

        let (mut world, server) = starting(Some("pencil"), pieces);
        world.server_says(server, &request(10, b"SCRAM-SHA-256\0\0"));
        world.server_says(server, &request(3, b""));
        assert!(failed(&world, server).0);
    });
}

#[test]
fn poolhouse_answers_md5_and_clear_text() {
    in_all_pieces(|pieces| {
        let (mut world, server) = starting(Some("secret"), pieces);
        world.server_says(server, &request(5, b"salt"));
        let digits = md5_hash("secret", "app")[3..].to_owned();
        let answer = digest(&[digits.as_bytes(), b"salt"].concat());
        assert_eq!(world.server_got(server), message(b'p', format!("{answer}\0").as_bytes()));
        world.server_says(server, &server_welcome());
        assert_eq!(world.idle, [server]);

        let (mut world, server) = starting(Some("secret"), pieces);
        world.server_says(server, &request(3, b""));
        assert_eq!(world.server_got(server), message(b'p', b"secret\0"));
        world.server_says(server, &server_welcome());
        assert_eq!(world.idle, [server]);
    });
}

#[test]
fn a_failed_start_says_whether_it_may_go_better() {
    for (says, permanent) in [
        (messages("E:SFATAL~C28P01~Mno~~"), true),
        (messages("E:SFATAL~C3D000~Mno~~"), true),
        (messages("E:SFATAL~C53300~Mno~~"), false),
        (messages("E:SFATAL~C57P03~Mno~~"), false),
        (request(5, b"salt"), true),
        (request(7, b""), true),
        (messages("Z:I"), false),
        (messages("D:row"), false),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), false),
    ] {
        in_all_pieces(|pieces| {
            let (mut world, server) = starting(None, pieces);
            world.server_says(server, &says);
            assert_eq!(failed(&world, server).0, permanent, "{}", text(&says));
        });
    }
}

#[test]
fn a_server_that_closes_during_its_start_up_may_do_better_next_time() {
    let (mut world, server) = starting(None, Pieces::Whole);
    world.server_says(server, &request(0, b""));
    world.server_dies(server);
    assert!(world.log.iter().any(|line| line.contains("permanent: false")), "{:?}", world.log);
}
