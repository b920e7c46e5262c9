//! What was seen of a pool during some time: its counters at both ends, and its state at each sample between. It knows
//! no size.

use std::time::Duration;

use pool::Time;

/// There is demand if at least this share of the samples saw a client wait.
const MIN_WAITING_SHARE: f64 = 0.8;
/// There is also demand if this share did, and [`MIN_WAITING_SHARE`] of the granted servers had to be waited for.
/// Clients that come in step leave gaps in which no client waits. With a smaller share, a burst in a quiet minute would
/// be demand.
const MIN_WAITING_SHARE_IN_STEP: f64 = 0.5;

/// A pool at one moment. Its counters begin at any fixed moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Holds of servers that have ended.
    pub completed: u64,
    /// The sum of their durations.
    pub held: Duration,
    /// Servers that clients got.
    pub granted: u64,
    /// Granted servers that a client had waited for until another one gave them back.
    pub waited: u64,
    /// Clients that got no server, and connections that were lost or could not be made.
    pub errors: u64,
    pub in_use: u32,
    /// Clients that wait for a server now.
    pub waiters: u32,
    /// Servers that clients hold beyond a transaction now. Others cannot use them.
    pub pinned: u32,
    /// Whether the pool works: it is not paused, and its database can be reached.
    pub is_working: bool,
    /// Whether an operator has ordered that it does not work.
    pub stopped_by_order: bool,
}

/// What happened between two samples.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Window {
    pub time: Duration,
    /// Holds of servers that have ended.
    pub completed: u64,
    /// The sum of their durations.
    pub held: Duration,
    /// See [`Sample::errors`].
    pub errors: u64,
    pub(crate) granted: u64,
    pub(crate) waited: u64,
    pub(crate) samples: u32,
    /// Samples that saw a client wait.
    pub(crate) waiting: u32,
    /// Clients that had a server that was not pinned, or waited for one: the sum over all samples.
    pub(crate) clients: u64,
    /// Servers in use that are not pinned: the sum over all samples.
    pub(crate) busy: u64,
}

impl Window {
    /// Holds per second.
    pub fn throughput(&self) -> f64 {
        self.completed as f64 / self.time.as_secs_f64().max(1e-9)
    }

    pub fn mean_hold(&self) -> Duration {
        Duration::from_secs_f64(self.held.as_secs_f64() / self.completed.max(1) as f64)
    }

    /// Whether more servers would have been used.
    pub fn has_demand(&self) -> bool {
        let seen = |part: f64| self.samples > 0 && f64::from(self.waiting) >= part * f64::from(self.samples);
        let in_step = self.granted > 0 && self.waited as f64 >= MIN_WAITING_SHARE * self.granted as f64;
        seen(MIN_WAITING_SHARE) || (in_step && seen(MIN_WAITING_SHARE_IN_STEP))
    }

    /// Clients that had a server without keeping it, or waited for one, on average. Divided by the throughput, that is
    /// the time that they were in the pool (Little's law).
    pub fn mean_clients(&self) -> f64 {
        self.clients as f64 / f64::from(self.samples.max(1))
    }

    /// Whether each server in use came back this many times on average.
    pub(crate) fn has_returned(&self, times: u64) -> bool {
        self.completed.saturating_mul(self.samples.into()) >= self.busy.saturating_mul(times)
    }

    /// Errors as a fraction of all holds and errors.
    pub fn error_fraction(&self) -> f64 {
        self.errors as f64 / (self.errors + self.completed).max(1) as f64
    }

    pub fn plus(&self, other: &Self) -> Self {
        Self {
            time: self.time + other.time,
            completed: self.completed + other.completed,
            held: self.held + other.held,
            errors: self.errors + other.errors,
            granted: self.granted + other.granted,
            waited: self.waited + other.waited,
            samples: self.samples + other.samples,
            waiting: self.waiting + other.waiting,
            clients: self.clients + other.clients,
            busy: self.busy + other.busy,
        }
    }
}

/// Makes windows of samples.
#[derive(Clone, Debug, Default)]
pub struct Gauge {
    /// A change settles until then at least. Until it has, nothing is measured.
    settles: Option<Time>,
    /// When this window, or the settling, began.
    began: Option<(Time, Sample)>,
    last: Option<(Time, Sample)>,
    seen: Window,
}

impl Gauge {
    /// Drops the present window, and begins the next one at this time.
    pub fn begin_at(&mut self, from: Time) {
        *self = Self { settles: Some(from), began: self.last, last: self.last, seen: Window::default() };
    }

    /// Takes a sample. Returns the window if it is this long; the next one begins with this sample. With
    /// `waits_for_returns`, no window ends, and no change has settled, before each server came back once on average:
    /// otherwise, holds that end with one size would have begun with another.
    pub fn observe(&mut self, sample: &Sample, long: Duration, waits_for_returns: bool, now: Time) -> Option<Window> {
        self.last = Some((now, *sample));
        // A pool that replaces another one counts from 0.
        let Some((began, first)) = self.began.filter(|(_, first)| first.completed <= sample.completed) else {
            (self.began, self.seen) = (self.last, Window::default());
            self.settles = self.settles.filter(|until| now < *until);
            return None;
        };
        self.seen.samples += 1;
        self.seen.waiting += u32::from(sample.waiters > 0);
        let busy = u64::from(sample.in_use.saturating_sub(sample.pinned));
        self.seen.busy += busy;
        self.seen.clients += busy + u64::from(sample.waiters);
        self.seen.time = now - began;
        self.seen.completed = sample.completed.saturating_sub(first.completed);
        self.seen.held = sample.held.saturating_sub(first.held);
        self.seen.errors = sample.errors.saturating_sub(first.errors);
        self.seen.granted = sample.granted.saturating_sub(first.granted);
        self.seen.waited = sample.waited.saturating_sub(first.waited);
        let is_long = self.settles.map_or(self.seen.time >= long, |until| now >= until);
        if !is_long || (waits_for_returns && !self.seen.has_returned(1)) {
            return None;
        }
        self.began = self.last;
        let seen = std::mem::take(&mut self.seen);
        self.settles.take().is_none().then_some(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn sample(completed: u64, waiters: u32) -> Sample {
        Sample {
            completed,
            held: Duration::from_millis(completed * 10),
            in_use: 4,
            waiters,
            is_working: true,
            ..Sample::default()
        }
    }

    #[test]
    fn a_window_is_what_happened_between_two_samples_and_the_next_one_follows() {
        let mut gauge = Gauge::default();
        let long = Duration::from_secs(2);
        let ends: Vec<_> =
            (0..5).filter_map(|s| gauge.observe(&sample(1000 + s * 100, 6), long, false, Time(s * SECOND))).collect();
        assert_eq!(ends.len(), 2);
        assert_eq!((ends[1].throughput(), ends[1].mean_hold()), (100.0, Duration::from_millis(10)));
        assert_eq!((ends[0].mean_clients(), ends[0].has_demand()), (10.0, true));
    }

    #[test]
    fn clients_in_step_are_demand_and_a_burst_in_a_quiet_minute_is_not() {
        // `samples` of eight samples see a client wait, and `waited` of a thousand servers were waited for.
        let has_demand = |samples: u64, waited: u64| {
            let mut gauge = Gauge::default();
            let window = (0..=8).find_map(|s| {
                let waiters = u32::from(s >= 1 && s <= samples);
                let sample = Sample { granted: s * 125, waited: s * waited / 8, ..sample(0, waiters) };
                gauge.observe(&sample, Duration::from_secs(8), false, Time(s * SECOND))
            });
            window.expect("eight seconds").has_demand()
        };
        assert!(has_demand(7, 0), "most samples");
        assert!(!has_demand(6, 700), "three samples in four, and most got one at once now and then");
        assert!(has_demand(6, 900), "in step");
        assert!(!has_demand(3, 1000), "a burst");
    }

    #[test]
    fn nothing_is_measured_before_a_change_has_settled() {
        let mut gauge = Gauge::default();
        gauge.begin_at(Time(SECOND));
        let long = Duration::from_secs(1);
        assert_eq!(gauge.observe(&sample(900, 0), long, false, Time(SECOND / 2)), None);
        assert_eq!(gauge.observe(&sample(1000, 0), long, false, Time(SECOND)), None);
        let window = gauge.observe(&sample(1007, 0), long, false, Time(2 * SECOND)).unwrap();
        assert_eq!((window.completed, window.has_demand()), (7, false));
    }

    #[test]
    fn a_window_that_waits_for_returns_ends_when_each_server_came_back_once() {
        // Four servers, of which one comes back every two seconds.
        let ends = |waits_for_returns| {
            let mut gauge = Gauge::default();
            let long = Duration::from_secs(2);
            gauge.observe(&sample(0, 1), long, waits_for_returns, Time(0));
            gauge.begin_at(Time(SECOND));
            (1..=24).find(|s| gauge.observe(&sample(s / 2, 1), long, waits_for_returns, Time(s * SECOND)).is_some())
        };
        assert_eq!((ends(false), ends(true)), (Some(3), Some(16)));
        // Three of them are kept.
        let mut gauge = Gauge::default();
        let with_pinned = |s: u64| Sample { pinned: 3, ..sample(s / 2, 1) };
        let end = (0..=24)
            .find(|s| gauge.observe(&with_pinned(*s), Duration::from_secs(1), true, Time(s * SECOND)).is_some());
        assert_eq!(end, Some(2));
    }

    #[test]
    fn a_new_pool_begins_a_new_window() {
        let mut gauge = Gauge::default();
        let long = Duration::from_secs(2);
        gauge.observe(&sample(5000, 1), long, true, Time(0));
        let windows = (1..=4).filter_map(|s| gauge.observe(&sample(s * 100, 1), long, true, Time(s * SECOND)));
        assert_eq!(windows.map(|window| window.completed).collect::<Vec<_>>(), [200]);
    }
}
