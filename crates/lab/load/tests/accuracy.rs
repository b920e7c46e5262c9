//! What is measured is what was: against a server whose own clock tells how long each answer took it. The
//! tests need a processor for that server and one for the load: `make bench-load` runs them, where nothing else runs.

#[path = "accuracy/punctual.rs"]
mod punctual;

use std::{
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use arrivals::{Shape, Spacing, Stage};
use load::{
    plan::{Plan, PoolUnderTest, PostgresTarget, Script, Target},
    run::run,
};
use pool::PoolConfig;
use punctual::Punctual;
use report::result::{BenchResult, Percentiles};
use settings::Secret;

/// Operations whose percentiles are compared.
const SAMPLES: u64 = 100_000;
/// The reader's promise: a percentile is right within this share, or this time if that is more.
const SHARE: f64 = 0.02;
const SLACK_MS: f64 = 0.2;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn plan(port: u16, shape: Shape, connections: u32) -> Plan {
    let config = PoolConfig {
        max_size: connections,
        min_size: connections,
        max_connecting: connections,
        max_idle_time: None,
        max_life_time: None,
        max_wait_time: Some(Duration::from_secs(60)),
        ..PoolConfig::default()
    };
    let url = Secret::new(format!("postgres://app@127.0.0.1:{port}/db?sslmode=disable"));
    let script = Script::File("one.sql".into(), "SELECT 1;\n".to_owned());
    let target = Target::Postgres(PostgresTarget::new(url, vec![(script, 1)]));
    let pool = PoolUnderTest { config, reuse: true, instances: 1, warm: true, goodbye: true, blind: false };
    Plan { timeout: Duration::from_secs(60), ..Plan::new("accuracy".to_owned(), target, shape, pool) }
}

/// One after the other: what runs beside a measurement disturbs it.
static ALONE: Mutex<()> = Mutex::new(());

fn measure(plan: &Plan) -> BenchResult {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let result = run(plan, &AtomicBool::new(false), &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
    assert!(result.total.errors.is_empty(), "{:?}", result.total.errors);
    result
}

/// A server that takes 2 ms, and 8 ms more at random (exponentially distributed).
fn unsteady() -> Punctual {
    Punctual::start(|n| ms(2) + ms(8).mul_f64(exponential(n)))
}

/// The n-th value of an exponential distribution of mean 1.
fn exponential(n: u64) -> f64 {
    // SplitMix64's finalizer (Steele, Lea, Flood 2014).
    let mut x = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^= x >> 31;
    -(((x >> 11) as f64 + 0.5) / (1u64 << 53) as f64).ln()
}

/// Every percentile is that of the server's own books.
fn assert_right(measured: &Percentiles, server: &Punctual) {
    let mut taken = server.taken.lock().unwrap().clone();
    taken.sort_by(f64::total_cmp);
    assert!(measured.count >= SAMPLES, "{measured:?}");
    let pairs =
        [(0.5, measured.p50), (0.9, measured.p90), (0.95, measured.p95), (0.99, measured.p99), (0.999, measured.p999)];
    for (quantile, found) in pairs {
        let truth = taken[(quantile * taken.len() as f64) as usize];
        let tolerance = (truth * SHARE).max(SLACK_MS);
        assert!((found - truth).abs() <= tolerance, "p{}: {found} ms, and it was {truth} ms", quantile * 100.0);
    }
}

#[test]
#[ignore = "needs two processors for itself: make bench-load"]
fn percentiles_of_a_closed_loop_are_those_of_the_server() {
    let server = unsteady();
    let shape = Shape::Closed {
        clients: 60,
        think: Duration::ZERO,
        duration: Duration::from_secs(120),
        operations: Some(SAMPLES),
    };
    let result = measure(&plan(server.port, shape, 60));
    server.stop();
    assert_right(&result.total.service_ms.unwrap(), &server);
}

#[test]
#[ignore = "needs two processors for itself: make bench-load"]
fn percentiles_of_an_open_loop_are_those_of_the_server() {
    let server = unsteady();
    let rate = 4000.0;
    let duration = Duration::from_secs_f64(SAMPLES as f64 / rate + 0.5);
    let shape = Shape::Open {
        stages: vec![Stage { duration, from: rate, to: rate }],
        spacing: Spacing::Poisson,
        max_in_flight: 5000,
    };
    let result = measure(&plan(server.port, shape, 120));
    server.stop();
    assert_right(result.total.service_ms.as_ref().unwrap(), &server);
    assert_right(result.total.response_ms.as_ref().unwrap(), &server);
}
