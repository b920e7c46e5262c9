//! What is said of a server, its limits and what must hold, from a scenario's `[plan]` or from the command line.
//! Absent: it is not said.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use ::report::findings;
use ::report::{
    files,
    histogram::Histogram,
    result::{BenchResult, Percentiles, sweep::SweepResult},
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

/// The key that is to blame, and why, in words.
type Wrong = (&'static str, String);

/// Making a connection where nothing is said of it, as it is within a data centre.
const USUAL_TCP: Duration = Duration::from_millis(1);
/// The same for the login.
const USUAL_AUTH: Duration = Duration::from_millis(9);
/// Answers that a login at PostgreSQL waits for: whether there is TLS, and three of SCRAM's. With TLS the first one
/// belongs to its handshake, which waits for one answer more.
const LOGIN_TRIPS: u32 = 4;
const TLS_TRIPS: u32 = 1;
/// No part of an operation or of a new connection takes longer.
const LONGEST: Duration = Duration::from_secs(86_400);
/// Two means are taken for the same if they differ by no more than this share.
const SAME: f64 = 0.1;
/// Statements of pgbench's transaction, and of the one without contended tables.
const TPCB_TRIPS: u32 = 7;
const SIMPLE_UPDATE_TRIPS: u32 = 5;

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Wishes {
    /// Whose settings are to be told.
    pub products: Vec<Product>,
    /// What the server needs for one operation alone, on average.
    pub service: Option<Duration>,
    /// The 99th percentile of that.
    pub service_p99: Option<Duration>,
    /// By how much longer the first operation on a new connection takes.
    pub first: Option<Duration>,
    pub spread: Option<Spread>,
    /// A result of `poolhouse bench --json`, whose service times and connects are taken.
    pub measured: Option<PathBuf>,
    /// A result of `poolhouse sweep --json`: what concurrency does.
    pub curve: Option<PathBuf>,
    /// Operations that the server works on at a time; more share it.
    pub parallel: Option<u32>,
    /// For how long an operation needs one of the server's processors; more operations than there are processors wait
    /// for one.
    pub processor_time: Option<Duration>,
    /// Round trips of an operation.
    pub trips: Option<u32>,
    /// The client's own time within an operation.
    pub pause: Option<Duration>,
    /// The phases of making a connection.
    pub connect: ConnectWishes,
    /// Connections that the server lets in.
    pub server_limit: Option<u32>,
    /// Of these, those kept for others.
    pub reserved: Option<u32>,
    /// Connections that all pools together may have, as those of one Poolhouse.
    pub budget: Option<u32>,
    /// The same of what was assumed until somebody measured it: it counts where the measurement saw no connection being
    /// made.
    pub unless_measured: ConnectWishes,
    pub objectives: Vec<String>,
    /// By how much limits must be kept, as a share of them.
    pub margin: Option<f64>,
    /// The server's processors, for a rule of thumb and for [`Self::processor_time`].
    pub cpus: Option<u32>,
    /// Memory of the server for each connection, in megabytes.
    pub memory_mb: Option<f64>,
    /// What the platform does with functions.
    pub platform: Option<Platform>,
    /// What needs a connection of its own at a Redis.
    pub exclusive: Option<Exclusive>,
}

/// How service times are distributed whose mean is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    Constant,
    Exponential,
}

/// What is said of the phases of making a connection.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ConnectWishes {
    pub dns: Option<Duration>,
    pub tcp: Option<Duration>,
    pub tls: Option<Duration>,
    pub auth: Option<Duration>,
    /// From there to being ready.
    pub ready: Option<Duration>,
    /// Of these two, for how long one of the server's processors is needed.
    pub processor_time: Option<Duration>,
}

impl ConnectWishes {
    /// These, and where they say nothing those below.
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

/// What the platform does with functions that nobody calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Platform {
    /// A function is frozen when it has been idle for so long.
    pub freeze_after: Duration,
    /// It is ended when it has been frozen for so long.
    pub kill_after: Duration,
}

/// A server waits so much longer than the platform keeps a frozen function, and so much longer than until it is frozen
/// besides.
const PLATFORM_ROOM: Duration = Duration::from_secs(10);
const FREEZE_ROOM: Duration = Duration::from_secs(5);

impl Platform {
    /// The idle time of a server that no thawed function finds to be over.
    pub fn outlived(&self) -> Duration {
        self.kill_after.saturating_add(PLATFORM_ROOM.max(self.freeze_after.saturating_add(FREEZE_ROOM)))
    }
}

/// What needs a connection of its own at a Redis; ordinary commands share.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Exclusive {
    /// Blocking commands (`BLPOP` and the like) per second.
    pub blocking_rate: f64,
    /// How long one blocks on average.
    pub blocking_time: Duration,
    /// Transactions (`MULTI`, `WATCH`) per second.
    pub transaction_rate: f64,
    /// How long one takes from the first command to the last.
    pub transaction_time: Duration,
    /// Clients that subscribe; all of one user share a connection.
    pub subscribers: u32,
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
    "exclusive",
];
const CONNECT_KEYS: &[&str] = &["dns", "tcp", "tls", "auth", "ready", "processor_time"];
const PLATFORM_KEYS: &[&str] = &["freeze_after", "kill_after"];
const EXCLUSIVE_KEYS: &[&str] =
    &["blocking_rate", "blocking_time", "transaction_rate", "transaction_time", "subscribers"];
/// Conditions that there may be.
const MAX_OBJECTIVES: usize = 16;
/// The largest numbers that make sense.
const MOST: u32 = 1_000_000;

impl Wishes {
    /// The keys of `[plan]`.
    pub fn read(section: &Section<'_>) -> Self {
        let objectives = section.texts("objectives").unwrap_or_default();
        if objectives.len() > MAX_OBJECTIVES {
            section.error("objectives", format!("more than {MAX_OBJECTIVES} objectives"));
        }
        for text in &objectives {
            if let Err(message) = super::objective(text) {
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
            parallel: section.number("parallel", 1..=MOST),
            processor_time: section.duration_on("processor_time"),
            trips: section.number("trips", 1..=1000),
            pause: section.duration_on("pause"),
            connect: section.table("connect", &[CONNECT_KEYS]).map(|table| connect(&table)).unwrap_or_default(),
            server_limit: section.number("server_limit", 1..=MOST),
            reserved: section.number("reserved", 0..=MOST),
            budget: section.number("budget", 1..=MOST),
            objectives,
            margin: section.decimal("margin", 0.0..=0.9),
            cpus: section.number("cpus", 1..=10_000),
            memory_mb: section.decimal("memory_mb", 0.001..=100_000.0),
            products: Vec::new(),
            unless_measured: ConnectWishes::default(),
            platform: section.table("platform", &[PLATFORM_KEYS]).and_then(|table| platform(&table)),
            exclusive: section.table("exclusive", &[EXCLUSIVE_KEYS]).map(|table| exclusive(&table)),
        }
    }

    /// These, and where they say nothing those below.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        // Whoever says what a service takes means that, and not what somebody else has measured.
        let says = self.service.is_some() || self.measured.is_some();
        let below = if says { Self { service: None, service_p99: None, measured: None, ..below } } else { below };
        // So does whoever says what more of them at once do.
        let says = self.curve.is_some() || self.parallel.is_some() || self.processor_time.is_some();
        let below = if says { Self { curve: None, parallel: None, processor_time: None, ..below } } else { below };
        // A measurement knows better than the file below what connecting takes, if it knows.
        let below = match self.measured {
            Some(_) => {
                let processor_time = below.connect.processor_time;
                let connect = ConnectWishes { processor_time, ..ConnectWishes::default() };
                Self { connect, unless_measured: below.connect, ..below }
            }
            None => below,
        };
        // Whoever gives a percentile means no other spread.
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
            unless_measured: self.unless_measured.or(below.unless_measured),
            server_limit: self.server_limit.or(below.server_limit),
            reserved: self.reserved.or(below.reserved),
            budget: self.budget.or(below.budget),
            objectives: if self.objectives.is_empty() { below.objectives } else { self.objectives },
            margin: self.margin.or(below.margin),
            cpus: self.cpus.or(below.cpus),
            memory_mb: self.memory_mb.or(below.memory_mb),
            platform: self.platform.or(below.platform),
            exclusive: self.exclusive.or(below.exclusive),
        }
    }

    /// The server that is meant, for a load on this target. What had to be assumed is added to `assumed`, a sentence
    /// each.
    ///
    /// # Errors
    /// It cannot be, with the key that is to blame, and in words.
    pub fn spec(&self, target: &Target, assumed: &mut Vec<String>) -> Result<Spec, Wrong> {
        self.check_lengths()?;
        let measured = match &self.measured {
            Some(path) => read_measured(path).map_err(|message| ("measured", message))?,
            None => Vec::new(),
        };
        let sweep = match &self.curve {
            Some(path) => Some(files::read_sweep(path).map_err(|error| ("curve", error.to_string()))?),
            None => None,
        };
        let curve = sweep.as_ref().map(|sweep| curve_of(sweep, assumed)).transpose()?;
        let known = sweep.as_ref().zip(curve.as_ref());
        let service = self.times(&measured, known, assumed)?;
        let curve = match (self.parallel, curve) {
            (Some(_), Some(_)) => return Err(("parallel", "give either `curve` or `parallel`, not both".to_owned())),
            (Some(most), None) => Some(Curve::parallel(most, service.mean().as_secs_f64())),
            (None, curve) => curve,
        };
        let processors = self.processors(curve.is_some(), service.mean())?;
        let (auth_trips, full, trips) = kind(target);
        let limit = self.server_limit;
        if let (Some(limit), Some(reserved)) = (limit, self.reserved)
            && reserved >= limit
        {
            return Err(("reserved", format!("{reserved} of {limit} connections are reserved: none is left")));
        }
        let connect = self.connect(&measured, auth_trips, assumed).map_err(|message| ("measured", message))?;
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
            full,
            budget: self.budget,
            watchers: match (target, self.platform) {
                (Target::MongoDb(_), None) => MONGODB_MONITORS_PER_HOST,
                // Drivers know that they run in a function.
                (Target::MongoDb(_), Some(_)) => POLLING_MONITORS_PER_HOST,
                _ => 0,
            },
            ..Spec::new(service)
        })
    }

    /// Whether all times are such that sums of them can be counted.
    fn check_lengths(&self) -> Result<(), Wrong> {
        let ConnectWishes { dns, tcp, tls, auth, ready, processor_time } = self.connect;
        let of_connect = [dns, tcp, tls, auth, ready, processor_time].map(|time| ("connect", time));
        let times = [
            ("service", self.service),
            ("service_p99", self.service_p99),
            ("first", self.first),
            ("processor_time", self.processor_time),
            ("pause", self.pause),
        ];
        let too_long = times.into_iter().chain(of_connect).find(|(_, time)| time.is_some_and(|time| time > LONGEST));
        too_long.map_or(Ok(()), |(key, _)| Err((key, "more than a day: nothing could be planned with that".to_owned())))
    }

    /// What an operation alone takes at the server.
    fn times(
        &self,
        measured: &[BenchResult],
        sweep: Option<(&SweepResult, &Curve)>,
        assumed: &mut Vec<String>,
    ) -> Result<Times, Wrong> {
        let all = sum(measured, |result| result.total.service_ms.as_ref()).map_err(|message| ("measured", message))?;
        let times = match (all, self.service, sweep) {
            (Some(histogram), _, _) => {
                let times = Times::measured(&histogram).ok_or(("measured", "nothing was served".to_owned()))?;
                // What was measured is as long as the operation was with the server, the client's own time included.
                let times = times.without(self.pause.unwrap_or_default());
                if times.mean().is_zero() {
                    let message = "no operation that was measured was longer: nothing is left for the server";
                    return Err(("pause", message.to_owned()));
                }
                times
            }
            (None, Some(mean), _) => self.of_mean(mean).map_err(|message| ("service_p99", message))?,
            (None, None, Some((sweep, curve))) => return varies_as(sweep, curve, assumed),
            (None, None, None) => {
                let said = "how long does the server take for one operation? Say it with `service`, or with the file of a measurement: `measured` or `curve`";
                return Err(("", said.to_owned()));
            }
        };
        // A curve knows how long operations take, and then what was said tells how they vary.
        let Some(alone) = sweep.and_then(|(_, curve)| Some(alone(curve)?.0)) else { return Ok(times) };
        let said = times.mean();
        if alone.abs_diff(said) > said.mul_f64(SAME) {
            assumed.push(format!(
                "By the curve an operation alone takes {}, and not {} as is said besides: the curve's time is taken, and what is said tells \
                 how times vary.",
                crate::words::time(alone),
                crate::words::time(said)
            ));
        }
        Ok(times.with_mean(alone))
    }

    fn processors(&self, shared: bool, service: Duration) -> Result<Option<Processors>, Wrong> {
        let Some(work) = self.processor_time else { return Ok(None) };
        let wrong = |message: &str| Err(("processor_time", message.to_owned()));
        match self.cpus {
            _ if shared => wrong("give one of `curve`, `parallel` and `processor_time`"),
            None => wrong("how many processors are there? Say it with `cpus`"),
            Some(_) if work > service => wrong("processor_time is part of the service time, and cannot be longer"),
            Some(count) => Ok(Some(Processors { count, work })),
        }
    }

    fn of_mean(&self, mean: Duration) -> Result<Times, String> {
        match (self.service_p99, self.spread) {
            (Some(_), Some(_)) => Err("give either `spread` or `service_p99`, not both".to_owned()),
            (Some(p99), None) => Times::lognormal(mean, p99),
            (None, Some(Spread::Constant)) => Ok(Times::Constant(mean)),
            (None, Some(Spread::Exponential) | None) => Ok(Times::Exponential(mean)),
        }
    }

    fn connect(&self, measured: &[BenchResult], auth_trips: u32, assumed: &mut Vec<String>) -> Result<Connect, String> {
        let has_measured = measured.iter().any(|result| result.total.connect_ms.total.is_some());
        let wishes = if has_measured { self.connect } else { self.connect.or(self.unless_measured) };
        let phase = |said: Option<Duration>, of: fn(&BenchResult) -> Option<&Percentiles>| match said {
            Some(time) => Ok(Some(Times::Constant(time))),
            None => sum(measured, of).map(|all| all.and_then(|histogram| Times::measured(&histogram))),
        };
        let mut connect = Connect {
            dns: phase(wishes.dns, |result| result.total.connect_ms.dns.as_ref())?,
            tcp: phase(wishes.tcp, |result| result.total.connect_ms.tcp.as_ref())?,
            tls: phase(wishes.tls, |result| result.total.connect_ms.tls.as_ref())?,
            auth: phase(wishes.auth, |result| result.total.connect_ms.auth.as_ref())?,
            ready: phase(wishes.ready, |result| result.total.connect_ms.ready.as_ref())?,
            tls_trips: TLS_TRIPS,
            auth_trips,
            ready_trips: 0,
            work: wishes.processor_time.unwrap_or_default(),
        };
        if connect.tls.is_some() && auth_trips == LOGIN_TRIPS {
            // TLS has been asked for already.
            (connect.tls_trips, connect.auth_trips) = (TLS_TRIPS + 1, auth_trips - 1);
        }
        if connect.phase_count() == 0 {
            connect.tcp = Some(Times::Constant(USUAL_TCP));
            connect.auth = Some(Times::Constant(USUAL_AUTH));
            assumed.push(format!(
                "Nothing was said of connecting: {} are assumed, as within a data centre without TLS.",
                crate::words::time(USUAL_TCP + USUAL_AUTH)
            ));
        }
        Ok(connect)
    }
}

/// What a sweep says of many operations at once, and what that leaves open.
fn curve_of(sweep: &SweepResult, assumed: &mut Vec<String>) -> Result<Curve, Wrong> {
    if let Some(noise) = sweep.direct.steadiness.noise {
        assumed.push(format!(
            "One measurement of the curve varies by {}: what follows from it is uncertain by as much.",
            crate::words::percent(noise)
        ));
    }
    let verdict = sweep.verdict.as_ref();
    for speeds in verdict.iter().flat_map(|verdict| &verdict.two_speeds) {
        let taken = if speeds.slow.is_some() { "the slower one" } else { "no more than the others let expect" };
        assumed.push(format!("Of the curve: {} The plan takes {taken}.", findings::named(speeds)));
    }
    let curve = Curve::measured(sweep).ok_or(("curve", "it has no point".to_owned()))?;
    // Where nothing can be relied on, there is a warning that says more.
    if let Some(verdict) = verdict.filter(|verdict| verdict.confidence == LOW_CONFIDENCE && curve.doubt().is_none()) {
        let more = verdict.to_know.join(" ");
        let more = if more.is_empty() { String::new() } else { format!(" To know more: {more}") };
        assumed.push(format!("The confidence of the curve's sweep is low.{more}"));
    }
    Ok(curve)
}

/// The times of a curve of which nothing else is said: they vary as those of the sweep did.
fn varies_as(sweep: &SweepResult, curve: &Curve, assumed: &mut Vec<String>) -> Result<Times, Wrong> {
    let none = || ("curve", "its points have no latencies".to_owned());
    let (mean, fewest) = alone(curve).ok_or_else(none)?;
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

/// Whether logins can need a processor for as long as is said.
fn check_login(connect: &Connect, knows_processors: bool) -> Result<(), &'static str> {
    let login = [&connect.auth, &connect.ready].into_iter().flatten().map(Times::mean).sum();
    match connect.work {
        Duration::ZERO => Ok(()),
        _ if !knows_processors => Err("its processor_time is for a plan with `processor_time` and `cpus`"),
        work if work > login => Err("its processor_time is part of auth and ready, and cannot be longer"),
        _ => Ok(()),
    }
}

fn connect(section: &Section<'_>) -> ConnectWishes {
    ConnectWishes {
        dns: section.duration_on("dns"),
        tcp: section.duration_on("tcp"),
        tls: section.duration_on("tls"),
        auth: section.duration_on("auth"),
        ready: section.duration_on("ready"),
        processor_time: section.duration_on("processor_time"),
    }
}

fn platform(section: &Section<'_>) -> Option<Platform> {
    for key in PLATFORM_KEYS.iter().filter(|key| !section.has(key)) {
        section.error("", format!("`platform` needs `{key}`"));
    }
    Some(Platform {
        freeze_after: section.duration_on("freeze_after")?,
        kill_after: section.duration_on("kill_after")?,
    })
}

fn exclusive(section: &Section<'_>) -> Exclusive {
    Exclusive {
        blocking_rate: section.decimal("blocking_rate", 0.0..=1e6).unwrap_or(0.0),
        blocking_time: section.duration_on("blocking_time").unwrap_or_default(),
        transaction_rate: section.decimal("transaction_rate", 0.0..=1e6).unwrap_or(0.0),
        transaction_time: section.duration_on("transaction_time").unwrap_or_default(),
        subscribers: section.number("subscribers", 0..=MOST).unwrap_or(0),
    }
}

/// Answers of a login, what one client too many is told, and round trips of an operation.
fn kind(target: &Target) -> (u32, &'static str, u32) {
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
        // The first answer says what the server is, the others are SCRAM's.
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

/// A histogram of all results together; `None`: there is nothing of the kind.
///
/// # Errors
/// It was not kept, or cannot be read.
fn sum(results: &[BenchResult], of: fn(&BenchResult) -> Option<&Percentiles>) -> Result<Option<Histogram>, String> {
    let mut all: Option<Histogram> = None;
    for percentiles in results.iter().filter_map(of) {
        let text = percentiles.histogram.as_deref().ok_or("it has percentiles, and not the histogram behind them")?;
        let histogram = Histogram::decode(text).map_err(|error| error.to_string())?;
        all.get_or_insert_with(Histogram::new).add(&histogram);
    }
    Ok(all)
}

/// How long an operation takes with as few others as the curve knows, on average, and how few they are.
fn alone(curve: &Curve) -> Option<(Duration, u32)> {
    let fewest = curve.known_at().next()?;
    Some((Duration::try_from_secs_f64(f64::from(fewest) / curve.throughput(fewest)).ok()?, fewest))
}
