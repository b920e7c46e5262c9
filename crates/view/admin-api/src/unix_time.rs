//! Times of the Unix epoch, from texts.

/// Times from here on are milliseconds.
const MIN_MILLISECONDS: f64 = 1e11;
/// Days from the first of March of the year 0 to the Unix epoch.
const DAYS_UNTIL_1970: u64 = 719_468;

/// A time in seconds, of a number that is seconds or milliseconds.
pub(crate) fn to_seconds(time: f64) -> f64 {
    if time >= MIN_MILLISECONDS { time / 1e3 } else { time }
}

/// A time in seconds, of a text like `2026-11-26 05:13:27 UTC`.
pub(crate) fn parse_seconds(text: &str) -> Option<u64> {
    let mut parts = text.split([' ', '-', ':']).map(str::parse::<u64>);
    let mut next = || parts.next()?.ok();
    let (year, month, day) = (next()?, next()?, next()?);
    let (hour, minute, second) = (next()?, next()?, next()?);
    let is_date = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years begin in March here, so that a leap day comes last.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    Some((days - DAYS_UNTIL_1970) * 86_400 + hour * 3_600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        assert_eq!(parse_seconds("1970-01-01 00:00:00 UTC"), Some(0));
        assert_eq!(parse_seconds("2000-02-29 12:00:01 UTC"), Some(951_825_601));
        assert_eq!(parse_seconds("2026-11-26 05:13:27 UTC"), Some(1_795_670_007));
        let (hour, second) = ("2026-11-26 18446744073709551615:00:00", "2026-11-26 05:13:18446744073709551615");
        for wrong in ["", "never", "2026-11-26", "2026-13-26 05:13:27", "0000-01-01 00:00:00", hour, second] {
            assert_eq!(parse_seconds(wrong), None, "{wrong}");
        }
    }
}
