//! Keeps a log readable in a flood: a number of lines of a kind per second, and the count of the others.

use pool::Time;

/// Lines of a kind per second, of each worker or other part.
const MAX_LINES_PER_SECOND: u32 = 10;

/// The lines of a kind.
#[derive(Debug, Default)]
pub struct Pace {
    second: u64,
    lines: u32,
    withheld: u64,
}

impl Pace {
    /// Counts a line. `None`: it is withheld. Otherwise how many were withheld since the last one, if any.
    pub fn take_line(&mut self, now: Time) -> Option<Option<u64>> {
        let second = now.0 / 1_000_000_000;
        if second != self.second {
            (self.second, self.lines) = (second, 0);
        }
        if self.lines >= MAX_LINES_PER_SECOND {
            self.withheld += 1;
            return None;
        }
        self.lines += 1;
        Some(Some(std::mem::take(&mut self.withheld)).filter(|withheld| *withheld > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_told_as_a_number_in_the_next_second() {
        let mut pace = Pace::default();
        let written = (0..1000).filter(|_| pace.take_line(Time(5)).is_some()).count();
        assert_eq!(written, MAX_LINES_PER_SECOND as usize);
        assert_eq!(pace.take_line(Time(1_000_000_000)), Some(Some(990)));
        assert_eq!(pace.take_line(Time(1_000_000_001)), Some(None));
    }
}
