//! Pool, Gate and Budget: the state machines of connection pooling.
//!
//! No I/O, no clock, no dependencies. Time is an argument; results are actions and the next deadline. The crate holds
//! ids, never sockets, and knows no protocol and no driver. Where MongoDB's Connection Monitoring and Pooling
//! specification (CMAP) has words and rules, they are used.
//!
//! A [`Pool`] shares servers among clients; a [`Budget`] shares permits for servers among pools; a [`Gate`] admits
//! clients; an [`IdleQueue`] finds the client that has been idle longest. They do not know each other. The caller
//! passes on what one of them says:
//!
//! | one says | the caller calls |
//! |-|-|
//! | [`Action::AskPermit`] | [`Budget::request`]; if granted, [`Pool::handle_permit`] |
//! | [`Action::WithdrawPermit`] | [`Budget::withdraw`] |
//! | [`BudgetAction::Grant`] | [`Pool::handle_permit`]; if that is false, [`Budget::release`] |
//! | [`BudgetAction::Reclaim`] | [`Pool::reclaim`]; if that is false, [`Budget::reclaim_failed`] |
//! | (a server is gone: [`Pool::handle_closed`], [`Pool::handle_lost`], [`Pool::handle_connect_failed`]) | [`Budget::release`] |
//! | [`Action::ReportSpare`] | [`Budget::report_spare`] |
//! | (a check-in while [`Pool::can_spare`]) | [`Budget::offer_returning`]; if that is true, [`CheckIn::Reclaim`] |
//! | [`Action::ReportStarvation`] | [`Budget::report_starvation`] |
//! | [`Action::ReportCongestion`] | [`Budget::report_congestion`] |
//! | ([`Gate::reserve_eviction`] is true) | [`IdleQueue::pop_idle_for`] and [`Gate::note_eviction`], or [`Gate::cancel_eviction`] |
//!
//! Without a budget:
//! ```
//! use pool::{Action, CheckIn, CheckOut, Home, Pool, PoolConfig, Time, WaiterId};
//!
//! let (home, now) = (Home(0), Time(0));
//! let mut pool = Pool::new(PoolConfig::default(), 42, now);
//! pool.ready(now);
//! assert!(matches!(pool.check_out(WaiterId(1), home, now), CheckOut::Queued(_)));
//! assert_eq!(pool.poll_action(), Some(Action::AskPermit));
//! assert!(pool.handle_permit(now));
//! let Some(Action::Connect { server, .. }) = pool.poll_action() else { panic!("a connection is wanted") };
//! let grant = pool.handle_connected(server, home, now).expect("a client waits");
//! assert_eq!(grant.waiter, WaiterId(1));
//! assert!(pool.check_in(grant.server, home, CheckIn::Clean, now).is_none());
//! assert_eq!(pool.counts().idle, 1);
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod action;
mod budget;
mod config;
mod gate;
mod idle_queue;
mod list;
mod pool;
mod random;
mod reasons;
mod slots;
mod time;
mod waiters;

pub use action::{Action, CheckIn, CheckOut, Clear, ConnectFault, Counts, Grant, Need, PauseMode};
pub use budget::{Budget, BudgetAction, CapId, Claim, MAX_CAPS, MAX_CAPS_OF_A_MEMBER, MAX_MEMBERS, MemberId, Permit};
pub use config::{ConfigError, LONG_IDLE_TURNS, MAX_SERVERS, MAX_WAITERS, PoolConfig, TURN};
pub use gate::{Gate, GateConfig};
pub use idle_queue::{IdleQueue, IdleTicket};
pub use pool::Pool;
pub use random::Random;
pub use reasons::{CheckOutFailed, Closed, GrantSource};
pub use slots::{Home, ServerId};
pub use time::Time;
pub use waiters::{Ticket, WaiterId};
