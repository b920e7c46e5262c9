//! The planner as its users see it: questions in, predictions out. What must come out is known from queueing theory,
//! from arithmetic, or from the rules of the pool.

mod advised;
mod claims;
mod edges;
mod front;
mod hosts;
mod invalid;
mod queueing;
mod rules;
mod scenarios;
mod search;

use std::{path::Path, time::Duration};

use ::report::result::{
    BenchResult, Percentiles,
    sweep::{Curve, CurvePoint, FORMAT, SweepResult},
};
use load::plan::{Plan, PoolConfig, PoolUnderTest, PoolWishes, Shape, Spacing, Stage, Target};
use planner::{
    answer::predict,
    prediction::Prediction,
    question::{Flags, Options, Question, from_text},
    report,
    run::run,
    server::{Connect, Spec, Times},
};
use tempfile::NamedTempFile;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn near(value: f64, expected: f64, part: f64) {
    assert!((value - expected).abs() <= expected * part, "{value} is not within {part} of {expected}");
}

/// A pool whose connections exist from the start and stay.
fn fixed(size: u32) -> PoolConfig {
    PoolConfig {
        max_size: size,
        min_size: size,
        max_connecting: size,
        max_idle_time: None,
        max_life_time: None,
        max_wait_time: None,
        ..PoolConfig::default()
    }
}

fn plan(shape: Shape, config: PoolConfig) -> Plan {
    let warm = config.min_size > 0;
    let pool = PoolUnderTest { warm, config, reuse: true, instances: 1, goodbye: true, blind: false };
    Plan { timeout: seconds(600), ..Plan::new("test".to_owned(), Target::nowhere(), shape, pool) }
}

fn open(rate: f64, duration: Duration, spacing: Spacing) -> Shape {
    Shape::Open { stages: vec![Stage { duration, from: rate, to: rate }], spacing, max_in_flight: 1_000_000 }
}

/// A server that connects in a millisecond.
fn spec(service: Times) -> Spec {
    let connect = Connect { tcp: Some(Times::Constant(ms(1))), ..Connect::default() };
    Spec { connect, ..Spec::new(service) }
}

fn response(result: &BenchResult) -> &Percentiles {
    result.total.response_ms.as_ref().expect("something was answered")
}

fn waits(result: &BenchResult) -> &Percentiles {
    result.total.pool_wait_ms.as_ref().expect("an operation got a connection")
}

const POSTGRES: &str = "start = \"postgres\"\nmax_connections = 200";

/// The question of a scenario with this target and these other sections.
fn scenario(target: &str, sections: &str) -> Question {
    let text = format!("[scenario]\nname = \"n\"\n[target]\n{target}\n{sections}");
    read(&text, &Options::default()).unwrap_or_else(|message| panic!("{message}"))
}

fn read(text: &str, options: &Options) -> Result<Question, String> {
    from_text(Path::new("p.toml"), text, &|_| None, false, options).map_err(|problems| problems.to_string())
}

/// The prediction for a scenario with a PostgreSQL.
fn plan_postgres(sections: &str) -> Prediction {
    ask(&scenario(POSTGRES, sections))
}

fn ask(question: &Question) -> Prediction {
    predict(question, &mut |_, _| ())
}

/// All reasons about a topic.
fn reasons(prediction: &Prediction, about: &str) -> String {
    let texts = prediction.reasons.iter().filter(|reason| reason.about == about).map(|reason| reason.text.as_str());
    texts.collect::<Vec<_>>().join(" ")
}

/// The printed prediction, without line breaks.
fn text(prediction: &Prediction) -> String {
    let mut text = Vec::new();
    report::text::write(&mut text, prediction).unwrap();
    String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A load of the command line with random arrivals.
fn flags(rate: f64, duration: Duration, pool: PoolWishes) -> Flags {
    Flags { rate, duration: Some(duration), spacing: Spacing::Poisson, faults: Vec::new(), pool, seed: 1 }
}

/// A sweep of these clients and throughputs, with this 99th percentile at each point.
fn sweep(points: &[(u32, f64)], p99_ms: f64) -> SweepResult {
    let point = |&(clients, throughput): &(u32, f64)| CurvePoint {
        clients,
        throughput,
        p99_ms: Some(p99_ms),
        ..CurvePoint::default()
    };
    let direct = Curve { points: points.iter().map(point).collect(), ..Curve::default() };
    SweepResult { format: FORMAT, kind: "sweep".to_owned(), direct, ..SweepResult::default() }
}

/// A result file, which is deleted when dropped, and options that name it as the curve.
fn with_curve(sweep: &SweepResult, options: Options) -> (NamedTempFile, Options) {
    let file = NamedTempFile::new().unwrap();
    serde_json::to_writer(&file, sweep).unwrap();
    let curve = Some(file.path().to_owned());
    (file, Options { curve, ..options })
}
