//! Pool, Gate and Budget: the state machines of connection pooling.
//!
//! No I/O, no clock, no dependencies. Every input carries `now`; outputs are actions and the next
//! deadline. It holds ids, never sockets, and knows no protocol and no driver. The words and rules
//! are those of MongoDB's Connection Monitoring and Pooling specification (CMAP) where it has them.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod action;
mod budget;
mod config;
mod event;
mod gate;
mod idle_queue;
mod list;
mod pool;
mod random;
mod slots;
mod time;
mod waiters;

pub use action::{Action, CheckIn, CheckOut, Clear, Counts, Grant, Hold, Path};
pub use budget::{Budget, BudgetAction, MAX_MEMBERS, MAX_SCOPES, MAX_SCOPES_OF_A_MEMBER, MemberId, Permit, ScopeId};
pub use config::{ConfigError, MAX_SERVERS, MAX_WAITERS, PoolConfig};
pub use event::{CheckOutFailed, Closed, Event, MAX_EVENTS};
pub use gate::{Admission, Gate, GateConfig};
pub use idle_queue::{IdleQueue, IdleTicket};
pub use pool::Pool;
pub use slots::{Home, ServerId};
pub use time::Time;
pub use waiters::{Ticket, WaiterId};
