//! A whole sweep of a PostgreSQL: looks at the server and its limits before any load, measures directly, through a pooler, at a rate, and
//! draws the conclusions. Shows nothing and writes no file.

use std::{fmt, sync::atomic::AtomicBool, time::Duration};

use super::{
    Measured, Options, ProbeError, Progress, at_rate, measure,
    real::{self, Limits, Real},
    result::{Asked, Curve, FORMAT, SweepResult},
    verdict::{settings, verdict},
};
use crate::{
    plan::{PostgresTarget, Script},
    result::About,
    run::machine,
    target::{Blame, TargetError, postgres},
    words,
};

/// Noise above this makes a sweep hard to believe.
const MUCH_NOISE: f64 = 0.1;
/// More errors than this share of the operations are worth a word.
const MANY_ERRORS: f64 = 0.001;
/// Rounds through a pooler, where many clients take long to log in.
const ROUNDS_THROUGH: u32 = 3;

/// What is to be done.
#[derive(Debug)]
pub struct Order<'p> {
    /// The database itself.
    pub target: PostgresTarget,
    /// A second curve, through a pooler.
    pub through: Option<Through<'p>>,
    /// How.
    pub options: Options,
    /// Arrivals per second whose latency is wanted too.
    pub rate: Option<f64>,
    /// When an operation has failed.
    pub timeout: Duration,
    /// The command line, without passwords.
    pub command: Option<String>,
}

/// A curve through a pooler.
#[derive(Debug)]
pub struct Through<'p> {
    /// Which.
    pub pooler: Pooler<'p>,
    /// Clients up to which it is measured.
    pub clients: u32,
}

/// The pooler that a second curve is measured through.
pub enum Pooler<'p> {
    /// One that is there.
    At(PostgresTarget),
    /// One that is started for it, with the number of connections that was found.
    Started(Box<dyn FnOnce(u32) -> Result<PostgresTarget, SweepError> + 'p>),
}

impl fmt::Debug for Pooler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::At(_) => "At",
            Self::Started(_) => "Started",
        })
    }
}

/// What a sweep is at.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Stage<'a> {
    /// The curve of this name.
    Curve(&'a str, Progress<'a>),
    /// Latency at the rate: connections, measurements done, measurements in all.
    Rate(u32, usize, usize),
}

/// Why there is no result. Holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SweepError {
    /// Who has to do something about it.
    pub blame: Blame,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SweepError {}

impl From<TargetError> for SweepError {
    fn from(error: TargetError) -> Self {
        Self { blame: error.blame, message: error.message }
    }
}

/// Makes the sweep. Interrupted, it returns what there is.
///
/// # Errors
/// What is wrong with the target or the order, before any load; or what made going on impossible.
pub fn run(
    order: Order<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Stage<'_>),
) -> Result<SweepResult, SweepError> {
    let server = postgres::check(&order.target)?;
    if let Some(Through { pooler: Pooler::At(pooler), .. }) = &order.through {
        postgres::check(pooler).map_err(|error| SweepError {
            message: format!("--through: {}", error.message),
            ..SweepError::from(error)
        })?;
    }
    let limits = real::limits(&order.target)?;
    let mut warnings = Vec::new();
    let options = within(order.options, limits, &mut warnings)?;
    warnings.extend(beyond_scale(&order.target, options.to));
    let mut probe = Real::new(order.target.clone(), Some(limits), order.timeout, options.seed, stop);
    let direct = curve(&mut probe, &options, "directly", &order.target, progress)?;
    let mut result = SweepResult {
        format: FORMAT,
        kind: "sweep".to_owned(),
        about: about(&order, server),
        asked: asked(&options, order.rate),
        interrupted: direct.interrupted,
        ..SweepResult::default()
    };
    warnings.extend(direct.refused);
    result.direct = direct.curve;
    result.verdict = verdict(&result.direct, real::generator(), options.seed);
    result.settings = result.verdict.as_ref().map(|verdict| settings(verdict, Some(limits.reserved)));
    if !result.interrupted
        && let Some((rate, best)) = order.rate.zip(result.verdict.as_ref().map(|v| v.best_clients))
    {
        at_the_rate(&mut probe, &options, (rate, best), &mut result, progress)?;
    }
    warnings.extend(probe.complaint().map(str::to_owned));
    let best = result.verdict.as_ref().map(|verdict| verdict.recommended_clients);
    if let Some((Through { pooler, clients }, best)) = order.through.zip(best).filter(|_| !result.interrupted) {
        let (name, pooler) = match pooler {
            Pooler::At(pooler) => ("through the pooler".to_owned(), pooler),
            Pooler::Started(start) => (format!("through a pool of {best}"), start(best)?),
        };
        let options = Options { to: clients, rounds: options.rounds.min(ROUNDS_THROUGH), ..options };
        let mut probe = Real::new(pooler.clone(), None, order.timeout, options.seed, stop);
        let through = curve(&mut probe, &options, &name, &pooler, progress)?;
        result.interrupted = through.interrupted;
        warnings.extend(through.refused);
        result.through = Some(through.curve);
    }
    warnings.extend(doubts(&result));
    result.warnings = warnings;
    Ok(result)
}

fn curve(
    probe: &mut Real<'_>,
    options: &Options,
    name: &str,
    target: &PostgresTarget,
    progress: &mut dyn FnMut(&Stage<'_>),
) -> Result<Measured, SweepError> {
    measure(probe, options, (name, &real::shown(target)), &mut |now| progress(&Stage::Curve(name, *now)))
        .map_err(broken)
}

fn at_the_rate(
    probe: &mut Real<'_>,
    options: &Options,
    (rate, best): (f64, u32),
    result: &mut SweepResult,
    progress: &mut dyn FnMut(&Stage<'_>),
) -> Result<(), SweepError> {
    let candidates = at_rate::candidates(&result.direct, rate, best);
    let measured = at_rate::measure(probe, options, rate, &candidates, &mut |clients, done, all| {
        progress(&Stage::Rate(clients, done, all));
    });
    match measured {
        Ok(measured) => result.at_rate = Some(measured),
        Err(ProbeError::Interrupted) => result.interrupted = true,
        Err(error) => return Err(broken(error)),
    }
    Ok(())
}

fn broken(error: ProbeError) -> SweepError {
    SweepError { blame: Blame::Target, message: error.to_string() }
}

/// Keeps the range below what the server lets in.
fn within(options: Options, limits: Limits, warnings: &mut Vec<String>) -> Result<Options, SweepError> {
    let Limits { max_connections, reserved, others } = limits;
    let room = limits.room();
    if room <= options.from {
        return Err(SweepError {
            blame: Blame::Target,
            message: format!(
                "the server has room for {room} connections only (max_connections {max_connections}, {reserved} reserved, {others} in \
                 use by others): raise max_connections, or stop what else uses it"
            ),
        });
    }
    if room < options.to {
        warnings.push(format!(
            "Tested up to {room} clients instead of {}: max_connections is {max_connections}, {reserved} of them are reserved and {others} \
             in use by others.",
            options.to
        ));
    }
    Ok(Options { to: options.to.min(room), ..options })
}

/// In TPC-B-like loads every transaction updates one of as many branches as the scale says.
fn beyond_scale(target: &PostgresTarget, to: u32) -> Option<String> {
    let contends = target.scripts.iter().any(|(script, _)| *script == Script::TpcbLike);
    (contends && to > target.scale).then(|| {
        format!(
            "With more clients than the scale ({}) they wait for one another's rows: this sweep finds where that begins. For the server's \
             own limit use --scale {to} or more, or --simple-update.",
            target.scale
        )
    })
}

/// What the reader must know of the result itself.
fn doubts(result: &SweepResult) -> Vec<String> {
    let mut doubts = Vec::new();
    if result.interrupted {
        doubts.push("Interrupted: this is what was measured until then.".to_owned());
    }
    for curve in std::iter::once(&result.direct).chain(&result.through) {
        let name = &curve.name;
        if let Some(drift) = curve.steadiness.drift.filter(|_| curve.steadiness.drifted) {
            doubts.push(format!(
                "Throughput {name} changed by {:+.0}% during the sweep; the curve is corrected for it. Something else uses the machine, \
                 caches were cold, or tables grew: sweep again.",
                100.0 * drift
            ));
        }
        if let Some(noise) = curve.steadiness.noise.filter(|&noise| noise > MUCH_NOISE) {
            doubts.push(format!(
                "One measurement {name} varies by {:.0}%: use a longer --point-time or a quieter machine.",
                100.0 * noise
            ));
        }
        doubts.extend(errors(curve, result.asked.point_s));
    }
    if let Some(verdict) = &result.verdict {
        match verdict.limited_by.as_deref() {
            Some("generator") => doubts.push(
                "The load generator used all of its processor, so that this is its limit and not the database's: use a heavier script, \
                 or several load machines."
                    .to_owned(),
            ),
            Some("machine") => doubts.push(
                "The load generator took a good part of a machine that had nothing idle: run it on another machine to see the database's \
                 own limit."
                    .to_owned(),
            ),
            _ => {}
        }
    } else {
        doubts.push("No operation ended well, so there is nothing to conclude.".to_owned());
    }
    doubts
}

fn errors(curve: &Curve, point_s: f64) -> Option<String> {
    let failed: u64 = curve.visits.iter().map(|v| v.errors).sum();
    let done: f64 = curve.visits.iter().map(|v| v.throughput * point_s).sum();
    (failed as f64 > MANY_ERRORS * done)
        .then(|| format!("{failed} operations failed {}: they are not counted as throughput.", curve.name))
}

fn asked(options: &Options, rate: Option<f64>) -> Asked {
    Asked {
        clients_from: options.from,
        clients_to: options.to,
        rounds: options.rounds,
        point_s: options.duration.as_secs_f64(),
        warmup_s: options.warmup.as_secs_f64(),
        rate,
    }
}

fn about(order: &Order<'_>, server: String) -> About {
    let protocol = words::protocol(order.target.protocol);
    let scripts: Vec<String> =
        order.target.scripts.iter().map(|(script, _)| words::script(script, order.target.scale)).collect();
    About {
        started: machine::seconds_since_1970(),
        seed: order.options.seed,
        shape: "sweep".to_owned(),
        load: format!("{}, {protocol} protocol", scripts.join(" and ")),
        pool: "one connection for each client, opened before and kept".to_owned(),
        target: real::shown(&order.target),
        server: Some(server),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine::describe(),
        command: order.command.clone(),
        ..About::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::result::{Steadiness, Verdict, Visit};

    fn options(to: u32) -> Options {
        let second = Duration::from_secs(1);
        Options { from: 1, to, rounds: 5, duration: second, warmup: second, seed: 1 }
    }

    #[test]
    fn the_range_stays_below_what_the_server_lets_in_and_the_reader_is_told() {
        let limits = Limits { max_connections: 100, reserved: 3, others: 2 };
        let mut warnings = Vec::new();
        assert_eq!(within(options(256), limits, &mut warnings).unwrap().to, 95);
        assert!(warnings[0].contains("95 clients instead of 256"), "{warnings:?}");
        assert_eq!(within(options(64), limits, &mut warnings).unwrap().to, 64);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn a_server_without_room_is_an_error_that_says_what_to_do() {
        let limits = Limits { max_connections: 10, reserved: 3, others: 6 };
        let error = within(options(8), limits, &mut Vec::new()).unwrap_err();
        assert!(error.message.contains("raise max_connections"), "{error}");
    }

    #[test]
    fn a_reader_is_told_of_drift_noise_errors_and_the_generators_limit() {
        let curve = Curve {
            name: "directly".to_owned(),
            visits: vec![Visit { throughput: 100.0, errors: 7, ..Visit::default() }],
            steadiness: Steadiness { noise: Some(0.2), drift: Some(-0.3), drifted: true, ..Steadiness::default() },
            ..Curve::default()
        };
        let verdict = Verdict { limited_by: Some("generator".to_owned()), ..Verdict::default() };
        let asked = Asked { point_s: 3.0, ..Asked::default() };
        let result = SweepResult { direct: curve, verdict: Some(verdict), asked, ..SweepResult::default() };
        let doubts = doubts(&result).join("\n");
        for words in ["-30%", "varies by 20%", "7 operations failed", "all of its processor"] {
            assert!(doubts.contains(words), "{words}: {doubts}");
        }
        assert!(super::doubts(&SweepResult::default())[0].contains("nothing to conclude"));
    }
}
