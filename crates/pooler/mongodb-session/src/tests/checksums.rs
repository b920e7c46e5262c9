//! Messages with checksums that have numbers which are told as others, in both directions.

use super::*;
use crate::wire::{CHECKSUM, HEADER};

/// The number that two hosts have given to a cursor.
const SAME: i64 = 5;

/// The message, with its checksum.
fn sealed(message: &[u8]) -> Vec<u8> {
    let mut sealed = message.to_vec();
    sealed[HEADER] |= CHECKSUM as u8;
    let length = i32::try_from(message.len() + 4).unwrap();
    sealed[..4].copy_from_slice(&length.to_le_bytes());
    let checksum = crc32c::crc32c(&sealed);
    sealed.extend(checksum.to_le_bytes());
    sealed
}

/// The same without it, if it is right.
fn opened(sealed: &[u8]) -> Option<Vec<u8>> {
    let (message, checksum) = sealed.split_at(sealed.len() - 4);
    let mut opened = message.to_vec();
    opened[HEADER] &= !(CHECKSUM as u8);
    let length = i32::try_from(message.len()).unwrap();
    opened[..4].copy_from_slice(&length.to_le_bytes());
    (crc32c::crc32c(message).to_le_bytes() == checksum).then_some(opened)
}

/// An answer with a cursor of this number behind so many bytes.
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

fn finds(body: &mut Writer<'_>) {
    body.text("find", "things").text("$db", "app");
    body.document("$readPreference", |preference| _ = preference.text("mode", "secondary"));
}

/// A server says this, which comes in pieces. Returns what the client is told.
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

/// The client has a cursor of one number at each of two hosts, and has been told another for that at the second, which
/// is returned.
fn two_of_one_number() -> (Stage, ServerTag, i64) {
    let (mut stage, servers) = Stage::with_hosts(2);
    stage.open(servers[0], SAME);
    stage.send(servers[1], finds);
    let said = batch(stage.last_id, SAME, 10);
    stage.say(servers[1], &said);
    let told = stage.told(&said);
    let header = Header::read(&told).unwrap().unwrap();
    let cursor = wire::answered(&told, &header).unwrap().get("cursor").unwrap().unwrap().document().unwrap();
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
fn an_answer_in_which_the_number_of_a_cursor_changes_has_the_checksum_of_what_is_told() {
    for (bytes, piece) in [(10, 1_000), (40_000, 50_000), (40_000, 4_096), (40_000, 3)] {
        let (mut stage, servers) = Stage::with_hosts(2);
        stage.open(servers[0], SAME);
        stage.send(servers[1], finds);
        let request = stage.last_id;
        let said = sealed(&batch(request, SAME, bytes));
        let told = told_of(&mut stage, servers[1], &said, piece);
        let told = opened(&told).unwrap_or_else(|| panic!("a wrong checksum: {bytes} bytes in pieces of {piece}"));
        let number = i64::from_le_bytes(told[told.len() - 22..][..8].try_into().unwrap());
        assert!(number != SAME && told == batch(request, number, bytes), "{bytes} bytes in pieces of {piece}");
        assert!(stage.did(|effect| matches!(effect, Effect::Release { verdict: Left::Clean, .. })));
    }
}

#[test]
fn an_answer_that_passes_unchanged_keeps_its_checksum_whatever_that_is() {
    for bytes in [10, 40_000] {
        let mut stage = Stage::new();
        let server = stage.connect(PoolId(0), true);
        stage.send(server, |body| _ = body.text("find", "things").text("$db", "app"));
        let mut said = sealed(&batch(stage.last_id, SAME, bytes));
        *said.last_mut().unwrap() ^= 1;
        assert!(told_of(&mut stage, server, &said, 4_096) == said, "{bytes}");
    }
}

#[test]
fn a_change_of_state_in_a_long_answer_is_told_with_the_checksum_of_what_is_told() {
    let mut stage = Stage::new();
    let server = stage.connect(PoolId(0), true);
    stage.send(server, |body| _ = body.text("insert", "things").text("$db", "app"));
    let answered = |code: i32| {
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, Answers { id: 1, old: false }, |answer| {
            answer.text("much", &"x".repeat(20_000));
            answer.document("writeConcernError", |error| _ = error.int32("code", code).text("errmsg", "down"));
            answer.double("ok", 1.0);
        });
        bytes
    };
    assert_eq!(stage.last_id, 1);
    let told = told_of(&mut stage, server, &sealed(&answered(91)), 4_096);
    assert!(opened(&told) == Some(answered(6)));
}

#[test]
fn a_request_in_which_the_number_of_a_cursor_changes_has_the_checksum_of_what_is_sent() {
    for last in [0, 2, 4, 30] {
        let (mut stage, server, told) = two_of_one_number();
        let bytes = sealed(&get_more_of(9, told));
        stage.hear(&bytes);
        let (begin, end) = bytes.split_at(bytes.len() - last);
        stage.grant(server, begin);
        let mut sent = stage.sent(server, begin);
        stage.hear(end);
        sent.extend(stage.sent(server, end));
        assert!(opened(&sent) == Some(get_more_of(9, SAME)), "{last} bytes come later");
    }
}

#[test]
fn the_same_holds_for_one_that_is_held_until_its_body_is_there() {
    let before = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes.splice(wire::HEADER + 4..wire::HEADER + 4, [&[1][..], &10i32.to_le_bytes(), b"extra\0"].concat());
        bytes
    };
    let (mut stage, server, told) = two_of_one_number();
    let bytes = sealed(&before(&get_more_of(9, told)));
    for piece in [&bytes[..25], &bytes[25..bytes.len() - 2]] {
        let client = stage.clients.0.get_mut(&CLIENT.0).unwrap();
        stage.out.clear();
        let input = Input { bytes: piece, full: true, unread: false, now: stage.now };
        let taken = stage.mongodb.client_input(CLIENT, client, &mut stage.servers, input, &mut stage.out);
        assert_eq!(taken, piece.len());
    }
    stage.grant_held(server);
    let mut sent = stage.sent(server, &[]);
    let end = &bytes[bytes.len() - 2..];
    stage.hear(end);
    sent.extend(stage.sent(server, end));
    let expected = opened(&sealed(&before(&get_more_of(9, SAME))));
    assert!(expected.is_some() && opened(&sent) == expected);
}
