//! Runs schedules, one for each seed, and turns a panic into a violation with its seed. It knows no schedule.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
};

/// A schedule that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    pub seed: u64,
    pub what: String,
}

pub(crate) fn text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}

/// Runs the schedules `seed`, `seed` + 1, and so on, on all processors, until one fails. If several fail at once, the
/// one with the smallest seed is returned.
pub fn run<T: Send>(
    seed: u64,
    schedules: u64,
    schedule: impl Fn(u64) -> T + Sync,
    done: impl FnMut(T) + Send,
) -> Result<(), Violation> {
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let (done, worst) = (Mutex::new(done), Mutex::new(None::<Violation>));
    let work = || {
        while !stopped.load(SeqCst) {
            let number = next.fetch_add(1, SeqCst);
            if number >= schedules {
                break;
            }
            let seed = seed.wrapping_add(number);
            match catch_unwind(AssertUnwindSafe(|| schedule(seed))) {
                Ok(result) => done.lock().expect("no thread panics while it holds the lock")(result),
                Err(payload) => {
                    stopped.store(true, SeqCst);
                    let mut worst = worst.lock().expect("no thread panics while it holds the lock");
                    if worst.as_ref().is_none_or(|other| seed < other.seed) {
                        *worst = Some(Violation { seed, what: text(&*payload) });
                    }
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    worst.into_inner().expect("no thread panics while it holds the lock").map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_all_processors_every_seed_has_its_turn_once() {
        let mut seen = Vec::new();
        run(7, 100, |seed| seed, |seed| seen.push(seed)).expect("none is bad");
        seen.sort_unstable();
        assert_eq!(seen, (7..107).collect::<Vec<_>>());
    }

    #[test]
    fn the_seed_that_went_wrong_is_named() {
        let bad = run(7, 100, |seed| assert_ne!(seed, 50, "it is fifty"), |()| ()).expect_err("one is bad");
        assert_eq!(bad.seed, 50);
        assert!(bad.what.contains("it is fifty"), "{}", bad.what);
    }
}
