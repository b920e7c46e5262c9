//! The state of each connection, and of all of them. `client` and `server` are the two kinds of connections, `link` a
//! client with the server that it holds, and `shared` the state that all share. `judging` tells what forwarded texts
//! may have made of a session. Each other file is a part of these: the state of one thing with its rules, which knows
//! no connection. The feature of the same name in `features`, `login` or `relay` acts on it.

pub(crate) mod catalogue_view;
pub(crate) mod client;
pub(crate) mod client_id;
pub(crate) mod client_login;
pub(crate) mod client_settings;
pub(crate) mod client_unnamed;
pub(crate) mod connect_query;
pub(crate) mod copy;
pub(crate) mod dedicated;
pub(crate) mod defaults;
pub(crate) mod descriptions;
pub(crate) mod entrance;
pub(crate) mod facts;
pub(crate) mod judging;
pub(crate) mod kept_parses;
pub(crate) mod keyring;
pub(crate) mod known_parameters;
pub(crate) mod lease;
pub(crate) mod link;
pub(crate) mod listen;
pub(crate) mod listener_rules;
pub(crate) mod lookup;
pub(crate) mod our_statements;
pub(crate) mod own_queries;
pub(crate) mod partial_message;
pub(crate) mod pins;
pub(crate) mod plans;
pub(crate) mod preface;
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
pub(crate) mod shared;
pub(crate) mod soil;
pub(crate) mod statements;
pub(crate) mod survey;
pub(crate) mod traces;

pub(crate) mod version;
pub(crate) mod wait_notices;
pub(crate) mod wording;

pub(crate) use client::{Client, Phase};
pub(crate) use client_id::ClientId;
pub(crate) use dedicated::Dedicated;
pub(crate) use defaults::AfterDefaults;
pub(crate) use link::{Link, ServerSide};
pub(crate) use lookup::Lookup;
pub(crate) use our_statements::{Likeness, Need};
pub(crate) use own_queries::{OwnQueries, Purpose};
pub(crate) use partial_message::PartialMessage;
pub(crate) use pins::Pin;
pub(crate) use refusal::{send_away, send_away_from};
pub(crate) use request::Arrived;
pub(crate) use server::{Duty, Server, Stage, cancel};
pub(crate) use shared::Postgres;
pub(crate) use soil::Soil;
pub(crate) use statements::{PREFIX, Reliance, Statement};
pub(crate) use survey::Survey;
pub(crate) use wording::{ErrorText, NO_PASSWORD, OTHER_VERIFIER, Occasion, Wording};
