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
    pub(crate) fn as_str(self) -> &'static str {
        ["login", "idle", "waiting", "active", "transaction", "subscribed", "closing"][self as usize]
    }
}
