//! How the process runs: `[serve]`.

use std::{path::PathBuf, time::Duration};

use crate::compatibility::Compatibility;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Serve {
    /// Worker threads; 0 is one per CPU.
    pub workers: u32,
    /// How long clients may take to finish when Poolhouse is asked to stop; `None` waits for ever.
    pub drain_time: Option<Duration>,
    /// How long clients may stay when another process has taken over; `None` is until they leave.
    pub stay_time: Option<Duration>,
    /// Failed logins a minute from one address before logins from there take turns.
    pub max_auth_failures: u32,
    /// Which of several Poolhouses behind one address this is: cancel keys carry it.
    pub node_id: u8,
    /// Whether each login is logged.
    pub log_connections: bool,
    /// Whether each disconnect after a login is logged.
    pub log_disconnections: bool,
    /// The file with the number of the process.
    pub pid_file: Option<PathBuf>,
    /// The user that the process becomes.
    pub user: Option<String>,
    /// Whose errors, log lines and parameters clients and scripts see.
    pub compatible_with: Compatibility,
}

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
            log_disconnections: false,
            pid_file: None,
            user: None,
            compatible_with: Compatibility::default(),
        }
    }
}
