//! Why a database cannot be asked, and the kinds of errors by which failures are counted.

use std::borrow::Cow;

/// Why a target cannot be used: said before any load starts, or where going on would make no sense. Holds no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct TargetError {
    pub blame: Blame,
    /// What is wrong, and what to do.
    pub message: String,
}

/// What is at fault in a [`TargetError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The URL, the script or the scenario is wrong (exit status 2).
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

/// A kind of error, as it is counted in results: `sqlstate 40001`, `connect refused`, `status 503`. Few of them; no
/// secrets, no numbers that differ each time.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ErrorKind(pub Cow<'static, str>);
