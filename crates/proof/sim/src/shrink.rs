//! Shrinks a schedule that fails: tries tighter bounds, each with the same seed and with others, as long as the
//! schedule fails in the same way. It knows no schedule.

use crate::runner::{Violation, run};

/// Other seeds tried for each tighter bound.
const SEEDS_PER_BOUND: u64 = 2000;

/// Limits of a schedule that can be tightened.
pub trait Bounds: Copy + Sync {
    /// The next tighter bounds, the largest step first.
    fn tighter(&self) -> Vec<Self>;
}

/// The smallest schedule found that fails like this one, with its bounds.
pub fn shrink<B: Bounds>(first: Violation, bounds: B, schedule: impl Fn(u64, B) + Sync) -> (Violation, B) {
    let (mut found, mut within) = (first, bounds);
    'smaller: loop {
        for bounds in within.tighter() {
            let same = |what: &str| kind(what) == kind(&found.what);
            // Another kind of failure does not count.
            let judged = |seed| {
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| schedule(seed, bounds)));
                if let Err(payload) = ended
                    && same(&crate::runner::text(&*payload))
                {
                    std::panic::resume_unwind(payload);
                }
            };
            let tried = run(found.seed, 1, judged, |()| ());
            if let Err(violation) = tried.and_then(|()| run(1, SEEDS_PER_BOUND, judged, |()| ())) {
                (found, within) = (violation, bounds);
                continue 'smaller;
            }
        }
        return (found, within);
    }
}

/// The kind of a failure: the first words of the last line of its message, without numbers. The values that
/// `assert_eq!` compares follow the message, and are no part of it.
fn kind(what: &str) -> Vec<String> {
    let is_value = |line: &&str| line.starts_with("  left: ") || line.starts_with(" right: ");
    let line = what.trim_end().lines().rev().find(|line| !is_value(line)).unwrap_or_default();
    let line = ["assertion `left == right` failed: ", "assertion `left != right` failed: "]
        .iter()
        .find_map(|begin| line.strip_prefix(begin))
        .unwrap_or(line);
    let words = line.split_whitespace().map(|word| word.replace(|c: char| c.is_ascii_digit(), ""));
    words.filter(|word| !word.is_empty()).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Most(u64);

    impl Bounds for Most {
        fn tighter(&self) -> Vec<Self> {
            [self.0 / 2, self.0.saturating_sub(1)].into_iter().filter(|most| *most < self.0).map(Most).collect()
        }
    }

    #[test]
    fn the_smallest_that_goes_wrong_in_the_same_way_is_found() {
        let schedule = |seed: u64, Most(most): Most| {
            let value = seed % (most + 1);
            assert!(value != 3, "another matter");
            assert!(value < 7, "number {value} is too large");
        };
        let first = Violation { seed: 90, what: "number 90 is too large".into() };
        let (found, within) = shrink(first, Most(100), schedule);
        assert_eq!(within, Most(7));
        assert_eq!((found.seed % 8, &*found.what), (7, "number 7 is too large"));
    }

    #[test]
    fn failures_of_different_comparisons_are_of_different_kinds() {
        let failure = |check: fn()| crate::runner::run(1, 1, |_| check(), |()| ()).expect_err("the check fails").what;
        let twice = failure(|| assert_eq!(1, 2, "a row is there twice: [1, 1]"));
        let again = failure(|| assert_eq!(3, 5, "a row is there twice: [4]"));
        let panicked = failure(|| assert_eq!(1, 0, "a session has panicked"));
        assert_eq!(kind(&twice), kind(&again));
        assert_eq!((kind(&twice), kind(&panicked)), (kind("a row is there twice"), kind("a session has panicked")));
    }
}
