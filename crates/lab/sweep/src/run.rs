//! A whole sweep of a database: looks at the server and its limits before any load, measures directly and
//! through a pooler, and draws the conclusions. Shows nothing and writes no file.

use std::{fmt, sync::atomic::AtomicBool, time::Duration};

use report::sweep_sentences;

use super::{
    MeasuredCurve, ProbeError, Progress,
    limits::{Limits, ask_limits},
    measure,
    real::{self, DatabaseProbe},
    verdict::{self, ServerKind, settings},
};
use load::plan::SweepOptions;
use load::{
    describe,
    plan::{Script, Target},
    run::machine,
    target::{self, Blame, POOLER_WARNING, TargetError, reserve_descriptors},
};
use report::result::About;
use report::result::sweep::{Asked, Curve, FORMAT, SweepResult};

/// Relative noise of one measurement above which a sweep warns.
const MAX_STEADY_NOISE: f64 = 0.1;
/// Share of failed operations above which a sweep warns.
const MAX_ERROR_SHARE: f64 = 0.001;
/// Rounds through a pooler, where many clients take long to log in.
const MAX_POOLER_ROUNDS: u32 = 3;

#[derive(Debug)]
pub struct SweepRequest<'p> {
    /// The database itself; no HTTP service.
    pub target: Target,
    /// A second curve, through a pooler.
    pub through: Option<Through<'p>>,
    pub options: SweepOptions,
    /// The time after which an operation counts as failed.
    pub timeout: Duration,
    /// The command line, without passwords.
    pub command: Option<String>,
    /// What its scenario shows, if it is one's.
    pub scenario: Option<String>,
}

/// A curve through a pooler.
#[derive(Debug)]
pub struct Through<'p> {
    pub pooler: Pooler<'p>,
    /// Clients up to which it is measured.
    pub clients: u32,
}

/// The pooler that a second curve is measured through.
pub enum Pooler<'p> {
    At(Target),
    /// One that is started for it, with the number of connections that was found.
    Started(Box<dyn FnOnce(u32) -> Result<Target, SweepError> + 'p>),
}

impl fmt::Debug for Pooler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::At(_) => "At",
            Self::Started(_) => "Started",
        })
    }
}

/// Why there is no result. Contains no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SweepError {
    /// Who has to do something about it.
    pub blame: Blame,
    /// What is wrong, and what to do.
    pub message: String,
}

impl From<TargetError> for SweepError {
    fn from(error: TargetError) -> Self {
        Self { blame: error.blame, message: error.message }
    }
}

impl SweepRequest<'_> {
    /// What can be known to be wrong before anything is asked or changed.
    ///
    /// # Errors
    /// What that is.
    pub fn check(&self) -> Result<(), SweepError> {
        let SweepOptions { from, duration, .. } = self.options;
        let wrong = |message: String| SweepError { blame: Blame::Configuration, message };
        if let Some(Through { clients, .. }) = self.through {
            if clients < from {
                return Err(wrong(format!(
                    "through the pooler {clients} clients would be the most, and the sweep begins at {from}: begin \
                     lower, or raise --through-clients (`through_clients`)"
                )));
            }
            prepare_descriptors(&self.target, clients, duration).map_err(|error| SweepError {
                message: format!("for {clients} clients through the pooler (--through-clients): {}", error.message),
                ..error
            })?;
        }
        Ok(())
    }
}

/// Checks the plan for this number of clients, and raises the process's limit of descriptors to have a connection for
/// each.
fn prepare_descriptors(target: &Target, clients: u32, duration: Duration) -> Result<(), SweepError> {
    let plan = real::plan_of(target, clients, real::closed(clients, duration));
    plan.check().map_err(|message| SweepError { blame: Blame::Configuration, message })?;
    Ok(reserve_descriptors(&plan)?)
}

/// Makes the sweep. Interrupted, or kept from going on, it returns what there is.
///
/// # Errors
/// What is wrong with the target or the request, before any load; or what failed before anything was measured.
pub fn run(
    request: SweepRequest<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str, &Progress<'_>),
) -> Result<SweepResult, SweepError> {
    request.check()?;
    let server = target::check(&request.target)?;
    if let Some(Through { pooler: Pooler::At(pooler), .. }) = &request.through {
        target::check(pooler).map_err(|error| SweepError {
            message: format!("--through: {}", error.message),
            ..SweepError::from(error)
        })?;
    }
    let limits = match &request.target {
        Target::Postgres(target) => Some(ask_limits(target)?),
        Target::Redis(_) | Target::MongoDb(_) | Target::Http(_) => None,
    };
    let mut warnings: Vec<String> = server.is_pooled.then(|| POOLER_WARNING.to_owned()).into_iter().collect();
    let options =
        limits.map_or(Ok(request.options), |limits| clamp_to_limits(request.options, limits, &mut warnings))?;
    prepare_descriptors(&request.target, options.to, options.duration)?;
    warnings.extend(warn_beyond_scale(&request.target, options.to));
    let mut probe = DatabaseProbe::new(request.target.clone(), limits, request.timeout, options.seed, stop);
    let direct = measure_curve(&mut probe, &options, "directly", &request.target, progress)?;
    let mut result = SweepResult {
        format: FORMAT,
        kind: "sweep".to_owned(),
        about: about(&request, server.name),
        asked: asked(&options),
        warnings,
        ..SweepResult::default()
    };
    result.direct = record_end(direct, &mut result);
    result.verdict = verdict::verdict(&result.direct, real::generator(), options.seed);
    let reserve = limits.map_or(ServerKind::Other, |limits| ServerKind::Postgres(Some(limits.reserved)));
    result.settings = result.verdict.as_ref().map(|verdict| settings(verdict, reserve));
    result.warnings.extend(probe.complaints());
    let best = result.verdict.as_ref().map(|verdict| verdict.recommended_clients);
    if let Some((through, best)) = request.through.zip(best).filter(|_| may_go_on(&result)) {
        let options = SweepOptions { rounds: options.rounds.min(MAX_POOLER_ROUNDS), to: through.clients, ..options };
        let measured = through_the_pooler(through.pooler, best, &options, (request.timeout, stop), progress);
        match measured {
            Ok(measured) => result.through = Some(record_end(measured, &mut result)),
            Err(error) => result.failed = Some(error.message),
        }
    }
    let doubts = doubts(&result);
    result.warnings.extend(doubts);
    Ok(result)
}

fn may_go_on(result: &SweepResult) -> bool {
    !result.interrupted && result.failed.is_none()
}

/// Notes in `result` how a curve ended, and returns the curve.
fn record_end(measured: MeasuredCurve, result: &mut SweepResult) -> Curve {
    result.interrupted = measured.interrupted;
    result.failed = measured.failed;
    result.warnings.extend(measured.refused);
    measured.curve
}

/// The second curve; the pooler is started for it with `best` connections, if it is not there.
fn through_the_pooler(
    pooler: Pooler<'_>,
    best: u32,
    options: &SweepOptions,
    (timeout, stop): (Duration, &AtomicBool),
    progress: &mut dyn FnMut(&str, &Progress<'_>),
) -> Result<MeasuredCurve, SweepError> {
    let (name, pooler) = match pooler {
        Pooler::At(pooler) => ("through the pooler".to_owned(), pooler),
        Pooler::Started(start) => (format!("through a pool of {best}"), start(best)?),
    };
    let mut probe = DatabaseProbe::new(pooler.clone(), None, timeout, options.seed, stop);
    measure_curve(&mut probe, options, &name, &pooler, progress)
        .map_err(|error| SweepError { message: format!("{name}: {}", error.message), ..error })
}

fn measure_curve(
    probe: &mut DatabaseProbe<'_>,
    options: &SweepOptions,
    name: &str,
    target: &Target,
    progress: &mut dyn FnMut(&str, &Progress<'_>),
) -> Result<MeasuredCurve, SweepError> {
    measure(probe, options, (name, &real::url_without_password(target)), &mut |now| progress(name, now))
        .map_err(sweep_error)
}

fn sweep_error(error: ProbeError) -> SweepError {
    SweepError { blame: Blame::Target, message: error.to_string() }
}

/// Keeps the range below what the server lets in, with a warning if that makes it smaller.
fn clamp_to_limits(
    options: SweepOptions,
    limits: Limits,
    warnings: &mut Vec<String>,
) -> Result<SweepOptions, SweepError> {
    let Limits { max_connections, reserved, others } = limits;
    let room = limits.room();
    // A sweep of one number shows nothing, unless one number was asked for.
    if room <= options.from && room < options.to {
        return Err(SweepError {
            blame: Blame::Target,
            message: format!(
                "the server has room for {room} connections only (max_connections {max_connections}, {reserved} \
                 reserved, {others} in use by others): raise max_connections, or stop what else uses it"
            ),
        });
    }
    if room < options.to {
        warnings.push(format!(
            "Tested up to {room} clients instead of {}: max_connections is {max_connections}, {reserved} of them are \
             reserved and {others} in use by others.",
            options.to
        ));
    }
    Ok(SweepOptions { to: options.to.min(room), ..options })
}

/// In TPC-B-like loads every transaction updates one of as many branches as the scale says.
fn warn_beyond_scale(target: &Target, to: u32) -> Option<String> {
    let Target::Postgres(target) = target else { return None };
    let contends = target.scripts.iter().any(|(script, _)| *script == Script::TpcbLike);
    (contends && to > target.scale).then(|| {
        format!(
            "With more clients than the scale ({}) they wait for one another's rows: this sweep finds where that \
             begins. For the server's own limit use --scale {to} or more, or --simple-update.",
            target.scale
        )
    })
}

/// What the reader must know of the result itself.
fn doubts(result: &SweepResult) -> Vec<String> {
    let mut doubts = Vec::new();
    if let Some(why) = &result.failed {
        let why = why.trim_end_matches('.');
        doubts.push(format!("It could not go on, and this is what was measured until then: {why}."));
    }
    if result.interrupted && !result.direct.visits.is_empty() {
        doubts.push("Interrupted: this is what was measured until then.".to_owned());
    }
    for curve in std::iter::once(&result.direct).chain(&result.through) {
        let name = &curve.name;
        if let Some(drift) = curve.steadiness.drift.filter(|_| curve.steadiness.drifted) {
            doubts.push(format!(
                "Throughput {name} changed by {:+.0}% during the sweep; the curve is corrected for it. Something \
                 else uses the machine, caches were cold, or tables grew: sweep again.",
                100.0 * drift
            ));
        }
        if let Some(noise) = curve.steadiness.noise.filter(|&noise| noise > MAX_STEADY_NOISE) {
            doubts.push(format!(
                "One measurement {name} varies by {:.0}%: use a longer --point-time or a quieter machine.",
                100.0 * noise
            ));
        }
        doubts.extend(describe_errors(curve, result.asked.point_s));
    }
    if let Some(verdict) = &result.verdict {
        doubts.extend(verdict.two_speeds.iter().map(sweep_sentences::describe_two_speeds));
        match verdict.limited_by.as_deref() {
            Some("generator") => doubts.push(
                "The load generator used all of its processor, so that this is its limit and not the database's: use \
                 a heavier script, or several load machines."
                    .to_owned(),
            ),
            Some("machine") => doubts.push(
                "The load generator took a good part of a machine that had nothing idle: run it on another machine \
                 to see the database's own limit."
                    .to_owned(),
            ),
            _ => {}
        }
    } else if result.interrupted && result.direct.visits.is_empty() {
        doubts.push("Interrupted before anything was measured, so there is nothing to conclude.".to_owned());
    } else {
        doubts.push("No operation ended well, so there is nothing to conclude.".to_owned());
    }
    doubts
}

fn describe_errors(curve: &Curve, point_s: f64) -> Option<String> {
    let failed: u64 = curve.visits.iter().map(|v| v.errors).sum();
    let done: f64 = curve.visits.iter().map(|v| v.throughput * point_s).sum();
    (failed as f64 > MAX_ERROR_SHARE * done)
        .then(|| format!("{failed} operations failed {}: they are not counted as throughput.", curve.name))
}

fn asked(options: &SweepOptions) -> Asked {
    Asked {
        clients_from: options.from,
        clients_to: options.to,
        rounds: options.rounds,
        point_s: options.duration.as_secs_f64(),
        warmup_s: options.warmup.as_secs_f64(),
    }
}

fn about(request: &SweepRequest<'_>, server: String) -> About {
    let load = match &request.target {
        Target::Postgres(target) => {
            let scripts: Vec<String> =
                target.scripts.iter().map(|(script, _)| describe::script(script, target.scale)).collect();
            format!("{}, {} protocol", scripts.join(" and "), describe::protocol(target.protocol))
        }
        other => describe::requests(other),
    };
    About {
        started: machine::seconds_since_1970(),
        seed: request.options.seed,
        shape: "sweep".to_owned(),
        load,
        pool: "one connection for each client, opened before and kept".to_owned(),
        target: real::url_without_password(&request.target),
        server: Some(server),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine::describe(),
        command: request.command.clone(),
        scenario: request.scenario.clone(),
        ..About::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::plan::PostgresTarget;
    use report::result::sweep::{Steadiness, Verdict, Visit};

    fn options(to: u32) -> SweepOptions {
        let second = Duration::from_secs(1);
        SweepOptions { from: 1, to, rounds: 5, duration: second, warmup: second, seed: 1 }
    }

    #[test]
    fn the_range_stays_below_what_the_server_lets_in_and_the_reader_is_told() {
        let limits = Limits { max_connections: 100, reserved: 3, others: 2 };
        let mut warnings = Vec::new();
        assert_eq!(clamp_to_limits(options(256), limits, &mut warnings).unwrap().to, 95);
        assert!(warnings[0].contains("95 clients instead of 256"), "{warnings:?}");
        assert_eq!(clamp_to_limits(options(64), limits, &mut warnings).unwrap().to, 64);
        assert_eq!(warnings.len(), 1);
    }

    #[test]
    fn a_server_without_room_is_an_error_that_says_what_to_do() {
        let limits = Limits { max_connections: 10, reserved: 3, others: 6 };
        let error = clamp_to_limits(options(8), limits, &mut Vec::new()).unwrap_err();
        assert!(error.message.contains("raise max_connections"), "{error}");
        let one = options(1);
        assert_eq!(
            clamp_to_limits(one, limits, &mut Vec::new()).map(|options| options.to),
            Ok(1),
            "one number was asked for"
        );
        assert!(clamp_to_limits(SweepOptions { from: 2, ..options(2) }, limits, &mut Vec::new()).is_err());
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
        assert!(super::doubts(&SweepResult::default())[0].contains("No operation ended well"));
    }

    #[test]
    fn a_sweep_that_ended_early_says_why() {
        let early = SweepResult { interrupted: true, ..SweepResult::default() };
        assert_eq!(doubts(&early), ["Interrupted before anything was measured, so there is nothing to conclude."]);
        let broken = SweepResult { failed: Some("the disk is full".to_owned()), ..SweepResult::default() };
        assert!(doubts(&broken)[0].contains("the disk is full"), "{:?}", doubts(&broken));
        let measured = MeasuredCurve {
            curve: Curve { name: "directly".to_owned(), ..Curve::default() },
            interrupted: false,
            refused: Some("No room.".to_owned()),
            failed: Some("gone".to_owned()),
        };
        let mut result = SweepResult::default();
        assert_eq!(record_end(measured, &mut result).name, "directly");
        assert!(!may_go_on(&result) && result.warnings == ["No room."] && result.failed.as_deref() == Some("gone"));
    }

    fn request(from: u32, through: u32) -> SweepRequest<'static> {
        let url = settings::Secret::new("postgres://app@127.0.0.1/shop");
        let target = Target::Postgres(PostgresTarget::new(url, vec![(Script::SelectOnly, 1)]));
        SweepRequest {
            through: Some(Through { pooler: Pooler::At(target.clone()), clients: through }),
            target,
            options: SweepOptions { from, ..options(97) },
            timeout: Duration::from_secs(1),
            command: None,
            scenario: None,
        }
    }

    #[test]
    fn what_cannot_be_measured_is_refused_before_any_load() {
        assert_eq!(request(4, 4).check(), Ok(()));
        let error = request(4, 2).check().unwrap_err();
        assert!(error.message.contains("begins at 4") && error.blame == Blame::Configuration, "{error}");
    }

    #[test]
    fn too_few_descriptors_are_an_error_before_any_load() {
        let most = 9_000_000;
        let plan = real::plan_of(&request(1, 50).target, most, real::closed(50, Duration::from_secs(1)));
        // Only a system that gives a process nine million descriptors has room.
        if let Err(error) = reserve_descriptors(&plan) {
            assert!(error.blame == Blame::Machine && error.message.contains("descriptors"), "{error}");
        }
    }
}
