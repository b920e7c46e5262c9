//! What clients of a listener may send, and what they are told, as configured.

use std::{sync::Arc, time::Duration};

/// The rules of a listener as configured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ListenerRules {
    /// Longest message of a client, and longest message for one, in bytes, without its type.
    pub max_message_size: Option<u32>,
    /// Only the extended protocol is allowed.
    pub refuse_simple_queries: bool,
    /// A client that waits this long for a server is told so.
    pub wait_notice_time: Option<Duration>,
    /// What clients are told when they have logged in.
    pub login_notice: Option<Arc<str>>,
    /// The start-up parameters that clients may send, unless they ask for replication; `None`: all.
    pub allowed_parameters: Option<Arc<[String]>>,
    /// Start-up parameters that are not applied, unless the client asks for replication. `options` stands for all that
    /// are in it and not allowed.
    pub ignored_parameters: Arc<[String]>,
}
