//! The types of a pool's requests, answers and actions. They hold ids, never sockets.

use core::time::Duration;

use crate::{
    reasons::{CheckOutFailed, Closed, GrantSource},
    slots::{Home, ServerId},
    waiters::{Ticket, WaiterId},
};

/// The answer to a check-out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckOut {
    Granted(Grant),
    /// The client waits; a grant or a failure comes later. The ticket is for [`crate::Pool::cancel`].
    Queued(Ticket),
    Failed(CheckOutFailed),
}

/// A server for a client, which has to check it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    pub waiter: WaiterId,
    pub server: ServerId,
    pub home: Home,
    /// If this is another home, the server has to move there.
    pub waiter_home: Home,
    pub source: GrantSource,
    /// From the check-out to this grant.
    pub waited: Duration,
}

/// What a client needs of a server.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Need {
    #[default]
    Any,
    /// The client will hold it without a time limit. Such clients cannot have the last server.
    Lasting,
    /// The client needs a server that no client has used: a connection is made.
    Fresh,
}

/// What a failed connect says of the next one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnectFault {
    Transient,
    /// The next connect will fail, too, until the configuration or the upstream is changed.
    Permanent,
    /// The next connect will fail, too, because the upstream does not know the database. That is no outage.
    UnknownDatabase,
}

/// The state in which a server comes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CheckIn {
    Clean,
    /// Usable after a reset, which the pool orders.
    Reset,
    Discard,
    /// Usable, but to be closed for another pool.
    Reclaim,
}

/// What a pause does with waiters.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PauseMode {
    /// They wait, and new ones too, for at most `unavailable_wait_time`.
    HoldWaiters,
    /// They fail, and new ones too.
    FailWaiters,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Clear {
    /// Waiters fail with [`CheckOutFailed::PoolCleared`]. Otherwise they wait for new servers.
    pub fail_waiters: bool,
    /// Servers in use are interrupted at once. Otherwise they close when they are checked in.
    pub interrupt: bool,
}

/// How many servers are in which state, and how many waiters there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub connecting: u32,
    pub idle: u32,
    pub in_use: u32,
    pub checking: u32,
    /// Ordered to close, and not yet reported closed.
    pub closing: u32,
    pub waiters: u32,
    /// Waiters with [`Need::Lasting`] that get no server for now, because such clients cannot have the last one.
    pub deferred: u32,
    /// All servers, in whatever state: what `max_size` bounds.
    pub total: u32,
}

impl Counts {
    /// Whether there is a waiter that is not deferred.
    pub fn waits_for_any(&self) -> bool {
        self.waiters > self.deferred
    }
}

/// An order from the pool to the caller.
///
/// An action is void if it names a server that was reported lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ask the budget to permit one more connection. The answer is [`crate::Pool::handle_permit`].
    AskPermit,
    /// One of the permits that were asked for is not needed: tell the budget.
    WithdrawPermit,
    /// A client has waited for long, no server comes free, and the budget permits no more: call
    /// [`crate::Budget::report_starvation`].
    ReportStarvation,
    /// Clients have waited for long although servers come free, and the budget permits no more: call
    /// [`crate::Budget::report_congestion`].
    ReportCongestion,
    /// There is a server such as the budget has asked for in vain: call [`crate::Budget::report_spare`].
    ReportSpare,
    /// Make a connection.
    Connect {
        server: ServerId,
        /// The home of the waiter that it is meant for, if any.
        home: Option<Home>,
    },
    /// A waiter gets a server.
    Grant(Grant),
    /// A waiter gets no server.
    Fail {
        waiter: WaiterId,
        home: Home,
        reason: CheckOutFailed,
        /// From the check-out to this failure.
        waited: Duration,
    },
    /// Close a server that is not in use.
    Close {
        server: ServerId,
        /// Of a server that is connecting: where it was to be connected, or worker 0.
        home: Home,
        reason: Closed,
    },
    /// Check whether this server, which was idle for long, still answers.
    Check { server: ServerId, home: Home },
    /// Reset the session of this server.
    Reset { server: ServerId, home: Home },
    /// Ask the client that holds this server without a time limit to give it back, because the pool has become smaller.
    /// If it cannot, close the client.
    RequestReturn { server: ServerId, home: Home },
    /// Close this server although it is in use.
    Interrupt { server: ServerId, home: Home },
}

impl Action {
    /// The home that has to carry it out; `None`: any. Worker 0 connects servers that are for no waiter in particular.
    pub fn executing_home(&self) -> Option<Home> {
        match self {
            Action::AskPermit
            | Action::WithdrawPermit
            | Action::ReportStarvation
            | Action::ReportCongestion
            | Action::ReportSpare
            | Action::Grant(_) => None,
            Action::Connect { home, .. } => Some(home.unwrap_or(Home(0))),
            Action::Fail { home, .. }
            | Action::Close { home, .. }
            | Action::Check { home, .. }
            | Action::Reset { home, .. }
            | Action::RequestReturn { home, .. }
            | Action::Interrupt { home, .. } => Some(*home),
        }
    }
}
