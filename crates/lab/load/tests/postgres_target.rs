//! Runs against a small PostgreSQL that tests play: what an operation sends, and what becomes of a connection when
//! something goes wrong.

#[path = "postgres_target/server.rs"]
mod server;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use arrivals::Shape;
use load::{
    engine::Engine,
    plan::{Plan, PoolUnderTest, PostgresTarget, Script, Target},
    target::{Blame, RunContext, postgres},
};
use pool::{PoolConfig, Time};
use report::result::BenchResult;
use server::{Reply, Server};
use settings::Secret;

const OK: Reply = Reply::Rows(&["1"], b'I');

fn target(server: &Server, script: &str) -> PostgresTarget {
    let url = Secret::new(format!("postgres://app:secret@127.0.0.1:{}/db?sslmode=disable", server.port));
    PostgresTarget::new(url, vec![(Script::File("test.sql".into(), script.to_owned()), 1)])
}

fn plan(target: &PostgresTarget, clients: u32, operations: u64) -> Plan {
    let config = PoolConfig { max_size: clients, min_size: clients, max_connecting: clients, ..PoolConfig::default() };
    let pool = PoolUnderTest { config, reuse: true, instances: 1, warm: true, goodbye: true, blind: false };
    let (think, duration) = (Duration::ZERO, Duration::from_secs(20));
    let shape = Shape::Closed { clients, think, duration, operations: Some(operations) };
    let target = Target::Postgres(target.clone());
    Plan { timeout: Duration::from_secs(10), ..Plan::new("test".to_owned(), target, shape, pool) }
}

fn run(plan: &Plan) -> BenchResult {
    let Target::Postgres(target) = &plan.target else { unreachable!("these are PostgreSQL's tests") };
    let (origin, stop) = (Instant::now(), AtomicBool::new(false));
    let mut engine = Engine::new(plan, Time(0));
    let context = RunContext { origin, stop: &stop, via: None, watch: &mut |_, _| {} };
    postgres::run(target, plan, &mut engine, context).unwrap();
    engine.result(Time(origin.elapsed().as_nanos() as u64))
}

fn errors(result: &BenchResult) -> BTreeMap<&str, u64> {
    result.total.errors.iter().map(|(kind, count)| (kind.as_str(), *count)).collect()
}

#[test]
fn each_operation_sends_its_script_once() {
    let server = Server::start(|_, _| OK);
    let result = run(&plan(&target(&server, "\\set n 6 * 7\nSELECT :n;\nSELECT 'b';\n"), 3, 300));
    assert_eq!((result.total.requests, errors(&result)), (300, BTreeMap::new()));
    let queries = server.queries();
    let count = |wanted: &str| queries.iter().filter(|query| query.starts_with(wanted)).count();
    assert_eq!((count("SELECT 42"), count("SELECT 'b'"), queries.len()), (300, 300, 600));
    let phases = &result.total.connect_ms;
    assert!(phases.tcp.as_ref().is_some_and(|tcp| tcp.count == 3) && phases.ready.is_some());
    assert!(phases.dns.is_none() && phases.tls.is_none());
}

#[test]
fn a_transaction_that_fails_is_rolled_back_before_anything_else_is_sent() {
    let server = Server::start(|_, query| match query {
        "BEGIN" => Reply::Rows(&[], b'T'),
        "SELECT 1/0" => Reply::Error("22012", b'E'),
        _ => OK,
    });
    let result = run(&plan(&target(&server, "BEGIN;\nSELECT 1/0;\nSELECT 'never';\nEND;\n"), 2, 20));
    assert_eq!((result.total.requests, errors(&result)), (0, BTreeMap::from([("sqlstate 22012", 20)])));
    assert_eq!(result.total.connections.created, 2);
    for queries in &*server.asked.lock().unwrap() {
        for operation in queries.chunks(3) {
            assert_eq!(operation, ["BEGIN", "SELECT 1/0", "ROLLBACK"]);
        }
    }
}

#[test]
fn a_script_that_leaves_a_transaction_open_has_failed() {
    let server = Server::start(|_, query| if query == "BEGIN" { Reply::Rows(&[], b'T') } else { OK });
    let result = run(&plan(&target(&server, "BEGIN;\n"), 1, 5));
    assert_eq!(errors(&result), BTreeMap::from([("script: it leaves a transaction open", 5)]));
    assert_eq!(server.queries().iter().filter(|query| *query == "ROLLBACK").count(), 5);
}

#[test]
fn a_connection_that_ends_is_replaced_and_its_operation_counted_by_what_the_server_said() {
    for (reply, kind) in [(Reply::Fatal("57P01"), "sqlstate 57P01"), (Reply::Gone, "connection closed")] {
        let (seen, at) = (AtomicU32::new(0), 30);
        let server = Server::start(move |_, _| if seen.fetch_add(1, Relaxed) == at { reply.clone() } else { OK });
        // Enough operations that the other client is not done before the new connection is open.
        let result = run(&plan(&target(&server, "SELECT 1;\n"), 2, 5000));
        assert_eq!((result.total.requests, errors(&result)), (4999, BTreeMap::from([(kind, 1)])));
        assert_eq!(result.total.connections.created, 3);
    }
}

#[test]
fn an_operation_that_is_never_answered_times_out_and_its_connection_is_closed() {
    let server = Server::start(|number, _| if number == 0 { Reply::Silence } else { OK });
    let plan = Plan { timeout: Duration::from_millis(100), ..plan(&target(&server, "SELECT 1;\n"), 1, 10) };
    let result = run(&plan);
    assert_eq!((result.total.requests, errors(&result)), (9, BTreeMap::from([("timeout", 1)])));
    assert_eq!(server.asked.lock().unwrap().len(), 2);
}

#[test]
fn a_row_becomes_variables_and_two_rows_are_an_error() {
    let rows: &[&[&str]] = &[&["42"], &["1", "2"], &[]];
    let next = Mutex::new(rows.iter().cycle());
    let server = Server::start(move |_, query| match query.starts_with("SELECT v") {
        true => Reply::Rows(next.lock().unwrap().next().unwrap(), b'I'),
        false => OK,
    });
    let result = run(&plan(&target(&server, "SELECT v FROM t \\gset\nSELECT :v + 1;\n"), 1, 9));
    assert_eq!(errors(&result), BTreeMap::from([("script: \\gset needs exactly one row", 6)]));
    assert_eq!(server.queries().iter().filter(|query| query.starts_with("SELECT 42 + 1")).count(), 3);
}

#[test]
fn a_pause_belongs_to_its_operation() {
    let server = Server::start(|_, _| OK);
    let result = run(&plan(&target(&server, "SELECT 1;\n\\sleep 30 ms\nSELECT 2;\n"), 5, 20));
    assert_eq!((result.total.requests, errors(&result)), (20, BTreeMap::new()));
    let service = result.total.service_ms.unwrap();
    assert!(service.min >= 30.0, "{service:?}");
    assert!(result.total.duration_s < 2.0, "clients pause independently of one another");
}

#[test]
fn what_cannot_be_run_is_told_before_any_load() {
    let server = Server::start(|_, _| Reply::Rows(&["f"], b'I'));
    let good = target(&server, "SELECT 1;\n");
    assert_eq!(postgres::check(&good).map(|server| server.name), Ok("PostgreSQL 15.99".to_owned()));

    let tables = PostgresTarget { scripts: vec![(Script::SelectOnly, 1)], ..good.clone() };
    let error = postgres::check(&tables).unwrap_err();
    assert_eq!(error.blame, Blame::Target);
    assert!(error.message.contains("--init --scale 1"), "{error}");

    let script = PostgresTarget { scripts: vec![(Script::File("x.sql".into(), "\\foo\n".into()), 1)], ..good.clone() };
    let error = postgres::check(&script).unwrap_err();
    assert_eq!(error.blame, Blame::Configuration);
    assert!(error.message.starts_with("x.sql:1"), "{error}");

    let dead = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let url = Secret::new(format!("postgres://app:hunter2@127.0.0.1:{dead}/db"));
    let error = postgres::check(&PostgresTarget { url, ..good }).unwrap_err();
    assert!(error.message.contains("refused") && !error.message.contains("hunter2"), "{error}");
}
