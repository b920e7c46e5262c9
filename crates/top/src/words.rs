//! Numbers and names as they stand in a cell.

/// What nobody knows.
pub const UNKNOWN: &str = "-";

/// Milliseconds, in at most five characters.
pub fn time(ms: Option<f64>) -> String {
    let Some(ms) = ms else { return UNKNOWN.to_owned() };
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
pub fn rate(rate: Option<f64>) -> String {
    match rate {
        None => UNKNOWN.to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 9.95 => format!("{rate:.1}"),
        Some(rate) if rate < 99_999.5 => format!("{rate:.0}"),
        Some(rate) => format!("{:.0}k", rate / 1e3),
    }
}

/// A name. Clients choose names, so none of them may reach a terminal as anything but text.
pub fn name(name: &str) -> String {
    match name {
        "" => UNKNOWN.to_owned(),
        name => printable::line(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_at_most_five_characters() {
        let shown = [0.04, 0.9996, 9.96, 999.6, 9_960.0, 119_600.0, 7_200_000.0, 1e10].map(|ms| time(Some(ms)));
        assert_eq!(shown, ["40us", "1.0ms", "10ms", "1.0s", "10s", "2m", "2h", "116d"]);
        assert_eq!(time(None), "-");
    }

    #[test]
    fn rates_take_at_most_five_characters() {
        let shown = [0.0, 0.25, 9.96, 54_321.0, 123_456.0].map(|r| rate(Some(r)));
        assert_eq!(shown, ["0", "0.2", "10", "54321", "123k"]);
    }

    #[test]
    fn names_cannot_steer_a_terminal() {
        assert_eq!(name("a\u{1b}[2J\u{202e}b"), "a\u{fffd}[2J\u{fffd}b");
        assert_eq!(name(""), "-");
    }
}
