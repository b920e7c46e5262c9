//! Finds the number of connections at which a database stops gaining: measures throughput at many numbers of clients,
//! and draws the conclusions. Everything but `real`, `limits` and `run` works on a [`Probe`], so that it also runs in
//! virtual time on synthetic databases whose best number is known. Knows no protocol.
//!
//! ```text
//! chooser        which number of clients is measured next
//! curve          medians, noise and drift of the measurements
//! machine_speed  how fast the machine itself was at each visit
//! smoothing      draws points towards their neighbours
//! fit            the Universal Scalability Law
//! bracketing     whether the end of the curve has been seen
//! bimodal        numbers of clients with two speeds
//! verdict        the best number, the recommendation, its confidence, the settings
//! advice         one number, or a safe range and what it takes to know more
//! real           a database as a probe
//! limits         what a PostgreSQL lets in, and what is cleaned up between two points
//! run            a whole sweep of one
//! synthetic      databases whose best number is known
//! judge          the regret of a sweep, a formula, a rule of thumb
//! ```
#![forbid(unsafe_code)]

use std::time::Duration;

pub mod advice;
mod bimodal;
mod bracketing;
pub mod chooser;
mod curve;
pub mod fit;
pub mod judge;
mod limits;
mod machine_speed;
pub mod real;
pub mod run;
mod smoothing;
pub mod synthetic;
pub mod verdict;

use chooser::Chooser;
use curve::CurveEstimate;
use load::plan::SweepOptions;
use report::result::sweep::{Curve, CurvePoint, Effort, Steadiness, Visit};

/// Length of the slices of a measurement, in which a change of speed shows.
pub const SLICE: Duration = Duration::from_millis(100);

/// A database, real or synthetic, that can be measured with any number of clients.
pub trait Probe {
    /// Lets `clients`, each with a connection of its own, work as fast as they can for `warmup`, which does not count,
    /// and `duration`. The caller sets the time, the round and the clients of the visit.
    ///
    /// # Errors
    /// See [`ProbeError`].
    fn measure(&mut self, clients: u32, warmup: Duration, duration: Duration) -> Result<Visit, ProbeError>;

    /// Seconds since the sweep began.
    fn now_s(&self) -> f64;
}

/// Why a point was not measured.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProbeError {
    /// The user wants to stop.
    #[error("interrupted")]
    Interrupted,
    /// The database does not let this number of clients in; fewer may work.
    #[error("{0}")]
    TooMany(String),
    /// No number of clients can be measured.
    #[error("{0}")]
    Failed(String),
}

/// What a sweep is doing, for the display.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress<'a> {
    pub done: usize,
    pub left: u32,
    /// What is being measured.
    pub clients: u32,
    /// 0: the coarse pass.
    pub round: u32,
    /// What was measured last.
    pub last: Option<&'a Visit>,
}

/// A curve, and how it ended.
#[derive(Clone, PartialEq, Debug)]
pub struct MeasuredCurve {
    pub curve: Curve,
    pub interrupted: bool,
    /// Why more clients were not let in, if so.
    pub refused: Option<String>,
    /// What made going on impossible, if so.
    pub failed: Option<String>,
}

/// Measures a curve. `name` and `target` are for people.
///
/// # Errors
/// [`ProbeError::Failed`] if the probe fails before anything was measured; also if not even the smallest number of
/// clients is let in. An interruption is no error, nor is a later failure: what was measured until then is returned.
pub fn measure(
    probe: &mut dyn Probe,
    options: &SweepOptions,
    (name, target): (&str, &str),
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<MeasuredCurve, ProbeError> {
    let mut chooser = Chooser::new(options.from, options.to, options.rounds, options.seed);
    let (mut interrupted, mut refused, mut failed) = (false, None, None);
    while let Some(next) = chooser.poll_next() {
        progress(&Progress {
            done: chooser.visits().len(),
            left: chooser.remaining_visits(),
            clients: next.clients,
            round: next.round,
            last: chooser.visits().last(),
        });
        let at_s = probe.now_s();
        match probe.measure(next.clients, options.warmup, options.duration) {
            Ok(visit) => chooser.record(Visit { at_s, round: next.round, clients: next.clients, ..visit }),
            Err(ProbeError::Interrupted) => {
                interrupted = true;
                break;
            }
            Err(ProbeError::TooMany(why)) if !chooser.visits().is_empty() => {
                chooser.record_refusal(next.clients);
                refused = Some(why);
            }
            Err(ProbeError::Failed(why)) if !chooser.visits().is_empty() => {
                failed = Some(why);
                break;
            }
            Err(ProbeError::TooMany(why) | ProbeError::Failed(why)) => return Err(ProbeError::Failed(why)),
        }
    }
    let mut curve = curve_of(chooser.visits(), chooser.reference());
    (curve.name, curve.target) = (name.to_owned(), target.to_owned());
    let grid = chooser::exhaustive_grid(options.from, options.to).len();
    curve.effort = Effort {
        visits: u32::try_from(curve.visits.len()).expect("visits are few"),
        exhaustive_visits: u32::try_from(grid).expect("at most 32") * options.rounds,
        seconds: probe.now_s(),
    };
    Ok(MeasuredCurve { curve, interrupted, refused, failed })
}

/// The curve that visits make; without names and effort.
pub(crate) fn curve_of(visits: &[Visit], reference: Option<u32>) -> Curve {
    let estimate = CurveEstimate::of(visits);
    let points: Vec<CurvePoint> = estimate
        .points
        .iter()
        .map(|point| {
            let here: Vec<&Visit> = visits.iter().filter(|v| v.clients == point.clients).collect();
            let half = 1.96 * estimate.standard_error(point.visits) * point.throughput;
            CurvePoint {
                clients: point.clients,
                visits: point.visits,
                throughput: point.throughput,
                believed: Some(point.smoothed),
                low: (point.throughput - half).max(0.0),
                high: point.throughput + half,
                p50_ms: median_of(&here, |v| v.p50_ms),
                p95_ms: median_of(&here, |v| v.p95_ms),
                p99_ms: median_of(&here, |v| v.p99_ms),
                errors: here.iter().map(|v| v.errors).sum(),
                generator_cores: median_of(&here, |v| v.generator_cores),
                machine_idle: median_of(&here, |v| v.machine_idle),
            }
        })
        .collect();
    let pairs: Vec<(f64, f64)> = points.iter().map(|p| (f64::from(p.clients), p.throughput)).collect();
    let (fit, no_fit) = match fit::fit(&pairs) {
        Ok(fit) => (Some(fit), None),
        Err(why) => (None, Some(why)),
    };
    let of_reference = visits.iter().filter(|v| Some(v.clients) == reference);
    Curve {
        points,
        visits: visits.to_vec(),
        fit,
        no_fit,
        steadiness: Steadiness {
            noise: estimate.measured_noise,
            reference_clients: reference,
            reference: of_reference.map(|v| v.throughput).collect(),
            drift: estimate.drift,
            drifted: estimate.drifted,
        },
        ..Curve::default()
    }
}

/// The median of the known values of some visits.
fn median_of(visits: &[&Visit], of: impl Fn(&Visit) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = visits.iter().filter_map(|v| of(v)).collect();
    (!values.is_empty()).then(|| curve::median(&mut values))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails at its visit with this number, from 0.
    struct Failing(u32);

    impl Probe for Failing {
        fn measure(&mut self, clients: u32, _: Duration, _: Duration) -> Result<Visit, ProbeError> {
            if self.0 == 0 {
                return Err(ProbeError::Failed("the disk is full".to_owned()));
            }
            self.0 -= 1;
            Ok(Visit { throughput: f64::from(clients), ..Visit::default() })
        }

        fn now_s(&self) -> f64 {
            0.0
        }
    }

    fn sweep(visits: u32) -> Result<MeasuredCurve, ProbeError> {
        let second = Duration::from_secs(1);
        let options = SweepOptions { from: 1, to: 64, rounds: 3, duration: second, warmup: second, seed: 1 };
        measure(&mut Failing(visits), &options, ("directly", "nowhere"), &mut |_| ())
    }

    #[test]
    fn a_failure_in_the_middle_leaves_what_was_measured_before() {
        let measured = sweep(5).unwrap();
        assert_eq!(measured.failed.as_deref(), Some("the disk is full"));
        assert_eq!((measured.curve.visits.len(), measured.interrupted), (5, false));
        assert_eq!(sweep(0), Err(ProbeError::Failed("the disk is full".to_owned())));
    }
}
