//! Numbers as a cell shows them.

pub const UNKNOWN: &str = "-";

/// Longer times are shown as 9,999 days.
const MAX_TIME_MS: f64 = 9_999.0 * 86_400e3;
/// Higher rates are shown as this one.
const MAX_RATE: f64 = 9_999e9;

/// Milliseconds, in at most five characters.
pub fn format_time(ms: Option<f64>) -> String {
    let Some(ms) = ms else { return UNKNOWN.to_owned() };
    let ms = ms.clamp(0.0, MAX_TIME_MS);
    let seconds = ms / 1e3;
    match ms {
        ms if ms < 0.9995 => format!("{:.0}us", ms * 1e3),
        ms if ms < 9.95 => format!("{ms:.1}ms"),
        ms if ms < 999.5 => format!("{ms:.0}ms"),
        _ if seconds < 9.95 => format!("{seconds:.1}s"),
        _ if seconds < 119.5 => format!("{seconds:.0}s"),
        _ if seconds < 7_170.0 => format!("{:.0}m", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.0}h", seconds / 3600.0),
        _ => format!("{:.0}d", seconds / 86_400.0),
    }
}

/// A rate, in at most five characters.
pub fn format_rate(rate: Option<f64>) -> String {
    let Some(rate) = rate else { return UNKNOWN.to_owned() };
    match rate.clamp(0.0, MAX_RATE) {
        0.0 => "0".to_owned(),
        rate if rate < 9.95 => format!("{rate:.1}"),
        rate if rate < 99_999.5 => format!("{rate:.0}"),
        rate if rate < 9_999.5e3 => format!("{:.0}k", rate / 1e3),
        rate if rate < 9_999.5e6 => format!("{:.0}M", rate / 1e6),
        rate => format!("{:.0}G", rate / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_at_most_five_characters() {
        let shown = [0.04, 0.9996, 9.96, 999.6, 9_960.0, 119_600.0, 7_200_000.0, 1e10].map(|ms| format_time(Some(ms)));
        assert_eq!(shown, ["40us", "1.0ms", "10ms", "1.0s", "10s", "2m", "2h", "116d"]);
        assert_eq!(format_time(None), "-");
        assert_eq!(
            [-5.0, 1e308, f64::INFINITY].map(|ms| format_time(Some(ms))),
            ["0us", "9999d", "9999d"],
            "told by a strange server"
        );
    }

    #[test]
    fn rates_take_at_most_five_characters() {
        let shown = [0.0, 0.25, 9.96, 54_321.0, 123_456.0, 123_456_789.0].map(|r| format_rate(Some(r)));
        assert_eq!(shown, ["0", "0.2", "10", "54321", "123k", "123M"]);
        assert_eq!([-5.0, 1e308].map(|r| format_rate(Some(r))), ["0", "9999G"], "told by a strange server");
    }
}
