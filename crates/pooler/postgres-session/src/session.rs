//! What is known of each connection, and of all of them: `client` and `server` are the two kinds of connections, with
//! what each does whatever it is used for, and `shared` is what all share. `judging` tells what a server's session may
//! have become by the texts it was sent, and `refusal` what a client is told that must go. All the others are parts of
//! these, and know neither: the state of one thing each, with its rules. What is done about it is told in `login`,
//! `relay` or the feature of the same name.

pub(crate) mod catalogue_view;
pub(crate) mod client;
pub(crate) mod client_id;
pub(crate) mod client_login;
pub(crate) mod client_settings;
pub(crate) mod client_unnamed;
pub(crate) mod connect_query;
pub(crate) mod copy;
pub(crate) mod defaults;
pub(crate) mod facts;
pub(crate) mod judging;
pub(crate) mod keyring;
pub(crate) mod learned;
pub(crate) mod lease;
pub(crate) mod link;
pub(crate) mod listen;
pub(crate) mod lookup;
pub(crate) mod own_queries;
pub(crate) mod partial_message;
pub(crate) mod pins;
pub(crate) mod plans;
pub(crate) mod preface;
pub(crate) mod prepared;
pub(crate) mod refusal;
pub(crate) mod replan;
pub(crate) mod request;
pub(crate) mod reset;
pub(crate) mod sequences;
pub(crate) mod server;
pub(crate) mod server_login;
pub(crate) mod server_settings;
pub(crate) mod server_statements;
pub(crate) mod server_unnamed;
pub(crate) mod shapes;
pub(crate) mod shared;
pub(crate) mod soil;
pub(crate) mod statements;
pub(crate) mod survey;
pub(crate) mod texts;
pub(crate) mod traces;

pub(crate) mod version;
