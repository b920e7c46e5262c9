//! Defaults of a load, a pool under test and the windows of a fault, for scenario files and the command line alike.

use std::time::Duration;

use arrivals::{Shape, Window};
use pool::PoolConfig;

use super::PoolUnderTest;

/// Operations of an open load that have not ended (`max_in_flight`).
pub const DEFAULT_IN_FLIGHT: u32 = 10_000;
/// Time after which an operation has failed.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// Bursts of a burst load.
pub const DEFAULT_ROUNDS: u32 = 5;
/// Connections that a closed loop opens at a time (`max_connecting`).
const CLOSED_LOOP_MAX_CONNECTING: u32 = 16;
/// Begin of the first window of a fault with neither `first` nor `every`.
const DEFAULT_FIRST_WINDOW: Duration = Duration::from_secs(5);

/// The keys of a pool that are given. `Some(None)` is a time that is switched off, `None` a key that is not given.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PoolWishes {
    pub max_size: Option<u32>,
    pub min_size: Option<u32>,
    /// Connections that are being opened at a time.
    pub max_connecting: Option<u32>,
    /// Time after which an idle connection is closed.
    pub max_idle_time: Option<Option<Duration>>,
    pub max_life_time: Option<Option<Duration>>,
    /// How long an operation waits for a connection.
    pub max_wait_time: Option<Option<Duration>>,
    /// How long opening a connection may take.
    pub connect_time: Option<Duration>,
    /// `false`: each operation has a connection of its own.
    pub reuse: Option<bool>,
    /// Instances of the application.
    pub instances: Option<u32>,
    /// Open `min_size` before the load begins.
    pub warm: Option<bool>,
    /// `false`, only without reuse: connections stay open after their operation.
    pub goodbye: Option<bool>,
    /// A lost connection is noticed when it is used next.
    pub blind: Option<bool>,
}

impl PoolWishes {
    /// These keys, and those of `below` where these are not given.
    #[must_use]
    pub fn over(self, below: &Self) -> Self {
        Self {
            max_size: self.max_size.or(below.max_size),
            min_size: self.min_size.or(below.min_size),
            max_connecting: self.max_connecting.or(below.max_connecting),
            max_idle_time: self.max_idle_time.or(below.max_idle_time),
            max_life_time: self.max_life_time.or(below.max_life_time),
            max_wait_time: self.max_wait_time.or(below.max_wait_time),
            connect_time: self.connect_time.or(below.connect_time),
            reuse: self.reuse.or(below.reuse),
            instances: self.instances.or(below.instances),
            warm: self.warm.or(below.warm),
            goodbye: self.goodbye.or(below.goodbye),
            blind: self.blind.or(below.blind),
        }
    }

    /// The pool for a load. In a closed loop without `max_size` each client has a connection and keeps it, as in
    /// pgbench (each instance has those of its share of the clients); otherwise what is not said is as in the pool
    /// core.
    #[must_use]
    pub fn pool(&self, shape: &Shape) -> PoolUnderTest {
        let instances = self.instances.unwrap_or(1);
        let usual = match (shape, self.max_size) {
            (Shape::Closed { clients, .. }, None) => {
                let size = clients.div_ceil(instances.max(1));
                PoolConfig {
                    max_size: size,
                    min_size: size,
                    max_connecting: CLOSED_LOOP_MAX_CONNECTING,
                    max_idle_time: None,
                    max_life_time: None,
                    max_wait_time: None,
                    ..PoolConfig::default()
                }
            }
            _ => PoolConfig::default(),
        };
        let config = PoolConfig {
            max_size: self.max_size.unwrap_or(usual.max_size),
            min_size: self.min_size.unwrap_or(usual.min_size),
            max_connecting: self.max_connecting.unwrap_or(usual.max_connecting),
            max_idle_time: self.max_idle_time.unwrap_or(usual.max_idle_time),
            max_life_time: self.max_life_time.unwrap_or(usual.max_life_time),
            max_wait_time: self.max_wait_time.unwrap_or(usual.max_wait_time),
            connect_timeout: self.connect_time.unwrap_or(usual.connect_timeout),
            ..usual
        };
        let reuse = self.reuse.unwrap_or(true);
        PoolUnderTest {
            warm: self.warm.unwrap_or(reuse && config.min_size > 0),
            config,
            reuse,
            instances,
            goodbye: self.goodbye.unwrap_or(true),
            blind: self.blind.unwrap_or(false),
        }
    }
}

/// The windows of a fault. Where nothing says when the first begins, it comes after one period, or without a period
/// after 5 s.
///
/// # Errors
/// They would never end.
pub fn window(first: Option<Duration>, length: Duration, every: Option<Duration>) -> Result<Window, &'static str> {
    if every.is_some_and(|every| every <= length) {
        return Err("`every` must be longer than `length`, or it would never end");
    }
    Ok(Window { first: first.or(every).unwrap_or(DEFAULT_FIRST_WINDOW), length, every })
}

/// The windows of a cut, which takes no time.
#[must_use]
pub fn cut(first: Option<Duration>, every: Option<Duration>) -> Window {
    Window { first: first.or(every).unwrap_or(DEFAULT_FIRST_WINDOW), length: Duration::from_millis(1), every }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOSED: Shape =
        Shape::Closed { clients: 50, think: Duration::ZERO, duration: Duration::from_secs(1), operations: None };

    #[test]
    fn instances_share_the_clients_of_a_closed_loop() {
        let pool = PoolWishes { instances: Some(5), ..PoolWishes::default() }.pool(&CLOSED);
        let config = &pool.config;
        assert_eq!((config.max_size, config.min_size, pool.instances, config.max_connecting), (10, 10, 5, 16));
        assert!(config.max_wait_time.is_none() && pool.warm && pool.reuse);
        let uneven = PoolWishes { instances: Some(7), ..PoolWishes::default() }.pool(&CLOSED);
        assert_eq!(uneven.config.max_size, 8);
    }

    #[test]
    fn who_gives_a_size_wants_a_pool_with_its_own_defaults() {
        let pool = PoolWishes { max_size: Some(5), ..PoolWishes::default() }.pool(&CLOSED);
        assert_eq!(pool.config, PoolConfig { max_size: 5, ..PoolConfig::default() });
        assert!(!pool.warm, "there is no minimum");
        let single = PoolWishes { reuse: Some(false), ..PoolWishes::default() }.pool(&CLOSED);
        assert!(!single.warm && !single.reuse);
    }

    #[test]
    fn a_first_window_comes_after_a_period_or_after_five_seconds() {
        let seconds = Duration::from_secs;
        let first = |first, every| window(first, seconds(1), every).unwrap().first;
        assert_eq!(first(None, Some(seconds(20))), seconds(20));
        assert_eq!(first(None, None), seconds(5));
        assert_eq!(first(Some(seconds(3)), Some(seconds(20))), seconds(3));
        assert!(window(None, seconds(1), Some(seconds(1))).is_err());
        assert_eq!((cut(None, Some(seconds(9))).first, cut(None, None).first), (seconds(9), seconds(5)));
    }
}
