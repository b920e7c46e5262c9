//! Pool, Gate and Budget: the state machines of connection pooling.
//!
//! No I/O, no clock, no dependencies. Every input carries `now`; outputs are actions and the next
//! deadline. It holds ids, never sockets, and knows no protocol and no driver. The words and rules
//! are those of MongoDB's Connection Monitoring and Pooling specification (CMAP) where it has them.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod budget;
mod config;
mod event;
mod gate;
mod idle_queue;
mod pool;
mod random;
mod slots;
mod time;
mod waiters;

pub use budget::{Budget, BudgetAction, MemberId, Permit, ScopeId};
pub use config::{ConfigError, PoolConfig};
pub use event::{CheckOutFailed, Closed, Event};
pub use gate::{Admission, Gate, GateConfig};
pub use idle_queue::{IdleQueue, IdleTicket};
pub use pool::{Action, CheckIn, CheckOut, Clear, Counts, Grant, Hold, Path, Pool};
pub use slots::{Home, ServerId};
pub use time::Time;
pub use waiters::WaiterId;
