//! What carries out the engine's orders: the part of a run that touches the network. What is asked and how often is known by the plan
//! and the engine, what is written down by the engine; here bytes are sent, and times are taken.

pub mod http;
pub mod postgres;

use std::{
    fmt,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use pool::Time;

use crate::engine::Engine;

/// [`Surroundings::watch`] is called at least so often.
pub const WATCH_EVERY: Duration = Duration::from_millis(100);

/// What a target is given besides the plan and the engine.
pub struct Surroundings<'a> {
    /// The origin of all [`Time`]s.
    pub origin: Instant,
    /// Set when the run is to end early (Ctrl-C): begin nothing more, let what is under way end.
    pub stop: &'a AtomicBool,
    /// Instead of the URL's own address: the relay with faults in between.
    pub via: Option<SocketAddr>,
    /// Called at least every [`WATCH_EVERY`], for the live display.
    pub watch: &'a mut dyn FnMut(&Engine, Time),
}

impl Surroundings<'_> {
    /// The time now.
    pub fn now(&self) -> Time {
        Time(u64::try_from(self.origin.elapsed().as_nanos()).expect("584 years fit"))
    }

    /// The run is to end early.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }
}

/// Why a target cannot be used: said before any load starts, or where going on would make no sense. Holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TargetError {
    /// Who has to do something about it.
    pub blame: Blame,
    /// What is wrong, and what to do.
    pub message: String,
}

/// Who has to do something about a [`TargetError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// Whoever wrote the URL, the script or the scenario (exit status 2).
    Configuration,
    /// The target, or what lies on the way to it (exit status 1).
    Target,
    /// This machine: descriptors, memory, threads (exit status 1).
    Machine,
}

impl TargetError {
    /// What was asked for makes no sense.
    pub fn configuration(message: impl Into<String>) -> Self {
        Self { blame: Blame::Configuration, message: message.into() }
    }

    /// The target does not do what is needed of it.
    pub fn target(message: impl Into<String>) -> Self {
        Self { blame: Blame::Target, message: message.into() }
    }

    /// This machine has not enough of something.
    pub fn machine(message: impl Into<String>) -> Self {
        Self { blame: Blame::Machine, message: message.into() }
    }
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TargetError {}
