//! Looks at one server over some time. Knows neither what a look shows nor what that means.

use std::time::Duration;

/// Looks at one run of one server, in order. Only the first and the last are kept.
#[derive(Clone, Debug)]
pub struct Series<L> {
    first: Option<(Duration, L)>,
    last: Option<(Duration, L)>,
    looks: usize,
    /// Looks before which connections had come.
    arrivals: usize,
}

/// What a window keeps of all looks at one run of a database server together.
pub trait Tally: Default {
    type Look: Clone;

    /// Whether two looks are at the same run of the same server.
    fn is_same_run(before: &Self::Look, look: &Self::Look) -> bool;

    /// Counts a look, takes out the lists that are not to be kept, and fills in what the doctor asks for only once.
    /// `series` has the looks before it. True if connections have come since the last of these.
    fn count(&mut self, series: &Series<Self::Look>, at: Duration, look: &mut Self::Look) -> bool;
}

/// All looks at one run of one database server, in order.
#[derive(Clone, Debug)]
pub struct ServerWindow<T: Tally> {
    series: Series<T::Look>,
    tally: T,
}

impl<L> Default for Series<L> {
    fn default() -> Self {
        Self { first: None, last: None, looks: 0, arrivals: 0 }
    }
}

impl<L: Clone> Series<L> {
    /// Adds the next look. `have_come`: connections have come since the look before.
    pub(crate) fn add(&mut self, at: Duration, look: L, have_come: bool) {
        self.arrivals += usize::from(have_come && self.last.is_some());
        self.looks += 1;
        if self.first.is_none() {
            self.first = Some((at, look.clone()));
        }
        self.last = Some((at, look));
    }

    pub(crate) fn last_time(&self) -> Option<Duration> {
        self.last.as_ref().map(|(at, _)| *at)
    }

    pub(crate) fn last(&self) -> Option<&L> {
        self.last.as_ref().map(|(_, look)| look)
    }

    /// The time from the first look until `at`; zero before the first look.
    pub(crate) fn duration_until(&self, at: Duration) -> Duration {
        at.saturating_sub(self.first.as_ref().map_or(at, |(first, _)| *first))
    }

    pub(crate) fn looks(&self) -> usize {
        self.looks
    }

    /// The time from the first look to the last.
    pub(crate) fn duration(&self) -> Duration {
        self.last_time().map_or(Duration::ZERO, |last| self.duration_until(last))
    }

    /// The first look and the last; `None` before the first look.
    pub(crate) fn first_and_last(&self) -> Option<(&L, &L)> {
        Some((&self.first.as_ref()?.1, &self.last.as_ref()?.1))
    }

    /// The share of looks before which connections had come.
    pub(crate) fn arrival_share(&self) -> f64 {
        self.share_of_intervals(self.arrivals)
    }

    /// A number of looks as a share of all looks but the first.
    pub(crate) fn share_of_intervals(&self, looks: usize) -> f64 {
        looks as f64 / self.looks.saturating_sub(1).max(1) as f64
    }
}

impl<T: Tally> Default for ServerWindow<T> {
    fn default() -> Self {
        Self { series: Series::default(), tally: T::default() }
    }
}

impl<T: Tally> ServerWindow<T> {
    /// Adds the next look. False if it is at another run of the server than those before: then the window begins anew
    /// with it.
    pub fn add(&mut self, at: Duration, mut look: T::Look) -> bool {
        let is_same_run = self.series.last().is_none_or(|last| T::is_same_run(last, &look));
        if !is_same_run {
            *self = Self::default();
        }
        let have_come = self.tally.count(&self.series, at, &mut look);
        self.series.add(at, look, have_come);
        is_same_run
    }

    pub fn looks(&self) -> usize {
        self.series.looks()
    }

    /// The time from the first look to the last.
    pub fn duration(&self) -> Duration {
        self.series.duration()
    }

    pub(crate) fn series(&self) -> &Series<T::Look> {
        &self.series
    }

    /// The first look and the last, of which a tally may have taken its lists; `None` before the first look.
    pub(crate) fn first_and_last(&self) -> Option<(&T::Look, &T::Look)> {
        self.series.first_and_last()
    }

    pub(crate) fn tally(&self) -> &T {
        &self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_and_the_arrivals_between_the_first_look_and_the_last_are_counted() {
        let mut series = Series::<u64>::default();
        assert_eq!((series.looks(), series.duration(), series.first_and_last()), (0, Duration::ZERO, None));
        for (at, look) in [(5, 70), (6, 80), (9, 90)] {
            series.add(Duration::from_secs(at), look, look != 90);
        }
        assert_eq!((series.looks(), series.duration()), (3, Duration::from_secs(4)));
        assert_eq!((series.first_and_last(), series.last()), (Some((&70, &90)), Some(&90)));
        assert_eq!(series.arrival_share(), 0.5, "arrivals before the first look are unknown");
    }
}
