//! The table of transactions: the host of each, and until when it is known.

use super::*;

const ENDS: [fn(&mut Writer<'_>); 2] = [aborts, commits];

#[test]
fn a_transaction_is_known_until_its_end_is_confirmed() {
    for ends in ENDS {
        let (mut stage, server) = Stage::with_server();
        stage.exchange(server, None, begins);
        stage.exchange(server, Some(EXPIRED), ends);
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), Some(0), "it may be open still, with its locks");
        assert!(stage.mongodb.transactions.may_block_requests(0));
        stage.exchange(server, Some(NO_SUCH_TRANSACTION), ends);
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), None, "its host does not have it");
        stage.exchange(server, None, begins);
        stage.send(server, ends);
        stage.lose(server);
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), Some(0), "the end has no reply");
        stage.pass(30 * LONG);
        assert_eq!(stage.host_of_transaction(), None, "its session has expired");
    }
}

#[test]
fn a_failed_commit_has_an_unknown_outcome_and_only_its_driver_may_abort() {
    let (mut stage, server) = Stage::behind_a_balancer();
    stage.exchange(server, None, begins);
    stage.exchange(server, Some(EXPIRED), commits);
    stage.leave();
    assert!(!stage.did(|effect| matches!(effect, Effect::ResetOne { .. })));
    stage.pass(LONG);
    assert_eq!(stage.host_of_transaction(), Some(0));
}

/// A client with `loadBalanced=true` whose abort was refused.
fn refused_behind_a_balancer() -> (Stage, ServerTag) {
    let (mut stage, server) = Stage::behind_a_balancer();
    stage.exchange(server, None, begins);
    stage.exchange(server, Some(EXPIRED), aborts);
    (stage, server)
}

#[test]
fn what_a_refused_abort_leaves_is_aborted_when_its_connection_ends() {
    let (mut stage, server) = refused_behind_a_balancer();
    stage.leave();
    assert!(stage.did(|effect| *effect == Effect::ResetOne { pool: PoolId(0) }));
    stage.reset(server);
    let (command, id) = stage.own(server).unwrap();
    assert_eq!(command, "abortTransaction");
    stage.answer(server, id, None);
    assert!(stage.did(|effect| *effect == Effect::Ready { server }) && stage.own(server).is_none());
    stage.pass(LONG);
    assert_eq!(stage.host_of_transaction(), None);
}

#[test]
fn a_transaction_is_aborted_when_its_connection_ends_though_its_session_has_begun_another_elsewhere() {
    let (mut stage, server) = Stage::behind_a_balancer();
    stage.exchange(server, None, begins);
    stage.mongodb.transactions.begin((Arc::from(""), SESSION), 2, 1);
    stage.leave();
    assert!(stage.did(|effect| *effect == Effect::ResetOne { pool: PoolId(0) }));
    stage.reset(server);
    assert_eq!(stage.own(server).unwrap().0, "abortTransaction");
}

#[test]
fn a_transaction_whose_first_statement_is_unanswered_is_aborted_though_its_session_has_begun_another_elsewhere() {
    for times_out in [false, true] {
        let (mut stage, server) = Stage::behind_a_balancer();
        stage.send(server, begins);
        stage.mongodb.transactions.begin((Arc::from(""), SESSION), 2, 1);
        if times_out {
            stage.refuse(Refusal::QueryTimeout);
            assert!(stage.did(|effect| *effect == Effect::Release { server, verdict: Left::Discard }));
        }
        stage.leave();
        let task = stage.mongodb.cleanup_tasks.take(PoolId(0)).expect("its host is to abort it");
        assert_eq!(task.aborts(), Some(((Arc::from(""), SESSION), 1)), "{times_out}");
    }
}

#[test]
fn an_abort_of_poolhouses_own_that_is_refused_is_asked_for_once_more() {
    for (codes, known) in [([EXPIRED, EXPIRED], Some(0)), ([EXPIRED, NO_SUCH_TRANSACTION], None)] {
        let (mut stage, server) = refused_behind_a_balancer();
        stage.leave();
        stage.reset(server);
        for (turn, code) in codes.into_iter().enumerate() {
            let (command, id) = stage.own(server).unwrap_or_else(|| panic!("turn {turn}"));
            assert_eq!(command, "abortTransaction");
            stage.answer(server, id, Some(code));
        }
        assert!(stage.own(server).is_none() && stage.did(|effect| *effect == Effect::Ready { server }));
        stage.pass(LONG);
        assert_eq!(stage.host_of_transaction(), known);
    }
}
