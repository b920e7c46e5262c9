//! Broadcasts, requests to a host that is gone, unacknowledged requests, and what ends with a client's connection.

use super::*;
use crate::wire::{HEADER, MORE_TO_COME};

fn silent(request: i32, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::request(&mut bytes, request, write);
    bytes[HEADER] |= MORE_TO_COME as u8;
    bytes
}

/// The commands in these messages: their names, the text of their first element if it is one, and their ids.
fn commands(mut bytes: &[u8]) -> Vec<(String, String, i32)> {
    let mut found = Vec::new();
    while let Some(header) = Header::read(bytes).map(Result::unwrap) {
        let body = wire::reply_document(&bytes[..header.length], &header).unwrap();
        let first = body.elements().next().unwrap().unwrap();
        let subject = first.value().unwrap().text().unwrap_or_default();
        found.push((first.name.to_owned(), subject.to_owned(), header.id));
        bytes = &bytes[header.length..];
    }
    found
}

fn kills(body: &mut Writer<'_>) {
    body.array("killSessions", |named| _ = named.document("0", |lsid| _ = lsid.uuid("id", SESSION)));
    body.text("$db", "admin");
}

/// Whether this server kills sessions when it becomes free.
fn is_killed_next(stage: &mut Stage, server: ServerTag) -> bool {
    stage.reset(server);
    commands(&stage.sent(server, &[])).iter().any(|(name, ..)| name == "killSessions")
}

#[test]
fn sessions_are_killed_at_all_hosts_though_their_client_leaves() {
    for had in 0..3 {
        let (mut stage, servers) = Stage::with_hosts(3);
        let bytes = silent(1, kills);
        stage.hear(&bytes);
        for server in &servers[..had] {
            stage.grant_held(*server);
            let sent = commands(&stage.sent(*server, &[]));
            stage.answer(*server, sent[1].2, None);
        }
        stage.leave();
        let killed: Vec<bool> = servers.iter().map(|server| is_killed_next(&mut stage, *server)).collect();
        assert_eq!(killed, [had < 1, had < 2, true], "after {had}");
    }
}

#[test]
fn sessions_are_killed_at_the_other_hosts_though_one_takes_too_long() {
    let (mut stage, servers) = Stage::with_hosts(3);
    stage.ask(kills);
    stage.grant_held(servers[0]);
    stage.refuse(Refusal::QueryTimeout);
    assert!(stage.did(|effect| matches!(effect, Effect::Release { verdict: Left::Discard, .. })));
    assert!(servers[1..].iter().all(|server| is_killed_next(&mut stage, *server)));
}

#[test]
fn a_host_that_is_configured_no_longer_keeps_no_other_from_hearing_of_what_goes_to_all() {
    let (mut stage, servers) = Stage::with_hosts(3);
    stage.ask(|body| _ = body.array("killSessions", |_| ()).text("$db", "admin"));
    stage.grant_held(servers[0]);
    stage.doors.0.lock().unwrap().retain(|host| *host != 1);
    stage.answer(servers[0], stage.last_id, None);
    assert_eq!(stage.wanted(), Some(PoolId(2)));
    assert!(stage.told(&[]).is_empty());
    stage.grant_held(servers[2]);
    stage.answer(servers[2], stage.last_id, None);
    assert_eq!(stage.error().1, "Poolhouse: no such host");
}

#[test]
fn the_first_error_of_several_hosts_is_told_however_the_last_one_fails() {
    for (lost, code) in [(true, None), (true, Some(13)), (false, None), (false, Some(13))] {
        let (mut stage, servers) = Stage::with_hosts(2);
        stage.ask(kills);
        stage.grant_held(servers[0]);
        stage.answer(servers[0], stage.last_id, code);
        if lost {
            stage.grant_held(servers[1]);
            stage.lose(servers[1]);
        } else {
            let client = stage.clients.0.get_mut(&CLIENT.0).unwrap();
            stage.out.clear();
            stage.mongodb.lease_failed(CLIENT, client, LeaseFailure::QueueFull, 0, &mut stage.out);
        }
        let (_, text, _) = stage.error();
        assert_eq!(text == "no", code.is_some(), "{text}");
        stage.ask(|body| _ = body.text("insert", "things").text("$db", "app"));
        assert!(stage.wanted().is_some(), "it is done");
    }
}

#[test]
fn who_wants_no_answer_gets_none_from_poolhouse_either() {
    for name in ["hello", "isMaster", "isdbgrid", "saslContinue"] {
        let mut stage = Stage::new();
        let bytes = silent(1, |body| _ = body.int32(name, 1).text("$db", "admin"));
        assert_eq!(stage.hear(&bytes), bytes.len());
        assert!(stage.told(&bytes).is_empty(), "{name}");
        stage.ask(|body| _ = body.int32("isdbgrid", 1).text("$db", "admin"));
        assert!(!stage.told(&[]).is_empty());
    }
}

#[test]
fn cursors_that_are_of_no_collection_are_closed_with_the_connection_that_opened_them() {
    for (name, of) in
        [("aggregate", "$cmd.aggregate"), ("listCollections", "$cmd.listCollections"), ("bulkWrite", "$cmd.bulkWrite")]
    {
        let (mut stage, server) = Stage::behind_a_balancer();
        stage.send(server, |body| _ = body.int32(name, 1).text("$db", "app"));
        let mut said = Vec::new();
        wire::answer(&mut said, Answers { id: stage.last_id, old: false }, |answer| {
            answer.document("cursor", |cursor| _ = cursor.array("firstBatch", |_| ()).int64("id", 5));
            answer.double("ok", 1.0);
        });
        stage.say(server, &said);
        stage.leave();
        assert!(stage.did(|effect| *effect == Effect::ResetOne { pool: PoolId(0) }), "{name}");
        stage.reset(server);
        let sent = commands(&stage.sent(server, &[]));
        assert_eq!(sent.iter().map(|(name, of, _)| (&**name, &**of)).collect::<Vec<_>>(), [("killCursors", of)]);
    }
}

#[test]
fn many_cursors_of_a_balanced_connection_are_not_used_by_looking_which_are_closed() {
    let (mut stage, server) = Stage::behind_a_balancer();
    (1..=1_000).for_each(|id| stage.open(server, id));
    stage.pass(20 * LONG);
    (1_001..1_010).for_each(|id| stage.open(server, id));
    stage.pass(15 * LONG);
    let user = Arc::from("");
    assert!(!stage.mongodb.cursors.contains(&user, 1) && stage.mongodb.cursors.contains(&user, 1_005));
}

#[test]
fn cursors_that_a_balanced_connection_has_closed_are_not_kept_in_mind() {
    let (mut stage, server) = Stage::behind_a_balancer();
    (1..=4).for_each(|id| stage.open(server, id));
    let own = |stage: &Stage| stage.clients.0[&CLIENT.0].resources.as_ref().unwrap().cursors();
    assert_eq!(own(&stage), [1, 2, 3, 4]);
    stage.exchange(server, Some(43), get_more(1));
    assert_eq!(own(&stage), [2, 3, 4], "its host does not know it");
    stage.exchange(server, None, |body| {
        body.text("killCursors", "things")
            .array("cursors", |ids| _ = ids.int64("0", 2).int64("1", 4))
            .text("$db", "app");
    });
    assert_eq!(own(&stage), [3]);
}

#[test]
fn an_unknown_cursor_is_not_looked_for_at_a_host_that_serves_no_reads() {
    let (mut stage, servers) = Stage::with_hosts(3);
    // A member that is starting, or an arbiter: it has no users to log in.
    stage.connect_as(PoolId(1), false, false);
    stage.ask(get_more(77));
    stage.grant_held(servers[0]);
    stage.answer(servers[0], stage.last_id, Some(43));
    assert_eq!(stage.wanted(), Some(PoolId(2)));
}

#[test]
fn a_transaction_whose_host_is_configured_no_longer_is_to_be_begun_anew() {
    let (mut stage, servers) = Stage::with_hosts(2);
    stage.exchange(servers[0], None, begins);
    *stage.doors.0.lock().unwrap() = vec![1];
    stage.ask(|body| {
        body.text("insert", "things");
        within(body);
    });
    assert!(matches!(stage.error(), (251, _, true)));
}
