//! What a pool is told and what it orders: the plain types that cross its border. They hold ids, never sockets, and no
//! rule of pooling is here.

use core::time::Duration;

use crate::{
    event::{CheckOutFailed, Closed, Path},
    slots::{Home, ServerId},
    waiters::{Ticket, WaiterId},
};

/// The answer to a check-out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckOut {
    Granted(Grant),
    /// A place in the queue; the grant or the failure comes later. The ticket is good for [`crate::Pool::cancel`].
    Queued(Ticket),
    /// No server, for this reason.
    Failed(CheckOutFailed),
}

/// A server given to a waiter, who must check it in again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    pub waiter: WaiterId,
    pub server: ServerId,
    /// Where the server lives now.
    pub home: Home,
    /// Where the waiter waits. If that is another worker, the server has to move.
    pub waiter_home: Home,
    /// Where the server came from.
    pub path: Path,
    /// From the check-out to this grant.
    pub waited: Duration,
}

/// What somebody wants of a server.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Wish {
    #[default]
    Any,
    /// To keep it for long: the last one is left to others.
    Lasting,
    /// A server that nobody has used before: a connection is made.
    Unused,
}

/// What a start-up that failed says of the next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fault {
    Passing,
    /// It will not go better until something is changed.
    Lasting,
    /// The upstream knows nothing under the name that was asked for. That is no outage.
    Unknown,
}

/// The state in which a server comes back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CheckIn {
    Clean,
    /// Fit after a reset, which the pool orders.
    Reset,
    Discard,
    /// Fit, but the budget wants it for another pool: close it.
    Reclaim,
}

/// What a pause does with those who wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Hold {
    /// They wait on, and new ones queue, for at most `unavailable_wait_time`.
    Waiters,
    /// They fail, and new ones fail at once.
    FailWaiters,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Clear {
    /// Queued waiters fail with [`CheckOutFailed::PoolCleared`]; else they wait on for new servers.
    pub fail_waiters: bool,
    /// Servers in use are cut at once; else they close when they are checked in.
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
    /// Of these, those that get no server for now: they would keep it for long, and the last one is left to others.
    pub held_back: u32,
    /// All servers, in whatever state: what `max_size` bounds.
    pub total: u32,
}

impl Counts {
    /// Whether a waiter is there that would take any server.
    pub fn waits_for_any(&self) -> bool {
        self.waiters > self.held_back
    }
}

/// An order from the pool to its driver.
///
/// Orders may name a server that the driver has meanwhile reported lost (the two may cross); such an order is void.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// One more connection is wanted: ask the budget, then call [`crate::Pool::permit`].
    AskPermit,
    /// One of the connections asked for is wanted no more: tell the budget.
    WithdrawPermit,
    /// Somebody has waited for long, the servers that there are do not come free, and the budget permits no more: tell
    /// it with [`crate::Budget::insist`].
    Insist,
    /// Clients have waited for long, though the servers that there are come free, and the budget permits no more: tell
    /// it with [`crate::Budget::press`].
    Press,
    /// The budget asked in vain, and now there is a server such as it asked for: tell it with
    /// [`crate::Budget::has_idle`].
    Spare,
    /// Start a connection; answer with `connected` or `connect_failed`.
    Connect {
        server: ServerId,
        /// Who should dial: the worker of the waiter it is meant for. None: any.
        home: Option<Home>,
    },
    /// A queued waiter gets a server.
    Grant(Grant),
    /// A queued waiter gets none.
    Fail {
        waiter: WaiterId,
        home: Home,
        reason: CheckOutFailed,
        /// From the check-out to this failure.
        waited: Duration,
    },
    /// Close a server that is connecting, idle or checking, or was just checked in; answer with `closed`.
    Close {
        server: ServerId,
        /// Where it lives (for one that is connecting: where it was asked to be dialled, worker 0 if anywhere).
        home: Home,
        reason: Closed,
    },
    /// See whether this server, long unused, still answers; report with `checked`.
    Check { server: ServerId, home: Home },
    /// Bring this server's session back to its first state; report with `checked`.
    Reset { server: ServerId, home: Home },
    /// The client that keeps this server for long is to give it back, since there are fewer than before; if it can give
    /// it back in no other way, it goes.
    GiveWay { server: ServerId, home: Home },
    /// Cut this server although it is in use; report with `lost` (or check it in).
    Interrupt { server: ServerId, home: Home },
}

impl Action {
    /// Where it has to be done; `None`: wherever it was ordered. What nobody in particular waits for is dialled by
    /// worker 0.
    pub fn place(&self) -> Option<Home> {
        match self {
            Action::AskPermit
            | Action::WithdrawPermit
            | Action::Insist
            | Action::Press
            | Action::Spare
            | Action::Grant(_) => None,
            Action::Connect { home, .. } => Some(home.unwrap_or(Home(0))),
            Action::Fail { home, .. }
            | Action::Close { home, .. }
            | Action::Check { home, .. }
            | Action::Reset { home, .. }
            | Action::GiveWay { home, .. }
            | Action::Interrupt { home, .. } => Some(*home),
        }
    }
}
