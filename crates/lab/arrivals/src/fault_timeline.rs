//! The effect of faults over time: when bytes that are sent now arrive, and when connections are cut. The relay of the
//! load generator and the planner share it. It knows no socket and no clock.

use std::time::Duration;

use random::Random;

use crate::fault::{Fault, Window};

/// Black holes in a row that delay one arrival.
const MAX_BLACK_HOLES: usize = 16;

/// The direction of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// The faults of a plan. All times are nanoseconds of one monotonic clock.
#[derive(Debug)]
pub struct FaultTimeline {
    /// When the measured load begins, after the warm-up: windows count from there. `None`: not known yet.
    pub windows_start: Option<u64>,
    faults: Vec<Fault>,
    random: Random,
}

impl FaultTimeline {
    /// The timeline of these faults. The seed is for jitter.
    pub fn new(faults: &[Fault], seed: u64) -> Self {
        Self { windows_start: None, faults: faults.to_vec(), random: Random::new(seed) }
    }

    /// Draws when bytes arrive that are sent now.
    pub fn draw_arrival(&mut self, direction: Direction, now: u64) -> u64 {
        let mut due = now;
        let since = self.windows_start.and_then(|began| now.checked_sub(began));
        for fault in &self.faults {
            match fault {
                Fault::Delay { delay, jitter } => due += nanos(*delay) + self.random.below(nanos(*jitter) + 1),
                Fault::Stall { delay, window } if direction == Direction::Down => {
                    due += since.filter(|t| window.begins_at(*t).is_some()).map_or(0, |_| nanos(*delay));
                }
                Fault::Stall { .. } | Fault::BlackHole { .. } | Fault::Forget { .. } | Fault::Cut { .. } => {}
            }
        }
        self.end_of_black_hole(due)
    }

    /// Draws the time of a round trip, which TCP's handshake would take.
    pub fn draw_round_trip(&mut self) -> u64 {
        let mut trip = 0;
        for fault in &self.faults {
            if let Fault::Delay { delay, jitter } = fault {
                trip +=
                    2 * nanos(*delay) + self.random.below(nanos(*jitter) + 1) + self.random.below(nanos(*jitter) + 1);
            }
        }
        trip
    }

    /// How long a connection may be silent before it is forgotten.
    pub fn max_silence(&self) -> u64 {
        let limits = self.faults.iter().filter_map(|fault| match fault {
            Fault::Forget { idle } => Some(nanos(*idle)),
            _ => None,
        });
        limits.min().unwrap_or(u64::MAX)
    }

    /// The first cut after a time.
    pub fn next_cut(&self, after: u64) -> Option<u64> {
        let began = self.windows_start?;
        let cuts = self.faults.iter().filter_map(|fault| match fault {
            Fault::Cut { window } => Some(window),
            _ => None,
        });
        cuts.filter_map(|window| {
            let first = began + nanos(window.first);
            match (after.checked_sub(first), window.every) {
                (None, _) => Some(first),
                (Some(_), None) => None,
                (Some(since), Some(every)) => Some(first + (since / nanos(every) + 1) * nanos(every)),
            }
        })
        .min()
    }

    /// The end of the black hole that a time falls into, or the time itself.
    fn end_of_black_hole(&self, mut due: u64) -> u64 {
        let Some(began) = self.windows_start else { return due };
        for _ in 0..MAX_BLACK_HOLES {
            let window = self.faults.iter().find_map(|fault| match fault {
                Fault::BlackHole { window } => {
                    window.begins_at(due.checked_sub(began)?).map(|begin| began + begin + nanos(window.length))
                }
                _ => None,
            });
            match window {
                Some(end) => due = end,
                None => break,
            }
        }
        due
    }
}

impl Window {
    /// The beginning of the window that a time falls into, if there is one; both in nanoseconds since the beginning of
    /// the measured load.
    pub fn begins_at(&self, at: u64) -> Option<u64> {
        let since = at.checked_sub(nanos(self.first))?;
        let within = self.every.map_or(since, |every| since % nanos(every).max(1));
        (within < nanos(self.length)).then(|| at - within)
    }
}

/// A duration in nanoseconds: at most 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn timeline(faults: &[Fault]) -> FaultTimeline {
        FaultTimeline { windows_start: Some(1000 * MS), ..FaultTimeline::new(faults, 1) }
    }

    fn window(first: u64, length: u64, every: Option<u64>) -> Window {
        Window { first: ms(first), length: ms(length), every: every.map(ms) }
    }

    #[test]
    fn delays_hold_in_both_directions_and_jitter_stays_within_its_limit() {
        let mut timeline = timeline(&[Fault::Delay { delay: ms(5), jitter: ms(2) }]);
        let mut late: Vec<u64> = Vec::new();
        for direction in [Direction::Up, Direction::Down].repeat(200) {
            late.push(timeline.draw_arrival(direction, 50 * MS) - 50 * MS);
        }
        assert!(late.iter().all(|late| (5 * MS..=7 * MS).contains(late)));
        assert!(late.iter().any(|late| *late < 5_500_000) && late.iter().any(|late| *late > 6_500_000));
        assert!((10 * MS..=14 * MS).contains(&timeline.draw_round_trip()));
    }

    #[test]
    fn a_stall_holds_up_what_comes_from_the_server_in_its_windows_only() {
        let mut timeline = timeline(&[Fault::Stall { delay: ms(200), window: window(100, 20, Some(500)) }]);
        let mut late = |direction, at: u64| timeline.draw_arrival(direction, at * MS) / MS - at;
        for at in [1100, 1119, 1600, 2119] {
            assert_eq!(late(Direction::Down, at), 200, "{at}");
            assert_eq!(late(Direction::Up, at), 0);
        }
        for at in [0, 999, 1099, 1120, 1599] {
            assert_eq!(late(Direction::Down, at), 0, "{at}");
        }
        timeline.windows_start = None;
        assert_eq!(timeline.draw_arrival(Direction::Down, 1100 * MS), 1100 * MS);
    }

    #[test]
    fn nothing_arrives_in_a_silence_also_if_it_set_out_before() {
        let mut timeline = timeline(&[
            Fault::Delay { delay: ms(10), jitter: Duration::ZERO },
            Fault::BlackHole { window: window(100, 50, None) },
            Fault::BlackHole { window: window(140, 30, None) },
        ]);
        let mut arrival = |at: u64| timeline.draw_arrival(Direction::Up, at * MS) / MS;
        assert_eq!(arrival(1080), 1090);
        assert_eq!(arrival(1095), 1170);
        assert_eq!(arrival(1159), 1170);
        assert_eq!(arrival(1165), 1175);
    }

    #[test]
    fn cuts_come_back() {
        let timeline =
            timeline(&[Fault::Cut { window: window(100, 1, Some(300)) }, Fault::Cut { window: window(250, 1, None) }]);
        let next = |after: u64| timeline.next_cut(after * MS).unwrap() / MS;
        assert_eq!([0, 1099, 1100, 1250, 1400].map(next), [1100, 1100, 1250, 1400, 1700]);
        assert_eq!(FaultTimeline::new(&[], 1).next_cut(0), None);
    }
}
