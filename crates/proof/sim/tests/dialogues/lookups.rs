//! Users that are looked up in the database.

use postgres_session::{Ask, Proof, md5_hash};
use sim::{
    network::EndId,
    rig::{
        POOL, Pieces,
        postgres::{TestDirectory, message, messages, startup},
    },
};

use crate::support::{HELD, PostgresRig, add_server, all_pieces, text};

/// A rig in which all users are looked up.
fn asking(pieces: Pieces) -> (PostgresRig, EndId) {
    let proof = Proof::Ask(Ask { pool: POOL, query: "SELECT_$1".into() });
    let mut rig = TestDirectory { proof, ..TestDirectory::default() }.rig(HELD);
    let server = add_server(&mut rig);
    rig.pieces = pieces;
    (rig, server)
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

fn arrives(rig: &mut PostgresRig, user: &str) -> EndId {
    let client = rig.connect_client();
    rig.send(client, &startup(3 << 16, &[("user", user)]));
    client
}

#[test]
fn a_looked_up_user_is_asked_for_the_proof_that_was_found() {
    for pieces in all_pieces() {
        let (mut rig, server) = asking(pieces);
        let client = arrives(&mut rig, "app");
        let question = rig.take_received(server);
        assert_eq!(question.iter().filter(|b| **b == b'P').count(), 1);
        assert!(question.ends_with(&messages("S")));
        assert_eq!(rig.take_received(client), b"");
        rig.send(server, &answer(&[row(&[Some("app"), Some(&md5_hash("secret", "app"))])]));
        let challenge = rig.take_received(client);
        assert_eq!(challenge[..9], *b"R\0\0\0\x0c\0\0\0\x05");
        assert_eq!(rig.server_counts().idle, 1);
        // The next lookup needs no second server.
        let other = arrives(&mut rig, "app");
        assert!(!rig.take_received(server).is_empty() && rig.take_received(other).is_empty());
    }
}

#[test]
fn an_unknown_user_meets_the_same_dialogue_as_a_known_one() {
    for pieces in all_pieces() {
        let (mut rig, server) = asking(pieces);
        for rows in [vec![], vec![row(&[Some("app"), None])]] {
            let client = arrives(&mut rig, "app");
            rig.take_received(server);
            rig.send(server, &answer(&rows));
            assert_eq!(rig.take_received(client)[..9], *b"R\0\0\0\x17\0\0\0\x0a");
        }
    }
}

#[test]
fn a_lookup_that_fails_ends_the_login_without_telling_why() {
    for pieces in all_pieces() {
        let (mut rig, server) = asking(pieces);
        for said in [
            messages("E:SERROR~C42P01~Mno_table_of_ours~~ Z:I"),
            answer(&[row(&[Some("root"), Some("x")])]),
            answer(&[row(&[Some("app")])]),
        ] {
            let client = arrives(&mut rig, "app");
            rig.take_received(server);
            rig.send(server, &said);
            let received = text(&rig.take_received(client));
            assert!(
                received.contains("57P03") && !received.contains("ours") && !received.contains("root"),
                "{received}"
            );
            assert!(rig.is_closed(client));
        }
        assert_eq!((rig.server_counts().idle, rig.is_closed(server)), (1, false), "the server stays");
    }
}

#[test]
fn a_client_that_hangs_up_leaves_a_server_that_finishes_by_itself() {
    for pieces in all_pieces() {
        let (mut rig, server) = asking(pieces);
        let client = arrives(&mut rig, "app");
        rig.take_received(server);
        rig.close(client);
        assert_eq!(rig.take_received(server), b"", "nothing more is asked of it");
        assert_eq!(rig.server_counts().idle, 0);
        rig.send(server, &answer(&[row(&[Some("app"), Some("secret")])]));
        assert_eq!(rig.server_counts().idle, 1);
    }
}
