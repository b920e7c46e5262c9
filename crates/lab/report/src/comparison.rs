//! Comparisons of a metric of a result with a limit, such as `p99<50ms`. A comparison that holds is true. A run fails
//! if one of its `fail_if` holds; an objective of a plan is met if it holds.

use settings::nearest;

use crate::result::{Measured, Percentiles};

#[derive(Clone, Debug)]
pub struct Comparison {
    text: String,
    metric: Metric,
    operator: Operator,
    limit: f64,
}

#[derive(Clone, Copy, Debug)]
enum Metric {
    Time(Interval, Statistic, Option<f64>),
    Errors,
    ErrorsPercent,
    Dropped,
    DroppedPercent,
    Rate,
    Requests,
    Created,
}

/// The intervals of an operation that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Interval {
    Response,
    Service,
    PoolWait,
    Connect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Above,
    AtLeast,
    Below,
    AtMost,
}

const SYNTAX_HINT: &str = "write it like p99>50ms, service_p95>20ms, errors>1%, dropped>0 or rate<900";

type Statistic = fn(&Percentiles) -> f64;

/// Name, value and rank of each statistic. The rank is the share of all times that are not longer; the mean has none.
const STATISTICS: &[(&str, Statistic, Option<f64>)] = &[
    ("min", |p| p.min, Some(0.0)),
    ("mean", |p| p.mean, None),
    ("p50", |p| p.p50, Some(0.5)),
    ("p90", |p| p.p90, Some(0.9)),
    ("p95", |p| p.p95, Some(0.95)),
    ("p99", |p| p.p99, Some(0.99)),
    ("p999", |p| p.p999, Some(0.999)),
    ("max", |p| p.max, Some(1.0)),
];
const INTERVAL_PREFIXES: &[(&str, Interval)] = &[
    ("response_", Interval::Response),
    ("service_", Interval::Service),
    ("pool_wait_", Interval::PoolWait),
    ("connect_", Interval::Connect),
];
const COUNTS: &[&str] = &["errors", "dropped", "rate", "requests", "created"];
const OPERATORS: &[(&str, Operator)] =
    &[(">=", Operator::AtLeast), ("<=", Operator::AtMost), (">", Operator::Above), ("<", Operator::Below)];

impl Comparison {
    /// # Errors
    /// What is wrong with the text, and how a comparison is written.
    pub fn parse(text: &str) -> Result<Self, String> {
        let place = text.find(['>', '<']).ok_or_else(|| format!("`{text}` compares nothing: {SYNTAX_HINT}"))?;
        let (name, rest) = (text[..place].trim(), &text[place..]);
        let (sign, operator) = OPERATORS.iter().find(|(sign, _)| rest.starts_with(sign)).expect("it begins with one");
        let value = rest[sign.len()..].trim();
        let (metric, limit) = match find_time_metric(name) {
            Some((interval, statistic, rank)) => (Metric::Time(interval, statistic, rank), milliseconds(value)?),
            None => parse_count_metric(name, value)?,
        };
        Ok(Self { text: text.trim().to_owned(), metric, operator: *operator, limit })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the comparison holds. `margin`: the share by which an upper limit is lowered; lower limits stay as they
    /// are. `None`: the metric was not measured.
    pub fn holds(&self, measured: &Measured, margin: f64) -> Option<bool> {
        self.metric.value(measured).map(|value| match self.operator {
            Operator::Above => value > self.limit,
            Operator::AtLeast => value >= self.limit,
            Operator::Below => value < self.limit * (1.0 - margin),
            Operator::AtMost => value <= self.limit * (1.0 - margin),
        })
    }

    /// The failure of a run that has this comparison among its `fail_if`. A metric that was not measured fails the run,
    /// too: a run without an answer has no good percentiles.
    pub fn failure(&self, measured: &Measured) -> Option<String> {
        let fails = self.holds(measured, 0.0).unwrap_or(true);
        fails.then(|| format!("{}: it is {}", self.text, self.shown(measured)))
    }

    /// Whether an upper limit is exceeded so far that the comparison cannot hold in the end, after at most
    /// `max_operations` operations. `measured`: the result until now.
    pub fn is_certain_to_fail(&self, measured: &Measured, max_operations: u64, margin: f64) -> bool {
        let limit = self.limit * (1.0 - margin);
        let exceeds = |value: f64| match self.operator {
            Operator::Below => value >= limit,
            Operator::AtMost => value > limit,
            Operator::Above | Operator::AtLeast => false,
        };
        let share = |count: u64| count > 0 && exceeds(count as f64 / max_operations as f64 * 100.0);
        match self.metric {
            // Counts only grow.
            Metric::Errors | Metric::Dropped | Metric::Requests | Metric::Created => {
                self.metric.value(measured).is_some_and(exceeds)
            }
            Metric::ErrorsPercent => share(measured.errors.values().sum()),
            Metric::DroppedPercent => share(measured.dropped),
            // An operation has at most one time of each of these intervals.
            Metric::Time(interval @ (Interval::Response | Interval::Service | Interval::PoolWait), _, Some(rank)) => {
                interval.percentiles(measured).is_some_and(|times| {
                    let needed = count_from_rank(times.count.max(max_operations), rank);
                    // One more than needed, because ranks are rounded.
                    STATISTICS.iter().filter_map(|(_, statistic, rank)| Some((statistic, (*rank)?))).any(
                        |(statistic, rank)| exceeds(statistic(times)) && count_from_rank(times.count, rank) > needed,
                    )
                })
            }
            Metric::Time(..) | Metric::Rate => false,
        }
    }

    /// Whether the metric is known only of operations: a time, or a share of operations.
    pub fn needs_operations(&self) -> bool {
        matches!(self.metric, Metric::Time(..) | Metric::ErrorsPercent | Metric::DroppedPercent)
    }

    /// Whether the metric is a count, which grows with the length of the load.
    pub fn is_count(&self) -> bool {
        matches!(self.metric, Metric::Errors | Metric::Dropped | Metric::Requests | Metric::Created)
    }

    /// The measured value of the metric, with its unit.
    pub fn shown(&self, measured: &Measured) -> String {
        self.metric.value(measured).map_or("unknown".to_owned(), |value| self.metric.show(value))
    }

    /// The limit in milliseconds of a comparison that bounds the response time from above.
    pub fn response_limit_ms(&self) -> Option<f64> {
        let is_upper = matches!(self.operator, Operator::Below | Operator::AtMost);
        (is_upper && matches!(self.metric, Metric::Time(Interval::Response, ..))).then_some(self.limit)
    }

    /// The rank of the percentile that is compared, 0.99 for p99.
    pub fn rank(&self) -> Option<f64> {
        if let Metric::Time(_, _, rank) = self.metric { rank } else { None }
    }
}

fn find_time_metric(name: &str) -> Option<(Interval, Statistic, Option<f64>)> {
    let (interval, name) = INTERVAL_PREFIXES
        .iter()
        .find_map(|(prefix, interval)| Some((*interval, name.strip_prefix(prefix)?)))
        .unwrap_or((Interval::Response, name));
    STATISTICS.iter().find(|(known, ..)| *known == name).map(|(_, statistic, rank)| (interval, *statistic, *rank))
}

fn parse_count_metric(name: &str, value: &str) -> Result<(Metric, f64), String> {
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
            let known: Vec<&str> = STATISTICS.iter().map(|(name, ..)| *name).chain(COUNTS.iter().copied()).collect();
            let guess = nearest(name, &known).map(|near| format!(", did you mean `{near}`?")).unwrap_or_default();
            return Err(format!("unknown metric `{}`{guess}: {SYNTAX_HINT}", name.escape_debug()));
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
    number.ok_or_else(|| format!("`{}` is no number: {SYNTAX_HINT}", whole.escape_debug()))
}

impl Interval {
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
fn count_from_rank(count: u64, rank: f64) -> u64 {
    (count + 1).saturating_sub(((count as f64 * rank).ceil() as u64).max(1))
}

impl Metric {
    fn value(self, measured: &Measured) -> Option<f64> {
        let errors = measured.errors.values().sum::<u64>() as f64;
        let ended = measured.requests as f64 + errors;
        let part = |count: f64, of: f64| (of > 0.0).then(|| count / of * 100.0);
        match self {
            Self::Time(interval, statistic, _) => interval.percentiles(measured).map(statistic),
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

    fn failure(text: &str) -> Option<String> {
        Comparison::parse(text).unwrap().failure(&measured())
    }

    #[test]
    fn a_condition_that_holds_or_was_not_measured_fails_a_run_with_what_was_measured() {
        assert_eq!(failure("p99>50ms").as_deref(), Some("p99>50ms: it is 72.100 ms"));
        assert_eq!(failure(" errors >= 1% ").as_deref(), Some("errors >= 1%: it is 1.00%"));
        assert_eq!(failure("rate<900").as_deref(), Some("rate<900: it is 99.0/s"));
        assert_eq!(failure("service_p95>300us").as_deref(), Some("service_p95>300us: it is 0.400 ms"));
        assert_eq!(failure("errors>9").as_deref(), Some("errors>9: it is 10"));
        assert_eq!(failure("pool_wait_p99>1s").as_deref(), Some("pool_wait_p99>1s: it is unknown"));
        for text in ["p99>80ms", "p99 > 0.08s", "errors>1%", "dropped>0", "rate<99/s", "requests<990", "created>0"] {
            assert_eq!(failure(text), None, "{text}");
        }
    }

    #[test]
    fn counts_grow_with_the_load_and_times_and_shares_need_operations() {
        let kind = |text| {
            let comparison = Comparison::parse(text).unwrap();
            (comparison.is_count(), comparison.needs_operations())
        };
        assert!(["errors<3", "dropped<1", "requests>9", "created<9"].iter().all(|text| kind(text) == (true, false)));
        assert!(
            ["p99<5ms", "connect_p50<5ms", "errors<1%", "dropped<1%"].iter().all(|text| kind(text) == (false, true))
        );
        assert_eq!(kind("rate>5"), (false, false));
    }

    #[test]
    fn a_comparison_is_certain_to_fail_only_if_no_later_operation_can_change_that() {
        let lost = |text: &str, most| Comparison::parse(text).unwrap().is_certain_to_fail(&measured(), most, 0.0);
        // Ten have failed: that is 1% of 1,000, and less of one more.
        assert_eq!([lost("errors<1%", 1000), lost("errors<1%", 1001), lost("errors<=1%", 1000)], [true, false, false]);
        assert_eq!([lost("errors<10", 9999), lost("errors<11", 9999), lost("requests<990", 9999)], [true, false, true]);
        assert!(
            Comparison::parse("errors<11").unwrap().is_certain_to_fail(&measured(), 9999, 0.1),
            "a tenth below 11 is less than ten"
        );
        // A limit that may still be reached, or a metric without a bound, is not.
        for text in ["requests>=9999", "rate<9", "rate>9999", "errors>50", "dropped<1%", "mean<1ms", "connect_p50<1us"]
        {
            assert!(!lost(text, 1000), "{text}");
        }
        let times = Percentiles { count: 100, p50: 60.0, p90: 80.0, ..Percentiles::default() };
        let slow = Measured { pool_wait_ms: Some(times), ..measured() };
        let lost = |text: &str, most| Comparison::parse(text).unwrap().is_certain_to_fail(&slow, most, 0.0);
        // 51 times are at least 60 ms. The 99th percentile of 4,900 operations is among them, that of 5,200 may not be.
        assert_eq!([lost("pool_wait_p99<50ms", 4900), lost("pool_wait_p99<50ms", 5200)], [true, false]);
        assert_eq!([lost("pool_wait_p99<70ms", 800), lost("pool_wait_p99<70ms", 1200)], [true, false]);
    }

    proptest! {
        #[test]
        fn a_comparison_that_is_certain_to_fail_fails_in_the_end(
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
            let comparison = Comparison::parse(&format!("{name}<{limit}us")).unwrap();
            let all = [&first[..], &then[..]].concat();
            let lost = comparison.is_certain_to_fail(&of(&first), all.len() as u64 + unused, 0.0);
            prop_assert!(!lost || comparison.holds(&of(&all), 0.0) == Some(false));
        }
    }

    #[test]
    fn mistakes_are_explained() {
        let error = |text| Comparison::parse(text).expect_err("a mistake");
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
            let _ = Comparison::parse(&text);
        }
    }
}
