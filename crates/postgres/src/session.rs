//! What is known of each connection, and of all: `client` and `server` are the two kinds, and `shared` is what all of them share. The rest
//! is one file for each thing that is known of them. What is done about these is told elsewhere.

pub(crate) mod client;
pub(crate) mod client_login;
pub(crate) mod copy;
pub(crate) mod judging;
pub(crate) mod keyring;
pub(crate) mod listen;
pub(crate) mod lookup;
pub(crate) mod own_queries;
pub(crate) mod pins;
pub(crate) mod plans;
pub(crate) mod preface;
pub(crate) mod prepared;
pub(crate) mod refusal;
pub(crate) mod replan;
pub(crate) mod request;
pub(crate) mod reset;
pub(crate) mod server;
pub(crate) mod server_login;
pub(crate) mod shared;
pub(crate) mod soil;
pub(crate) mod statements;
pub(crate) mod survey;
pub(crate) mod unnamed;
pub(crate) mod version;
