//! A real PostgreSQL under measurement: runs the engine against the target for each point, and watches the processors meanwhile. Knows
//! what such a server lets in; decides nothing about which point is measured.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use pool::{PoolConfig, Time};
use workload::{Shape, Spacing, Stage};

use super::{Point, Probe, ProbeError, verdict::Generator};
use crate::{
    engine::Engine,
    plan::{Plan, PoolUnderTest, PostgresTarget, Script, Target},
    result::{BenchResult, Measured},
    run::{self, machine},
    target::{Surroundings, TOO_MANY, TargetError, postgres},
};

/// The most that a question to the server may take.
const QUESTION: Duration = Duration::from_secs(10);
/// The most that cleaning up one table between two points may take.
const VACUUM: Duration = Duration::from_secs(60);
/// How long the server may take to let go of the last point's connections.
const LEAVING: Duration = Duration::from_secs(10);
/// Connections being made at a time.
const CONNECTING: u32 = 32;
/// Operations that may wait at a given rate.
const WAITING: u32 = 10_000;

/// What to ask for them. Of other users' sessions a user without pg_read_all_stats sees no type, only that they have a database.
const LIMITS: &str = "SELECT current_setting('max_connections')::int, current_setting('superuser_reserved_connections')::int \
    + coalesce(current_setting('reserved_connections', true), '0')::int, \
    (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE pid <> pg_catalog.pg_backend_pid() \
    AND (backend_type = 'client backend' OR (backend_type IS NULL AND datname IS NOT NULL)))";

/// What a server says of its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// `max_connections`.
    pub max_connections: u32,
    /// `superuser_reserved_connections` and `reserved_connections` together.
    pub reserved: u32,
    /// Connections of others that are open.
    pub others: u32,
}

impl Limits {
    /// Connections that are left for a load.
    pub fn room(&self) -> u32 {
        self.max_connections.saturating_sub(self.reserved + self.others)
    }
}

/// Asks a PostgreSQL for its limits.
///
/// # Errors
/// Why it could not be asked.
pub fn limits(target: &PostgresTarget) -> Result<Limits, TargetError> {
    let row = postgres::ask(target, LIMITS, QUESTION)?;
    let number = |i: usize| row.get(i).and_then(|value| value.as_deref()?.parse().ok());
    match (number(0), number(1), number(2)) {
        (Some(max_connections), Some(reserved), Some(others)) => Ok(Limits { max_connections, reserved, others }),
        _ => Err(TargetError::target("the server does not say what max_connections is: is it a PostgreSQL?")),
    }
}

/// Where the load comes from.
pub fn generator() -> Generator {
    let processors = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    Generator { threads: 1, processors }
}

/// A target as people may see it: without password.
pub fn shown(target: &PostgresTarget) -> String {
    run::shown(target.url.reveal())
}

/// What is to be cleaned up between two points: the tables that a script changes; `None`: it changes nothing that we know of.
fn vacuums(target: &PostgresTarget) -> Vec<String> {
    let writes = |script: &Script| matches!(script, Script::TpcbLike | Script::SimpleUpdate);
    if target.scripts.iter().any(|(script, _)| writes(script)) {
        let schema = target.schema.replace('"', "\"\"");
        return ["branches", "tellers", "history"].map(|table| format!("VACUUM \"{schema}\".pgbench_{table}")).to_vec();
    }
    let changes = |text: &str| {
        let text = text.to_ascii_lowercase();
        ["insert", "update", "delete", "merge"].iter().any(|word| text.split_whitespace().any(|w| w == *word))
    };
    let any = target.scripts.iter().any(|(script, _)| matches!(script, Script::File(_, text) if changes(text)));
    // Whose tables they are is not known; the server passes over those that this user may not clean up.
    if any { vec!["VACUUM".to_owned()] } else { Vec::new() }
}

/// See the module.
pub struct Real<'a> {
    target: PostgresTarget,
    origin: Instant,
    stop: &'a AtomicBool,
    timeout: Duration,
    seed: u64,
    visits: u64,
    /// `None`: the target does not say (a pooler).
    others: Option<Others>,
    vacuums: Vec<String>,
    /// What went wrong between points, once.
    complaint: Option<String>,
}

/// Connections of others.
struct Others {
    /// So many do not count as the last point's.
    known: u32,
    /// What the reader must know of those that came later.
    complaint: Option<String>,
}

impl Others {
    /// The last point's connections have left.
    fn are_alone(&self, open: u32) -> bool {
        open <= self.known
    }

    /// So many are still open, long after the last point: they are others'.
    fn have_come(&mut self, open: u32) {
        let more = open - self.known;
        self.known = open;
        self.complaint.get_or_insert_with(|| {
            format!(
                "{more} more connections of others came during the sweep and stayed: what they do is in the numbers."
            )
        });
    }
}

impl<'a> Real<'a> {
    /// To measure this target; `limits`: what it says of itself, if it is the database and not a pooler.
    pub fn new(
        target: PostgresTarget,
        limits: Option<Limits>,
        timeout: Duration,
        seed: u64,
        stop: &'a AtomicBool,
    ) -> Self {
        let vacuums = if limits.is_some() { vacuums(&target) } else { Vec::new() };
        Self {
            target,
            origin: Instant::now(),
            stop,
            timeout,
            seed,
            visits: 0,
            others: limits.map(|limits| Others { known: limits.others, complaint: None }),
            vacuums,
            complaint: None,
        }
    }

    /// What went wrong between points, for the warnings.
    pub fn complaints(&self) -> Vec<String> {
        let newcomers = self.others.as_ref().and_then(|others| others.complaint.clone());
        self.complaint.iter().cloned().chain(newcomers).collect()
    }

    /// Waits until the last point's connections have left, and cleans up after a load that writes.
    fn tidy(&mut self) -> Result<(), ProbeError> {
        let Some(others) = self.others.as_mut().filter(|_| self.visits > 0) else { return Ok(()) };
        let since = Instant::now();
        loop {
            match limits(&self.target) {
                Ok(now) if others.are_alone(now.others) => break,
                Ok(now) if since.elapsed() >= LEAVING => {
                    others.have_come(now.others);
                    break;
                }
                Ok(_) => {}
                // There is not even room for the question yet.
                Err(error) if since.elapsed() + Duration::from_secs(1) > LEAVING => {
                    return Err(ProbeError::Failed(error.to_string()));
                }
                Err(_) => {}
            }
            if self.stop.load(Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        for vacuum in &self.vacuums {
            if let Err(error) = postgres::ask(&self.target, vacuum, VACUUM) {
                self.complaint.get_or_insert_with(|| format!("Between points `{vacuum}` failed: {error}."));
            }
        }
        Ok(())
    }

    fn run(&mut self, clients: u32, shape: Shape, warmup: Duration) -> Result<Point, ProbeError> {
        self.tidy()?;
        self.visits += 1;
        let planned = match &shape {
            Shape::Open { stages, .. } => Some(stages.iter().map(|stage| stage.duration).sum()),
            Shape::Closed { .. } | Shape::Burst { .. } => None,
        };
        let seed = self.seed.wrapping_add(self.visits);
        let plan = Plan { warmup, timeout: self.timeout, seed, ..plan_of(&self.target, clients, shape) };
        plan.check().map_err(ProbeError::Failed)?;
        let origin = Instant::now();
        let mut engine = Engine::new(&plan, Time::default());
        let mut meter = Meter::default();
        let mut watch = |engine: &Engine, _: Time| meter.look(engine.is_measuring());
        let around = Surroundings { origin, stop: self.stop, via: None, watch: &mut watch };
        let ran = postgres::run(&self.target, &plan, &mut engine, around);
        if self.stop.load(Relaxed) {
            return Err(ProbeError::Interrupted);
        }
        if let Err(error) = ran {
            let full = engine.failure().is_some_and(|failure| failure.kind.0 == TOO_MANY);
            return Err(refusal(clients, full, &error.message));
        }
        let end = Time(u64::try_from(origin.elapsed().as_nanos()).expect("584 years fit"));
        let result = engine.result(end);
        if result.total.errors.contains_key(TOO_MANY) {
            return Err(refusal(clients, true, TOO_MANY));
        }
        Ok(point(&result, warmup, planned, &meter))
    }
}

impl Probe for Real<'_> {
    fn measure(&mut self, clients: u32, warmup: Duration, duration: Duration) -> Result<Point, ProbeError> {
        self.run(clients, closed(clients, duration), warmup)
    }

    fn measure_at_rate(
        &mut self,
        clients: u32,
        rate: f64,
        warmup: Duration,
        duration: Duration,
    ) -> Result<Point, ProbeError> {
        self.run(clients, open(rate, duration), warmup)
    }

    fn now_s(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }
}

/// So many clients that ask again when they have their answer.
pub(super) fn closed(clients: u32, duration: Duration) -> Shape {
    Shape::Closed { clients, think: Duration::ZERO, duration, operations: None }
}

/// Operations that arrive by chance.
pub(super) fn open(rate: f64, duration: Duration) -> Shape {
    let stages = vec![Stage { duration, from: rate, to: rate }];
    Shape::Open { stages, spacing: Spacing::Poisson, max_in_flight: WAITING }
}

/// A measurement with so many connections; warm-up, time-out and seed are left open.
pub(super) fn plan_of(target: &PostgresTarget, clients: u32, shape: Shape) -> Plan {
    Plan {
        name: "sweep".to_owned(),
        target: Target::Postgres(target.clone()),
        shape,
        pool: pool_of(clients),
        faults: Vec::new(),
        warmup: Duration::ZERO,
        timeout: QUESTION,
        seed: 0,
        fail_if: Vec::new(),
        freeze: None,
        poolhouse: None,
    }
}

/// So many connections, opened before the load and kept.
fn pool_of(clients: u32) -> PoolUnderTest {
    let config = PoolConfig {
        max_size: clients,
        min_size: clients,
        max_connecting: clients.min(CONNECTING),
        max_idle_time: None,
        max_life_time: None,
        max_wait_time: None,
        connect_timeout: Duration::from_secs(30),
        ..PoolConfig::default()
    };
    PoolUnderTest { config, reuse: true, instances: 1, warm: true, goodbye: true, blind: false }
}

/// `full`: the server has no room for so many.
fn refusal(clients: u32, full: bool, why: &str) -> ProbeError {
    if full {
        return ProbeError::TooMany(format!("The server did not let {clients} clients in: {why}."));
    }
    ProbeError::Failed(format!("with {clients} clients: {why}"))
}

/// How fast operations ended, as a share of how fast they arrived. They arrived for `planned`; what came after the last of them, longer
/// than an operation takes anyway, is the queue that was left.
fn pace(total: &Measured, planned: Duration) -> f64 {
    let planned = planned.as_secs_f64();
    let service = total.service_ms.as_ref().map_or(0.0, |times| times.p99 / 1000.0);
    planned / (total.duration_s - service).max(planned)
}

/// `planned`: how long operations arrived, if they came at a rate.
fn point(result: &BenchResult, warmup: Duration, planned: Option<Duration>, meter: &Meter) -> Point {
    let total = &result.total;
    let response = total.response_ms.as_ref().filter(|times| times.count > 0);
    let errors = total.errors.values().sum::<u64>() + total.dropped;
    let per_second = result.series.iter().filter(|second| second.at_s >= warmup.as_secs_f64());
    Point {
        throughput: if total.duration_s > 0.0 { total.requests as f64 / total.duration_s } else { 0.0 },
        p50_ms: response.map(|times| times.p50),
        p95_ms: response.map(|times| times.p95),
        p99_ms: response.map(|times| times.p99),
        errors,
        arrived: total.requests + errors,
        pace: planned.map_or(1.0, |planned| pace(total, planned)),
        per_second: per_second.map(|second| second.requests as f64).collect(),
        generator_cores: meter.cores(),
        machine_idle: meter.idle(),
    }
}

/// What processors did from the first to the last look while it was being measured.
#[derive(Default)]
struct Meter {
    first: Option<Look>,
    last: Option<Look>,
}

#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    /// Processor time of this process.
    own: Duration,
    /// Ticks of all processors of the machine: idle, and all.
    machine: Option<(u64, u64)>,
}

impl Meter {
    fn look(&mut self, measuring: bool) {
        if !measuring {
            return;
        }
        let look = Look { at: Instant::now(), own: machine::processor_time(), machine: ticks() };
        self.first.get_or_insert(look);
        self.last = Some(look);
    }

    fn cores(&self) -> Option<f64> {
        let (first, last) = self.first.zip(self.last)?;
        let wall = (last.at - first.at).as_secs_f64();
        (wall > 0.0).then(|| last.own.saturating_sub(first.own).as_secs_f64() / wall)
    }

    fn idle(&self) -> Option<f64> {
        let (first, last) = (self.first?.machine?, self.last?.machine?);
        let all = last.1.checked_sub(first.1).filter(|&all| all > 0)?;
        Some(last.0.saturating_sub(first.0) as f64 / all as f64)
    }
}

/// Ticks since the machine started, of all processors together: idle (waiting for disks included), and all. From /proc/stat (proc(5)).
fn ticks() -> Option<(u64, u64)> {
    ticks_of(&fs::read_to_string("/proc/stat").ok()?)
}

fn ticks_of(text: &str) -> Option<(u64, u64)> {
    // user nice system idle iowait irq softirq steal; guests are counted in user already.
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Secret;

    fn target(scripts: Vec<Script>) -> PostgresTarget {
        PostgresTarget {
            url: Secret::new("postgres://app:s3cret@127.0.0.1:5432/shop"),
            scripts: scripts.into_iter().map(|script| (script, 1)).collect(),
            protocol: crate::plan::QueryProtocol::Simple,
            scale: 1,
            schema: "load\"s".to_owned(),
            variables: Vec::new(),
        }
    }

    #[test]
    fn a_target_is_shown_without_its_password() {
        let shown = shown(&target(Vec::new()));
        assert!(shown.contains("127.0.0.1") && shown.contains("shop") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn only_loads_that_write_are_cleaned_up_after() {
        let file = |text: &str| Script::File("x.sql".into(), text.to_owned());
        assert!(vacuums(&target(vec![Script::SelectOnly, file("SELECT updated FROM t;")])).is_empty());
        assert_eq!(vacuums(&target(vec![file("update t set a = 1;")])), ["VACUUM"]);
        assert_eq!(vacuums(&target(vec![Script::TpcbLike]))[0], "VACUUM \"load\"\"s\".pgbench_branches");
    }

    #[test]
    fn what_others_and_superusers_have_is_not_left_for_a_load() {
        assert_eq!(Limits { max_connections: 100, reserved: 3, others: 7 }.room(), 90);
        assert_eq!(Limits { max_connections: 3, reserved: 3, others: 7 }.room(), 0);
    }

    #[test]
    fn sessions_of_other_users_count_though_their_type_is_hidden() {
        assert!(LIMITS.contains("backend_type IS NULL AND datname IS NOT NULL"), "{LIMITS}");
    }

    #[test]
    fn others_that_come_and_stay_are_waited_for_once() {
        let mut others = Others { known: 3, complaint: None };
        assert!(others.are_alone(3) && !others.are_alone(5));
        others.have_come(5);
        let complaint = others.complaint.clone().unwrap();
        assert!(others.are_alone(5) && complaint.starts_with("2 more"), "{complaint}");
        others.have_come(9);
        assert_eq!(others.complaint.as_ref(), Some(&complaint), "one complaint is enough");
    }

    #[test]
    fn a_queue_that_is_left_is_a_pace_below_one_and_slow_operations_are_not() {
        let total = |duration_s, service: f64| Measured {
            duration_s,
            service_ms: Some(crate::result::Percentiles { p99: service, ..Default::default() }),
            ..Measured::default()
        };
        let planned = Duration::from_secs(3);
        assert_eq!(pace(&total(3.2, 250.0), planned), 1.0);
        assert!((pace(&total(3.35, 20.0), planned) - 0.9).abs() < 0.01);
    }

    #[test]
    fn a_server_that_is_full_is_told_from_one_that_fails() {
        assert!(
            matches!(refusal(8, true, "too many clients"), ProbeError::TooMany(why) if why.contains("too many clients"))
        );
        assert!(
            matches!(refusal(8, false, "wrong password"), ProbeError::Failed(why) if why.contains("wrong password"))
        );
    }

    #[test]
    fn idle_ticks_are_those_that_wait_too() {
        let text = "cpu  10 1 9 70 10 0 0 0 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(ticks_of(text), Some((80, 100)));
        assert_eq!(ticks_of("intr 5"), None);
    }

    #[test]
    fn the_meter_sees_the_processor_that_this_test_burns() {
        let mut meter = Meter::default();
        meter.look(false);
        assert_eq!(meter.cores(), None, "the warm-up does not count");
        meter.look(true);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        meter.look(true);
        assert!(meter.cores().is_some_and(|cores| cores > 0.05), "{:?}", meter.cores());
    }
}
