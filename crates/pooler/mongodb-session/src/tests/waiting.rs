//! Requests that wait for a host.

use seam::Standing;

use super::*;
use crate::routes::{ReadPreference, Target};

#[test]
fn a_request_that_waits_for_a_host_for_too_long_is_answered_once_and_its_connection_stays() {
    let mut stage = Stage::new();
    let bytes = stage.ask(finds);
    assert_eq!(stage.wanted(), None);
    stage.refuse(Refusal::QueryTimeout);
    stage.error();
    assert!(!stage.did(|effect| matches!(effect, Effect::Close { .. })));
    assert_eq!((stage.hear(&bytes), stage.told(&bytes).len()), (bytes.len(), 0), "what was said of it is dropped");
    stage.ask(|body| _ = body.text("insert", "things").text("$db", "app"));
    assert_eq!(stage.wanted(), Some(PoolId(0)));
}

#[test]
fn a_request_that_waited_for_a_host_takes_one_turn_among_equal_hosts() {
    let mut stage = Stage::new();
    let bytes = stage.ask(finds);
    assert_eq!(stage.wanted(), None);
    stage.doors.0.lock().unwrap().extend([1, 2]);
    stage.pass(topology::HEARTBEAT_INTERVAL);
    [1, 2].into_iter().for_each(|host| _ = stage.watch(host, false));
    let of_another = stage.mongodb.topology().choose(Target::Read(ReadPreference::Secondary), None).unwrap();
    let client = stage.clients.0.get_mut(&CLIENT.0).unwrap();
    let key = client.key;
    stage.out.clear();
    stage.mongodb.posted_to_client(CLIENT, client, key, &[], &mut stage.out);
    assert!(stage.did(|effect| *effect == Effect::Wake { client: CLIENT }));
    stage.hear(&bytes);
    let host = stage.wanted().unwrap().0 as usize;
    assert!(host != of_another && host > 0, "{host} after {of_another}");
}

#[test]
fn who_waits_for_what_others_write_goes_at_a_shutdown_and_in_silence() {
    let (mut stage, server) = Stage::with_server();
    stage.send(server, |body| {
        body.text("find", "things").bool("tailable", true).bool("awaitData", true).text("$db", "app");
    });
    let answers = Answers { id: stage.last_id, old: false };
    let mut bytes = Vec::new();
    wire::answer(&mut bytes, answers, |answer| {
        answer.document("cursor", |cursor| _ = cursor.array("firstBatch", |_| ()).int64("id", 5));
        answer.double("ok", 1.0);
    });
    stage.say(server, &bytes);
    let blocked = Effect::Standing { client: CLIENT, standing: Standing::Blocked };
    let bytes = stage.ask(get_more(5));
    assert!(stage.did(|effect| *effect == blocked), "a shutdown would wait for it for ever");
    stage.grant(server, &bytes);
    stage.refuse(Refusal::ShuttingDown);
    assert_eq!(stage.told(&[]), [], "a driver asks again when its connection is closed");
    assert!(stage.did(|effect| matches!(effect, Effect::Close { peer: Peer::Client(_), .. })));
}
