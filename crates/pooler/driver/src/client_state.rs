//! The states that clients are counted in, as metrics and operators see them. Decides nothing.

/// The states a client is counted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Login,
    Idle,
    Waiting,
    Active,
    Transaction,
    Subscribed,
    Closing,
}

pub(crate) const STATES: usize = 7;

impl State {
    /// Whether a transaction of the client's is under way.
    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Active | Self::Transaction)
    }

    pub(crate) fn as_str(self) -> &'static str {
        ["login", "idle", "waiting", "active", "transaction", "subscribed", "closing"][self as usize]
    }
}
