//! Requests that wait because there is no host for them.

use super::*;

#[test]
fn a_request_that_waits_for_a_host_for_too_long_is_answered_once_and_its_connection_stays() {
    let mut stage = Stage::new();
    let bytes = stage.ask(|body| {
        body.text("find", "things").text("$db", "app");
        body.document("$readPreference", |preference| _ = preference.text("mode", "secondary"));
    });
    assert_eq!(stage.wanted(), None);
    let client = stage.clients.0.get_mut(&CLIENT.0).unwrap();
    stage.out.clear();
    stage.mongodb.refuse(CLIENT, client, Refusal::QueryTimeout, &mut stage.out);
    let told = stage.told(&[]);
    let header = Header::read(&told).unwrap().unwrap();
    assert_eq!((header.answers, header.length), (stage.last_id, told.len()));
    assert!(!stage.did(|effect| matches!(effect, Effect::Close { .. })));
    assert_eq!((stage.hear(&bytes), stage.told(&bytes).len()), (bytes.len(), 0), "what was said of it is dropped");
    stage.ask(|body| _ = body.text("insert", "things").text("$db", "app"));
    assert_eq!(stage.wanted(), Some(PoolId(0)));
}
