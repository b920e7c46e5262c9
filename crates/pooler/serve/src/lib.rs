//! The server process: configuration, listening sockets, the admin address, logs and signals around a
//! [`driver::Driver`]. It moves no byte between clients and servers itself.
#![forbid(unsafe_code)]

mod activation;
mod admin;
mod banner;
mod certificates;
mod check;
mod compatibility;
mod config;
mod console;
mod console_socket;
mod file_watch;
mod handover;
mod host_names;
mod known_users;
mod ldap;
mod live_pools;
mod login_checks;
mod logs;
mod outcomes;
mod password;
mod password_commands;
mod peers;
mod pid_file;
mod pools;
mod process_user;
mod protocols;
mod read;
mod refresh;
mod reload;
mod seeds;
mod serve;
mod signals;
mod sockets;
mod stats_line;
mod system_users;
mod systemd;
mod tls;
mod token_digest;
mod tokens;
mod trials;
mod tuning;

pub use admin::{MAX_LIMIT, POOL_BYTES, POOL_VALUES};
pub use check::{Machine, check};
pub use compatibility::{Compatibility, PGBOUNCER_VERSION};
pub use config::*;
pub use driver::{REACTOR, raise_descriptor_limit};
pub use logs::{LogFormat, LogOptions};
pub use password::Password;
pub use pools::MAX_POOLS;
pub use read::{from_file, from_ini, from_text};
pub use serve::{ServeError, ServeOptions, serve};
pub use tls::Tls;
pub use trials::{Trial, trials};
