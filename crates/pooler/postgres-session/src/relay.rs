//! Messages on their way: of a client to the server it holds (`client`, and `requests`, which looks at them), and of a
//! server to its client (`server`, `answer`, and `outcomes`, which looks at how requests end). `own_queries` takes the
//! answers to what Poolhouse itself has asked, and `ending` tells how leases and connections end. `dedicated` is for
//! clients with a server of their own, and `rules` for those of listeners with rules.

pub(crate) mod answer;
pub(crate) mod client;
pub(crate) mod dedicated;
pub(crate) mod ending;
pub(crate) mod outcomes;
pub(crate) mod own_queries;
pub(crate) mod requests;
pub(crate) mod rules;
pub(crate) mod server;
