//! When a worker waits a moment before it asks the kernel for news, so that more requests have come.
//!
//! Many clients that share a server and ask little at a time are served in many small batches, each of which costs the
//! worker two system calls for the server, and the server a wake-up. A pause of some microseconds makes the batches
//! larger, as interrupt coalescing does in network cards. It pays while there are clients that may send something:
//! those that asked a moment ago and have had their answers. Where few clients ask, or much at a time, each would only
//! wait longer, and there is no pause.

use std::{num::NonZeroU64, time::Duration};

use pool::Time;

/// The length of a pause. With [`MIN_REQUESTS`] in a window, at least one request comes in it.
const PAUSE: Duration = Duration::from_micros(30);

/// The time in which requests and clients are counted: about as long as a busy client takes for an answer and the next
/// request.
const WINDOW: Duration = Duration::from_millis(4);

/// In a window with fewer requests (40,000 a second) a pause would let no more come.
const MIN_REQUESTS: u32 = 160;

/// At least this many clients must have had their answers and not asked again.
const MIN_AWAY: u32 = 16;

/// A worker that has got this many requests in one turn has a large batch already.
const MIN_LARGE_BATCH: u32 = 16;

#[derive(Default)]
pub(super) struct Coalescing {
    /// Whether the clock of this thread is exact enough.
    able: bool,
    /// When the window ends that is being counted.
    ends: Time,
    /// Its number, by which clients are known that were counted in it.
    window: u16,
    current: Count,
    previous: Count,
    /// Requests in this turn of the worker.
    fresh: u32,
    /// Clients that wait for answers.
    under_way: u32,
}

#[derive(Clone, Copy, Default)]
struct Count {
    requests: u32,
    clients: u32,
}

impl Coalescing {
    /// Prepares the thread that is to pause: its sleep ends when it should, not up to 50 us later
    /// (`PR_SET_TIMERSLACK`). Where the clock has ticks of milliseconds, the worker never pauses.
    pub(super) fn prepare_thread(&mut self) {
        let resolution = rustix::time::clock_getres(rustix::time::ClockId::Monotonic);
        let exact = resolution.tv_sec == 0 && resolution.tv_nsec <= 1000;
        self.able = exact && rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).is_ok();
    }

    /// A client begins a request. `counted` is the last window in which the client was counted.
    pub(super) fn begin_request(&mut self, counted: &mut u16) {
        self.fresh += 1;
        self.under_way += 1;
        self.current.requests += 1;
        if *counted != self.window {
            *counted = self.window;
            self.current.clients += 1;
        }
    }

    /// This many clients wait for their answers no longer.
    pub(super) fn end_requests(&mut self, clients: u32) {
        self.under_way -= clients;
    }

    /// Pauses if that pays. The worker asks the kernel for news next.
    pub(super) fn pause(&mut self, now: Time) {
        if self.decide_pause(now) && self.able {
            // A signal may end it early, which does no harm.
            let _ = rustix::thread::nanosleep(&PAUSE.try_into().expect("microseconds fit"));
        }
    }

    /// Counts this turn of the worker, and begins a new window if that is due. True if a pause pays.
    fn decide_pause(&mut self, now: Time) -> bool {
        if now >= self.ends {
            self.previous = if now - self.ends < WINDOW { self.current } else { Count::default() };
            self.current = Count::default();
            self.window = self.window.wrapping_add(1);
            self.ends = now + WINDOW;
        }
        let fresh = std::mem::take(&mut self.fresh);
        let away = self.previous.clients.saturating_sub(self.under_way);
        self.previous.requests >= MIN_REQUESTS && away >= MIN_AWAY && fresh < MIN_LARGE_BATCH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `clients` ask in turn, `batch` at a time and every `gap`; whether a pause pays in the end, and with `waiting` of
    /// them under way.
    fn pays(clients: usize, batch: usize, gap: Duration, waiting: usize) -> bool {
        let (mut coalescing, mut counted, mut now) = (Coalescing::default(), vec![0; clients], Time(1));
        let mut turn = (0..clients).cycle();
        for _ in 0..10_000 / batch {
            turn.by_ref().take(batch).for_each(|client| coalescing.begin_request(&mut counted[client]));
            coalescing.end_requests(batch as u32);
            now = now + gap;
            coalescing.decide_pause(now);
        }
        turn.by_ref().take(batch).for_each(|client| coalescing.begin_request(&mut counted[client]));
        coalescing.under_way = waiting as u32;
        coalescing.decide_pause(now)
    }

    #[test]
    fn a_pause_pays_where_many_clients_ask_little_at_a_time() {
        assert!(pays(50, 4, Duration::from_micros(40), 4));
        assert!(pays(1000, 4, Duration::from_micros(40), 4));
    }

    #[test]
    fn it_does_not_pay_otherwise() {
        assert!(!pays(8, 4, Duration::from_micros(40), 4), "few clients: each only waits longer");
        assert!(!pays(50, 4, Duration::from_micros(40), 40), "nearly all of them wait for answers");
        assert!(!pays(50, 4, Duration::from_micros(400), 4), "few requests: none would be gathered");
        assert!(!pays(50, 20, Duration::from_micros(200), 4), "batches are large by themselves");
    }

    #[test]
    fn what_was_long_ago_does_not_count() {
        let (mut coalescing, mut counted) = (Coalescing::default(), vec![0; 100]);
        coalescing.decide_pause(Time(1));
        (0..400).for_each(|n| coalescing.begin_request(&mut counted[n % 100]));
        coalescing.end_requests(400);
        assert!(!coalescing.decide_pause(Time(1) + WINDOW / 2));
        assert!(coalescing.decide_pause(Time(1) + WINDOW));
        assert!(!coalescing.decide_pause(Time(1) + WINDOW * 3));
    }
}
