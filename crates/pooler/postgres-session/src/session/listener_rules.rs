//! What clients of a listener may send. The rules are looked up when a client logs in, and once a second from then on,
//! so that a reload reaches clients that are there, too.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
};

use crate::{directory::ListenerRules, session::entrance::MAX_LISTENERS};

/// The bits of a rule that limit a message's length, and behind them the one that forbids simple queries.
const LENGTH_MASK: u64 = (1 << 31) - 1;
const REFUSES_SIMPLE: u64 = 1 << 31;
const WAIT_SHIFT: u32 = 32;

/// The rules of a listener that matter after the login; there are none for most listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restrictions {
    pub(crate) max_length: u32,
    pub(crate) refuses_simple: bool,
    pub(crate) wait_notice_ms: Option<u64>,
}

/// The rules of all listeners in force, of at most [`MAX_LISTENERS`].
pub(crate) struct RulesInForce {
    /// Zero, or the rules of a listener in one number: a client's input costs one look.
    packed: Box<[AtomicU64]>,
    limits_length: AtomicBool,
    /// Listeners from the first to the last at which a client has logged in.
    used: AtomicU16,
    /// The second of the driver's clock in which the rules were last looked up again.
    refreshed: AtomicU64,
}

impl Default for RulesInForce {
    fn default() -> Self {
        Self {
            packed: (0..MAX_LISTENERS).map(|_| AtomicU64::new(0)).collect(),
            limits_length: AtomicBool::new(false),
            used: AtomicU16::new(0),
            refreshed: AtomicU64::new(0),
        }
    }
}

impl RulesInForce {
    /// Puts the rules of a listener in force.
    pub(crate) fn set(&self, listener: u16, rules: &ListenerRules) {
        let Some(packed) = self.packed.get(usize::from(listener)) else { return };
        let length = rules.max_message_size.map_or(0, u64::from).min(LENGTH_MASK);
        let simple = if rules.refuse_simple_queries { REFUSES_SIMPLE } else { 0 };
        let wait = rules.wait_notice_time.map_or(0, |time| time.as_millis().clamp(1, u128::from(u32::MAX)) as u64);
        packed.store(length | simple | wait << WAIT_SHIFT, Relaxed);
        self.used.fetch_max(listener + 1, Relaxed);
        if length != 0 {
            self.limits_length.store(true, Relaxed);
        }
    }

    /// The listeners whose rules are to be looked up again: once in a second.
    pub(crate) fn to_refresh(&self, now_ms: u64) -> Range<u16> {
        let second = now_ms / 1000;
        let is_due = self.refreshed.swap(second, Relaxed) != second;
        0..if is_due { self.used.load(Relaxed) } else { 0 }
    }

    #[inline]
    pub(crate) fn of(&self, listener: u16) -> Option<Restrictions> {
        let packed = self.packed.get(usize::from(listener)).map_or(0, |packed| packed.load(Relaxed));
        (packed != 0).then(|| Restrictions::unpack(packed))
    }

    /// Whether any listener has ever limited the length of messages.
    #[inline]
    pub(crate) fn limit_length(&self) -> bool {
        self.limits_length.load(Relaxed)
    }
}

impl Restrictions {
    #[cold]
    fn unpack(packed: u64) -> Self {
        let (length, wait) = (packed & LENGTH_MASK, packed >> WAIT_SHIFT);
        Self {
            max_length: if length == 0 { u32::MAX } else { length as u32 },
            refuses_simple: packed & REFUSES_SIMPLE != 0,
            wait_notice_ms: (wait != 0).then_some(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rules_are_kept_as_they_are_set_and_only_for_their_listener() {
        let rules = RulesInForce::default();
        let length = ListenerRules { max_message_size: Some(i32::MAX as u32), ..ListenerRules::default() };
        rules.set(3, &length);
        let unlimited = Restrictions { max_length: u32::MAX, refuses_simple: false, wait_notice_ms: None };
        assert_eq!(rules.of(3), Some(Restrictions { max_length: i32::MAX as u32, ..unlimited }));
        assert_eq!((rules.of(2), rules.of(u16::MAX), rules.limit_length()), (None, None, true));
        assert_eq!([900, 1000, 1900, 2000].map(|now_ms| rules.to_refresh(now_ms)), [0..0, 0..4, 0..0, 0..4]);
        let others = ListenerRules {
            refuse_simple_queries: true,
            wait_notice_time: Some(Duration::from_secs(5)),
            ..ListenerRules::default()
        };
        rules.set(3, &others);
        assert_eq!(rules.of(3), Some(Restrictions { refuses_simple: true, wait_notice_ms: Some(5000), ..unlimited }));
        rules.set(3, &ListenerRules::default());
        assert_eq!(rules.of(3), None);
    }
}
