//! Figures for people, in tables and on pages: three significant digits, and a dash for an unknown value.

use std::collections::BTreeMap;

use crate::result::{About, BenchResult, Measured, Percentiles};

/// Stands for an unknown value.
pub const DASH: &str = "-";

/// Milliseconds: `0.123`, `1.23`, `12.3`, `123`, `1,234`.
pub fn ms(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() => digits(value, 3),
        _ => DASH.to_owned(),
    }
}

/// A rate per second: `0.12`, `1.23`, `12.3`, `123.4`, `1,234`.
pub fn rate(value: Option<f64>) -> String {
    match value {
        Some(value) if value.is_finite() && value >= 999.95 => count(value.round() as u64),
        Some(value) if value.is_finite() && value >= 9.995 => format!("{value:.1}"),
        Some(value) if value.is_finite() => format!("{value:.2}"),
        _ => DASH.to_owned(),
    }
}

/// `1,234,567`.
pub fn count(value: u64) -> String {
    let plain = value.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 3);
    for (index, digit) in plain.char_indices() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count, or a dash for none, with which a column without any count is left out.
pub fn count_or_dash(value: u64) -> String {
    if value == 0 { DASH.to_owned() } else { count(value) }
}

/// A part of a whole: `0%`, `<0.01%`, `0.10%`, `12.8%`.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return DASH.to_owned();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    match percent {
        _ if part == 0 => "0%".to_owned(),
        _ if percent < 0.01 => "<0.01%".to_owned(),
        _ if percent < 9.995 => format!("{percent:.2}%"),
        _ if part == whole => "100%".to_owned(),
        _ => format!("{:.1}%", percent.min(99.9)),
    }
}

/// Seconds: `0.50 s`, `10 s`, `2 min 30 s`, `1 h 5 min`.
pub fn seconds(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return DASH.to_owned();
    }
    let whole = value.round() as u64;
    match whole {
        _ if value < 9.95 && (value - value.round()).abs() > 0.05 => format!("{value:.1} s"),
        0..120 => format!("{whole} s"),
        120..7200 if whole.is_multiple_of(60) => format!("{} min", whole / 60),
        120..7200 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A moment as seconds since 1970: `2026-11-22 06:30 UTC`. Days become dates by Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn moment(unix: u64) -> String {
    let days = unix / 86_400 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", unix / 3600 % 24, unix / 60 % 60)
}

/// The counts above zero, the largest first.
pub fn by_count(counts: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut list: Vec<_> =
        counts.iter().filter(|(_, count)| **count > 0).map(|(name, count)| (name.as_str(), *count)).collect();
    list.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    list
}

/// Text from a user or a server without control characters.
pub use ::printable::line as printable;

pub fn errors_of(measured: &Measured) -> u64 {
    measured.errors.values().sum()
}

/// Errors as a share of the operations that have ended.
pub fn error_share(measured: &Measured) -> String {
    let errors = errors_of(measured);
    percent(errors, errors + measured.requests)
}

/// A percentile in milliseconds.
pub fn percentile_ms(percentiles: Option<&Percentiles>, which: fn(&Percentiles) -> f64) -> String {
    ms(percentiles.filter(|all| all.count > 0).map(which))
}

/// The phases of connecting that occurred, in order.
pub fn phases(measured: &Measured) -> Vec<(&'static str, &Percentiles)> {
    let all = &measured.connect_ms;
    let list = [
        ("DNS", &all.dns),
        ("TCP", &all.tcp),
        ("TLS", &all.tls),
        ("authentication", &all.auth),
        ("ready", &all.ready),
        ("all together", &all.total),
    ];
    list.into_iter().filter_map(|(name, phase)| Some((name, phase.as_ref().filter(|phase| phase.count > 0)?))).collect()
}

/// The descriptions of the scenarios of these results, each once.
pub fn scenarios(results: &[BenchResult]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for text in results.iter().filter_map(|result| scenario(&result.about)) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts
}

/// The description of a scenario on one line.
pub fn scenario(about: &About) -> Option<String> {
    about.scenario.as_ref().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Target, machine and command of a measurement.
pub fn environment(about: &About) -> Vec<(&'static str, String)> {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| DASH.to_owned());
    let doctor = (!about.doctor.is_empty()).then(|| ("Doctor", about.doctor.join("; ")));
    let lines = [
        ("Target", about.target.clone()),
        ("Server", known(&about.server)),
        ("Machine", about.machine.clone()),
        ("Begun", moment(about.started)),
        ("Seed", about.seed.to_string()),
        ("Poolhouse", about.version.clone()),
        ("Command", known(&about.command)),
    ];
    doctor.into_iter().chain(lines).collect()
}

/// Connections opened per hour of the published time after the start, by cause, the most first. `None` without a
/// scenario that sets the compression.
pub fn opened_per_hour(result: &BenchResult) -> Option<Vec<(&str, f64)>> {
    let hours = result.total.duration_s * result.about.compression? / 3600.0;
    let causes = by_count(&result.total.connections.created_for).into_iter().filter(|(cause, _)| *cause != "start");
    (hours > 0.0).then(|| causes.map(|(cause, count)| (cause, count as f64 / hours)).collect())
}

/// The unit of [`opened_per_hour`].
pub fn hour(result: &BenchResult) -> &'static str {
    if result.about.compression == Some(1.0) { "hour" } else { "hour of the published time" }
}

/// The smallest and the largest number of open connections at the ends of seconds, after the first burst, or without
/// bursts after the first tenth of the time.
pub fn steady_size(result: &BenchResult) -> Option<(u32, u32)> {
    let begin = result.steps.first().map_or(0.0, |step| step.from_s);
    let until = begin + result.total.duration_s;
    let from = match result.steps.get(1) {
        Some(second) if result.about.shape == "burst" => second.from_s,
        _ => begin + result.total.duration_s / 10.0,
    };
    let within = result.series.iter().filter(|second| second.at_s >= from && second.at_s + 1.0 <= until);
    let sizes = within.map(|second| second.connections);
    Some((sizes.clone().min()?, sizes.max()?))
}

/// `20`, or `0 to 50`.
pub fn range((least, most): (u32, u32)) -> String {
    let [least, most] = [least, most].map(|size| count(size.into()));
    if least == most { least } else { format!("{least} to {most}") }
}

/// A single step equals the total.
pub fn has_steps(result: &BenchResult) -> bool {
    result.steps.len() > 1
}

fn digits(value: f64, most: usize) -> String {
    match value.abs() {
        size if size >= 99.95 => {
            let whole = count(size.round() as u64);
            if value < 0.0 { format!("-{whole}") } else { whole }
        }
        size if size >= 9.995 => format!("{value:.0$}", most - 2),
        size if size >= 0.9995 => format!("{value:.0$}", most - 1),
        0.0 => "0".to_owned(),
        _ => format!("{value:.most$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn three_digits_are_shown_of_a_time() {
        let shown: Vec<_> =
            [0.0, 0.0416, 0.99949, 0.9996, 1.234, 9.994, 9.996, 12.34, 99.94, 99.96, 123.4, 1234.4, 1_234_567.0]
                .map(|value| ms(Some(value)))
                .into();
        assert_eq!(
            shown,
            ["0", "0.042", "0.999", "1.00", "1.23", "9.99", "10.0", "12.3", "99.9", "100", "123", "1,234", "1,234,567"]
        );
        assert_eq!(ms(Some(-1234.0)), "-1,234");
    }

    #[test]
    fn an_unknown_value_is_a_dash() {
        assert_eq!(
            [ms(None), ms(Some(f64::NAN)), rate(None), percent(0, 0), percentile_ms(None, |all| all.p50)],
            [DASH; 5]
        );
        assert_eq!(percentile_ms(Some(&Percentiles::default()), |all| all.p50), DASH);
    }

    #[test]
    fn a_rare_error_is_not_rounded_to_none() {
        assert_eq!(
            [percent(0, 10), percent(1, 1_000_000), percent(1, 1000), percent(128, 1000)],
            ["0%", "<0.01%", "0.10%", "12.8%"]
        );
        assert_eq!([percent(99_999, 100_000), percent(5, 5)], ["99.9%", "100%"]);
    }

    #[test]
    fn opened_connections_are_counted_per_hour_of_the_published_time() {
        let mut result = sample::full("a sample");
        // 20 and 10 in a minute that stands for 75.
        assert_eq!(opened_per_hour(&result), Some(vec![("burst", 16.0), ("rotation", 8.0)]));
        assert_eq!(hour(&result), "hour of the published time");
        result.about.compression = Some(1.0);
        result.total.connections.created_for.insert("start".to_owned(), 99);
        assert_eq!(opened_per_hour(&result), Some(vec![("burst", 1200.0), ("rotation", 600.0)]));
        assert_eq!(hour(&result), "hour");
        result.about.compression = None;
        assert_eq!(opened_per_hour(&result), None);
    }

    #[test]
    fn the_steady_size_is_that_after_the_first_burst_or_the_first_tenth() {
        let mut result = sample::full("a sample");
        // From 5 s on, for 60 s; the second step begins at 35 s.
        for (at, size) in [(4, 90), (10, 80), (11, 30), (34, 70), (35, 20), (36, 10), (64, 15)] {
            result.series[at].connections = size;
        }
        assert_eq!(steady_size(&result), Some((10, 70)));
        result.about.shape = "burst".to_owned();
        assert_eq!(steady_size(&result), Some((10, 20)));
        result.series.clear();
        assert_eq!(steady_size(&result), None);
        assert_eq!([range((3, 3)), range((0, 1234))], ["3", "0 to 1,234"]);
    }

    #[test]
    fn rates_and_durations_read_well() {
        assert_eq!(
            [0.123, 9.999, 999.94, 999.96, 12_345.6].map(|value| rate(Some(value))),
            ["0.12", "10.0", "999.9", "1,000", "12,346"]
        );
        assert_eq!(
            [0.5, 10.0, 119.0, 120.0, 150.0, 3900.0, 7260.0].map(seconds),
            ["0.5 s", "10 s", "119 s", "2 min", "2 min 30 s", "65 min", "2 h 1 min"]
        );
    }

    #[test]
    fn a_moment_is_its_date() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(moment(1_795_327_845), "2026-11-22 06:10 UTC");
        assert_eq!(moment(4_102_444_799), "2099-12-31 23:59 UTC");
    }
}
