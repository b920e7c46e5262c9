//! Numbers that are read at each look, and what a window tells of them.

use std::collections::BTreeMap;

/// A number that is read at each look.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge {
    sum: u64,
    max: u64,
    /// Every value, and the number of looks that had it.
    looks_by_value: BTreeMap<u64, usize>,
}

/// Counts how often a number falls to half of what it was after it had risen.
#[derive(Clone, Debug, Default)]
pub(crate) struct HalvingCounter {
    high: u64,
    low: u64,
    is_falling: bool,
    falls: u64,
}

impl Gauge {
    pub(crate) fn add(&mut self, value: u64) {
        self.sum = self.sum.saturating_add(value);
        self.max = self.max.max(value);
        *self.looks_by_value.entry(value).or_default() += 1;
    }

    pub(crate) fn mean(&self) -> f64 {
        self.sum as f64 / self.looks().max(1) as f64
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// The share of looks at which the number was not zero.
    pub(crate) fn share_above_zero(&self) -> f64 {
        self.share_from(1.0)
    }

    /// The share of looks at which the number was `least` or more.
    pub(crate) fn share_from(&self, least: f64) -> f64 {
        self.looks_from(least) as f64 / self.looks().max(1) as f64
    }

    /// Looks at which the number was `least` or more.
    pub(crate) fn looks_from(&self, least: f64) -> usize {
        let enough = self.looks_by_value.iter().filter(|(value, _)| **value as f64 >= least);
        enough.map(|(_, looks)| looks).sum()
    }

    fn looks(&self) -> usize {
        self.looks_by_value.values().sum()
    }
}

impl HalvingCounter {
    /// The fall of a smaller number is chance.
    const MIN_HIGH: u64 = 4;

    pub(crate) fn add(&mut self, value: u64) {
        if self.is_falling {
            self.low = self.low.min(value);
            if value >= Self::MIN_HIGH && value / 2 >= self.low {
                (self.is_falling, self.high) = (false, value);
            }
        } else {
            self.high = self.high.max(value);
            if self.high >= Self::MIN_HIGH && value <= self.high / 2 {
                (self.is_falling, self.low) = (true, value);
                self.falls += 1;
            }
        }
    }

    pub(crate) fn falls(&self) -> u64 {
        self.falls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rise_after_a_fall_makes_another_fall() {
        let falls = |values: &[u64]| {
            let mut counter = HalvingCounter::default();
            values.iter().for_each(|value| counter.add(*value));
            counter.falls()
        };
        assert_eq!(falls(&[8, 8, 1, 8, 3, 0, 5, 1]), 3);
        assert_eq!(falls(&[8, 7, 6, 7, 8, 5]), 0, "as in a deployment, one instance after the other");
        assert_eq!(falls(&[8, 2, 1, 0, 1, 0]), 1);
        assert_eq!(falls(&[2, 0, 2, 0, 3, 1]), 0, "small numbers fall by chance");
    }
}
