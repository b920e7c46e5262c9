//! Limits on the number of steps of a simulation, and the schedule of its early-stop checks. A step advances the
//! virtual clock to the next event. A simulation that takes many steps and completes few operations is stopped.

use std::time::Duration;

use load::engine::Engine;
use pool::Time;

/// Steps allowed before the load begins: a fixed number, and more for each connection of the pools. Making one
/// connection takes about three steps.
const MAX_FILL_STEPS: u64 = 10_000;
const MAX_FILL_STEPS_PER_CONNECTION: u64 = 100;
/// Steps between two progress checks while the load lasts.
const PROGRESS_CHECK_STEPS: u64 = 500_000;
/// Most steps per completed operation between two progress checks. An operation normally takes two to ten.
const MAX_STEPS_PER_OPERATION: u64 = 100;
/// A progress check passes regardless if this much virtual time went by since the previous one: the remaining events
/// are then far apart, and few.
const SPARSE_INTERVAL: Duration = Duration::from_secs(60);
/// From this step on, sparse events no longer excuse a lack of progress.
const MAX_SPARSE_STEPS: u64 = 1_000_000_000;
/// With closed-loop clients, which retry at once after a failure, every fourth progress check also counts successes.
const CHECKS_PER_SUCCESS_CHECK: u64 = 4;
/// Most steps per successful operation between two success checks.
const MAX_STEPS_PER_SUCCESS: u64 = 1_000;
/// Steps under load before the first early-stop check. Each later interval is twice as long as the one before.
pub const FIRST_EARLY_STOP_STEPS: u64 = 10_000;

pub struct StepLimit {
    clients_retry: bool,
    steps: u64,
    /// The step at which progress is checked next.
    next_check: u64,
    progress_checks: u64,
    last_check: Time,
    /// Operations completed, with or without an error, at the last progress check.
    completed: u64,
    /// Operations completed without an error at the last success check.
    succeeded: u64,
    /// The step of the next early-stop check.
    next_early_stop_check: u64,
    early_stop_interval: u64,
}

impl StepLimit {
    /// The limit for a simulation whose pools first make `connections`. `clients_retry`: a client whose operation
    /// fails sends another one at once.
    pub fn new(connections: u64, clients_retry: bool) -> Self {
        Self {
            clients_retry,
            steps: 0,
            next_check: MAX_FILL_STEPS + MAX_FILL_STEPS_PER_CONNECTION * connections,
            progress_checks: 0,
            last_check: Time(0),
            completed: 0,
            succeeded: 0,
            next_early_stop_check: u64::MAX,
            early_stop_interval: FIRST_EARLY_STOP_STEPS,
        }
    }

    /// Starts the progress checks and the early-stop checks.
    pub fn begin_load(&mut self) {
        self.next_check = self.steps + PROGRESS_CHECK_STEPS;
        self.next_early_stop_check = self.steps + FIRST_EARLY_STOP_STEPS;
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether an early-stop check is due. If so, schedules the next one.
    #[inline]
    pub fn take_early_stop_check(&mut self) -> bool {
        let due = self.steps >= self.next_early_stop_check;
        if due {
            self.early_stop_interval *= 2;
            self.next_early_stop_check += self.early_stop_interval;
        }
        due
    }

    /// Counts a step. Returns whether the simulation has to stop instead.
    #[inline]
    pub fn count_step(&mut self, engine: &Engine, has_begun: bool, now: Time) -> bool {
        if self.steps < self.next_check {
            self.steps += 1;
            return false;
        }
        !has_begun || self.lacks_progress(engine, now)
    }

    #[cold]
    fn lacks_progress(&mut self, engine: &Engine, now: Time) -> bool {
        let progress = engine.progress(now);
        let completed = progress.succeeded + progress.errors + progress.dropped;
        let newly_completed = completed - std::mem::replace(&mut self.completed, completed);
        self.next_check = self.steps + PROGRESS_CHECK_STEPS;
        self.progress_checks += 1;
        let is_sparse = now - std::mem::replace(&mut self.last_check, now) >= SPARSE_INTERVAL;
        if is_sparse && self.steps < MAX_SPARSE_STEPS {
            return false;
        }
        let completes_too_few = newly_completed * MAX_STEPS_PER_OPERATION < PROGRESS_CHECK_STEPS;
        if !self.clients_retry || !self.progress_checks.is_multiple_of(CHECKS_PER_SUCCESS_CHECK) {
            return completes_too_few;
        }
        let newly_succeeded = progress.succeeded - std::mem::replace(&mut self.succeeded, progress.succeeded);
        completes_too_few || newly_succeeded * MAX_STEPS_PER_SUCCESS < CHECKS_PER_SUCCESS_CHECK * PROGRESS_CHECK_STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::plan::{Plan, PoolWishes, Shape, Target};

    #[test]
    fn a_slow_simulation_without_progress_ends_too() {
        let shape = Shape::Closed { clients: 1, think: SPARSE_INTERVAL, duration: SPARSE_INTERVAL, operations: None };
        let pool = PoolWishes::default().pool(&shape);
        let plan = Plan::new(String::new(), Target::nowhere(), shape, pool);
        let engine = Engine::new(&plan, Time(0));
        let stops = |steps: u64, intervals: u32| {
            let mut limit = StepLimit { steps, ..StepLimit::new(0, false) };
            limit.lacks_progress(&engine, Time(0) + SPARSE_INTERVAL * intervals)
        };
        assert_eq!([stops(0, 0), stops(0, 1), stops(MAX_SPARSE_STEPS, 1)], [true, false, true]);
    }

    #[test]
    fn intervals_between_early_stop_checks_double() {
        let mut limit = StepLimit::new(0, false);
        limit.steps = 500;
        assert!(!limit.take_early_stop_check(), "the load has not begun");
        limit.begin_load();
        let due = (0..100 * FIRST_EARLY_STOP_STEPS).filter(|_| {
            limit.steps += 1;
            limit.take_early_stop_check()
        });
        let at: Vec<u64> = due.map(|n| (n + 1) / FIRST_EARLY_STOP_STEPS).collect();
        assert_eq!(at, [1, 3, 7, 15, 31, 63]);
    }
}
