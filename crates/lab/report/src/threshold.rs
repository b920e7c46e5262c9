//! Comparisons with a result, such as `p99>50ms`. A run uses them as conditions that fail it (`missed`: the comparison
//! is true); a plan uses them as objectives (`holds`: the comparison must be true).

use std::fmt;

use settings::nearest;

use crate::result::{Measured, Percentiles};

/// A comparison of a metric with a limit.
#[derive(Clone, Debug)]
pub struct Threshold {
    text: String,
    metric: Metric,
    compare: Compare,
    limit: f64,
}

#[derive(Clone, Copy, Debug)]
enum Metric {
    Time(Of, Read, Option<f64>),
    Errors,
    ErrorsPercent,
    Dropped,
    DroppedPercent,
    Rate,
    Requests,
    Created,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Response,
    Service,
    PoolWait,
    Connect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Compare {
    Above,
    AtLeast,
    Below,
    AtMost,
}

/// A threshold that a result has missed.
#[derive(Clone, PartialEq, Debug)]
pub struct Missed {
    pub threshold: String,
    /// What was measured, in words.
    pub measured: String,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: it is {}", self.threshold, self.measured)
    }
}

const FORM: &str = "write it like p99>50ms, service_p95>20ms, errors>1%, dropped>0 or rate<900";
/// Reads one value of a histogram.
type Read = fn(&Percentiles) -> f64;

/// Each value of a histogram, and the share of all times that are not longer; `None` for the mean.
const TIMES: &[(&str, Read, Option<f64>)] = &[
    ("min", |p| p.min, Some(0.0)),
    ("mean", |p| p.mean, None),
    ("p50", |p| p.p50, Some(0.5)),
    ("p90", |p| p.p90, Some(0.9)),
    ("p95", |p| p.p95, Some(0.95)),
    ("p99", |p| p.p99, Some(0.99)),
    ("p999", |p| p.p999, Some(0.999)),
    ("max", |p| p.max, Some(1.0)),
];
/// What a result tells of how its times are distributed.
const KNOWN: &[(f64, Read)] =
    &[(0.5, |p| p.p50), (0.9, |p| p.p90), (0.95, |p| p.p95), (0.99, |p| p.p99), (0.999, |p| p.p999), (1.0, |p| p.max)];
const PREFIXES: &[(&str, Of)] =
    &[("response_", Of::Response), ("service_", Of::Service), ("pool_wait_", Of::PoolWait), ("connect_", Of::Connect)];
const COUNTS: &[&str] = &["errors", "dropped", "rate", "requests", "created"];
const COMPARISONS: &[(&str, Compare)] =
    &[(">=", Compare::AtLeast), ("<=", Compare::AtMost), (">", Compare::Above), ("<", Compare::Below)];

impl Threshold {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it, and how it is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let place = text.find(['>', '<']).ok_or_else(|| format!("`{text}` compares nothing: {FORM}"))?;
        let (name, rest) = (text[..place].trim(), &text[place..]);
        let (sign, compare) = COMPARISONS.iter().find(|(sign, _)| rest.starts_with(sign)).expect("it begins with one");
        let value = rest[sign.len()..].trim();
        let (metric, limit) = match time(name) {
            Some((of, take, rank)) => (Metric::Time(of, take, rank), milliseconds(value)?),
            None => count(name, value)?,
        };
        Ok(Self { text: text.trim().to_owned(), metric, compare: *compare, limit })
    }

    /// The failure, if the comparison is true as a condition that fails a run. A metric that was not measured fails it,
    /// too: a run without an answer has no good percentiles.
    pub fn missed(&self, measured: &Measured) -> Option<Missed> {
        let value = self.metric.of(measured);
        let holds = value.is_none_or(|value| match self.compare {
            Compare::Above => value > self.limit,
            Compare::AtLeast => value >= self.limit,
            Compare::Below => value < self.limit,
            Compare::AtMost => value <= self.limit,
        });
        let shown = || value.map_or("unknown".to_owned(), |value| self.metric.show(value));
        holds.then(|| Missed { threshold: self.text.clone(), measured: shown() })
    }
}

impl Threshold {
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether what it says holds of this result with a margin: a limit from above counts as lower by this share of it.
    /// What was not measured does not hold.
    pub fn holds(&self, measured: &Measured, margin: f64) -> bool {
        self.metric.of(measured).is_some_and(|value| match self.compare {
            Compare::Above => value > self.limit,
            Compare::AtLeast => value >= self.limit,
            Compare::Below => value < self.limit * (1.0 - margin),
            Compare::AtMost => value <= self.limit * (1.0 - margin),
        })
    }

    /// Whether it is sure not to hold in the end with this margin: it is a limit from above, and what has been measured
    /// until now exceeds it, whatever may come until `most` operations have been measured in all. False where nobody
    /// can tell yet.
    pub fn is_lost(&self, measured: &Measured, most: u64, margin: f64) -> bool {
        let limit = self.limit * (1.0 - margin);
        let exceeds = |value: f64| match self.compare {
            Compare::Below => value >= limit,
            Compare::AtMost => value > limit,
            Compare::Above | Compare::AtLeast => false,
        };
        let share = |count: u64| count > 0 && exceeds(count as f64 / most as f64 * 100.0);
        match self.metric {
            // They only grow.
            Metric::Errors | Metric::Dropped | Metric::Requests | Metric::Created => {
                self.metric.of(measured).is_some_and(exceeds)
            }
            Metric::ErrorsPercent => share(measured.errors.values().sum()),
            Metric::DroppedPercent => share(measured.dropped),
            // Of each operation there is one such time at most.
            Metric::Time(of @ (Of::Response | Of::Service | Of::PoolWait), _, Some(rank)) => {
                of.percentiles(measured).is_some_and(|times| {
                    let needed = from_rank(times.count.max(most), rank);
                    // One more, as ranks are rounded.
                    KNOWN.iter().any(|(rank, take)| exceeds(take(times)) && from_rank(times.count, *rank) > needed)
                })
            }
            Metric::Time(..) | Metric::Rate => false,
        }
    }

    /// Whether it asks for what a result knows only of operations that there were: a time, or a share of them.
    pub fn is_of_operations(&self) -> bool {
        matches!(self.metric, Metric::Time(..) | Metric::ErrorsPercent | Metric::DroppedPercent)
    }

    /// Whether it counts what there is the more of the longer the load is.
    pub fn is_count(&self) -> bool {
        matches!(self.metric, Metric::Errors | Metric::Dropped | Metric::Requests | Metric::Created)
    }

    /// What was measured, in words.
    pub fn measured(&self, measured: &Measured) -> String {
        self.metric.of(measured).map_or("unknown".to_owned(), |value| self.metric.show(value))
    }

    /// The limit in milliseconds, of one that bounds a percentile of the response time from above.
    pub fn response_limit_ms(&self) -> Option<f64> {
        let above = matches!(self.compare, Compare::Below | Compare::AtMost);
        (above && matches!(self.metric, Metric::Time(Of::Response, ..))).then_some(self.limit)
    }

    /// The share of all times that its percentile leaves below, 0.99 for p99; `None`: it asks for no percentile.
    pub fn rank(&self) -> Option<f64> {
        if let Metric::Time(_, _, rank) = self.metric { rank } else { None }
    }
}

fn time(name: &str) -> Option<(Of, Read, Option<f64>)> {
    let (of, name) = PREFIXES
        .iter()
        .find_map(|(prefix, of)| Some((*of, name.strip_prefix(prefix)?)))
        .unwrap_or((Of::Response, name));
    TIMES.iter().find(|(known, ..)| *known == name).map(|(_, take, rank)| (of, *take, *rank))
}

fn count(name: &str, value: &str) -> Result<(Metric, f64), String> {
    let (number, percent) = value.strip_suffix('%').map_or((value, false), |number| (number.trim(), true));
    let metric = match (name, percent) {
        ("errors", false) => Metric::Errors,
        ("errors", true) => Metric::ErrorsPercent,
        ("dropped", false) => Metric::Dropped,
        ("dropped", true) => Metric::DroppedPercent,
        ("rate", false) => Metric::Rate,
        ("requests", false) => Metric::Requests,
        ("created", false) => Metric::Created,
        ("rate" | "requests" | "created", true) => {
            return Err(format!("`{name}` is not a part of anything: no `%` there"));
        }
        _ => {
            let known: Vec<&str> = TIMES.iter().map(|(name, ..)| *name).chain(COUNTS.iter().copied()).collect();
            let guess = nearest(name, &known).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            return Err(format!("unknown metric `{}`{guess}: {FORM}", name.escape_debug()));
        }
    };
    Ok((metric, number_of(number.trim_end_matches("/s"), value)?))
}

fn milliseconds(value: &str) -> Result<f64, String> {
    let unit = value.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let factor = match unit.trim() {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "" => return Err(format!("`{value}` has no unit: us, ms or s")),
        unit => return Err(format!("unknown unit `{}` in `{value}`: us, ms or s", unit.escape_debug())),
    };
    Ok(number_of(&value[..value.len() - unit.len()], value)? * factor)
}

fn number_of(text: &str, whole: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("`{}` is no number: {FORM}", whole.escape_debug()))
}

impl Of {
    fn percentiles(self, measured: &Measured) -> Option<&Percentiles> {
        match self {
            Self::Response => measured.response_ms.as_ref(),
            Self::Service => measured.service_ms.as_ref(),
            Self::PoolWait => measured.pool_wait_ms.as_ref(),
            Self::Connect => measured.connect_ms.total.as_ref(),
        }
    }
}

/// The number of values from this rank on.
fn from_rank(count: u64, rank: f64) -> u64 {
    (count + 1).saturating_sub(((count as f64 * rank).ceil() as u64).max(1))
}

impl Metric {
    fn of(self, measured: &Measured) -> Option<f64> {
        let errors = measured.errors.values().sum::<u64>() as f64;
        let ended = measured.requests as f64 + errors;
        let part = |count: f64, of: f64| (of > 0.0).then(|| count / of * 100.0);
        match self {
            Self::Time(of, take, _) => of.percentiles(measured).map(take),
            Self::Errors => Some(errors),
            Self::ErrorsPercent => part(errors, ended),
            Self::Dropped => Some(measured.dropped as f64),
            Self::DroppedPercent => part(measured.dropped as f64, ended + measured.dropped as f64),
            Self::Rate => measured.rate(),
            Self::Requests => Some(measured.requests as f64),
            Self::Created => Some(measured.connections.created as f64),
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Self::Time(..) => format!("{value:.3} ms"),
            Self::ErrorsPercent | Self::DroppedPercent => format!("{value:.2}%"),
            Self::Rate => format!("{value:.1}/s"),
            Self::Errors | Self::Dropped | Self::Requests | Self::Created => format!("{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn measured() -> Measured {
        Measured {
            requests: 990,
            finished: 990,
            errors: [("timeout".to_owned(), 10)].into(),
            duration_s: 10.0,
            response_ms: Some(Percentiles { p99: 72.1, p50: 3.0, ..Percentiles::default() }),
            service_ms: Some(Percentiles { p95: 0.4, ..Percentiles::default() }),
            ..Measured::default()
        }
    }

    fn missed(text: &str) -> Option<String> {
        Threshold::parse(text).unwrap().missed(&measured()).map(|missed| missed.to_string())
    }

    #[test]
    fn what_is_missed_is_said_with_what_was_measured() {
        assert_eq!(missed("p99>50ms").as_deref(), Some("p99>50ms: it is 72.100 ms"));
        assert_eq!(missed(" errors >= 1% ").as_deref(), Some("errors >= 1%: it is 1.00%"));
        assert_eq!(missed("rate<900").as_deref(), Some("rate<900: it is 99.0/s"));
        assert_eq!(missed("service_p95>300us").as_deref(), Some("service_p95>300us: it is 0.400 ms"));
        assert_eq!(missed("errors>9").as_deref(), Some("errors>9: it is 10"));
    }

    #[test]
    fn what_holds_is_not_missed() {
        for text in ["p99>80ms", "p99 > 0.08s", "errors>1%", "dropped>0", "rate<99/s", "requests<990", "created>0"] {
            assert_eq!(missed(text), None, "{text}");
        }
    }

    #[test]
    fn counts_grow_with_the_load_and_times_and_shares_need_operations() {
        let kind = |text| {
            let threshold = Threshold::parse(text).unwrap();
            (threshold.is_count(), threshold.is_of_operations())
        };
        assert!(["errors<3", "dropped<1", "requests>9", "created<9"].iter().all(|text| kind(text) == (true, false)));
        assert!(
            ["p99<5ms", "connect_p50<5ms", "errors<1%", "dropped<1%"].iter().all(|text| kind(text) == (false, true))
        );
        assert_eq!(kind("rate>5"), (false, false));
    }

    #[test]
    fn a_limit_is_lost_when_nothing_that_may_come_can_save_it() {
        let lost = |text: &str, most| Threshold::parse(text).unwrap().is_lost(&measured(), most, 0.0);
        // Ten have failed: that is 1% of 1,000, and less of one more.
        assert_eq!([lost("errors<1%", 1000), lost("errors<1%", 1001), lost("errors<=1%", 1000)], [true, false, false]);
        assert_eq!([lost("errors<10", 9999), lost("errors<11", 9999), lost("requests<990", 9999)], [true, false, true]);
        assert!(
            Threshold::parse("errors<11").unwrap().is_lost(&measured(), 9999, 0.1),
            "a tenth below 11 is less than ten"
        );
        // Whatever may still be reached, and whatever knows no bound, is not lost.
        for text in ["requests>=9999", "rate<9", "rate>9999", "errors>50", "dropped<1%", "mean<1ms", "connect_p50<1us"]
        {
            assert!(!lost(text, 1000), "{text}");
        }
        let times = Percentiles { count: 100, p50: 60.0, p90: 80.0, ..Percentiles::default() };
        let slow = Measured { pool_wait_ms: Some(times), ..measured() };
        let lost = |text: &str, most| Threshold::parse(text).unwrap().is_lost(&slow, most, 0.0);
        // 51 are no shorter than 60 ms: of 4,900 operations the one of rank 99% is among them, and of 5,200 it need not
        // be.
        assert_eq!([lost("pool_wait_p99<50ms", 4900), lost("pool_wait_p99<50ms", 5200)], [true, false]);
        assert_eq!([lost("pool_wait_p99<70ms", 800), lost("pool_wait_p99<70ms", 1200)], [true, false]);
    }

    proptest! {
        #[test]
        fn what_is_lost_is_missed_whatever_comes(
            first in proptest::collection::vec(1u64..100_000, 1..200),
            then in proptest::collection::vec(1u64..100_000, 0..400),
            unused in 0u64..100,
            limit in 1u64..100_000,
            which in 0usize..6,
        ) {
            let of = |micros: &[u64]| {
                let mut histogram = crate::histogram::Histogram::new();
                micros.iter().for_each(|n| histogram.record(std::time::Duration::from_micros(*n)));
                Measured { response_ms: histogram.percentiles(false), ..Measured::default() }
            };
            let name = ["p50", "p90", "p95", "p99", "p999", "max"][which];
            let threshold = Threshold::parse(&format!("{name}<{limit}us")).unwrap();
            let all = [&first[..], &then[..]].concat();
            let lost = threshold.is_lost(&of(&first), all.len() as u64 + unused, 0.0);
            prop_assert!(!lost || !threshold.holds(&of(&all), 0.0));
        }
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        assert_eq!(missed("pool_wait_p99>1s").as_deref(), Some("pool_wait_p99>1s: it is unknown"));
    }

    #[test]
    fn mistakes_are_explained() {
        let error = |text| Threshold::parse(text).expect_err("a mistake");
        assert!(error("p99").contains("compares nothing"));
        assert!(error("p99>50").contains("no unit"));
        assert!(error("p98>50ms").contains("did you mean"), "{}", error("p98>50ms"));
        assert!(error("errors>many").contains("no number"));
        assert!(error("p99>5min").contains("unknown unit `min`"));
        assert!(error("rate<5%").contains("no `%`"));
        assert!(error("errors>-1").contains("no number"));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in ".{0,40}") {
            let _ = Threshold::parse(&text);
        }
    }
}
