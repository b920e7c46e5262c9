//! Looks at one run of one server, in their order: the first of them and the last, how many there were, and before how
//! many connections had come. Knows neither what a look shows nor what that means.

use std::time::Duration;

/// See the module. `L`: what a look shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Course<L> {
    first: Option<(Duration, L)>,
    last: Option<(Duration, L)>,
    looks: usize,
    /// Looks before which connections had come.
    arrivals: usize,
}

impl<L: Clone> Course<L> {
    /// Takes the next look. `have_come`: connections have come since the one before.
    pub(crate) fn add(&mut self, at: Duration, look: L, have_come: bool) {
        self.arrivals += usize::from(have_come && self.last.is_some());
        self.looks += 1;
        if self.first.is_none() {
            self.first = Some((at, look.clone()));
        }
        self.last = Some((at, look));
    }

    /// The last look, and when that was.
    pub(crate) fn last(&self) -> Option<(Duration, &L)> {
        self.last.as_ref().map(|(at, look)| (*at, look))
    }

    /// From the first look until `at`; nothing before there is one.
    pub(crate) fn until(&self, at: Duration) -> Duration {
        at.saturating_sub(self.first.as_ref().map_or(at, |(first, _)| *first))
    }

    /// How many looks there are.
    pub(crate) fn looks(&self) -> usize {
        self.looks
    }

    /// From the first look to the last.
    pub(crate) fn lasts(&self) -> Duration {
        self.last.as_ref().map_or(Duration::ZERO, |(last, _)| self.until(*last))
    }

    /// The first look and the last; `None` before there is one.
    pub(crate) fn ends(&self) -> Option<(&L, &L)> {
        Some((&self.first.as_ref()?.1, &self.last.as_ref()?.1))
    }

    /// The share of looks before which connections had come.
    pub(crate) fn arrivals(&self) -> f64 {
        self.share_of_steps(self.arrivals)
    }

    /// `some` looks as a share of all but the first look.
    pub(crate) fn share_of_steps(&self, some: usize) -> f64 {
        some as f64 / self.looks.saturating_sub(1).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_between_the_first_look_and_the_last_is_told() {
        let mut course = Course::<u64>::default();
        assert_eq!((course.looks(), course.lasts(), course.ends(), course.arrivals()), (0, Duration::ZERO, None, 0.0));
        for (at, look) in [(5, 70), (6, 80), (9, 90)] {
            course.add(Duration::from_secs(at), look, look != 90);
        }
        assert_eq!((course.looks(), course.lasts(), course.ends()), (3, Duration::from_secs(4), Some((&70, &90))));
        assert_eq!(
            (course.last(), course.until(Duration::from_secs(8))),
            (Some((Duration::from_secs(9), &90)), Duration::from_secs(3))
        );
        assert_eq!(course.arrivals(), 0.5, "arrivals before the first look are unknown");
    }
}
