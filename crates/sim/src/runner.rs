//! Runs many schedules, one seed each, and turns a panic into a report with the command that replays it. It knows
//! nothing of what a schedule does.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A schedule that went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its seed.
    pub seed: u64,
    /// What was found.
    pub what: String,
}

fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

/// Runs the schedules `seed`, `seed` + 1, and so on, until one goes wrong.
pub fn run<T>(
    seed: u64,
    schedules: u64,
    mut schedule: impl FnMut(u64) -> T,
    mut done: impl FnMut(T),
) -> Result<(), Violation> {
    for seed in (0..schedules).map(|i| seed.wrapping_add(i)) {
        match catch_unwind(AssertUnwindSafe(|| schedule(seed))) {
            Ok(result) => done(result),
            Err(payload) => return Err(Violation { seed, what: text(&*payload) }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_that_went_wrong_is_named() {
        let mut good = 0;
        let result = run(40, 10, |seed| assert_ne!(seed, 43, "it is forty-three"), |()| good += 1);
        let violation = result.expect_err("one is bad");
        assert_eq!((violation.seed, good), (43, 3));
        assert!(violation.what.contains("it is forty-three"), "{}", violation.what);
    }
}
