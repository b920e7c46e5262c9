//! What is done about what sessions leave behind, as the configuration says it.

/// What Poolhouse does about session state in transaction and statement mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnState {
    /// Settings follow the client; what cannot follow it pins its server.
    #[default]
    Replay,
    /// All session state pins the server.
    Pin,
    /// A statement that would leave something behind is refused.
    Reject,
    /// Nothing is done: the state stays with the server, and the next client meets it.
    Allow,
}

/// When a server is cleaned before another client gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ResetPolicy {
    /// Unless everything that ran on the server is known to leave nothing behind.
    #[default]
    Auto,
    /// Whenever the server changes hands.
    Always,
    /// Only after a client that kept the server, or that vanished.
    Never,
}

/// The rules of a pool for session state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatePolicy {
    pub on_state: OnState,
    /// When a server is cleaned before another client gets it.
    pub reset: ResetPolicy,
    /// Most servers of the pool that may be pinned at a time.
    pub max_pinned: u32,
    /// Whether clients that listen may share a server; without that each keeps its own.
    pub share_listener: bool,
    /// Prepared statements kept on one server; beyond it the one not used for longest is closed.
    pub max_prepared: u32,
}

impl Default for StatePolicy {
    fn default() -> Self {
        Self {
            on_state: OnState::Replay,
            reset: ResetPolicy::Auto,
            max_pinned: 10,
            share_listener: true,
            max_prepared: 500,
        }
    }
}
