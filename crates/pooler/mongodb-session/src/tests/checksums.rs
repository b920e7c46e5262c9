//! Messages with checksums, which are left out in both directions.

use seam::Verdict;

use super::*;
use crate::wire::{CHECKSUM_PRESENT, HEADER};

/// The id that two hosts have given to a cursor.
const SAME: i64 = 5;

/// The message with a checksum. Its value does not matter.
fn with_checksum(message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    message[HEADER] |= CHECKSUM_PRESENT as u8;
    message.extend([0xee; 4]);
    let length = i32::try_from(message.len()).unwrap();
    message[..4].copy_from_slice(&length.to_le_bytes());
    message
}

/// A reply that opens a cursor with this id, behind `bytes` of data.
fn batch(request: i32, cursor: i64, bytes: usize) -> Vec<u8> {
    let mut message = Vec::new();
    wire::answer(&mut message, Answers { id: request, old: false }, |answer| {
        answer.document("cursor", |opened| {
            opened.array("firstBatch", |batch| _ = batch.text("0", &"x".repeat(bytes))).int64("id", cursor);
        });
        answer.double("ok", 1.0);
    });
    message
}

/// A server sends `said` in pieces. Returns what the client is sent.
fn told_of(stage: &mut Stage, server: ServerTag, said: &[u8], piece: usize) -> Vec<u8> {
    let (mut at, mut end, mut told) = (0, 0, Vec::new());
    while end < said.len() {
        end = (end + piece).min(said.len());
        let session = stage.servers.0.get_mut(&server.0).unwrap();
        stage.out.clear();
        let input = Input { bytes: &said[at..end], full: false, unread: false, now: stage.now };
        let taken = stage.mongodb.server_input(server, session, &mut stage.clients, input, &mut stage.out);
        told.extend(stage.told(&said[at..]));
        at += taken;
    }
    assert_eq!(at, said.len());
    told
}

/// Two hosts have given one id to two cursors of the client. Returns the server of the second, and the id that the
/// client knows it by.
fn two_of_one_number() -> (Stage, ServerTag, i64) {
    let (mut stage, servers) = Stage::with_hosts(2);
    stage.open(servers[0], SAME);
    stage.send(servers[1], finds);
    let said = batch(stage.last_id, SAME, 10);
    stage.say(servers[1], &said);
    let told = stage.told(&said);
    let header = Header::read(&told).unwrap().unwrap();
    let cursor = wire::reply_document(&told, &header).unwrap().get("cursor").unwrap().unwrap().document().unwrap();
    let id = cursor.get("id").unwrap().unwrap().integer().unwrap();
    assert_ne!(id, SAME);
    (stage, servers[1], id)
}

fn get_more_of(request: i32, cursor: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::request(&mut bytes, request, get_more(cursor));
    bytes
}

#[test]
fn an_answer_loses_its_checksum() {
    for (bytes, piece) in [(10, 1_000), (40_000, 50_000), (40_000, 4_096), (40_000, 3)] {
        let (mut stage, servers) = Stage::with_hosts(2);
        stage.open(servers[0], SAME);
        stage.send(servers[1], finds);
        let request = stage.last_id;
        let told = told_of(&mut stage, servers[1], &with_checksum(&batch(request, SAME, bytes)), piece);
        let id = i64::from_le_bytes(told[told.len() - 22..][..8].try_into().unwrap());
        assert!(id != SAME && told == batch(request, id, bytes), "{bytes} bytes in pieces of {piece}");
        assert!(stage.did(|effect| matches!(effect, Effect::Release { verdict: Left::Clean, .. })));
    }
}

#[test]
fn an_answer_too_short_for_the_checksum_that_it_promises_ends_its_connection() {
    let (mut stage, server) = Stage::with_server();
    stage.send(server, |body| _ = body.int32("ping", 1).text("$db", "app"));
    let mut said = with_checksum(&[0; HEADER + 2]);
    said[8..16].copy_from_slice(&[1i32.to_le_bytes(), 2013i32.to_le_bytes()].concat());
    stage.say(server, &said);
    assert!(stage.did(|effect| matches!(effect, Effect::Close { peer: Peer::Server(_), .. })));
}

#[test]
fn a_request_loses_its_checksum() {
    for last in [0, 2, 4, 30] {
        let (mut stage, server, told) = two_of_one_number();
        let bytes = with_checksum(&get_more_of(9, told));
        stage.hear(&bytes);
        let (begin, end) = bytes.split_at(bytes.len() - last);
        stage.grant(server, begin);
        let mut sent = stage.sent(server, begin);
        stage.hear(end);
        sent.extend(stage.sent(server, end));
        assert!(sent == get_more_of(9, SAME), "{last} bytes come later");
    }
}

#[test]
fn a_reply_before_the_checksum_has_come_leaves_the_server_clean() {
    for (missing, expected) in [(1, Verdict::Clean), (4, Verdict::Clean), (5, Verdict::Discard)] {
        let (mut stage, server, told) = two_of_one_number();
        let bytes = with_checksum(&get_more_of(9, told));
        stage.hear(&bytes);
        stage.grant(server, &bytes[..bytes.len() - missing]);
        stage.answer(server, 9, None);
        let released = |effect: &Effect| matches!(effect, Effect::Release { verdict, .. } if *verdict == expected);
        assert!(stage.did(released), "{missing} bytes are missing: {:?}", stage.out.effects);
    }
}

#[test]
fn a_request_that_was_held_until_its_body_was_there_loses_its_checksum() {
    let with_documents = |mut bytes: Vec<u8>| {
        bytes.splice(HEADER + 4..HEADER + 4, [&[1][..], &10i32.to_le_bytes(), b"extra\0"].concat());
        let length = i32::try_from(bytes.len()).unwrap();
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    let (mut stage, server, told) = two_of_one_number();
    let bytes = with_checksum(&with_documents(get_more_of(9, told)));
    for piece in [&bytes[..25], &bytes[25..bytes.len() - 2]] {
        stage.hear_full(piece);
    }
    stage.grant_held(server);
    let mut sent = stage.sent(server, &[]);
    let end = &bytes[bytes.len() - 2..];
    stage.hear(end);
    sent.extend(stage.sent(server, end));
    assert!(sent == with_documents(get_more_of(9, SAME)));
}
