//! Times of day as PgBouncer's console shows them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 86_400;

/// `2026-11-29 21:30:13 UTC`, so long ago.
pub fn time_ago(ago: Duration) -> String {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Rounded to seconds only after the subtraction, so that a time does not flicker from one look to the next.
    show(since_epoch.saturating_sub(ago).as_secs())
}

fn show(seconds: u64) -> String {
    let (days, of_day) = (seconds / SECONDS_A_DAY, seconds % SECONDS_A_DAY);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// The date of a day, counted from 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    (year, month as u64 + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_dates() {
        assert_eq!(show(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(show(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(show(1_795_987_813), "2026-11-29 21:30:13 UTC");
        assert_eq!(show(4_107_542_399), "2100-02-28 23:59:59 UTC");
        assert_eq!(show(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }
}
