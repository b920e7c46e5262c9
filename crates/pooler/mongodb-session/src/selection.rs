//! Which of several members a read may go to: none that is too far behind, and of the others those that answer about as
//! soon as the one that answers soonest. The formulas are those of the drivers' specifications "Server Selection" and
//! "Max Staleness". It knows members by their numbers, and what their monitors have seen.

use std::time::Duration;

use crate::tags::TagSet;

/// The least that a client may ask for as `maxStalenessSeconds`, in seconds: a member that is up to date may seem to be
/// behind by the time between two idle writes of a primary and by that between two questions.
pub const LEAST_STALENESS: i64 = 90;

/// How much longer than the soonest answer others may take, unless the configuration says otherwise.
pub const WINDOW: Duration = Duration::from_millis(15);

/// How much a sample counts in an average: a fifth.
const ALPHA: (u32, u32) = (1, 5);

/// What a read wants of a member, beside the mode of its preference.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Wanted {
    /// Sets of tags, one after the other.
    pub tags: Vec<TagSet>,
    /// How far it may be behind.
    pub staleness: Option<Duration>,
}

/// The date of a member's last write, in milliseconds by the primary's clock, and when the member told of it, by this
/// process's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    pub last: i64,
    pub told: Duration,
}

impl Written {
    /// Milliseconds that its last write lay back when it told of it, and the difference of two clocks with it.
    fn lag(self) -> i64 {
        millis(self.told).saturating_sub(self.last)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Of these secondaries those that are behind by no more than `most`. With a primary, that is the difference of their
/// lags; without one, of their last writes and the latest of all. Each may have gone on for a `beat` since it was
/// asked. One that tells of no writes may be behind by anything.
pub fn fresh(
    secondaries: Vec<usize>,
    primary: Option<Written>,
    (most, beat): (Duration, Duration),
    written: impl Fn(usize) -> Option<Written>,
) -> Vec<usize> {
    let latest = secondaries.iter().filter_map(|member| Some(written(*member)?.last)).max();
    let behind = |member: Written| match primary {
        Some(primary) => member.lag().saturating_sub(primary.lag()),
        None => latest.unwrap_or(member.last).saturating_sub(member.last),
    };
    let is_fresh = |member: &usize| {
        written(*member).is_some_and(|written| behind(written).saturating_add(millis(beat)) <= millis(most))
    };
    secondaries.into_iter().filter(is_fresh).collect()
}

/// Of these members those whose answers take no more than a window longer than those of the soonest. Of one that was
/// not asked yet nothing is known, so it is among them.
pub fn near(members: Vec<usize>, window: Duration, takes: impl Fn(usize) -> Option<Duration>) -> Vec<usize> {
    let soonest = members.iter().filter_map(|member| takes(*member)).min();
    let is_near = |member: &usize| match (takes(*member), soonest) {
        (Some(takes), Some(soonest)) => takes <= soonest.saturating_add(window),
        _ => true,
    };
    members.into_iter().filter(is_near).collect()
}

/// An average to which a sample is added, in which earlier ones count less and less.
pub fn average(before: Option<Duration>, sample: Duration) -> Duration {
    let Some(before) = before else { return sample };
    sample * ALPHA.0 / ALPHA.1 + before * (ALPHA.1 - ALPHA.0) / ALPHA.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(10);

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    /// Told at a second, of a write in another.
    fn written(told: u64, last: i64) -> Option<Written> {
        Some(Written { last: last * 1000, told: seconds(told) })
    }

    fn fresh_of(primary: Option<Written>, most: u64, members: &[Option<Written>]) -> Vec<usize> {
        fresh((0..members.len()).collect(), primary, (seconds(most), BEAT), |member| members[member])
    }

    #[test]
    fn with_a_primary_it_counts_how_much_longer_ago_a_member_wrote_when_it_was_asked() {
        // The clock of the primary is 1000 seconds ahead. It was asked at second 20 and had just written; these were
        // asked at 25.
        let primary = written(20, 1020);
        let members = [written(25, 1025), written(25, 945), written(25, 944), None];
        assert_eq!(fresh_of(primary, 90, &members), [0, 1]);
        assert_eq!(fresh_of(primary, 91, &members), [0, 1, 2]);
        // A primary that nobody writes to leaves nobody behind.
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
    fn who_answers_in_the_window_behind_the_soonest_is_near() {
        let takes = [Some(20), Some(5), Some(21), None, Some(6)].map(|ms| ms.map(Duration::from_millis));
        let near_of =
            |members: Vec<usize>, window| near(members, Duration::from_millis(window), |member| takes[member]);
        assert_eq!(near_of(vec![0, 1, 2, 3, 4], 15), [0, 1, 3, 4]);
        assert_eq!(near_of(vec![0, 2], 0), [0]);
        assert_eq!(near_of(vec![3], 0), [3]);
        assert_eq!(near_of(vec![], 15), [] as [usize; 0]);
    }

    #[test]
    fn a_sample_counts_for_a_fifth() {
        let ms = Duration::from_millis;
        assert_eq!(average(None, ms(50)), ms(50));
        assert_eq!(average(Some(ms(50)), ms(100)), ms(60));
        assert_eq!(average(Some(ms(60)), ms(10)), ms(50));
    }
}
