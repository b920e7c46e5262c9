//! Numbers in sentences, with units.

use std::time::Duration;

/// A duration: `150 us`, `1.2 ms`, `45 ms`, `2.5 s`, `5 min`, `2 h`.
pub fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    let whole_minutes = (micros / 60e6).fract() < 0.01;
    let (value, unit) = match micros {
        m if m < 999.5 => (m, "us"),
        m if m < 999_500.0 => (m / 1e3, "ms"),
        m if m < 119_500_000.0 || (m < 600e6 && !whole_minutes) => (m / 1e6, "s"),
        m if m < 7_170_000_000.0 => (m / 60e6, "min"),
        m => (m / 3600e6, "h"),
    };
    format!("{} {unit}", number(value))
}

pub fn ms(value: f64) -> String {
    time(Duration::from_secs_f64(value.max(0.0) / 1e3))
}

/// Three significant digits without trailing zeros: `0.15`, `1.2`, `45`, `1,200`.
pub fn number(value: f64) -> String {
    if value >= 999.5 {
        return ::report::figures::count(value.round() as u64);
    }
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// `1 connection`, `2 connections`.
pub fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", ::report::figures::count(count))
}

/// A share as `40%`, `0.1%`.
pub fn percent(share: f64) -> String {
    format!("{}%", number(share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown_and_no_zeros_behind_them() {
        let shown = [150.0, 1_234.0, 15_000.0, 2_500_000.0, 300_000_000.0, 310_000_000.0]
            .map(|us| time(Duration::from_secs_f64(us / 1e6)));
        assert_eq!(shown, ["150 us", "1.23 ms", "15 ms", "2.5 s", "5 min", "310 s"]);
        assert_eq!(
            [number(1200.4), number(0.1), percent(0.4), counted(1, "pool"), counted(1000, "pool")],
            ["1,200", "0.1", "40%", "1 pool", "1,000 pools"]
        );
    }
}
