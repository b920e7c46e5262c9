//! Users who are looked up in the database, keys that logins leave behind, and what new servers are told to run.

use std::sync::Arc;

use postgres::{Ask, PoolMode, Proof, md5_hash};
use protocol::{Blame, ClientTag, CloseReason, ServerTag, Verdict};

use crate::world::{Doors, POOL, Pieces, World, message, messages, server_welcome, startup};

/// A world in which everybody is looked up.
fn asking(pieces: Pieces) -> (World, ServerTag) {
    let proof = Proof::Ask(Ask { pool: POOL, query: "SELECT_$1".into() });
    let mut world = World::new(Doors::new(PoolMode::Transaction, proof, None));
    let server = world.connect_server();
    world.server_got(server);
    world.server_says(server, &server_welcome());
    world.pieces = pieces;
    (world, server)
}

fn in_all_pieces(dialogue: impl Fn(Pieces)) {
    let splits = (1..60).map(Pieces::SplitAt);
    for pieces in [Pieces::Whole, Pieces::Of(1), Pieces::Of(3)].into_iter().chain(splits) {
        dialogue(pieces);
    }
}

fn row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        body.extend(value.map_or(u32::MAX, |v| v.len() as u32).to_be_bytes());
        body.extend(value.unwrap_or_default().as_bytes());
    }
    message(b'D', &body)
}

fn answer(rows: &[Vec<u8>]) -> Vec<u8> {
    [messages("1 2"), rows.concat(), messages("C:SELECT~ Z:I")].concat()
}

fn arrives(world: &mut World, user: &str) -> ClientTag {
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", user)]));
    client
}

#[test]
fn a_looked_up_user_is_asked_for_the_proof_that_was_found() {
    in_all_pieces(|pieces| {
        let (mut world, server) = asking(pieces);
        let client = arrives(&mut world, "app");
        let question = world.server_got(server);
        assert_eq!(question.iter().filter(|b| **b == b'P').count(), 1);
        assert!(question.ends_with(&messages("S")));
        assert_eq!(world.client_got(client), b"");
        world.server_says(server, &answer(&[row(&[Some("app"), Some(&md5_hash("secret", "app"))])]));
        let challenge = world.client_got(client);
        assert_eq!(challenge[..9], *b"R\0\0\0\x0c\0\0\0\x05");
        assert_eq!(world.releases, [(server, Verdict::Clean)]);
        // The next one needs no second server.
        let other = arrives(&mut world, "app");
        assert!(!world.server_got(server).is_empty() && world.client_got(other).is_empty());
    });
}

#[test]
fn nobody_meets_the_same_dialogue_as_somebody() {
    in_all_pieces(|pieces| {
        let (mut world, server) = asking(pieces);
        for rows in [vec![], vec![row(&[Some("app"), None])]] {
            let client = arrives(&mut world, "app");
            world.server_got(server);
            world.server_says(server, &answer(&rows));
            assert_eq!(world.client_got(client)[..9], *b"R\0\0\0\x17\0\0\0\x0a");
        }
    });
}

#[test]
fn a_lookup_that_fails_ends_the_login_without_telling_why() {
    in_all_pieces(|pieces| {
        let (mut world, server) = asking(pieces);
        for said in [
            messages("E:SERROR~C42P01~Mno_table_of_ours~~ Z:I"),
            answer(&[row(&[Some("root"), Some("x")])]),
            answer(&[row(&[Some("app")])]),
        ] {
            let client = arrives(&mut world, "app");
            world.server_got(server);
            world.server_says(server, &said);
            let told = String::from_utf8_lossy(&world.client_got(client)).into_owned();
            assert!(told.contains("57P03") && !told.contains("ours") && !told.contains("root"), "{told}");
            let closed = &world.clients.0[&client.0].closed;
            assert!(matches!(closed, Some(CloseReason::Error(Blame::Server, why)) if why.starts_with("auth_query")));
        }
        assert!(world.releases.iter().all(|(_, verdict)| *verdict == Verdict::Clean), "the server stays");
    });
}

#[test]
fn a_client_that_hangs_up_leaves_a_server_that_finishes_by_itself() {
    in_all_pieces(|pieces| {
        let (mut world, server) = asking(pieces);
        let client = arrives(&mut world, "app");
        world.server_got(server);
        world.client_leaves(client);
        assert_eq!(world.releases, [(server, Verdict::Reset)]);
        assert_eq!(world.server_got(server), b"", "nothing more is asked of it");
        assert!(world.idle.is_empty());
        world.server_says(server, &answer(&[row(&[Some("app"), Some("secret")])]));
        assert_eq!(world.idle, [server]);
    });
}

#[test]
fn the_keys_of_a_login_open_a_server_that_asks_for_scram() {
    let verifier = Arc::new(scram::Verifier::from_password("pencil", b"salt", 2));
    let proof = Proof::Scram(Arc::clone(&verifier));
    let mut world = World::new(Doors::new(PoolMode::Transaction, proof, None));
    let client = arrives(&mut world, "app");
    world.client_got(client);
    let (mut exchange, first) = scram::Client::new("nonce".into());
    let length = (first.len() as u32).to_be_bytes();
    world.client_says(client, &message(b'p', &[b"SCRAM-SHA-256\0", &length[..], &first].concat()));
    let challenge = world.client_got(client);
    let last = exchange.respond(&challenge[9..], "pencil", &scram::KeyCache::default()).unwrap();
    world.client_says(client, &message(b'p', &last));

    let server = world.connect_server();
    world.server_got(server);
    world.server_says(server, &message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"));
    let first = world.server_got(server);
    let mut upstream = scram::Server::new(verifier, "server".into());
    let challenge = upstream.first(&first[5 + 14 + 4..]).unwrap();
    world.server_says(server, &message(b'R', &[&b"\0\0\0\x0b"[..], &challenge].concat()));
    let proof = world.server_got(server);
    let outcome = upstream.last(&proof[5..]).expect("the keys are right");
    world.server_says(server, &message(b'R', &[&b"\0\0\0\x0c"[..], &outcome].concat()));
    world.server_says(server, &server_welcome());
    assert!(world.clients.0[&client.0].logged_in);
}
