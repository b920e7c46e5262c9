//! The seam between the driver and the database protocols.
//!
//! A protocol implements [`Protocol`]: it is handed bytes and answers with *effects* (send these
//! bytes, I need a server, I am done with it) in an [`Outbox`]. It never sees a socket, a thread
//! or a clock. The driver executes the effects in order; the simulator does the same in virtual
//! time. This crate knows no protocol and no driver.
//!
//! Words: a *client* is a connection from an application, a *server* a connection to a database,
//! a *lease* the right of a client to use a server.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod effect;
mod ids;
mod session;
mod shortage;
mod tenant;
mod tls;

pub use effect::{Blame, Bytes, CloseReason, Effect, LeaseKind, Outbox, Peer, Standing, Verdict};
pub use ids::{ClientTag, PoolId, ServerTag, WORKER_BITS};
pub use session::{
    ClientRules, Input, LeaseFailure, Origin, Outage, Protocol, Refusal, SessionDescription, Sessions, SurveyedClient,
};
pub use shortage::{Limit, Shortage};
pub use tenant::Tenant;
pub use tls::{Encryption, Secured, TlsFailure, TlsLimits, Upgrade};
