//! Clients that wait for a server for a blocking command (`BLPOP key 5`) while all servers are taken. Each waits as
//! long as its command would block, and then gets the reply of the time-out. This file knows times and clients' ids,
//! and no session.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use seam::LeaseFailure;

use crate::command::block_option;

/// A request for a server that failed sooner is not repeated: with a shorter `max_wait_time`, requests would never
/// stop.
const MIN_WAIT: Duration = Duration::from_millis(50);

/// The waits of all clients. Each has one at most.
#[derive(Default)]
pub(crate) struct BlockingWaits {
    /// The time that is left of each, by the client's id.
    left: Mutex<HashMap<u64, Duration>>,
    /// Their number, which is read without the lock: most clients never have a wait.
    count: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitOutcome {
    /// The client has no blocking wait, or its request failed for a reason that another request would meet, too.
    Fails,
    GoesOn,
    /// The time is over.
    IsOver,
}

impl BlockingWaits {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Duration>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client with this id waits for this long at most. A wait that has begun already stays as it is.
    pub(crate) fn begin(&self, id: u64, time: Duration) {
        if let Entry::Vacant(entry) = self.lock().entry(id) {
            entry.insert(time);
            self.count.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn end(&self, id: u64) {
        if self.count.load(Relaxed) > 0 && self.lock().remove(&id).is_some() {
            self.count.fetch_sub(1, Relaxed);
        }
    }

    /// The request for a server has failed. What it has waited counts.
    pub(crate) fn on_request_failed(&self, id: u64, why: &LeaseFailure) -> WaitOutcome {
        let mut left = self.lock();
        let (Some(left), LeaseFailure::WaitTimeout { waited, .. }) = (left.get_mut(&id), why) else {
            return WaitOutcome::Fails;
        };
        *left = left.saturating_sub(*waited);
        match *waited >= MIN_WAIT {
            _ if left.is_zero() => WaitOutcome::IsOver,
            true => WaitOutcome::GoesOn,
            false => WaitOutcome::Fails,
        }
    }
}

/// The time-out of a blocking command; `None` if it has none, or these arguments do not say.
pub(crate) fn block_timeout(arguments: &[&[u8]]) -> Option<Duration> {
    let name = arguments.first()?.to_ascii_uppercase();
    let seconds = |text: &[u8]| Duration::try_from_secs_f64(std::str::from_utf8(text).ok()?.parse().ok()?).ok();
    let time = match name.as_slice() {
        b"BLMPOP" | b"BZMPOP" => seconds(arguments.get(1)?)?,
        b"XREAD" | b"XREADGROUP" => {
            let [option, millis, ..] = block_option(&arguments[1..])? else { return None };
            if !option.eq_ignore_ascii_case(b"BLOCK") {
                return None;
            }
            Duration::from_millis(std::str::from_utf8(millis).ok()?.parse().ok()?)
        }
        _ => seconds(arguments.last()?)?,
    };
    (!time.is_zero()).then_some(time)
}

#[cfg(test)]
mod tests {
    use seam::{Limit, Shortage};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn busy(waited: Duration) -> LeaseFailure {
        let shortage = Shortage { in_use: 2, connecting: 0, between: 0, left: 0, limit: Limit::Setting("max_size") };
        LeaseFailure::WaitTimeout { waited, shortage }
    }

    #[test]
    fn a_wait_goes_on_until_its_block_timeout_is_over() {
        let waits = BlockingWaits::default();
        waits.begin(7, 5 * SECOND);
        waits.begin(7, 50 * SECOND);
        for _ in 0..2 {
            assert_eq!(waits.on_request_failed(7, &busy(2 * SECOND)), WaitOutcome::GoesOn);
        }
        assert_eq!(
            waits.on_request_failed(7, &busy(Duration::ZERO)),
            WaitOutcome::Fails,
            "that would be asked for all the time"
        );
        assert_eq!(waits.on_request_failed(7, &LeaseFailure::QueueFull), WaitOutcome::Fails);
        assert_eq!(waits.on_request_failed(8, &busy(SECOND)), WaitOutcome::Fails);
        assert_eq!(waits.on_request_failed(7, &busy(2 * SECOND)), WaitOutcome::IsOver);
        waits.end(7);
        waits.end(7);
        assert_eq!((waits.on_request_failed(7, &busy(SECOND)), waits.count.load(Relaxed)), (WaitOutcome::Fails, 0));
    }

    #[test]
    fn each_blocking_command_has_its_time_out_in_its_own_place() {
        for (words, millis) in [
            ("BRPOP a b 1.5", Some(1500)),
            ("blpop a 0", None),
            ("BLPOP a -1", None),
            ("BLPOP a nan", None),
            ("BLPOP a 1e400", None),
            ("BLMOVE a b LEFT RIGHT 2", Some(2000)),
            ("BLMPOP 3 1 a LEFT", Some(3000)),
            ("XREAD COUNT 2 BLOCK 250 STREAMS s $", Some(250)),
            ("XREADGROUP GROUP g c BLOCK 0 STREAMS s >", None),
            ("XREADGROUP GROUP block c BLOCK 250 STREAMS s >", Some(250)),
            ("XREADGROUP GROUP g block noack count 2 block 250 STREAMS s >", Some(250)),
            ("XREADGROUP GROUP block 7 BLOCK 250 STREAMS s >", Some(250)),
            ("XREAD STREAMS s 0", None),
        ] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            assert_eq!(block_timeout(&words), millis.map(Duration::from_millis), "{words:?}");
        }
    }
}
