//! Server selection among secondaries: by staleness, then by latency. The formulas are those of the drivers'
//! specifications "Server Selection" and "Max Staleness".

use std::time::Duration;

use crate::tags::TagSet;

/// The smallest `maxStalenessSeconds` allowed. A secondary that is up to date may seem stale by the time between two
/// idle writes of a primary (10 s) and by that between two checks.
pub const MIN_MAX_STALENESS_SECONDS: i64 = 90;

/// The default of `localThresholdMS`: how much longer than the shortest round trip others may be.
pub const DEFAULT_LOCAL_THRESHOLD: Duration = Duration::from_millis(15);

/// The weight of a new sample in an average, as a fraction.
const SAMPLE_WEIGHT: (u32, u32) = (1, 5);

/// What a read preference requires beside its mode.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReadRequirements {
    /// Sets of tags, in order of preference.
    pub tags: Vec<TagSet>,
    pub max_staleness: Option<Duration>,
}

/// A member's last write, in milliseconds by the primary's clock, and when the member told of it, by the clock of this
/// process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastWrite {
    pub last: i64,
    pub heard_at: Duration,
}

impl LastWrite {
    /// How long before that moment the last write was, in milliseconds, plus the difference of the two clocks.
    fn lag(self) -> i64 {
        millis(self.heard_at).saturating_sub(self.last)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The secondaries whose staleness is at most `max_staleness`. Staleness is the difference of lags to the primary if
/// there is one, else the difference of last writes to the latest of all, plus one `heartbeat`. A member without a last
/// write counts as too stale.
pub fn filter_stale(
    secondaries: Vec<usize>,
    primary: Option<LastWrite>,
    (max_staleness, heartbeat): (Duration, Duration),
    written: impl Fn(usize) -> Option<LastWrite>,
) -> Vec<usize> {
    let latest = secondaries.iter().filter_map(|member| Some(written(*member)?.last)).max();
    let behind = |member: LastWrite| match primary {
        Some(primary) => member.lag().saturating_sub(primary.lag()),
        None => latest.unwrap_or(member.last).saturating_sub(member.last),
    };
    let is_fresh = |member: &usize| {
        written(*member)
            .is_some_and(|written| behind(written).saturating_add(millis(heartbeat)) <= millis(max_staleness))
    };
    secondaries.into_iter().filter(is_fresh).collect()
}

/// The members whose round trip is at most `threshold` longer than the shortest. A member whose round trip is unknown
/// counts as near.
pub fn within_local_threshold(
    members: Vec<usize>,
    threshold: Duration,
    round_trip: impl Fn(usize) -> Option<Duration>,
) -> Vec<usize> {
    let soonest = members.iter().filter_map(|member| round_trip(*member)).min();
    let is_near = |member: &usize| match (round_trip(*member), soonest) {
        (Some(round_trip), Some(soonest)) => round_trip <= soonest.saturating_add(threshold),
        _ => true,
    };
    members.into_iter().filter(is_near).collect()
}

pub fn average(before: Option<Duration>, sample: Duration) -> Duration {
    let Some(before) = before else { return sample };
    sample * SAMPLE_WEIGHT.0 / SAMPLE_WEIGHT.1 + before * (SAMPLE_WEIGHT.1 - SAMPLE_WEIGHT.0) / SAMPLE_WEIGHT.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(10);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// A write in second `last`, of which the member told in second `heard_at`.
    fn written(heard_at: u64, last: i64) -> Option<LastWrite> {
        Some(LastWrite { last: last * 1000, heard_at: seconds(heard_at) })
    }

    fn fresh_of(primary: Option<LastWrite>, max_staleness: u64, members: &[Option<LastWrite>]) -> Vec<usize> {
        filter_stale((0..members.len()).collect(), primary, (seconds(max_staleness), HEARTBEAT_INTERVAL), |member| {
            members[member]
        })
    }

    #[test]
    fn with_a_primary_it_counts_how_much_longer_ago_a_member_wrote_when_it_was_asked() {
        // The primary's clock is 1000 seconds ahead. The primary was checked at second 20 and had just written; the
        // secondaries were checked at 25.
        let primary = written(20, 1020);
        let members = [written(25, 1025), written(25, 945), written(25, 944), None];
        assert_eq!(fresh_of(primary, 90, &members), [0, 1]);
        assert_eq!(fresh_of(primary, 91, &members), [0, 1, 2]);
        // Without new writes at the primary, no member becomes stale.
        assert_eq!(fresh_of(written(500, 20), 90, &[written(505, 20), written(505, -60)]), [0]);
    }

    #[test]
    fn without_a_primary_it_counts_how_long_before_the_latest_write_of_all_a_member_wrote_last() {
        let members = [written(1, 1000), written(900, 920), written(5, 919), None];
        assert_eq!(fresh_of(None, 90, &members), [0, 1]);
        assert_eq!(fresh_of(None, 91, &members), [0, 1, 2]);
        assert_eq!(fresh_of(None, 90, &[None]), [] as [usize; 0]);
    }

    #[test]
    fn whatever_date_a_member_tells_nothing_breaks() {
        let members = [written(1, i64::MAX / 1000), written(1, i64::MIN / 1000)];
        assert_eq!(fresh_of(written(1, i64::MIN / 1000), 90, &members), [0, 1]);
        assert_eq!(fresh_of(None, 90, &members), [0]);
    }

    #[test]
    fn a_sample_counts_for_a_fifth() {
        let ms = Duration::from_millis;
        assert_eq!(average(None, ms(50)), ms(50));
        assert_eq!(average(Some(ms(50)), ms(100)), ms(60));
        assert_eq!(average(Some(ms(60)), ms(10)), ms(50));
    }
}
