//! Options of a question, from a scenario's `[plan]` or from the command line: the server, its limits, the objectives.
//! They become the parameters of the server model.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ::report::{
    files,
    histogram::Histogram,
    result::{BenchResult, Percentiles, sweep::SweepResult},
    sweep_sentences,
};
use load::plan::{Script, Target};
use settings::Section;

use crate::{
    products::Product,
    server::{
        Connect, Curve, LOW_CONFIDENCE, MAX_P99_RATIO, MONGODB_MONITORS_PER_HOST, POLLING_MONITORS_PER_HOST,
        POSTGRES_FULL, Processors, Spec, Times,
    },
};

/// The wrong key, and the message.
type OptionError = (&'static str, String);

/// Default times to make a connection, as within a data centre.
const DEFAULT_TCP_TIME: Duration = Duration::from_millis(1);
const DEFAULT_AUTH_TIME: Duration = Duration::from_millis(9);
/// Round trips of a PostgreSQL login: SSLRequest, and three of SCRAM. With TLS, SSLRequest counts to the handshake.
const LOGIN_TRIPS: u32 = 4;
const TLS_TRIPS: u32 = 1;
/// The longest part of an operation or of a new connection.
const MAX_TIME: Duration = Duration::from_secs(86_400);
/// Share by which the given mean service time may differ from the curve's without being an assumption.
const MAX_MEAN_DIFFERENCE: f64 = 0.1;
/// Statements of pgbench's transaction, and of the one without contended tables.
const TPCB_TRIPS: u32 = 7;
const SIMPLE_UPDATE_TRIPS: u32 = 5;

/// Options are `None` or empty if they are not given.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// Products whose settings are printed.
    pub products: Vec<Product>,
    /// Mean service time of an operation that runs alone.
    pub service: Option<Duration>,
    pub service_p99: Option<Duration>,
    /// Extra time of the first operation on a new connection.
    pub first: Option<Duration>,
    pub spread: Option<Spread>,
    /// A result of `poolhouse bench --json`: service times and times to connect.
    pub measured: Option<PathBuf>,
    /// A result of `poolhouse sweep --json`: throughput against concurrency.
    pub curve: Option<PathBuf>,
    /// Operations that run at full speed at a time; more share that.
    pub parallel: Option<u32>,
    /// Mean time for which an operation needs one of [`Self::cpus`].
    pub processor_time: Option<Duration>,
    /// Round trips of an operation.
    pub trips: Option<u32>,
    /// Think time of the client within an operation.
    pub pause: Option<Duration>,
    pub connect: ConnectOptions,
    /// Used for phases of connecting if [`Self::measured`] contains no connect.
    pub connect_unless_measured: ConnectOptions,
    /// The server's connection limit.
    pub server_limit: Option<u32>,
    /// Connections within that limit that are reserved for other users.
    pub reserved: Option<u32>,
    /// Limit that all pools share, as pools of one Poolhouse.
    pub budget: Option<u32>,
    pub objectives: Vec<String>,
    /// Share by which upper limits of objectives are lowered.
    pub margin: Option<f64>,
    pub cpus: Option<u32>,
    /// Memory of the server for each connection, in megabytes.
    pub memory_mb: Option<f64>,
    pub platform: Option<Platform>,
}

/// The distribution of service times whose mean is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    Constant,
    Exponential,
}

/// Times of the phases of connecting.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ConnectOptions {
    pub dns: Option<Duration>,
    pub tcp: Option<Duration>,
    pub tls: Option<Duration>,
    pub auth: Option<Duration>,
    /// From the end of authentication until the connection is ready.
    pub ready: Option<Duration>,
    /// The part of `auth` and `ready` that needs a processor of the server.
    pub processor_time: Option<Duration>,
}

impl ConnectOptions {
    fn or(self, below: Self) -> Self {
        Self {
            dns: self.dns.or(below.dns),
            tcp: self.tcp.or(below.tcp),
            tls: self.tls.or(below.tls),
            auth: self.auth.or(below.auth),
            ready: self.ready.or(below.ready),
            processor_time: self.processor_time.or(below.processor_time),
        }
    }
}

/// A platform that freezes and ends idle functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Platform {
    /// Idle time before a function is frozen.
    pub freeze_after: Duration,
    /// Frozen time before a function is ended.
    pub kill_after: Duration,
}

/// Smallest difference of the client idle time from `kill_after`, and from both times of a platform together.
const MIN_KILL_MARGIN: Duration = Duration::from_secs(10);
const FREEZE_MARGIN: Duration = Duration::from_secs(5);

impl Platform {
    /// A client idle time after which no function is thawed.
    pub fn safe_client_idle_time(&self) -> Duration {
        self.kill_after.saturating_add(MIN_KILL_MARGIN.max(self.freeze_after.saturating_add(FREEZE_MARGIN)))
    }
}

/// Keys of `[plan]`.
pub const KEYS: &[&str] = &[
    "service",
    "service_p99",
    "first",
    "spread",
    "measured",
    "curve",
    "parallel",
    "processor_time",
    "trips",
    "pause",
    "connect",
    "server_limit",
    "reserved",
    "budget",
    "objectives",
    "margin",
    "cpus",
    "memory_mb",
    "platform",
];
const CONNECT_KEYS: &[&str] = &["dns", "tcp", "tls", "auth", "ready", "processor_time"];
const PLATFORM_KEYS: &[&str] = &["freeze_after", "kill_after"];
const MAX_OBJECTIVES: usize = 16;
/// The largest number of connections or operations in an option.
const MAX_NUMBER: u32 = 1_000_000;

impl Options {
    /// Reads `[plan]`. Problems are noted in the section.
    pub fn read(section: &Section<'_>) -> Self {
        let objectives = section.texts("objectives").unwrap_or_default();
        if objectives.len() > MAX_OBJECTIVES {
            section.error("objectives", format!("more than {MAX_OBJECTIVES} objectives"));
        }
        for text in &objectives {
            if let Err(message) = super::parse_objective(text) {
                section.error("objectives", message);
            }
        }
        Self {
            service: section.duration_on("service"),
            service_p99: section.duration_on("service_p99"),
            first: section.duration_on("first"),
            spread: section.choice("spread", &[("constant", Spread::Constant), ("exponential", Spread::Exponential)]),
            measured: section.path("measured"),
            curve: section.path("curve"),
            parallel: section.number("parallel", 1..=MAX_NUMBER),
            processor_time: section.duration_on("processor_time"),
            trips: section.number("trips", 1..=1000),
            pause: section.duration_on("pause"),
            connect: section.table("connect", &[CONNECT_KEYS]).map(|table| read_connect(&table)).unwrap_or_default(),
            server_limit: section.number("server_limit", 1..=MAX_NUMBER),
            reserved: section.number("reserved", 0..=MAX_NUMBER),
            budget: section.number("budget", 1..=MAX_NUMBER),
            objectives,
            margin: section.decimal("margin", 0.0..=0.9),
            cpus: section.number("cpus", 1..=10_000),
            memory_mb: section.decimal("memory_mb", 0.001..=100_000.0),
            products: Vec::new(),
            connect_unless_measured: ConnectOptions::default(),
            platform: section.table("platform", &[PLATFORM_KEYS]).and_then(|table| read_platform(&table)),
        }
    }

    /// Fills options that are not given from `below`, unless a given option replaces them.
    #[must_use]
    pub fn or(self, below: Self) -> Self {
        let has_service = self.service.is_some() || self.measured.is_some();
        let below =
            if has_service { Self { service: None, service_p99: None, measured: None, ..below } } else { below };
        let has_load_model = self.curve.is_some() || self.parallel.is_some() || self.processor_time.is_some();
        let below =
            if has_load_model { Self { curve: None, parallel: None, processor_time: None, ..below } } else { below };
        // Measured times to connect replace those of the file, except for the processor time, which is not measured.
        let below = match self.measured {
            Some(_) => {
                let processor_time = below.connect.processor_time;
                let connect = ConnectOptions { processor_time, ..ConnectOptions::default() };
                Self { connect, connect_unless_measured: below.connect, ..below }
            }
            None => below,
        };
        let below = if self.service_p99.is_some() { Self { spread: None, ..below } } else { below };
        Self {
            products: if self.products.is_empty() { below.products } else { self.products },
            service: self.service.or(below.service),
            service_p99: self.service_p99.or(below.service_p99),
            first: self.first.or(below.first),
            spread: self.spread.or(below.spread),
            measured: self.measured.or(below.measured),
            curve: self.curve.or(below.curve),
            parallel: self.parallel.or(below.parallel),
            processor_time: self.processor_time.or(below.processor_time),
            trips: self.trips.or(below.trips),
            pause: self.pause.or(below.pause),
            connect: self.connect.or(below.connect),
            connect_unless_measured: self.connect_unless_measured.or(below.connect_unless_measured),
            server_limit: self.server_limit.or(below.server_limit),
            reserved: self.reserved.or(below.reserved),
            budget: self.budget.or(below.budget),
            objectives: if self.objectives.is_empty() { below.objectives } else { self.objectives },
            margin: self.margin.or(below.margin),
            cpus: self.cpus.or(below.cpus),
            memory_mb: self.memory_mb.or(below.memory_mb),
            platform: self.platform.or(below.platform),
        }
    }

    /// The server model for a load on this target. Assumptions are added to `assumed`, one sentence each.
    ///
    /// # Errors
    /// The wrong key, and the message.
    pub fn server_spec(&self, target: &Target, assumed: &mut Vec<String>) -> Result<Spec, OptionError> {
        self.check_times()?;
        let measured = match &self.measured {
            Some(path) => read_measured(path).map_err(|message| ("measured", message))?,
            None => Vec::new(),
        };
        let sweep = match &self.curve {
            Some(path) => Some(files::read_sweep(path).map_err(|error| ("curve", error.to_string()))?),
            None => None,
        };
        let curve = sweep.as_ref().map(|sweep| read_curve(sweep, assumed)).transpose()?;
        let service = self.service_times(&measured, sweep.as_ref().zip(curve.as_ref()), assumed)?;
        let curve = match (self.parallel, curve) {
            (Some(_), Some(_)) => return Err(("parallel", "give either `curve` or `parallel`, not both".to_owned())),
            (Some(most), None) => Some(Curve::parallel(most, service.mean().as_secs_f64())),
            (None, curve) => curve,
        };
        let processors = self.processors(curve.is_some(), service.mean())?;
        let (auth_trips, refusal_error, trips) = protocol_defaults(target);
        let limit = self.server_limit;
        if let (Some(limit), Some(reserved)) = (limit, self.reserved)
            && reserved >= limit
        {
            return Err(("reserved", format!("{reserved} of {limit} connections are reserved: none is left")));
        }
        let connect = self.connect_model(&measured, auth_trips, assumed).map_err(|message| ("measured", message))?;
        check_login(&connect, processors.is_some()).map_err(|message| ("connect", message.to_owned()))?;
        Ok(Spec {
            first: self.first.unwrap_or_default(),
            trips: self.trips.unwrap_or(trips),
            pause: self.pause.unwrap_or_default(),
            curve,
            processors,
            connect,
            limit,
            reserved: self.reserved.unwrap_or(0),
            refusal_error,
            budget: self.budget,
            monitors_per_instance: match (target, self.platform) {
                (Target::MongoDb(_), None) => MONGODB_MONITORS_PER_HOST,
                // Drivers detect that they run in a function, and poll.
                (Target::MongoDb(_), Some(_)) => POLLING_MONITORS_PER_HOST,
                _ => 0,
            },
            ..Spec::new(service)
        })
    }

    /// Refuses times whose sums could overflow.
    fn check_times(&self) -> Result<(), OptionError> {
        let of_connect = [self.connect, self.connect_unless_measured].into_iter().flat_map(|options| {
            let ConnectOptions { dns, tcp, tls, auth, ready, processor_time } = options;
            [dns, tcp, tls, auth, ready, processor_time].map(|time| ("connect", time))
        });
        let times = [
            ("service", self.service),
            ("service_p99", self.service_p99),
            ("first", self.first),
            ("processor_time", self.processor_time),
            ("pause", self.pause),
        ];
        let too_long = times.into_iter().chain(of_connect).find(|(_, time)| time.is_some_and(|time| time > MAX_TIME));
        too_long.map_or(Ok(()), |(key, _)| Err((key, "more than a day: nothing could be planned with that".to_owned())))
    }

    /// Service times of an operation that runs alone.
    fn service_times(
        &self,
        measured: &[BenchResult],
        sweep: Option<(&SweepResult, &Curve)>,
        assumed: &mut Vec<String>,
    ) -> Result<Times, OptionError> {
        let all = sum_histograms(measured, |result| result.total.service_ms.as_ref())
            .map_err(|message| ("measured", message))?;
        let times = match (all, self.service, sweep) {
            (Some(histogram), _, _) => {
                let times = Times::measured(&histogram).ok_or(("measured", "nothing was served".to_owned()))?;
                // A measured service time includes the pause of the client.
                let times = times.shortened_by(self.pause.unwrap_or_default());
                if times.mean().is_zero() {
                    let message = "no operation that was measured was longer: nothing is left for the server";
                    return Err(("pause", message.to_owned()));
                }
                times
            }
            (None, Some(mean), _) => self.times_with_mean(mean).map_err(|message| ("service_p99", message))?,
            (None, None, Some((sweep, curve))) => return times_of_curve(sweep, curve, assumed),
            (None, None, None) => {
                let question = "how long does the server take for one operation? Say it with `service`, or with the \
                                file of a measurement: `measured` or `curve`";
                return Err(("", question.to_owned()));
            }
        };
        // With a curve, the mean is the curve's and the given times only set the distribution.
        let Some(alone) = sweep.and_then(|(_, curve)| Some(time_alone(curve)?.0)) else { return Ok(times) };
        let given = times.mean();
        if alone.abs_diff(given) > given.mul_f64(MAX_MEAN_DIFFERENCE) {
            assumed.push(format!(
                "By the curve an operation alone takes {}, and not {} as is said besides: the curve's time is taken, \
                 and what is said tells how times vary.",
                crate::words::time(alone),
                crate::words::time(given)
            ));
        }
        Ok(times.with_mean(alone))
    }

    fn processors(&self, shared: bool, service: Duration) -> Result<Option<Processors>, OptionError> {
        let Some(work) = self.processor_time else { return Ok(None) };
        let wrong = |message: &str| Err(("processor_time", message.to_owned()));
        match self.cpus {
            _ if shared => wrong("give one of `curve`, `parallel` and `processor_time`"),
            None => wrong("how many processors are there? Say it with `cpus`"),
            Some(_) if work > service => wrong("processor_time is part of the service time, and cannot be longer"),
            Some(count) => Ok(Some(Processors { count, work })),
        }
    }

    fn times_with_mean(&self, mean: Duration) -> Result<Times, String> {
        match (self.service_p99, self.spread) {
            (Some(_), Some(_)) => Err("give either `spread` or `service_p99`, not both".to_owned()),
            (Some(p99), None) => Times::lognormal(mean, p99),
            (None, Some(Spread::Constant)) => Ok(Times::Constant(mean)),
            (None, Some(Spread::Exponential) | None) => Ok(Times::Exponential(mean)),
        }
    }

    fn connect_model(
        &self,
        measured: &[BenchResult],
        auth_trips: u32,
        assumed: &mut Vec<String>,
    ) -> Result<Connect, String> {
        let has_measured = measured.iter().any(|result| result.total.connect_ms.total.is_some());
        let options = if has_measured { self.connect } else { self.connect.or(self.connect_unless_measured) };
        let phase = |said: Option<Duration>, of: fn(&BenchResult) -> Option<&Percentiles>| match said {
            Some(time) => Ok(Some(Times::Constant(time))),
            None => sum_histograms(measured, of).map(|all| all.and_then(|histogram| Times::measured(&histogram))),
        };
        let mut connect = Connect {
            dns: phase(options.dns, |result| result.total.connect_ms.dns.as_ref())?,
            tcp: phase(options.tcp, |result| result.total.connect_ms.tcp.as_ref())?,
            tls: phase(options.tls, |result| result.total.connect_ms.tls.as_ref())?,
            auth: phase(options.auth, |result| result.total.connect_ms.auth.as_ref())?,
            ready: phase(options.ready, |result| result.total.connect_ms.ready.as_ref())?,
            tls_trips: TLS_TRIPS,
            auth_trips,
            ready_trips: 0,
            work: options.processor_time.unwrap_or_default(),
        };
        if connect.tls.is_some() && auth_trips == LOGIN_TRIPS {
            // SSLRequest counts to the handshake.
            (connect.tls_trips, connect.auth_trips) = (TLS_TRIPS + 1, auth_trips - 1);
        }
        if connect.phase_count() == 0 {
            connect.tcp = Some(Times::Constant(DEFAULT_TCP_TIME));
            connect.auth = Some(Times::Constant(DEFAULT_AUTH_TIME));
            assumed.push(format!(
                "Nothing was said of connecting: {} are assumed, as within a data centre without TLS.",
                crate::words::time(DEFAULT_TCP_TIME + DEFAULT_AUTH_TIME)
            ));
        }
        Ok(connect)
    }
}

/// The curve of a sweep. Its doubts are added to `assumed`.
fn read_curve(sweep: &SweepResult, assumed: &mut Vec<String>) -> Result<Curve, OptionError> {
    if let Some(noise) = sweep.direct.steadiness.noise {
        assumed.push(format!(
            "One measurement of the curve varies by {}: what follows from it is uncertain by as much.",
            crate::words::percent(noise)
        ));
    }
    let verdict = sweep.verdict.as_ref();
    for speeds in verdict.iter().flat_map(|verdict| &verdict.two_speeds) {
        let taken = if speeds.slow.is_some() { "the slower one" } else { "no more than the others let expect" };
        assumed.push(format!("Of the curve: {} The plan takes {taken}.", sweep_sentences::describe_two_speeds(speeds)));
    }
    let curve = Curve::measured(sweep).ok_or(("curve", "it has no point".to_owned()))?;
    // An unreliable curve has a warning of its own.
    if let Some(verdict) = verdict.filter(|verdict| verdict.confidence == LOW_CONFIDENCE && curve.doubt().is_none()) {
        let more = verdict.to_know.join(" ");
        let more = if more.is_empty() { String::new() } else { format!(" To know more: {more}") };
        assumed.push(format!("The confidence of the curve's sweep is low.{more}"));
    }
    Ok(curve)
}

/// Service times with the distribution of the response times at the first point of the sweep.
fn times_of_curve(sweep: &SweepResult, curve: &Curve, assumed: &mut Vec<String>) -> Result<Times, OptionError> {
    let none = || ("curve", "its points have no latencies".to_owned());
    let (mean, fewest) = time_alone(curve).ok_or_else(none)?;
    let point = sweep.direct.points.iter().find(|point| point.clients == fewest).ok_or_else(none)?;
    let p99 = point.p99_ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()).ok_or_else(none)?;
    let most = mean.mul_f64(0.999 * MAX_P99_RATIO);
    let times = Times::lognormal(mean, p99.min(most)).unwrap_or(Times::Exponential(mean));
    let did = format!("{} on average, {} at p99", crate::words::time(mean), crate::words::time(p99));
    let taken =
        if (mean..=most).contains(&p99) { String::new() } else { format!(", as far as that goes: {}", times.words()) };
    assumed.push(format!(
        "The work of operations is taken to vary as the response times of the sweep's first point did ({did}){taken}."
    ));
    Ok(times)
}

fn check_login(connect: &Connect, knows_processors: bool) -> Result<(), &'static str> {
    let login = [&connect.auth, &connect.ready].into_iter().flatten().map(Times::mean).sum();
    match connect.work {
        Duration::ZERO => Ok(()),
        _ if !knows_processors => Err("its processor_time is for a plan with `processor_time` and `cpus`"),
        work if work > login => Err("its processor_time is part of auth and ready, and cannot be longer"),
        _ => Ok(()),
    }
}

fn read_connect(section: &Section<'_>) -> ConnectOptions {
    ConnectOptions {
        dns: section.duration_on("dns"),
        tcp: section.duration_on("tcp"),
        tls: section.duration_on("tls"),
        auth: section.duration_on("auth"),
        ready: section.duration_on("ready"),
        processor_time: section.duration_on("processor_time"),
    }
}

fn read_platform(section: &Section<'_>) -> Option<Platform> {
    for key in PLATFORM_KEYS.iter().filter(|key| !section.has(key)) {
        section.error("", format!("`platform` needs `{key}`"));
    }
    Some(Platform {
        freeze_after: section.duration_on("freeze_after")?,
        kill_after: section.duration_on("kill_after")?,
    })
}

/// Round trips of a login, the error of a full server, and round trips of an operation.
fn protocol_defaults(target: &Target) -> (u32, &'static str, u32) {
    match target {
        Target::Postgres(target) => {
            let trips = target.scripts.iter().map(|(script, _)| match script {
                Script::SelectOnly | Script::File(..) => 1,
                Script::TpcbLike => TPCB_TRIPS,
                Script::SimpleUpdate => SIMPLE_UPDATE_TRIPS,
            });
            (LOGIN_TRIPS, POSTGRES_FULL, trips.max().unwrap_or(1))
        }
        Target::Redis(_) => (1, "too many clients", 1),
        // `hello`, and two of SCRAM.
        Target::MongoDb(_) => (3, "connection closed", 1),
        Target::Http(_) => (0, "connection closed", 1),
    }
}

fn read_measured(path: &Path) -> Result<Vec<BenchResult>, String> {
    let results = files::read_all(path).map_err(|error| error.to_string())?;
    if results.iter().all(|result| result.total.service_ms.is_none()) {
        return Err(format!("{}: nothing was served", path.display()));
    }
    Ok(results)
}

/// The sum of histograms of all results. `None`: no result has one.
///
/// # Errors
/// A histogram was not kept, or cannot be read.
fn sum_histograms(
    results: &[BenchResult],
    of: fn(&BenchResult) -> Option<&Percentiles>,
) -> Result<Option<Histogram>, String> {
    let mut all: Option<Histogram> = None;
    for percentiles in results.iter().filter_map(of) {
        let text = percentiles.histogram.as_deref().ok_or("it has percentiles, and not the histogram behind them")?;
        let histogram = Histogram::decode(text).map_err(|error| error.to_string())?;
        all.get_or_insert_with(Histogram::new).add(&histogram);
    }
    Ok(all)
}

/// The mean time of an operation at the fewest clients of the curve, and their number.
fn time_alone(curve: &Curve) -> Option<(Duration, u32)> {
    let fewest = curve.known_concurrencies().next()?;
    Some((Duration::try_from_secs_f64(f64::from(fewest) / curve.throughput(fewest)).ok()?, fewest))
}
