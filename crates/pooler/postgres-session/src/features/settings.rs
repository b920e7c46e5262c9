//! Run-time parameters follow a client from server to server. `defaults` has a client that has set nothing follow the
//! database, `survey` asks a server what a transaction has left behind, `reset` leads RESET back to what the client
//! began with, and `bound_names` notes parameters whose names are bound to a statement.

pub(crate) mod bound_names;
pub(crate) mod defaults;
pub(crate) mod reset;
pub(crate) mod survey;
