//! What processors do while a load is measured, and what follows from it: whether the load generator, or the machine
//! that it shares with others, was the limit. Knows no target.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::machine;

/// Share of its processors at which the load generator is the limit.
const GENERATOR_FULL_SHARE: f64 = 0.9;
/// Idle share below which a machine is full.
const MACHINE_FULL_IDLE_SHARE: f64 = 0.05;
/// Length of a measurement: with ticks of 10 ms, a shorter one has too few of them.
const MIN_MEASUREMENT: Duration = Duration::from_secs(1);

/// Whether the load generator used all of its processors: it can use one per thread.
pub fn is_generator_full(cores: f64, threads: u32) -> bool {
    cores >= GENERATOR_FULL_SHARE * f64::from(threads)
}

/// Whether a machine of which this share is idle is full.
pub fn is_machine_full(idle: f64) -> bool {
    idle <= MACHINE_FULL_IDLE_SHARE
}

/// What the processors did during the measured time.
#[derive(Default)]
pub struct Meter {
    first: Option<Look>,
    last: Option<Look>,
}

#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    /// Processor time of this process.
    own: Duration,
    /// Ticks of all processors of the machine: idle, and all.
    machine: Option<(u64, u64)>,
}

impl Meter {
    /// Looks, if it is being measured.
    pub fn look(&mut self, measuring: bool) {
        if !measuring {
            return;
        }
        let look = Look { at: Instant::now(), own: machine::processor_time(), machine: ticks() };
        self.first.get_or_insert(look);
        self.last = Some(look);
    }

    /// Processors that this process used.
    pub fn cores(&self) -> Option<f64> {
        let (first, last) = self.first.zip(self.last)?;
        let wall = (last.at - first.at).as_secs_f64();
        (wall > 0.0).then(|| last.own.saturating_sub(first.own).as_secs_f64() / wall)
    }

    /// What has to be known of the figures that were measured meanwhile.
    pub fn warning(&self) -> Option<String> {
        let (first, last) = self.first.zip(self.last)?;
        if last.at - first.at < MIN_MEASUREMENT {
            return None;
        }
        warning(self.cores()?, self.idle())
    }

    /// The share of all processors of the machine that was idle.
    pub fn idle(&self) -> Option<f64> {
        let (first, last) = (self.first?.machine?, self.last?.machine?);
        let all = last.1.checked_sub(first.1).filter(|&all| all > 0)?;
        Some(last.0.saturating_sub(first.0) as f64 / all as f64)
    }
}

/// CPU warning for the report: the load generator, which has one thread, used `cores` processors, and the share `idle`
/// of the machine was idle.
fn warning(cores: f64, idle: Option<f64>) -> Option<String> {
    if is_generator_full(cores, 1) {
        let text = "The load generator used all of its processor: this may be its limit, and not the target's. Ask for \
                    more work at a time, or load from several machines.";
        return Some(text.to_owned());
    }
    idle.filter(|idle| is_machine_full(*idle)).map(|_| {
        format!(
            "Nothing of this machine was idle, and the load generator used {cores:.1} of its processors: this is the \
             limit of the machine, for a target that runs on it, too."
        )
    })
}

/// Ticks since the machine started, of all processors together: idle (waiting for disks included), and all. From
/// /proc/stat (proc(5)).
fn ticks() -> Option<(u64, u64)> {
    ticks_of(&fs::read_to_string("/proc/stat").ok()?)
}

fn ticks_of(text: &str) -> Option<(u64, u64)> {
    // user nice system idle iowait irq softirq steal; guests are counted in user already.
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().sum()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_load_generator_and_a_full_machine_are_told_and_nothing_else() {
        let said = |cores, idle| warning(cores, idle).unwrap_or_default();
        assert!(said(0.95, Some(0.4)).contains("used all of its processor"));
        assert!(said(0.95, None).contains("used all of its processor"), "where ticks are not known");
        assert!(said(0.64, Some(0.01)).contains("used 0.6 of its processors"));
        assert_eq!([said(0.64, Some(0.3)), said(0.64, None)], ["", ""]);
    }

    #[test]
    fn of_a_moment_nothing_is_said() {
        let mut meter = Meter::default();
        assert_eq!(meter.warning(), None);
        meter.look(true);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        meter.look(true);
        assert_eq!(meter.warning(), None);
    }

    #[test]
    fn idle_ticks_are_those_that_wait_too() {
        let text = "cpu  10 1 9 70 10 0 0 0 5 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(ticks_of(text), Some((80, 100)));
        assert_eq!(ticks_of("intr 5"), None);
    }

    #[test]
    fn the_meter_sees_the_processor_that_this_test_burns() {
        let mut meter = Meter::default();
        meter.look(false);
        assert_eq!(meter.cores(), None, "the warm-up does not count");
        meter.look(true);
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        meter.look(true);
        assert!(meter.cores().is_some_and(|cores| cores > 0.05), "{:?}", meter.cores());
    }
}
