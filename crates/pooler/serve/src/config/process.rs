//! How the process runs: `[serve]`.

use std::{path::PathBuf, time::Duration};

use settings::Section;

use super::{MAX_COUNT, MAX_WORKERS};
use crate::compatibility::Compatibility;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Serve {
    /// Worker threads; 0 is one per CPU.
    pub workers: u32,
    /// How long clients may take to finish when Poolhouse is asked to stop; `None` waits for ever.
    pub drain_time: Option<Duration>,
    /// How long clients may stay when another process has taken over; `None` is until they leave.
    pub stay_time: Option<Duration>,
    /// Failed logins a minute from one address before logins from there take turns; [`NO_TURNS`] is never.
    pub max_auth_failures: u32,
    /// Which of several Poolhouses behind one address this is: cancel keys carry it.
    pub node_id: u16,
    /// Whether each login is logged.
    pub log_connections: bool,
    /// Whether each error that ends a client is logged.
    pub log_client_errors: bool,
    /// Whether each disconnect after a login is logged.
    pub log_disconnections: bool,
    /// The file with the number of the process.
    pub pid_file: Option<PathBuf>,
    /// The user that the process becomes.
    pub user: Option<String>,
    /// Whose errors, log lines and parameters clients and scripts see.
    pub compatible_with: Compatibility,
}

/// More failed logins than there are in a minute.
const NO_TURNS: u32 = u32::MAX;

/// Below the 30 s of Kubernetes and the 90 s of systemd, after which they kill a process that does not stop.
const DEFAULT_DRAIN_TIME: Duration = Duration::from_secs(25);

impl Default for Serve {
    fn default() -> Self {
        Self {
            workers: 1,
            drain_time: Some(DEFAULT_DRAIN_TIME),
            stay_time: None,
            max_auth_failures: 10,
            node_id: 0,
            log_connections: false,
            log_client_errors: true,
            log_disconnections: false,
            pid_file: None,
            user: None,
            compatible_with: Compatibility::default(),
        }
    }
}

/// Reads `[serve]`.
pub fn serve(section: &Section<'_>) -> Serve {
    let default = Serve::default();
    let compatible_with = section.choice("compatible_with", Compatibility::WORDS).unwrap_or(default.compatible_with);
    // There is one address for all behind a balancer, and PgBouncer delays no login for the failure of another.
    let max_auth_failures = match compatible_with {
        Compatibility::Own => default.max_auth_failures,
        Compatibility::PgBouncer => NO_TURNS,
    };
    Serve {
        workers: section.number("workers", 0..=MAX_WORKERS).unwrap_or(default.workers),
        drain_time: section.duration("drain_time").unwrap_or(default.drain_time),
        stay_time: section.duration("stay_time").unwrap_or(default.stay_time),
        max_auth_failures: section.number("max_auth_failures", 1..=MAX_COUNT).unwrap_or(max_auth_failures),
        node_id: section
            .number("node_id", 0..=u32::from(postgres_session::MAX_NODE))
            .map_or(default.node_id, |n| n as u16),
        log_connections: section.truth("log_connections").unwrap_or(default.log_connections),
        log_disconnections: section.truth("log_disconnections").unwrap_or(default.log_disconnections),
        log_client_errors: section.truth("log_client_errors").unwrap_or(default.log_client_errors),
        pid_file: section.path("pid_file"),
        user: section.string("user").filter(|user| !user.is_empty()),
        compatible_with,
    }
}
