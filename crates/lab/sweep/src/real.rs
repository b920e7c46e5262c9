//! A real database under measurement: runs the engine against the target for each point, and watches processors and
//! speed meanwhile. Between the points of a PostgreSQL it tidies up; decides nothing about which point is measured.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use arrivals::Shape;
use pool::{PoolConfig, Time};

use super::{
    Probe, ProbeError, SLICE,
    limits::{self, Limits},
    verdict::Generator,
};
use load::{
    engine::Engine,
    plan::{Plan, PoolUnderTest, PostgresTarget, Target},
    run::{self, processors::Meter},
    target::{self, RunContext, TOO_MANY_CONNECTIONS, postgres},
};
use report::result::{BenchResult, Measured, sweep::Visit};

/// Bounds the cleaning of one table between two points.
const VACUUM_TIMEOUT: Duration = Duration::from_secs(60);
/// Bounds the wait for the last point's connections to leave the server.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that are opened at a time.
const MAX_CONNECTING: u32 = 32;

/// Where the load comes from.
pub fn generator() -> Generator {
    let processors = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
    Generator { threads: 1, processors }
}

/// A target as people may see it: without password.
pub fn url_without_password(target: &Target) -> String {
    run::shown(target.url())
}

pub struct DatabaseProbe<'a> {
    target: Target,
    origin: Instant,
    stop: &'a AtomicBool,
    timeout: Duration,
    seed: u64,
    visits: u64,
    /// `None`: no PostgreSQL, or a pooler, which does not say.
    postgres: Option<Postgres>,
    /// What went wrong between points, once.
    complaint: Option<String>,
}

/// A PostgreSQL that says who is connected, and is cleaned up.
struct Postgres {
    target: PostgresTarget,
    others: OtherConnections,
    vacuums: Vec<String>,
}

/// Connections of other programs.
struct OtherConnections {
    /// Connections that are not the last point's.
    known: u32,
    /// Warning about connections that came during the sweep.
    complaint: Option<String>,
}

impl OtherConnections {
    /// Whether all open connections belong to others: the last point's connections have left.
    fn include_all(&self, open: u32) -> bool {
        open <= self.known
    }

    /// Counts connections that are still open long after the last point as those of other programs.
    fn record_newcomers(&mut self, open: u32) {
        let more = open - self.known;
        self.known = open;
        self.complaint.get_or_insert_with(|| {
            format!(
                "{more} more connections of others came during the sweep and stayed: what they do is in the numbers."
            )
        });
    }
}

impl<'a> DatabaseProbe<'a> {
    /// A probe of this target; `limits`: those that a PostgreSQL tells, and a pooler does not.
    pub fn new(target: Target, limits: Option<Limits>, timeout: Duration, seed: u64, stop: &'a AtomicBool) -> Self {
        let postgres = match (&target, limits) {
            (Target::Postgres(target), Some(limits)) => Some(Postgres {
                target: target.clone(),
                others: OtherConnections { known: limits.others, complaint: None },
                vacuums: limits::vacuum_statements(target),
            }),
            _ => None,
        };
        Self { target, origin: Instant::now(), stop, timeout, seed, visits: 0, postgres, complaint: None }
    }

    /// What went wrong between points, for the warnings.
    pub fn complaints(&self) -> Vec<String> {
        let newcomers = self.postgres.as_ref().and_then(|postgres| postgres.others.complaint.clone());
        self.complaint.iter().cloned().chain(newcomers).collect()
    }

    /// Waits until the last point's connections have left, and cleans up after a load that writes.
    fn wait_and_vacuum(&mut self) -> Result<(), ProbeError> {
        let Some(postgres) = self.postgres.as_mut().filter(|_| self.visits > 0) else { return Ok(()) };
        let Postgres { target, others, vacuums } = postgres;
        let since = Instant::now();
        loop {
            match limits::ask_limits(target) {
                Ok(now) if others.include_all(now.others) => break,
                Ok(now) if since.elapsed() >= LEAVE_TIMEOUT => {
                    others.record_newcomers(now.others);
                    break;
                }
                Ok(_) => {}
                // There is not even room for the question yet.
                Err(error) if since.elapsed() + Duration::from_secs(1) > LEAVE_TIMEOUT => {
                    return Err(ProbeError::Failed(error.to_string()));
                }
                Err(_) => {}
            }
            if self.stop.load(Relaxed) {
                return Err(ProbeError::Interrupted);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        for vacuum in &*vacuums {
            if let Err(error) = postgres::ask(target, vacuum, VACUUM_TIMEOUT) {
                self.complaint.get_or_insert_with(|| format!("Between points `{vacuum}` failed: {error}."));
            }
        }
        Ok(())
    }

    fn run(&mut self, clients: u32, shape: Shape, warmup: Duration) -> Result<Visit, ProbeError> {
        self.wait_and_vacuum()?;
        self.visits += 1;
        let seed = self.seed.wrapping_add(self.visits);
        let plan = Plan { warmup, timeout: self.timeout, seed, ..plan_of(&self.target, clients, shape) };
        plan.check().map_err(ProbeError::Failed)?;
        let origin = Instant::now();
        let mut engine = Engine::new(&plan, Time::default());
        let mut meter = Meter::default();
        let mut slices = Slices::default();
        let mut watch = |engine: &Engine, now: Time| {
            let measuring = engine.is_measuring();
            meter.look(measuring);
            if measuring {
                slices.record(now, engine.progress(now).succeeded);
            }
        };
        let context = RunContext { origin, stop: self.stop, via: None, watch: &mut watch };
        let ran = target::run(&self.target, &plan, &mut engine, context);
        if self.stop.load(Relaxed) {
            return Err(ProbeError::Interrupted);
        }
        if let Err(error) = ran {
            // A PostgreSQL says that it is full. Others that let in some and then no more are, whatever they call it.
            let tells = matches!(self.target, Target::Postgres(_));
            let full = engine.failure().is_some_and(|f| f.kind.0 == TOO_MANY_CONNECTIONS || (!tells && f.made > 0));
            return Err(refusal(clients, full, &error.message));
        }
        let end = Time(u64::try_from(origin.elapsed().as_nanos()).expect("584 years fit"));
        let result = engine.result(end);
        if result.total.errors.contains_key(TOO_MANY_CONNECTIONS) {
            return Err(refusal(clients, true, TOO_MANY_CONNECTIONS));
        }
        if let Some(why) =
            describe_rejections(&result.total, clients).filter(|_| !matches!(self.target, Target::Postgres(_)))
        {
            return Err(refusal(clients, true, &why));
        }
        Ok(visit_of(&result, warmup, &meter, slices))
    }
}

impl Probe for DatabaseProbe<'_> {
    fn measure(&mut self, clients: u32, warmup: Duration, duration: Duration) -> Result<Visit, ProbeError> {
        self.run(clients, closed(clients, duration), warmup)
    }

    fn now_s(&self) -> f64 {
        self.origin.elapsed().as_secs_f64()
    }
}

/// A closed loop: each client asks again when it has its answer.
pub(super) fn closed(clients: u32, duration: Duration) -> Shape {
    Shape::Closed { clients, think: Duration::ZERO, duration, operations: None }
}

/// A measurement with a connection for each client; warm-up, time-out and seed are set by the caller.
pub(super) fn plan_of(target: &Target, clients: u32, shape: Shape) -> Plan {
    Plan::new("sweep".to_owned(), target.clone(), shape, pool_of(clients))
}

/// A pool whose connections are opened before the load and kept.
fn pool_of(clients: u32) -> PoolUnderTest {
    let config = PoolConfig {
        max_size: clients,
        min_size: clients,
        max_connecting: clients.min(MAX_CONNECTING),
        max_idle_time: None,
        max_life_time: None,
        max_wait_time: None,
        connect_timeout: Duration::from_secs(30),
        ..PoolConfig::default()
    };
    PoolUnderTest { config, reuse: true, instances: 1, warm: true, goodbye: true, blind: false }
}

/// `full`: the server has no room for this number of clients.
fn refusal(clients: u32, full: bool, why: &str) -> ProbeError {
    if full {
        return ProbeError::TooMany(format!("The server did not let {clients} clients in: {why}."));
    }
    ProbeError::Failed(format!("with {clients} clients: {why}"))
}

/// Why more connections were lost or refused than there are clients, each made anew and lost again: a full Redis lets
/// in and sends away.
fn describe_rejections(total: &Measured, clients: u32) -> Option<String> {
    let connections = &total.connections;
    let lost = connections.closed.get("error").copied().unwrap_or(0) + connections.failed.values().sum::<u64>();
    let most =
        |kinds: &BTreeMap<String, u64>| kinds.iter().max_by_key(|(_, times)| **times).map(|(kind, _)| kind.clone());
    let why = most(&connections.failed).or_else(|| most(&total.errors));
    (lost > u64::from(clients)).then(|| why.unwrap_or_else(|| "it closes connections".to_owned()))
}

fn visit_of(result: &BenchResult, warmup: Duration, meter: &Meter, slices: Slices) -> Visit {
    let total = &result.total;
    let response = total.response_ms.as_ref().filter(|times| times.count > 0);
    let per_second = result.series.iter().filter(|second| second.at_s >= warmup.as_secs_f64());
    Visit {
        throughput: if total.duration_s > 0.0 { total.requests as f64 / total.duration_s } else { 0.0 },
        p50_ms: response.map(|times| times.p50),
        p95_ms: response.map(|times| times.p95),
        p99_ms: response.map(|times| times.p99),
        errors: total.errors.values().sum::<u64>() + total.dropped,
        per_second: per_second.map(|second| second.requests as f64).collect(),
        slices: slices.speeds,
        generator_cores: meter.cores(),
        machine_idle: meter.idle(),
        ..Visit::default()
    }
}

/// How fast operations ended in each slice of a measurement.
#[derive(Default)]
struct Slices {
    /// When the last slice ended, and how many operations had ended then.
    last: Option<(Time, u64)>,
    speeds: Vec<f64>,
}

impl Slices {
    const MAX_SLICES: usize = 10_000;

    fn record(&mut self, now: Time, done: u64) {
        let Some((since, before)) = self.last else {
            self.last = Some((now, done));
            return;
        };
        let length = now - since;
        if length >= SLICE && self.speeds.len() < Self::MAX_SLICES {
            // To a tenth: a file of results need not be longer.
            self.speeds.push((10.0 * (done - before) as f64 / length.as_secs_f64()).round() / 10.0);
            self.last = Some((now, done));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_shown_without_its_password() {
        let url = settings::Secret::new("mongodb://app:s3cret@127.0.0.1:27017/shop");
        let work = load::plan::MongoWork::Ping;
        let shown =
            url_without_password(&Target::MongoDb(load::plan::MongoTarget { url, work, variables: Vec::new() }));
        assert!(shown.contains("127.0.0.1") && shown.contains("shop") && !shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn slices_are_as_long_as_the_looks_are_apart_and_no_shorter_than_a_tenth_of_a_second() {
        let mut slices = Slices::default();
        let at = |ms: u64| Time(ms * 1_000_000);
        for (ms, done) in [(1000, 500), (1050, 510), (1100, 520), (1250, 535), (1340, 600)] {
            slices.record(at(ms), done);
        }
        assert_eq!(slices.speeds, [200.0, 100.0], "what the warm-up did does not count");
    }

    #[test]
    fn others_that_come_and_stay_are_waited_for_once() {
        let mut others = OtherConnections { known: 3, complaint: None };
        assert!(others.include_all(3) && !others.include_all(5));
        others.record_newcomers(5);
        let complaint = others.complaint.clone().unwrap();
        assert!(others.include_all(5) && complaint.starts_with("2 more"), "{complaint}");
        others.record_newcomers(9);
        assert_eq!(others.complaint.as_ref(), Some(&complaint), "one complaint is enough");
    }

    #[test]
    fn who_loses_more_connections_than_it_has_is_sent_away_again_and_again() {
        let total = |lost: u64| {
            let mut total = Measured::default();
            total.connections.closed.insert("error".to_owned(), lost);
            total.errors.insert("error ERR".to_owned(), 9);
            total
        };
        assert_eq!(describe_rejections(&total(3), 8), None);
        assert_eq!(describe_rejections(&total(50), 8).as_deref(), Some("error ERR"));
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
}
