//! The rules of a listener, and errors in PgBouncer's words.

use std::{sync::Arc, time::Duration};

use postgres_session::{ListenerRules, PoolMode, Postgres, Wording};
use sim::rig::{
    Rig,
    postgres::{TestDirectory, messages, startup},
};

use crate::support::{HELD, PostgresRig, add_client, add_server, error_code, text, trusting, whole};

fn with_rules(rules: ListenerRules) -> PostgresRig {
    TestDirectory { rules, ..TestDirectory::default() }.rig(HELD)
}

fn speaking_as_pgbouncer(mode: PoolMode) -> PostgresRig {
    let directory = TestDirectory { mode, ..TestDirectory::default() };
    Rig::with_workers(1, Postgres::new(Arc::new(directory)).with_wording(Wording::PgBouncer), HELD)
}

#[test]
fn a_longer_message_than_the_rules_allow_ends_the_connection() {
    let mut rig = with_rules(ListenerRules { max_message_size: Some(20), ..ListenerRules::default() });
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    rig.exchange(client, server, "Q:fifteen_bytes!!", "C:SELECT~ Z:I");
    rig.take_received(client);
    rig.send(client, &messages("Q:seventeen_bytes!!"));
    assert_eq!(error_code(&rig.take_received(client)), "54000");
    assert!(rig.is_closed(client) && rig.take_received(server).is_empty());
}

#[test]
fn a_longer_answer_than_the_rules_allow_ends_both_connections() {
    for kind in ["D", "N", "C"] {
        let mut rig = with_rules(ListenerRules { max_message_size: Some(20), ..ListenerRules::default() });
        let (server, client) = (add_server(&mut rig), add_client(&mut rig));
        rig.send(client, &messages("Q:short"));
        rig.take_received(server);
        let answer = messages("T:~~ D:short");
        rig.send(server, &[answer.clone(), messages(&format!("{kind}:this_is_longer_than_allowed~"))].concat());
        let got = rig.take_received(client);
        assert_eq!(&got[..answer.len()], answer, "{kind}");
        assert_eq!(error_code(&got[answer.len()..]), "54000", "{kind}");
        assert!(rig.is_closed(client) && rig.is_closed(server), "{kind}");
    }
}

#[test]
fn simple_queries_may_be_refused() {
    let mut rig = with_rules(ListenerRules { refuse_simple_queries: true, ..ListenerRules::default() });
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    let request = messages("P:~SELECT_1~~~ B:~~~~~~~~ E:~~~~~ S:");
    rig.send(client, &request);
    assert_eq!(rig.take_received(server), request);
    rig.send(server, &messages("1: 2: C:SELECT_1~ Z:I"));
    rig.take_received(client);
    rig.send(client, &messages("Q:SELECT_1"));
    assert_eq!(error_code(&rig.take_received(client)), "0A000");
    assert!(rig.is_closed(client) && rig.take_received(server).is_empty());
}

#[test]
fn a_client_that_waits_for_long_is_told_once() {
    let rules = ListenerRules { wait_notice_time: Some(Duration::from_secs(1)), ..ListenerRules::default() };
    let mut rig = with_rules(rules);
    rig.configure(|pool| pool.max_wait_time = None);
    let (server, holder, waiter) = (add_server(&mut rig), add_client(&mut rig), add_client(&mut rig));
    rig.exchange(holder, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.send(waiter, &messages("Q:SELECT"));
    rig.wait(Duration::from_millis(900));
    assert_eq!(rig.take_received(waiter), b"");
    rig.wait(Duration::from_millis(200));
    let told = text(&rig.take_received(waiter));
    assert!(told.starts_with("N") && told.contains("the request waits"), "{told}");
    rig.wait(Duration::from_secs(5));
    assert_eq!(rig.take_received(waiter), b"");
    rig.take_received(holder);
    rig.exchange(holder, server, "Q:COMMIT", "C:COMMIT~ Z:I");
    assert_eq!(rig.take_received(server), messages("Q:SELECT"));
    rig.send(server, &messages("C:SELECT~ Z:I"));
    assert_eq!(rig.take_received(waiter), messages("C:SELECT~ Z:I"));
}

#[test]
fn a_login_notice_comes_before_the_first_ready_for_query() {
    let notice = Some("maintenance at ten".into());
    let mut rig = with_rules(ListenerRules { login_notice: notice, ..ListenerRules::default() });
    add_server(&mut rig);
    let client = rig.connect_client();
    whole(&mut rig, |rig| rig.send(client, &startup(3 << 16, &[("user", "app")])));
    let got = text(&rig.take_received(client));
    assert!(
        got.contains("C00000~Mmaintenance at ten~")
            && got.ends_with("Z\u{0}\u{0}\u{0}\u{5}I".replace('\0', "~").as_str())
    );
}

#[test]
fn errors_are_pgbouncers_where_it_is_replaced() {
    let mut rig = speaking_as_pgbouncer(PoolMode::Transaction);
    add_server(&mut rig);
    let client = rig.connect_client();
    rig.send(client, &startup(3 << 16, &[("user", "app"), ("database", "nowhere")]));
    let got = text(&rig.take_received(client));
    assert!(got.contains("C08P01~Mno such database: nowhere~"), "{got}");

    let mut rig = speaking_as_pgbouncer(PoolMode::Transaction);
    rig.configure(|pool| pool.max_wait_time = Some(Duration::from_secs(1)));
    let (server, holder, waiter) = (add_server(&mut rig), add_client(&mut rig), add_client(&mut rig));
    rig.exchange(holder, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.send(waiter, &messages("Q:SELECT"));
    rig.wait(Duration::from_secs(2));
    let got = text(&rig.take_received(waiter));
    assert!(got.contains("SFATAL~VFATAL~C08P01~Mquery_wait_timeout~") && rig.is_closed(waiter), "{got}");
    rig.close(server);
    let got = text(&rig.take_received(holder));
    assert!(got.contains("C08P01~Mserver conn crashed?~"), "{got}");

    let mut rig = speaking_as_pgbouncer(PoolMode::Statement);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    let got = text(&rig.take_received(client));
    assert!(got.contains("Mtransaction blocks not allowed in statement pooling mode~"), "{got}");
    assert!(rig.is_closed(client));
}

#[test]
fn ours_leave_the_client_connected_where_it_can_go_on() {
    let mut rig = trusting(PoolMode::Statement);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    assert_eq!(error_code(&rig.take_received(client)), "0A000");
    assert!(!rig.is_closed(client));
}
