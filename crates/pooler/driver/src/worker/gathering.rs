//! When a worker waits a moment before it looks for what has come, so that more has.
//!
//! Many clients that share a server and ask little at a time are served in many small batches, each of which costs the
//! worker two system calls for the server, and the server a wake-up. A pause of some microseconds makes the batches
//! larger, as interrupt moderation does in network cards. It pays while there are clients of whom something may come:
//! those that asked a moment ago and have had their answers. Where few clients ask, or much at a time, each would only
//! wait longer, and there is no pause.

use std::{num::NonZeroU64, time::Duration};

use pool::Time;

/// How long a pause is. In it, at [`MIN_REQUESTS`], at least one request comes.
const PAUSE: Duration = Duration::from_micros(30);

/// Requests and clients are counted for so long: about as long as a client that is busy takes for an answer and the
/// next request.
const WINDOW: Duration = Duration::from_millis(4);

/// In a window with fewer requests (40,000 a second) pauses would gather nothing.
const MIN_REQUESTS: u32 = 160;

/// So many clients at least must be away with their answers.
const MIN_AWAY: u32 = 16;

/// A worker that has got so many requests in one look has a batch already.
const ENOUGH: u32 = 16;

pub(super) struct Gathering {
    able: bool,
    /// When the window ends that is being counted.
    ends: Time,
    /// Its number, by which clients are known that were counted in it.
    window: u16,
    current: Count,
    previous: Count,
    /// Requests since the last look.
    fresh: u32,
    /// Clients that wait for answers.
    under_way: u32,
}

#[derive(Clone, Copy, Default)]
struct Count {
    requests: u32,
    clients: u32,
}

impl Gathering {
    pub(super) fn new() -> Self {
        Self {
            able: false,
            ends: Time(0),
            window: 0,
            current: Count::default(),
            previous: Count::default(),
            fresh: 0,
            under_way: 0,
        }
    }

    /// Prepares the thread that is to pause: sleep ends when it should, not up to 50 us later (`PR_SET_TIMERSLACK`).
    /// Where the clock has ticks of milliseconds, nobody pauses.
    pub(super) fn prepare(&mut self) {
        let resolution = rustix::time::clock_getres(rustix::time::ClockId::Monotonic);
        let exact = resolution.tv_sec == 0 && resolution.tv_nsec <= 1000;
        self.able = exact && rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).is_ok();
    }

    /// A client begins a request. `counted` is its own.
    pub(super) fn begin(&mut self, counted: &mut u16) {
        self.fresh += 1;
        self.under_way += 1;
        self.current.requests += 1;
        if *counted != self.window {
            *counted = self.window;
            self.current.clients += 1;
        }
    }

    /// So many clients wait no longer.
    pub(super) fn end(&mut self, clients: u32) {
        self.under_way -= clients;
    }

    /// Pauses if that pays. The next look at what has come follows.
    pub(super) fn pause(&mut self, now: Time) {
        if self.pays(now) && self.able {
            // A signal may end it early, which does no harm.
            let _ = rustix::thread::nanosleep(&PAUSE.try_into().expect("microseconds fit"));
        }
    }

    fn pays(&mut self, now: Time) -> bool {
        if now >= self.ends {
            self.previous = if now - self.ends < WINDOW { self.current } else { Count::default() };
            self.current = Count::default();
            self.window = self.window.wrapping_add(1);
            self.ends = now + WINDOW;
        }
        let fresh = std::mem::take(&mut self.fresh);
        let away = self.previous.clients.saturating_sub(self.under_way);
        self.previous.requests >= MIN_REQUESTS && away >= MIN_AWAY && fresh < ENOUGH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `clients` ask in turn, `batch` at a time and every `gap`; whether a pause pays in the end, and with `waiting` of
    /// them under way.
    fn pays(clients: usize, batch: usize, gap: Duration, waiting: usize) -> bool {
        let (mut gathering, mut counted, mut now) = (Gathering::new(), vec![0; clients], Time(1));
        let mut turn = (0..clients).cycle();
        for _ in 0..10_000 / batch {
            turn.by_ref().take(batch).for_each(|client| gathering.begin(&mut counted[client]));
            gathering.end(batch as u32);
            now = now + gap;
            gathering.pays(now);
        }
        turn.by_ref().take(batch).for_each(|client| gathering.begin(&mut counted[client]));
        gathering.under_way = waiting as u32;
        gathering.pays(now)
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
        let (mut gathering, mut counted) = (Gathering::new(), vec![0; 100]);
        gathering.pays(Time(1));
        (0..400).for_each(|n| gathering.begin(&mut counted[n % 100]));
        gathering.end(400);
        assert!(!gathering.pays(Time(1) + WINDOW / 2));
        assert!(gathering.pays(Time(1) + WINDOW));
        assert!(!gathering.pays(Time(1) + WINDOW * 3));
    }
}
