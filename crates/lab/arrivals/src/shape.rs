//! The shapes of load.

use std::time::Duration;

#[derive(Clone, PartialEq, Debug)]
pub enum Shape {
    /// Closed loop: each of `clients` begins its next operation when its last one has ended. It is blind to
    /// stalls: a client that waits sends no request (coordinated omission).
    Closed {
        clients: u32,
        /// Pause of a client between two operations.
        think: Duration,
        duration: Duration,
        /// Ends after this many operations in all, if that is earlier.
        operations: Option<u64>,
    },
    /// Open loop: operations arrive whether or not earlier ones have ended.
    Open {
        stages: Vec<Stage>,
        spacing: Spacing,
        /// Operations that may have begun and not ended; those that arrive beyond that are dropped, and counted.
        max_in_flight: u32,
    },
    /// Nothing for a while, then many at once; again and again.
    Burst {
        size: u32,
        /// Operations that begin at once; 1: one after the other.
        at_once: u32,
        /// From the end of one burst to the next.
        idle: Duration,
        rounds: u32,
    },
}

/// A part of an open load. The rate goes in a straight line from one value to the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stage {
    pub duration: Duration,
    /// Arrivals per second at its beginning.
    pub from: f64,
    /// Arrivals per second at its end.
    pub to: f64,
}

/// How arrivals are spaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Spacing {
    /// At equal distances, as k6 does.
    #[default]
    Even,
    /// At random, each independent of the others, as many users do (a Poisson process).
    Poisson,
}
