//! Replies of servers to clients.

use super::*;

#[test]
fn a_change_of_state_in_a_long_answer_is_told_in_another_number_and_its_host_is_asked() {
    let (mut stage, server) = Stage::with_server();
    stage.send(server, |body| _ = body.text("insert", "things").text("$db", "app"));
    let answers = Answers { id: stage.last_id, old: false };
    let answered = |code: i32| {
        let mut bytes = Vec::new();
        wire::answer(&mut bytes, answers, |answer| {
            answer.array("writeErrors", |errors| {
                for index in 0..200 {
                    let text = "E11000 duplicate key error ".repeat(5);
                    errors.document(&index.to_string(), |error| _ = error.int32("code", 11_000).text("errmsg", &text));
                }
            });
            answer.document("writeConcernError", |error| _ = error.int32("code", code).text("errmsg", "down"));
            answer.double("ok", 1.0);
        });
        bytes
    };
    let said = answered(91);
    stage.say(server, &said);
    assert!(stage.told(&said) == answered(6), "code 91 passed");
    assert!(stage.did(|effect| matches!(effect, Effect::Post { to: Peer::Server(_), .. })), "its monitor asks");
    assert!(stage.did(|effect| *effect == Effect::Release { server, verdict: Left::Clean }));
}

#[test]
fn a_server_that_sends_more_after_an_error_is_closed() {
    let (mut stage, server) = Stage::with_server();
    stage.open(server, 5);
    for code in [91, 50] {
        stage.last_id += 1;
        let mut bytes = Vec::new();
        wire::request(&mut bytes, stage.last_id, get_more(5));
        bytes[wire::HEADER..wire::HEADER + 4].copy_from_slice(&wire::EXHAUST_ALLOWED.to_le_bytes());
        stage.hear(&bytes);
        stage.grant(server, &bytes);
        let mut said = Vec::new();
        wire::answer(&mut said, Answers { id: stage.last_id, old: false }, |answer| {
            answer.double("ok", 0.0).text("errmsg", "no").int32("code", code);
        });
        said[wire::HEADER..wire::HEADER + 4].copy_from_slice(&wire::MORE_TO_COME.to_le_bytes());
        stage.say(server, &said);
        assert!(!stage.did(|effect| matches!(effect, Effect::Release { .. })), "{code}");
        assert!(stage.did(|effect| matches!(effect, Effect::Close { peer: Peer::Server(_), .. })), "{code}");
        stage = Stage::new();
        stage.connect(PoolId(0), true);
        stage.open(server, 5);
    }
}

#[test]
fn a_cursor_that_its_host_does_not_know_is_forgotten() {
    let (mut stage, server) = Stage::with_server();
    stage.open(server, 5);
    let user = Arc::from("");
    assert!(stage.mongodb.cursors.contains(&user, 5));
    stage.exchange(server, Some(EXPIRED), get_more(5));
    assert!(stage.mongodb.cursors.contains(&user, 5), "it may go on");
    stage.exchange(server, Some(43), get_more(5));
    assert!(!stage.mongodb.cursors.contains(&user, 5));
}
