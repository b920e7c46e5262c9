//! A point in time as a number, because this crate has no clock.

use core::{
    ops::{Add, Sub},
    time::Duration,
};

/// Nanoseconds since an origin of the caller's choice; monotonic. Additions saturate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Time {
    pub const NEVER: Self = Self(u64::MAX);

    /// The time that has passed since `earlier`; zero if that is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This many nanoseconds later. `u64::MAX`, which is "no limit", gives [`Time::NEVER`].
    pub(crate) const fn after(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Time {
    type Output = Self;
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_and_differences_are_never_negative() {
        assert_eq!(Time(5) + Duration::MAX, Time::NEVER);
        assert_eq!(Time(5).after(u64::MAX), Time::NEVER);
        assert_eq!(Time(5) - Time(9), Duration::ZERO);
        assert_eq!((Time(5) + Duration::from_nanos(4)) - Time(5), Duration::from_nanos(4));
    }
}
