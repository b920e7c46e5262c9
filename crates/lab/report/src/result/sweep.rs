//! The types of the JSON file of a sweep: visits, the curves of them, the fitted law, the verdict. Times are in
//! milliseconds if the name says so; unknown values are null, never zero.

use serde::{Deserialize, Serialize};

use crate::result::About;

/// The version of this format.
pub const FORMAT: u32 = 1;

/// One result file of `poolhouse sweep`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SweepResult {
    pub format: u32,
    /// Always `sweep`. The result of a run has no kind.
    pub kind: String,
    pub about: About,
    pub asked: Asked,
    /// Measured directly at the database.
    pub direct: Curve,
    /// Measured through a pooler.
    pub through: Option<Curve>,
    /// The verdict on [`Self::direct`]; null if too little was measured.
    pub verdict: Option<Verdict>,
    /// Recommended settings; null without a verdict.
    pub settings: Option<Settings>,
    /// The sweep was interrupted, and the result covers the time until then.
    pub interrupted: bool,
    /// Why the sweep ended early.
    #[serde(default)]
    pub failed: Option<String>,
    /// Warnings for the reader, one sentence each.
    pub warnings: Vec<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Asked {
    /// The smallest number of clients.
    pub clients_from: u32,
    /// The largest, after the server's own limit has been respected.
    pub clients_to: u32,
    /// Rounds of measurements after the coarse pass.
    pub rounds: u32,
    /// Seconds of each measurement after the warm-up.
    pub point_s: f64,
    /// Seconds of warm-up before each measurement.
    pub warmup_s: f64,
}

/// Throughput and latency against the number of clients.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Curve {
    /// `directly` or `through the pooler`.
    pub name: String,
    /// URL without password.
    pub target: String,
    /// By number of clients.
    pub points: Vec<CurvePoint>,
    /// All measurements in order of time.
    pub visits: Vec<Visit>,
    /// The Universal Scalability Law; null where it cannot be fitted.
    pub fit: Option<Fit>,
    pub no_fit: Option<String>,
    pub steadiness: Steadiness,
    pub effort: Effort,
}

/// A number of clients, over all its visits.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Clients, each with a connection of its own.
    pub clients: u32,
    pub visits: u32,
    /// Operations per second, failed ones not counted: the median of the visits.
    pub throughput: f64,
    /// The same as the verdict believes it: near the top of the curve drawn towards a smooth line through the
    /// neighbours, elsewhere the median. Null in files from before it was kept.
    #[serde(default)]
    pub believed: Option<f64>,
    /// The median's 95% interval, from the noise of the whole curve (see [`Steadiness::noise`]).
    pub low: f64,
    pub high: f64,
    /// Median response time: the median of the visits.
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Operations that failed, over all visits.
    pub errors: u64,
    /// Processors that the load generator used; the median.
    pub generator_cores: Option<f64>,
    /// Share of the load generator's machine that was idle; the median, 0 to 1.
    pub machine_idle: Option<f64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Visit {
    /// Seconds from the beginning of the sweep until this began (its warm-up included).
    pub at_s: f64,
    /// 0: the coarse pass. 1 and more: the rounds after it.
    pub round: u32,
    pub clients: u32,
    /// Operations per second, failed ones not counted.
    pub throughput: f64,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Operations that failed.
    pub errors: u64,
    /// Operations in each whole second.
    pub per_second: Vec<f64>,
    /// Operations per second in consecutive slices of about a tenth of a second. Empty in files from before they were
    /// kept.
    #[serde(default)]
    pub slices: Vec<f64>,
    /// Processors that the load generator used.
    pub generator_cores: Option<f64>,
    /// Share of its machine that was idle, 0 to 1.
    pub machine_idle: Option<f64>,
}

/// X(N) = gamma N / (1 + alpha (N - 1) + beta N (N - 1)), fitted to the medians. It describes what was measured and
/// says nothing beyond it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Fit {
    /// Throughput of one client.
    pub gamma: Estimate,
    /// Contention: the share of the work that is serial.
    pub alpha: Estimate,
    /// Coherency: the cost of each pair of clients.
    pub beta: Estimate,
    /// Where the law has its peak; null if it has none (`beta` is 0).
    pub peak_clients: Option<f64>,
    /// The peak lies within what was tested. Otherwise it is an extrapolation, and nothing is concluded from it.
    pub peak_tested: bool,
    /// Share of the variance that the law explains.
    pub r_squared: f64,
    /// Residual standard error, as a share of the mean throughput. Above 0.1 the law does not describe this database.
    pub residual: f64,
    /// The fitted line for drawing, within what was tested.
    pub line: Vec<LinePoint>,
}

/// A value with its 95% interval.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Estimate {
    pub value: f64,
    /// 2.5% of the distribution lie below.
    pub low: f64,
    /// 2.5% lie above.
    pub high: f64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LinePoint {
    pub clients: f64,
    /// Operations per second.
    pub throughput: f64,
}

/// How steady the database and the machine were.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Steadiness {
    /// Relative standard deviation of one visit, from the distances between visits of the same point (a few outliers do
    /// not count); null: no point was visited twice.
    pub noise: Option<f64>,
    /// The point that was measured in every round to see drift.
    pub reference_clients: Option<u32>,
    /// Its throughput in each round.
    pub reference: Vec<f64>,
    /// How much throughput changed from the first to the last visit, as a share, by one straight line through the
    /// repeats of all points.
    pub drift: Option<f64>,
    /// That is more than noise: the curve's choice of points was corrected for it, and the reader is warned.
    pub drifted: bool,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Effort {
    pub visits: u32,
    /// Visits that an exhaustive sweep would have made: every round at each of up to 32 numbers of clients, spaced
    /// evenly in the logarithm.
    pub exhaustive_visits: u32,
    pub seconds: f64,
}

/// Conclusions from the curve.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Verdict {
    /// The number of clients with the highest throughput.
    pub best_clients: u32,
    /// That throughput: the point's median, drawn towards its neighbours where those lie on a smooth line with it.
    pub best_throughput: f64,
    /// Tested numbers of clients that may just as well be the best: the smallest and largest that won in at least 2.5%
    /// of the resamples.
    pub best_from: u32,
    pub best_to: u32,
    /// The smallest tested number within 5% of the best throughput: use this one. Where [`Self::advice`] is `range`, no
    /// number is recommended, and this is the smallest of the safe ones within 5% of their best: what settings are made
    /// with.
    pub recommended_clients: u32,
    /// Its throughput, likewise.
    pub recommended_throughput: f64,
    /// What it loses against the best, as a share, with its interval from resampling.
    pub loss: Estimate,
    /// Throughput does not rise any more at the largest number that was tested. False: more may be better.
    pub bracketed: bool,
    /// Fewer clients than the best and the recommended number were tested, or there are none. False: fewer may do as
    /// well or better.
    #[serde(default = "yes")]
    pub bracketed_below: bool,
    /// `peak` (it falls on both sides), `plateau` (beyond the knee it stays), `flat` (all do about as well), `falling`
    /// (the fewest are the best); not bracketed: `rising`, or `open` (whether it still rises is not known).
    pub shape: String,
    /// What was the limit: `database`, `generator` (it used all of its processors) or `machine` (nothing was idle, and
    /// the generator took its share of it); null: not known, or none was reached because throughput still rises.
    pub limited_by: Option<String>,
    /// `high`, `medium` or `low`.
    pub confidence: String,
    /// Why, and how the numbers came about: three lines for people.
    pub because: Vec<String>,
    /// `use`: [`Self::recommended_clients`] is recommended. `range`: no number is, because what is known of it may not
    /// hold tomorrow; [`Self::safe`] is what can be relied on. Empty in files from before it was kept.
    #[serde(default)]
    pub advice: String,
    /// With low confidence: the numbers that do about as well as any, each taken at the slower of its speeds; null:
    /// confidence is not low, or no number is safe.
    #[serde(default)]
    pub safe: Option<Safe>,
    /// What it would take to be more certain, one sentence each; empty where nothing is in doubt.
    #[serde(default)]
    pub to_know: Vec<String>,
    /// Numbers of clients that have two speeds, or are suspected to.
    #[serde(default)]
    pub two_speeds: Vec<TwoSpeeds>,
}

impl Verdict {
    /// No single number is recommended.
    pub fn is_range(&self) -> bool {
        self.advice == "range"
    }
}

/// Tested numbers of clients that can be relied on.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Safe {
    pub from: u32,
    pub to: u32,
    /// Operations per second that all of them do, at the slower of the speeds that were seen.
    pub throughput: f64,
}

/// A number of clients that is twice as fast in one minute as in another, or so: which of them is chance.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TwoSpeeds {
    pub clients: u32,
    /// How that shows. `between`: some measurements, each with connections of its own, went quite differently from
    /// others. `within`: the speed changed in the middle of measurements. `neighbours`: a suspicion; only one speed was
    /// seen, and it is not what other numbers of clients let expect.
    pub seen: String,
    /// Operations per second at the slower speed; null: that was not seen.
    pub slow: Option<f64>,
    /// The same at the faster speed.
    pub fast: Option<f64>,
    /// Measurements at the slower speed; with `within` those that had both.
    pub slow_times: u32,
    /// Measurements at the faster speed; likewise.
    pub fast_times: u32,
    /// With `neighbours`: the median response time that was measured ...
    pub p50_ms: Option<f64>,
    /// ... and the one to be expected.
    pub expected_p50_ms: Option<f64>,
}

fn yes() -> bool {
    true
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// `max_size` of the pool; with several instances of the application, the sum of theirs.
    pub max_size: u32,
    /// `max_connections` of the server; null: it is no PostgreSQL.
    pub max_connections: Option<u32>,
    /// Of these, the connections that the settings keep free for administrators, monitoring, backups and replication,
    /// and those that the server reserves itself; null likewise.
    pub reserve: Option<u32>,
    /// The reasoning in three lines.
    pub because: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{documented_fields, fields};

    #[test]
    fn every_field_of_a_verdict_and_of_a_visit_is_documented_and_no_other() {
        let verdict =
            Verdict { safe: Some(Safe::default()), two_speeds: vec![TwoSpeeds::default()], ..Verdict::default() };
        let verdict = serde_json::to_value(verdict).unwrap();
        let visit = serde_json::to_value(Visit::default()).unwrap();
        for (value, name) in [
            (&verdict, "verdict"),
            (&verdict["safe"], "safe"),
            (&verdict["two_speeds"][0], "two_speeds"),
            (&visit, "visit"),
        ] {
            assert_eq!(fields(value), documented_fields("how-many-connections.md", name), "{name}");
        }
    }

    #[test]
    fn a_file_without_advice_is_still_read() {
        let mut verdict = serde_json::to_value(Verdict { recommended_clients: 8, ..Verdict::default() }).unwrap();
        for field in ["advice", "safe", "to_know", "two_speeds"] {
            verdict.as_object_mut().unwrap().remove(field);
        }
        let verdict: Verdict = serde_json::from_value(verdict).unwrap();
        assert!(verdict.recommended_clients == 8 && !verdict.is_range());
    }
}
