//! OpenMetrics' text format: families, each with its samples behind it. Knows no metric.

use std::{
    fmt::{Display, Write},
    sync::LazyLock,
};

use driver::{BUCKET_BOUNDS_US, DurationHistogram};

/// The content type of this format.
pub const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What stands behind the last family.
pub const END: &str = "# EOF\n";

/// The upper bounds of buckets in seconds, as they are written. They tell series apart, so each is always written
/// alike.
static BOUNDS: LazyLock<Vec<String>> =
    LazyLock::new(|| BUCKET_BOUNDS_US.iter().map(|us| float(*us as f64 / 1e6)).collect());

/// What the samples of a family are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The labels tell; the value is 1.
    Info,
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    /// What the name of a sample has behind that of its family.
    fn suffix(self) -> &'static str {
        match self {
            Self::Info => "_info",
            Self::Counter => "_total",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// The name and the value of a label.
pub type Label<'l> = (&'l str, &'l str);

/// Begins a family. `help` is one line, and has no backslash.
pub fn begin(text: &mut String, kind: Kind, name: &str, help: &str) {
    let kind = kind.word();
    put(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
}

/// Writes the samples of one family, behind its beginning.
pub struct Samples<'t> {
    text: &'t mut String,
    kind: Kind,
    name: &'static str,
    /// Labels that all samples have, as they are written.
    shared: String,
}

impl<'t> Samples<'t> {
    /// Of the family with this name, without the suffix that samples have by their kind.
    pub fn new(text: &'t mut String, kind: Kind, name: &'static str) -> Self {
        Self { text, kind, name, shared: String::new() }
    }

    /// From here on all samples have these labels, before those of their own.
    pub fn share(&mut self, labels: &[Label<'_>]) {
        self.shared.clear();
        add(&mut self.shared, labels);
    }

    pub fn count(&mut self, own: &[Label<'_>], value: u64) {
        self.line(self.kind.suffix(), None, &self.labels(own), value);
    }

    /// A number of seconds.
    pub fn seconds(&mut self, own: &[Label<'_>], value: f64) {
        self.line(self.kind.suffix(), None, &self.labels(own), float(value));
    }

    pub fn times(&mut self, own: &[Label<'_>], times: &DurationHistogram) {
        let labels = self.labels(own);
        self.line("_sum", None, &labels, float(times.sum_ns as f64 / 1e9));
        self.line("_count", None, &labels, times.count());
        let bounds = BOUNDS.iter().map(String::as_str).chain(["+Inf"]);
        let mut below = 0;
        for (bound, count) in bounds.zip(times.buckets) {
            below += count;
            self.line("_bucket", Some(bound), &labels, below);
        }
    }

    fn labels(&self, own: &[Label<'_>]) -> String {
        let mut labels = self.shared.clone();
        add(&mut labels, own);
        labels
    }

    fn line(&mut self, suffix: &str, bound: Option<&str>, labels: &str, value: impl Display) {
        let Self { text, name, .. } = self;
        text.push_str(name);
        text.push_str(suffix);
        if bound.is_some() || !labels.is_empty() {
            text.push('{');
            if let Some(bound) = bound {
                add(text, &[("le", bound)]);
                text.push_str(if labels.is_empty() { "" } else { "," });
            }
            text.push_str(labels);
            text.push('}');
        }
        put(text, format_args!(" {value}\n"));
    }
}

/// Writes labels behind others.
fn add(text: &mut String, labels: &[Label<'_>]) {
    for (name, value) in labels {
        if !text.is_empty() && !text.ends_with('{') {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                c => text.push(c),
            }
        }
        text.push('"');
    }
}

/// Never with an exponent, and always with a point.
fn float(value: f64) -> String {
    let text = value.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("memory takes all that is written");
}

#[cfg(test)]
mod tests {
    use std::fmt::Error;

    use prometheus_client::{
        collector::Collector,
        encoding::{DescriptorEncoder, NoLabelSet, text::encode},
        metrics::MetricType,
        registry::Registry,
    };

    use super::*;

    const NAMES: [Label<'static>; 2] = [("database", "d\"\\\n{é}"), ("user", "")];
    const ALL: [Label<'static>; 3] = [NAMES[0], NAMES[1], ("path", "idle")];

    fn times() -> DurationHistogram {
        let mut times = DurationHistogram { sum_ns: 93_000_250_000, ..DurationHistogram::default() };
        for (n, count) in times.buckets.iter_mut().enumerate() {
            *count = n as u64;
        }
        times
    }

    /// By another hand: that of a library.
    #[derive(Debug)]
    struct Theirs;

    impl Collector for Theirs {
        fn encode(&self, mut e: DescriptorEncoder<'_>) -> Result<(), Error> {
            e.encode_descriptor("build", "Which", None, MetricType::Info)?.encode_info(&NAMES)?;
            let mut metric = e.encode_descriptor("failures", "Failed", None, MetricType::Counter)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&7_u64, None)?;
            metric.encode_family(&NAMES)?.encode_counter::<NoLabelSet, _, u64>(&u64::MAX, None)?;
            let mut metric = e.encode_descriptor("held", "For how long", None, MetricType::Gauge)?;
            metric.encode_family(&ALL)?.encode_gauge(&0.0)?;
            metric.encode_family(&ALL)?.encode_gauge(&90.25)?;
            let mut metric = e.encode_descriptor("times", "Times", None, MetricType::Histogram)?;
            let times = times();
            let bounds = BUCKET_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(times.buckets).collect();
            let (sum, count) = (times.sum_ns as f64 / 1e9, times.count());
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
            metric.encode_family(&ALL)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
        }
    }

    fn ours() -> String {
        let mut text = String::new();
        begin(&mut text, Kind::Info, "build", "Which");
        Samples::new(&mut text, Kind::Info, "build").count(&NAMES, 1);
        begin(&mut text, Kind::Counter, "failures", "Failed");
        let mut samples = Samples::new(&mut text, Kind::Counter, "failures");
        samples.count(&[], 7);
        samples.share(&NAMES);
        samples.count(&[], u64::MAX);
        begin(&mut text, Kind::Gauge, "held", "For how long");
        let mut samples = Samples::new(&mut text, Kind::Gauge, "held");
        samples.share(&NAMES);
        samples.seconds(&ALL[2..], 0.0);
        samples.seconds(&ALL[2..], 90.25);
        begin(&mut text, Kind::Histogram, "times", "Times");
        let mut samples = Samples::new(&mut text, Kind::Histogram, "times");
        samples.times(&[], &times());
        samples.share(&NAMES[1..]);
        samples.share(&NAMES);
        samples.times(&ALL[2..], &times());
        text + END
    }

    #[test]
    fn it_is_what_a_library_of_that_format_writes() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Theirs));
        let mut theirs = String::new();
        encode(&mut theirs, &registry).unwrap();
        assert_eq!(ours(), theirs);
    }

    #[test]
    fn numbers_have_a_point_and_no_exponent() {
        let written = [0.0, 90.0, 0.00005, 0.1 + 0.2, 1.5e-9, 1e12].map(float);
        assert_eq!(written, ["0.0", "90.0", "0.00005", "0.30000000000000004", "0.0000000015", "1000000000000.0"]);
    }
}
