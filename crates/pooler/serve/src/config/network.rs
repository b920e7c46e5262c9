//! `[tcp]` and `[dns]`: the options of connections, and how names of hosts are followed. Opens no socket and looks
//! nothing up.

use std::time::Duration;

use driver::TcpOptions;
use settings::{Problem, Section};

use super::Dns;

/// `[tcp]`.
pub const TCP_KEYS: &[&str] =
    &["keepalive", "keep_idle", "keep_interval", "keep_count", "user_timeout", "defer_accept", "socket_buffer"];

/// `[dns]`.
pub const DNS_KEYS: &[&str] = &["max_ttl", "failure_ttl"];

/// What the kernel takes for the times of probes.
const KEEP_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(32_767));
/// What the kernel takes for the number of probes.
const MAX_KEEP_COUNT: u32 = 127;
/// Bytes of a buffer; the kernel may have a lower maximum (`net.core.rmem_max` and `wmem_max`).
const MIN_SOCKET_BUFFER: u32 = 4096;
const MAX_SOCKET_BUFFER: u32 = 1 << 30;
/// The kernel keeps the time-out as a signed number of milliseconds.
const MAX_USER_TIMEOUT: Duration = Duration::from_millis(i32::MAX as u64);
/// Shorter, and name servers would be asked all the time.
const MIN_TTL: Duration = Duration::from_secs(1);

pub fn tcp(section: &Section<'_>) -> TcpOptions {
    let default = TcpOptions::default();
    let keep_time = |key: &'static str| {
        let time = section.duration_on(key);
        if time.is_some_and(|time| time < KEEP_BOUNDS.0 || time > KEEP_BOUNDS.1) {
            section.error(key, format!("`{key}`: this must be a duration from 1s to 32767s"));
            return None;
        }
        time
    };
    let user_timeout = section.duration("user_timeout");
    if user_timeout.flatten().is_some_and(|time| time > MAX_USER_TIMEOUT) {
        section.error("user_timeout", "`user_timeout`: this must be a duration of 24 days at most, or \"off\"");
    }
    if section.truth("defer_accept") == Some(true) {
        let problem = Problem::error("`defer_accept`: Poolhouse has no safe way to set TCP_DEFER_ACCEPT");
        section.report(
            "defer_accept",
            problem.hint("leave it out: a client that connects and says nothing has a place for login_time at most"),
        );
    }
    TcpOptions {
        keepalive: section.truth("keepalive").unwrap_or(default.keepalive),
        keep_idle: keep_time("keep_idle").unwrap_or(default.keep_idle),
        keep_interval: keep_time("keep_interval").unwrap_or(default.keep_interval),
        keep_count: section.number("keep_count", 1..=MAX_KEEP_COUNT).unwrap_or(default.keep_count),
        user_timeout,
        socket_buffer: section
            .number("socket_buffer", MIN_SOCKET_BUFFER..=MAX_SOCKET_BUFFER)
            .map(|bytes| bytes as usize),
    }
}

pub fn dns(section: &Section<'_>) -> Dns {
    let max_ttl = section.duration("max_ttl").flatten();
    if max_ttl.is_some_and(|time| time < MIN_TTL) {
        section.error("max_ttl", "`max_ttl`: this must be a duration of 1s at least, or \"off\"");
    }
    let failure_ttl = section.duration("failure_ttl").flatten().unwrap_or_default();
    Dns { max_ttl, failure_ttl }
}
