//! Slows down those who guess passwords: from the Nth failure within a minute on, an address learns
//! of a failure only a second later, and only so many may wait for that at a time. Others from the same address
//! can still log in meanwhile.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use pool::Time;

/// How long the answer to a failed login is kept back.
pub(crate) const DELAY: Duration = Duration::from_secs(1);
/// Failures are counted over this long.
const WINDOW: Duration = Duration::from_secs(60);
/// Kept-back answers per address; further clients from there are refused.
const MAX_DELAYED: u32 = 16;
/// Addresses remembered; when full, those whose window is over are forgotten, and if there is none, the newcomer is not
/// remembered.
const MAX_ADDRESSES: usize = 4096;

/// See the file's head.
pub(crate) struct Throttle {
    max_failures: AtomicU32,
    failures: AtomicU64,
    any: AtomicBool,
    addresses: Mutex<HashMap<IpAddr, Record>>,
}

struct Record {
    since: Time,
    failures: u32,
    delayed: u32,
}

impl Throttle {
    pub(crate) fn new(max_failures: u32) -> Self {
        Self {
            max_failures: AtomicU32::new(max_failures),
            failures: AtomicU64::new(0),
            any: AtomicBool::new(false),
            addresses: Mutex::default(),
        }
    }

    /// Another limit from now on.
    pub(crate) fn set_max_failures(&self, max_failures: u32) {
        self.max_failures.store(max_failures, Relaxed);
    }

    /// All failures since the start.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Counts a failure. True when its answer is to be delayed; then `answered` must follow.
    pub(crate) fn failed(&self, address: Option<IpAddr>, now: Time) -> bool {
        self.failures.fetch_add(1, Relaxed);
        let Some(address) = address else { return false };
        self.any.store(true, Relaxed);
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= MAX_ADDRESSES && !addresses.contains_key(&address) {
            addresses.retain(|_, record| record.delayed > 0 || now - record.since < WINDOW);
            if addresses.len() >= MAX_ADDRESSES {
                return false;
            }
        }
        let record = addresses.entry(address).or_insert(Record { since: now, failures: 0, delayed: 0 });
        if now - record.since >= WINDOW {
            (record.since, record.failures) = (now, 0);
        }
        record.failures += 1;
        let delay = record.failures > self.max_failures.load(Relaxed);
        record.delayed += u32::from(delay);
        delay
    }

    /// A delayed answer was given, or its client has gone.
    pub(crate) fn answered(&self, address: Option<IpAddr>) {
        let Some(address) = address else { return };
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = addresses.get_mut(&address) {
            record.delayed = record.delayed.saturating_sub(1);
        }
    }

    /// Whether newcomers from there are refused for now.
    pub(crate) fn refuses(&self, address: Option<IpAddr>) -> bool {
        let Some(address) = address.filter(|_| self.any.load(Relaxed)) else { return false };
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.get(&address).is_some_and(|record| record.delayed >= MAX_DELAYED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    #[test]
    fn answers_are_delayed_after_too_many_failures_until_the_window_ends() {
        let throttle = Throttle::new(2);
        let now = Time(0);
        assert!(!throttle.failed(HERE, now));
        assert!(!throttle.failed(HERE, now));
        assert!(throttle.failed(HERE, now));
        assert!(!throttle.failed(HERE, now + WINDOW));
        assert_eq!(throttle.failures(), 4);
    }

    #[test]
    fn newcomers_are_refused_while_too_many_answers_are_delayed() {
        let throttle = Throttle::new(0);
        for _ in 0..MAX_DELAYED {
            assert!(!throttle.refuses(HERE));
            assert!(throttle.failed(HERE, Time(0)));
        }
        assert!(throttle.refuses(HERE));
        throttle.answered(HERE);
        assert!(!throttle.refuses(HERE));
    }
}
