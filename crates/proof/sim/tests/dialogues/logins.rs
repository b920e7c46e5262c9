//! Logins: of clients to Poolhouse and of Poolhouse to servers.

use std::{sync::Arc, time::Duration};

use postgres_session::{PoolMode, Proof};
use sim::{
    network::{EndId, HostBehaviour},
    rig::{
        Pieces,
        postgres::{TestDirectory, message, messages, server_welcome, startup},
    },
};

use crate::support::{
    HELD, PostgresRig, add_client, add_client_with, add_server, all_pieces, assert_cleaned, assert_prefaced,
    in_all_pieces, text, trusting,
};

fn types(mut bytes: &[u8]) -> String {
    let mut types = String::new();
    while bytes.len() >= 5 {
        types.push(char::from(bytes[0]));
        bytes = &bytes[1 + u32::from_be_bytes(bytes[1..5].try_into().unwrap()) as usize..];
    }
    types
}

fn error(rig: &mut PostgresRig, client: EndId) -> String {
    assert!(rig.is_closed(client), "an error at login ends the connection");
    text(&rig.take_received(client))
}

fn connect_with(rig: &mut PostgresRig, parameters: &[(&str, &str)]) -> EndId {
    let client = rig.connect_client();
    rig.send(client, &startup(3 << 16, parameters));
    client
}

#[test]
fn a_trusted_client_learns_its_parameters() {
    in_all_pieces(PoolMode::Transaction, |rig, _, server| {
        let client = connect_with(rig, &[("user", "app"), ("application_name", "psql")]);
        let got = rig.take_received(client);
        assert_eq!(types(&got), "RSSSSSKZ");
        assert!(text(&got).contains("application_name~psql~") && text(&got).contains("server_version~17.2~"));
        assert_eq!(rig.take_received(server), b"", "a name that is taken as it is need not be learned");
    });
}

#[test]
fn start_up_settings_are_learned_from_a_server_once() {
    in_all_pieces(PoolMode::Transaction, |rig, _, server| {
        let settings = [("user", "app"), ("TimeZone", "cet"), ("options", "-c search_path=a,b")];
        let one = rig.connect_client();
        // A first query that does not wait for the welcome.
        rig.send(one, &[startup(3 << 16, &settings), messages("Q:hello")].concat());
        let sql = "SELECT pg_catalog.set_config('search_path','a,b',false);SET \"TimeZone\" = 'cet';\0";
        assert_eq!(text(&rig.take_received(server)), text(&message(b'Q', sql.as_bytes())));
        assert_eq!(rig.take_received(one), b"");
        rig.send(server, &messages("C:SET~ T:~~ D:a,b C:SELECT_1~ S:TimeZone~CET~ Z:I"));
        let got = rig.take_received(one);
        assert_eq!(types(&got), "RSSSSSKZ");
        assert!(text(&got).contains("TimeZone~CET~") && !text(&got).contains("search_path"));
        // The server has its settings already.
        assert_eq!(rig.take_received(server), messages("Q:hello"));
        rig.send(server, &messages("C:OK~ Z:I"));

        let two = connect_with(rig, &settings);
        assert_eq!(types(&rig.take_received(two)), "RSSSSSKZ");

        // A client without settings has them reset.
        let three = connect_with(rig, &[("user", "app")]);
        rig.send(three, &messages("Q:hello"));
        assert_prefaced(rig, server, "RESET \"search_path\";RESET \"TimeZone\";", "hello");
    });
}

#[test]
fn settings_that_the_server_refuses_end_the_login_in_its_words() {
    in_all_pieces(PoolMode::Transaction, |rig, _, server| {
        let client = connect_with(rig, &[("user", "app"), ("foo", "bar")]);
        rig.take_received(server);
        rig.send(server, &messages("E:SERROR~VERROR~C42704~Munrecognized_parameter_foo~~ Z:I"));
        let error = error(rig, client);
        assert!(error.contains("FATAL") && error.contains("42704") && error.contains("unrecognized parameter foo"));
        assert_cleaned(rig, server);
    });
}

#[test]
fn a_login_fails_when_no_server_can_tell_the_parameters() {
    let mut rig = trusting(PoolMode::Transaction);
    rig.set_database(HostBehaviour::Refuses);
    rig.configure(|pool| pool.unavailable_wait_time = Some(Duration::from_secs(5)));
    let client = add_client_with(&mut rig, &[]);
    assert_eq!((rig.take_received(client).len(), rig.server_counts().waiters), (0, 1));
    rig.wait(Duration::from_secs(6));
    assert!(error(&mut rig, client).contains("57P03"));
}

#[test]
fn a_login_asks_another_server_when_the_first_dies_and_fails_with_the_second() {
    let mut rig = trusting(PoolMode::Transaction);
    let server = add_server(&mut rig);
    let client = add_client_with(&mut rig, &[("TimeZone", "cet")]);
    rig.close(server);
    assert!(!rig.is_closed(client) && rig.take_received(client).is_empty());
    let second = add_server(&mut rig);
    rig.close(second);
    assert!(error(&mut rig, client).contains("08006"));
}

#[test]
fn a_password_is_proved_by_scram() {
    let passwords = ["pencil", "pen", "wrong"];
    for (pieces, password) in all_pieces().flat_map(|pieces| passwords.map(|password| (pieces, password))) {
        // While a password is changed, the old one and the new one hold.
        let verifier = scram::Verifier::from_password("pencil", b"salt", 2);
        let both = vec![Arc::new(verifier.of_other_password("pen")), Arc::new(verifier)];
        let proof = Proof::Scram(scram::Verifiers::new(both).expect("they have one salt"));
        let mut rig = TestDirectory { proof, ..TestDirectory::default() }.rig(HELD);
        add_server(&mut rig);
        rig.pieces = pieces;
        let client = connect_with(&mut rig, &[("user", "app")]);
        assert_eq!(text(&rig.take_received(client)[5..]), "~~~\u{a}SCRAM-SHA-256~~");
        let (mut exchange, first) = scram::Client::new("nonce".into());
        let length = (first.len() as u32).to_be_bytes();
        rig.send(client, &message(b'p', &[b"SCRAM-SHA-256\0", &length[..], &first].concat()));
        let challenge = rig.take_received(client);
        assert_eq!(challenge[..9], [b'R', 0, 0, 0, challenge.len() as u8 - 1, 0, 0, 0, 11]);
        let last = exchange.respond(&challenge[9..], password, &scram::KeyCache::default()).unwrap();
        rig.send(client, &message(b'p', &last));
        if password == "wrong" {
            // The answer to a wrong password is delayed.
            rig.wait(Duration::from_secs(5));
            assert!(error(&mut rig, client).contains("28P01"));
            assert_eq!(rig.auth_failures(), 1);
            continue;
        }
        let outcome = rig.take_received(client);
        assert_eq!(types(&outcome), "RRSSSSSKZ");
        let end = 1 + u32::from_be_bytes(outcome[1..5].try_into().unwrap()) as usize;
        exchange.verify(&outcome[9..end]).unwrap();
        assert_eq!(rig.auth_failures(), 0);
    }
}

#[test]
fn a_client_that_cannot_be_served_gets_the_reason() {
    let go = |bytes: &[u8]| {
        let mut received: Vec<String> = Vec::new();
        for pieces in all_pieces() {
            let mut rig = trusting(PoolMode::Transaction);
            add_server(&mut rig);
            rig.pieces = pieces;
            let client = rig.connect_client();
            rig.send(client, bytes);
            received.push(error(&mut rig, client));
        }
        assert!(received.windows(2).all(|two| two[0] == two[1]), "{received:?}");
        received.remove(0)
    };
    let v3 = 3 << 16;
    assert!(go(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(go(&[0x16, 3, 1, 0, 200, 1]).contains("sslnegotiation"));
    assert!(go(&[0, 0, 0, 3]).contains("length 3"));
    assert!(go(&startup(2 << 16, &[])).contains("unsupported frontend protocol 2.0"));
    assert!(go(&startup(v3, &[])).contains("28000"));
    let refused = go(&startup(v3, &[("user", "app"), ("options", "-e -P")]));
    assert!(refused.contains("22023") && refused.contains("options\": -P~"), "{refused}");
    assert!(go(&startup(v3, &[("user", "app"), ("database", "nowhere")])).contains("3D000"));
    let forbidden = go(&startup(v3, &[("user", "remote")]));
    assert!(forbidden.contains("28000") && forbidden.contains("only from loopback: true"));
}

#[test]
fn a_client_that_leaves_before_its_start_up_gets_no_answer() {
    for pieces in [Pieces::Whole, Pieces::Of(1), Pieces::SplitAt(4)] {
        for first in [&b""[..], &[0, 0, 0, 8, 4, 210, 22, 47]] {
            let mut rig = trusting(PoolMode::Transaction);
            rig.pieces = pieces;
            let client = rig.connect_client();
            rig.send(client, first);
            rig.take_received(client);
            rig.send(client, b"X\0\0\0\x04");
            assert_eq!((text(&rig.take_received(client)), rig.is_closed(client)), (String::new(), true), "{pieces:?}");
        }
    }
}

#[test]
fn switches_of_the_command_line_are_settings() {
    let mut rig = trusting(PoolMode::Transaction);
    let server = add_server(&mut rig);
    connect_with(&mut rig, &[("user", "app"), ("options", "-S 8192 -fs -e")]);
    let asked = text(&rig.take_received(server));
    for (name, value) in [("work_mem", "8192"), ("enable_seqscan", "false"), ("datestyle", "euro")] {
        assert!(asked.to_lowercase().contains(&format!("set \"{name}\" = '{value}'")), "{asked}");
    }
}

#[test]
fn a_surplus_client_is_refused_after_its_start_up() {
    let mut rig = trusting(PoolMode::Transaction);
    add_server(&mut rig);
    (0..100).for_each(|_| _ = add_client(&mut rig));
    let client = rig.connect_client();
    rig.send(client, &[8u32.to_be_bytes(), 80_877_103u32.to_be_bytes()].concat());
    assert_eq!(rig.take_received(client), b"N");
    rig.send(client, &startup(3 << 16, &[("user", "app")]));
    let error = error(&mut rig, client);
    assert!(error.contains("53300") && error.contains("hard_limit = 100"), "{error}");
}

// ---- servers ----

/// A client waits for a server to which Poolhouse logs in.
fn starting(password: Option<&str>, pieces: Pieces) -> (PostgresRig, EndId, EndId) {
    let mut rig = TestDirectory { password: password.map(Arc::from), ..TestDirectory::default() }.rig(HELD);
    let client = add_client(&mut rig);
    let server = rig.next_server();
    let expected = [("user", "app"), ("database", "db"), ("application_name", "ph")];
    assert_eq!(rig.take_received(server), startup(3 << 16, &expected));
    rig.pieces = pieces;
    (rig, client, server)
}

/// An authentication request.
fn request(kind: u8, body: &[u8]) -> Vec<u8> {
    message(b'R', &[&[0, 0, 0, kind], body].concat())
}

/// The server is given up, and after a permanent failure also the client that waits.
fn assert_failed(rig: &mut PostgresRig, (client, server): (EndId, EndId), permanent: bool, what: &str) {
    assert!(rig.is_closed(server), "{what}");
    assert_eq!(rig.is_closed(client), permanent, "{what}");
}

#[test]
fn poolhouse_proves_its_password_by_scram() {
    for pieces in all_pieces() {
        let (mut rig, client, server) = starting(Some("pencil"), pieces);
        rig.send(server, &request(10, b"SCRAM-SHA-1\0SCRAM-SHA-256\0\0"));
        let first = rig.take_received(server);
        let verifier = Arc::new(scram::Verifier::from_password("pencil", b"salt", 2));
        let mut exchange = scram::Server::new(verifier, "server".into());
        assert!(first[5..].starts_with(b"SCRAM-SHA-256\0"));
        let challenge = exchange.first(&first[23..]).unwrap();
        rig.send(server, &request(11, &challenge));
        let last = rig.take_received(server);
        let outcome = exchange.last(&last[5..]).unwrap();
        rig.send(server, &request(12, &outcome));
        rig.send(server, &server_welcome());
        assert_eq!(types(&rig.take_received(client)), "RSSSSSKZ");
    }
}

#[test]
fn the_keys_for_a_million_iterations_are_derived_part_by_part_while_others_are_served() {
    let mut rig = TestDirectory { password: Some("pencil".into()), ..TestDirectory::default() }.rig(HELD);
    let (other, client) = (add_server(&mut rig), add_client(&mut rig));
    let server = rig.next_server();
    rig.take_received(server);
    rig.send(server, &request(10, b"SCRAM-SHA-256\0\0"));
    let first = rig.take_received(server);
    let verifier = Arc::new(scram::Verifier::from_password("pencil", b"salt", 100_000));
    let mut exchange = scram::Server::new(verifier, "server".into());
    rig.send(server, &request(11, &exchange.first(&first[23..]).unwrap()));
    for _ in 0..12 {
        assert_eq!(rig.take_received(server), b"", "some parts are left");
        rig.send(client, &messages("Q:hello"));
        assert_eq!(rig.take_received(other), messages("Q:hello"));
        rig.send(other, &messages("C:OK~ Z:I"));
        assert_eq!(rig.take_received(client), messages("C:OK~ Z:I"));
        rig.wait(Duration::from_millis(20));
    }
    rig.wait(Duration::from_secs(1));
    let outcome = exchange.last(&rig.take_received(server)[5..]).unwrap();
    rig.send(server, &[request(12, &outcome), server_welcome()].concat());
    assert_eq!((rig.server_counts().total, rig.server_counts().connecting), (2, 0));

    // A server that sends another request meanwhile is given up, and so is one that closes.
    for leaves in [false, true] {
        let server = rig.next_server();
        rig.take_received(server);
        rig.send(server, &request(10, b"SCRAM-SHA-256\0\0"));
        let nonce = text(&rig.take_received(server)[23..]).split_once("r=").unwrap().1.to_owned();
        rig.send(server, &request(11, format!("r={nonce}x,s=AAAA,i=1000000").as_bytes()));
        if leaves {
            rig.close(server);
        } else {
            rig.send(server, &request(11, b"r=x"));
            assert!(rig.is_closed(server));
        }
        rig.wait(Duration::from_secs(10));
        assert_eq!(rig.take_received(server), b"");
    }
}

#[test]
fn a_server_that_does_not_know_the_password_is_not_trusted() {
    for (pieces, bytes) in all_pieces().flat_map(|pieces| [(pieces, server_welcome()), (pieces, request(3, b""))]) {
        let (mut rig, client, server) = starting(Some("pencil"), pieces);
        rig.send(server, &request(10, b"SCRAM-SHA-256\0\0"));
        rig.take_received(server);
        rig.send(server, &bytes);
        assert_failed(&mut rig, (client, server), true, &text(&bytes));
        assert_eq!(rig.take_received(server), b"", "the password stays here");
    }
}

#[test]
fn a_server_that_asks_for_the_password_without_end_is_told_it_once() {
    for kind in [3, 5] {
        let (mut rig, client, server) = starting(Some("pencil"), Pieces::Whole);
        rig.send(server, &request(kind, b"salt"));
        assert_eq!(types(&rig.take_received(server)), "p");
        rig.send(server, &request(kind, b"salt").repeat(100));
        assert_failed(&mut rig, (client, server), false, "asked for the password again");
        assert_eq!(rig.take_received(server), b"", "the password stays here");
    }
}

#[test]
fn a_server_whose_start_up_does_not_end_is_given_up() {
    let (mut rig, client, server) = starting(None, Pieces::Whole);
    rig.send(server, &request(0, b""));
    rig.send(server, &messages("N:SNOTICE~C00000~Mhello~~").repeat(900));
    assert!(!rig.is_closed(server));
    rig.send(server, &messages("N:SNOTICE~C00000~Mhello~~").repeat(200));
    assert_failed(&mut rig, (client, server), false, "1000 messages");
}

#[test]
fn a_second_start_up_during_a_login_is_refused() {
    let proof = Proof::Scram(Arc::new(scram::Verifier::from_password("pencil", b"salt", 2)).into());
    let mut rig = TestDirectory { proof, ..TestDirectory::default() }.rig(HELD);
    add_server(&mut rig);
    for user in ["app", "root"] {
        let client = connect_with(&mut rig, &[("user", "app")]);
        assert_eq!(types(&rig.take_received(client)), "R");
        rig.send(client, &startup(3 << 16, &[("user", user)]));
        let error = error(&mut rig, client);
        assert!(error.contains("08P01") && !error.contains("R~~~~~~~~"), "{error}");
    }
}

#[test]
fn a_failed_start_says_whether_it_may_go_better() {
    for (bytes, permanent) in [
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
        for pieces in all_pieces() {
            let (mut rig, client, server) = starting(None, pieces);
            rig.send(server, &bytes);
            assert_failed(&mut rig, (client, server), permanent, &text(&bytes));
        }
    }
}

#[test]
fn a_client_hears_in_the_servers_words_that_its_database_does_not_exist() {
    let (mut rig, client, server) = starting(None, Pieces::Whole);
    rig.send(server, &messages("E:SFATAL~C3D000~Mdatabase_nix_does_not_exist~~"));
    let error = error(&mut rig, client);
    assert!(error.contains("SFATAL~") && error.contains("C3D000~Mdatabase nix does not exist~"), "{error}");
    assert!(!error.contains("unavailable"), "{error}");
    // The next client gets the same error without a new connection.
    let another = connect_with(&mut rig, &[("user", "app")]);
    assert!(self::error(&mut rig, another).contains("C3D000~"));
    assert!(rig.take_new_server().is_none());
    // Later the database may exist.
    rig.wait(Duration::from_secs(6));
    let third = connect_with(&mut rig, &[("user", "app")]);
    add_server(&mut rig);
    assert_eq!(types(&rig.take_received(third)), "RSSSSSKZ");
}

#[test]
fn a_server_that_closes_during_its_start_up_may_do_better_next_time() {
    let (mut rig, client, server) = starting(None, Pieces::Whole);
    rig.send(server, &request(0, b""));
    rig.close(server);
    rig.wait(Duration::from_secs(1));
    add_server(&mut rig);
    assert_eq!(types(&rig.take_received(client)), "RSSSSSKZ");
}
