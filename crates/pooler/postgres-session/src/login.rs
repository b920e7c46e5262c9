//! Logging in: clients to Poolhouse (`client`), which may ask a database who they are (`lookup`), and Poolhouse to
//! servers (`server`), on which it then runs the operator's SQL (`connect_query`). `cleartext` is for clients that send
//! their password as it is, `startup_rules` says which of their parameters count, `refusal` is for those that nothing
//! serves, `cancelling` for those that only cancel.

mod cancelling;
mod cleartext;
pub(crate) mod client;
pub(crate) mod connect_query;
pub(crate) mod lookup;
mod refusal;
pub(crate) mod server;
mod startup_rules;
