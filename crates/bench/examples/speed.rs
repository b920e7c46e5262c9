//! hack
use bench::{
    engine::Engine,
    plan::*,
    target::{Surroundings, postgres},
};
use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let clients: u32 = args[2].parse().unwrap();
    let seconds: f64 = args[3].parse().unwrap();
    let protocol = match args.get(4).map(String::as_str) {
        Some("extended") => QueryProtocol::Extended,
        Some("prepared") => QueryProtocol::Prepared,
        _ => QueryProtocol::Simple,
    };
    let script = match args.get(5).map(String::as_str) {
        Some("tpcb") => Script::TpcbLike,
        Some("simple") => Script::SimpleUpdate,
        None | Some("select") => Script::SelectOnly,
        Some(f) => Script::File(f.into(), std::fs::read_to_string(f).unwrap()),
    };
    let schema = args.get(6).cloned().unwrap_or("public".into());
    let scale = std::env::var("SCALE").ok().map_or(1, |s| s.parse().unwrap());
    let target = PostgresTarget {
        url: settings::Secret::new(args[1].as_str()),
        scripts: vec![(script, 1)],
        protocol,
        scale,
        schema,
        variables: vec![],
    };
    if std::env::var("INIT").is_ok() {
        println!("{:?}", postgres::init(&target));
    }
    match postgres::check(&target) {
        Ok(v) => println!("{v}"),
        Err(e) => {
            println!("error: {e}");
            return;
        }
    }
    let plan = Plan {
        name: String::new(),
        target: Target::Postgres(target.clone()),
        shape: workload::Shape::Closed {
            clients,
            think: Duration::ZERO,
            duration: Duration::from_secs_f64(seconds),
            operations: None,
        },
        pool: PoolUnderTest {
            config: pool::PoolConfig {
                max_size: clients,
                min_size: clients,
                max_connecting: std::env::var("CONNECTING").ok().map_or(clients.min(10), |s| s.parse().unwrap()),
                max_idle_time: None,
                max_life_time: None,
                ..pool::PoolConfig::default()
            },
            reuse: true,
            instances: 1,
            warm: true,
        },
        faults: vec![],
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(30),
        seed: 1,
        fail_if: vec![],
    };
    let origin = Instant::now();
    let stop = AtomicBool::new(false);
    let mut engine = Engine::new(&plan, pool::Time(0));
    let r = postgres::run(
        &target,
        &plan,
        &mut engine,
        Surroundings { origin, stop: &stop, via: None, watch: &mut |_, _| {} },
    );
    let now = pool::Time(origin.elapsed().as_nanos() as u64);
    let r2 = engine.result(now);
    println!(
        "{r:?} failure {:?} tps {:.0} requests {} errors {:?} in {:.3}s, {:?}",
        engine.failure(),
        r2.total.requests as f64 / r2.total.duration_s,
        r2.total.requests,
        r2.total.errors,
        r2.total.duration_s,
        origin.elapsed()
    );
    for (n, p) in [
        ("service", &r2.total.service_ms),
        ("response", &r2.total.response_ms),
        ("dns", &r2.total.connect_ms.dns),
        ("tcp", &r2.total.connect_ms.tcp),
        ("tls", &r2.total.connect_ms.tls),
        ("auth", &r2.total.connect_ms.auth),
        ("ready", &r2.total.connect_ms.ready),
    ] {
        if let Some(p) = p {
            println!("{n} n {} p50 {:.3} p99 {:.3} p999 {:.3} max {:.3}", p.count, p.p50, p.p99, p.p999, p.max);
        }
    }
    println!("{:?} {:?}", r2.total.connections, r2.warnings);
}
