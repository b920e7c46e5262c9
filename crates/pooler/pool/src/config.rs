//! The options of a pool, their defaults, and which of them contradict each other. It knows no file format and no pool.

use core::{fmt, time::Duration};

/// The most servers of any pool, also if `max_size` is 0 (unlimited).
pub const MAX_SERVERS: u32 = 1 << 20;
/// The most waiters of any pool, also if `max_waiters` is 0 (unlimited).
pub const MAX_WAITERS: u32 = 1 << 24;

/// The default of [`PoolConfig::turn`]: some fifty times as long as a connect within a data centre, and well below the
/// usual `max_wait_time`.
pub const TURN: Duration = Duration::from_millis(250);
/// Turns after which an idle server is given up for another pool that has as few servers. With the usual turn, that is
/// a second: some hundred times as long as to close it here and to connect it there. So at most a hundredth of its time
/// is lost.
pub const LONG_IDLE_TURNS: u32 = 4;

/// The options of one pool. A duration that is `None` means "no limit".
#[derive(Clone, PartialEq, Debug)]
pub struct PoolConfig {
    /// The most servers in any state. 0: unlimited, which is [`MAX_SERVERS`].
    pub max_size: u32,
    /// How many servers there may be beyond `max_size` for waiters that have waited for `reserve_wait_time`.
    pub reserve_size: u32,
    /// How long a waiter waits before the reserve is for it; `None`: there is no reserve.
    pub reserve_wait_time: Option<Duration>,
    /// Servers that are kept even if they are idle.
    pub min_size: u32,
    /// `min_size` applies only after a first connection, because the database that clients name may not exist.
    pub min_size_once_connected: bool,
    /// The most servers that are connecting at the same time.
    pub max_connecting: u32,
    /// A server that was idle for this long is closed, unless that leaves fewer than `min_size`.
    pub max_idle_time: Option<Duration>,
    /// A server this old is closed when it is not in use.
    pub max_life_time: Option<Duration>,
    /// How much lives differ: each is `max_life_time * (1 - jitter * random)`. A fraction from 0 to 1.
    pub life_time_jitter: f32,
    /// How long a waiter waits for a server while all are busy. Time during which the upstream was unavailable, or the
    /// pool paused, does not count: `unavailable_wait_time` bounds it.
    pub max_wait_time: Option<Duration>,
    /// How long a waiter waits while no connection can be made, or the pool is paused.
    pub unavailable_wait_time: Option<Duration>,
    /// The most waiters. 0: unlimited, which is [`MAX_WAITERS`].
    pub max_waiters: u32,
    /// A client gets the server that has been idle longest, instead of the one that was used last.
    pub round_robin: bool,
    /// How often a waiter may be overtaken by waiters of a server's own home. 0: first come, first served.
    pub max_overtakes: u32,
    /// A server that was idle for longer is checked before it is granted.
    pub check_after_idle: Option<Duration>,
    /// The shortest pause after a failed connect.
    pub backoff_min: Duration,
    /// The longest pause after failed connects. The bound of the pauses doubles from one to the next, with jitter.
    pub backoff_max: Duration,
    /// How long a connect, a check or a reset may take.
    pub connect_timeout: Duration,
    /// If there are fewer permits than pools that need one: how long a pool uses its last server before that is closed
    /// for another pool, and how long its first waiter waits before a pool counts as one without servers. Also how long
    /// a pool always has waiters before other pools give up what they have not used for [`LONG_IDLE_TURNS`].
    pub turn: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            max_size: 20,
            reserve_size: 0,
            reserve_wait_time: Some(Duration::from_secs(5)),
            min_size: 0,
            min_size_once_connected: false,
            max_connecting: 2,
            max_idle_time: Some(Duration::from_secs(5 * 60)),
            max_life_time: Some(Duration::from_secs(30 * 60)),
            life_time_jitter: 0.1,
            max_wait_time: Some(Duration::from_secs(2)),
            unavailable_wait_time: Some(Duration::from_secs(30)),
            max_waiters: 0,
            round_robin: false,
            max_overtakes: 32,
            check_after_idle: None,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            turn: TURN,
        }
    }
}

impl PoolConfig {
    /// Checks that the options do not contradict each other.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.max_size > MAX_SERVERS {
            return Err(ConfigError::MaxSizeTooLarge(self.max_size));
        }
        if self.reserve_size > MAX_SERVERS {
            return Err(ConfigError::ReserveTooLarge(self.reserve_size));
        }
        if self.min_size > self.effective_max_size() {
            return Err(ConfigError::MinAboveMax { min_size: self.min_size, max_size: self.effective_max_size() });
        }
        if self.max_connecting == 0 {
            return Err(ConfigError::NoConnecting);
        }
        if !(0.0..=1.0).contains(&self.life_time_jitter) {
            return Err(ConfigError::JitterOutOfRange(self.life_time_jitter));
        }
        if self.max_waiters > MAX_WAITERS {
            return Err(ConfigError::MaxWaitersTooLarge(self.max_waiters));
        }
        if self.max_life_time == Some(Duration::ZERO) {
            return Err(ConfigError::Zero("max_life_time"));
        }
        if self.reserve_wait_time == Some(Duration::ZERO) {
            return Err(ConfigError::Zero("reserve_wait_time"));
        }
        if self.connect_timeout.is_zero() {
            return Err(ConfigError::Zero("connect_timeout"));
        }
        if self.turn.is_zero() {
            return Err(ConfigError::Zero("turn"));
        }
        if self.backoff_min.is_zero() {
            return Err(ConfigError::Zero("backoff_min"));
        }
        if self.backoff_min > self.backoff_max {
            return Err(ConfigError::BackoffReversed { min: self.backoff_min, max: self.backoff_max });
        }
        Ok(())
    }

    /// `max_size`; [`MAX_SERVERS`] if it is unlimited.
    pub fn effective_max_size(&self) -> u32 {
        if self.max_size == 0 { MAX_SERVERS } else { self.max_size }
    }

    /// `reserve_size`; 0 if no waiter may ever claim it.
    pub fn effective_reserve(&self) -> u32 {
        if self.max_size == 0 || self.reserve_wait_time.is_none() { 0 } else { self.reserve_size }
    }

    /// The most servers that a pool ever has.
    pub fn most_servers(&self) -> u32 {
        self.effective_max_size() + self.effective_reserve()
    }
}

/// Options that contradict each other, or are impossible.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// `min_size` is above `max_size`.
    MinAboveMax {
        min_size: u32,
        /// [`MAX_SERVERS`] if it is unlimited.
        max_size: u32,
    },
    /// `max_size` is above [`MAX_SERVERS`].
    MaxSizeTooLarge(u32),
    /// `reserve_size` is above [`MAX_SERVERS`].
    ReserveTooLarge(u32),
    /// `max_connecting` is 0: no connection could ever be made.
    NoConnecting,
    /// `life_time_jitter` is not a fraction.
    JitterOutOfRange(f32),
    /// `max_waiters` is above [`MAX_WAITERS`].
    MaxWaitersTooLarge(u32),
    /// A duration that must not be zero. The option's name.
    Zero(&'static str),
    /// `backoff_min` is above `backoff_max`.
    BackoffReversed { min: Duration, max: Duration },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinAboveMax { min_size, max_size } => {
                write!(f, "min_size ({min_size}) is above max_size ({max_size}): lower the one or raise the other")
            }
            Self::MaxSizeTooLarge(n) => write!(f, "max_size ({n}) is above {MAX_SERVERS}"),
            Self::ReserveTooLarge(n) => write!(f, "reserve_size ({n}) is above {MAX_SERVERS}"),
            Self::NoConnecting => {
                f.write_str("max_connecting is 0, so no connection could ever be made: use 1 or more")
            }
            Self::JitterOutOfRange(j) => write!(f, "life_time_jitter ({j}) is not a fraction from 0 to 1"),
            Self::MaxWaitersTooLarge(n) => write!(f, "max_waiters ({n}) is above {MAX_WAITERS}"),
            Self::Zero(option) => write!(f, "{option} is 0: give a duration above nothing"),
            Self::BackoffReversed { min, max } => write!(f, "backoff_min ({min:?}) is above backoff_max ({max:?})"),
        }
    }
}

impl core::error::Error for ConfigError {}

/// The durations of a configuration in nanoseconds, `u64::MAX` for "no limit". The hot path reads these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) idle: u64,
    pub(crate) life: u64,
    /// The most by which a life is shortened.
    pub(crate) life_jitter: u64,
    pub(crate) wait: u64,
    pub(crate) unavailable: u64,
    pub(crate) check_after: u64,
    pub(crate) backoff_min: u64,
    pub(crate) backoff_max: u64,
    pub(crate) connect: u64,
    pub(crate) turn: u64,
    /// A server that was idle for this long is given up for a congested pool.
    pub(crate) long_idle: u64,
    pub(crate) max_size: u32,
    pub(crate) reserve: u32,
    pub(crate) reserve_wait: u64,
    pub(crate) max_waiters: u32,
}

impl Limits {
    pub(crate) fn new(config: &PoolConfig) -> Self {
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let limit = |d: Option<Duration>| d.map_or(u64::MAX, nanos);
        let life = limit(config.max_life_time);
        // Floating point is exact enough for jitter; the conversion back saturates.
        let life_jitter = ((life as f64 * f64::from(config.life_time_jitter)) as u64).min(life);
        Self {
            idle: limit(config.max_idle_time),
            life,
            life_jitter,
            wait: limit(config.max_wait_time),
            unavailable: limit(config.unavailable_wait_time),
            check_after: limit(config.check_after_idle),
            backoff_min: nanos(config.backoff_min),
            backoff_max: nanos(config.backoff_max),
            connect: nanos(config.connect_timeout),
            turn: nanos(config.turn),
            long_idle: nanos(config.turn).saturating_mul(u64::from(LONG_IDLE_TURNS)),
            max_size: config.effective_max_size(),
            reserve: config.effective_reserve(),
            reserve_wait: limit(config.reserve_wait_time),
            max_waiters: if config.max_waiters == 0 { MAX_WAITERS } else { config.max_waiters },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn error(change: impl Fn(&mut PoolConfig)) -> ConfigError {
        let mut config = PoolConfig::default();
        change(&mut config);
        config.validate().expect_err("an invalid configuration")
    }

    #[test]
    fn contradictions_are_refused_with_the_names_of_the_options() {
        let min = error(|c| c.min_size = 21);
        assert_eq!(min, ConfigError::MinAboveMax { min_size: 21, max_size: 20 });
        assert!(min.to_string().contains("min_size (21)"));
        assert_eq!(error(|c| c.max_connecting = 0), ConfigError::NoConnecting);
        assert!(matches!(error(|c| c.life_time_jitter = 1.5), ConfigError::JitterOutOfRange(_)));
        assert!(matches!(error(|c| c.life_time_jitter = f32::NAN), ConfigError::JitterOutOfRange(_)));
        assert_eq!(error(|c| c.backoff_min = Duration::ZERO), ConfigError::Zero("backoff_min"));
        assert_eq!(error(|c| c.connect_timeout = Duration::ZERO), ConfigError::Zero("connect_timeout"));
        assert_eq!(error(|c| c.turn = Duration::ZERO), ConfigError::Zero("turn"));
        assert_eq!(error(|c| c.max_life_time = Some(Duration::ZERO)), ConfigError::Zero("max_life_time"));
        assert!(error(|c| c.backoff_max = Duration::from_millis(1)).to_string().contains("100ms"));
        assert_eq!(error(|c| c.max_size = u32::MAX), ConfigError::MaxSizeTooLarge(u32::MAX));
        assert_eq!(error(|c| c.max_waiters = u32::MAX), ConfigError::MaxWaitersTooLarge(u32::MAX));
    }

    #[test]
    fn an_unlimited_size_allows_any_minimum() {
        let config = PoolConfig { max_size: 0, min_size: 1000, ..PoolConfig::default() };
        assert_eq!(config.validate(), Ok(()));
    }

    #[test]
    fn the_longest_durations_do_not_overflow() {
        let config = PoolConfig {
            max_life_time: Some(Duration::MAX),
            life_time_jitter: 1.0,
            max_wait_time: None,
            ..PoolConfig::default()
        };
        let limits = Limits::new(&config);
        assert_eq!((limits.life, limits.wait), (u64::MAX, u64::MAX));
    }
}
