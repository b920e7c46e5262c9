//! The hosts that are tried for a new server: in which order, for how long each, and why the earlier ones failed. Opens
//! nothing.

use std::{sync::Arc, time::Duration};

use pool::Time;

use crate::config::{Address, BeginWith, PoolSpec};

/// What is asked of the host at hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HostRequirement {
    /// All that the session wants.
    Full,
    /// Less: no host met all of it.
    Fallback,
    /// That it is the upstream, as the host before it has said.
    Redirected,
}

/// The hosts that are left for one new server.
pub(super) struct Attempts {
    /// The spec of the pool as it was when the connection was begun.
    pub(super) spec: Arc<PoolSpec>,
    /// The index in the list of the host that was tried first.
    first: usize,
    tried: usize,
    /// What was wrong with the hosts that were tried.
    errors: String,
}

impl Attempts {
    /// `host_index`: the index of the host that was tried last, or of the one whose turn it is.
    pub(super) fn new(spec: Arc<PoolSpec>, host_index: usize, now: Time) -> Self {
        let hosts = spec.hosts.addresses.len();
        assert!(hosts > 0, "an upstream has a host");
        let first = match spec.hosts.begin {
            BeginWith::First => 0,
            // The clock's lower digits are random enough to spread connections.
            BeginWith::Any => (now.0 / 1000) as usize % hosts,
            BeginWith::LastGood | BeginWith::Next => host_index % hosts,
        };
        Self { spec, first, tried: 0, errors: String::new() }
    }

    /// The next host, and what is asked of it.
    pub(super) fn next(&mut self) -> Option<(Address, HostRequirement)> {
        let hosts = &self.spec.hosts.addresses;
        if self.left() == 0 {
            return None;
        }
        let address = hosts[self.host_index()].clone();
        let requirement = if self.tried >= hosts.len() { HostRequirement::Fallback } else { HostRequirement::Full };
        self.tried += 1;
        Some((address, requirement))
    }

    /// The index in the list of the host that is tried next.
    pub(super) fn host_index(&self) -> usize {
        (self.first + self.tried) % self.spec.hosts.addresses.len()
    }

    pub(super) fn left(&self) -> usize {
        self.all() - self.tried
    }

    /// How long each host may take, as its part of the time for connecting.
    pub(super) fn share(&self) -> Duration {
        self.spec.config.connect_timeout / self.all() as u32
    }

    /// Notes why the host that was tried last does not serve.
    pub(super) fn note(&mut self, error: &str) {
        let hosts = self.spec.hosts.addresses.len();
        if hosts == 1 {
            self.errors.clear();
        } else if !self.errors.is_empty() {
            self.errors.push_str("; ");
        }
        if hosts > 1 {
            let last = &self.spec.hosts.addresses[(self.first + self.tried + hosts - 1) % hosts];
            self.errors.push_str(&format!("{last}: "));
        }
        self.errors.push_str(error);
    }

    /// What was wrong with the hosts that were tried.
    pub(super) fn errors(&self) -> &str {
        &self.errors
    }

    fn all(&self) -> usize {
        self.spec.hosts.addresses.len() * (1 + usize::from(self.spec.hosts.then_any))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Hosts;
    use pool::PoolConfig;

    fn attempts(names: &[&str], then_any: bool, begin: BeginWith, now: u64) -> Attempts {
        let addresses = names.iter().map(|name| Address::Tcp { host: (*name).into(), port: 1 }).collect();
        let spec = PoolSpec {
            protocol: "lines",
            database: String::new(),
            ordered_as: None,
            user: String::new(),
            hosts: Hosts { addresses, then_any, begin },
            config: PoolConfig::default(),
            tls: None,
            caps: Vec::new(),
            sizes: None,
            forget_after: None,
            cancel_timeout: Duration::from_secs(5),
            fast_close: false,
            revision: 0,
            hidden: false,
            client_rank: crate::kept_places::ClientRank::default(),
            timeouts: crate::config::PoolTimeouts::default(),
        };
        Attempts::new(Arc::new(spec), 1, Time(now))
    }

    fn order(mut attempts: Attempts) -> Vec<(String, bool)> {
        let next = || {
            attempts
                .next()
                .map(|(address, requirement)| (address.to_string(), requirement == HostRequirement::Fallback))
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn hosts_are_tried_in_order_and_then_once_more_with_lower_demands() {
        let tried = order(attempts(&["a", "b"], true, BeginWith::First, 7_000));
        let expected = [("a:1", false), ("b:1", false), ("a:1", true), ("b:1", true)];
        assert_eq!(tried, expected.map(|(host, fallback)| (host.to_owned(), fallback)));
        assert_eq!(order(attempts(&["a", "b"], false, BeginWith::Any, 7_000))[0].0, "b:1");
        let last = order(attempts(&["a", "b", "c"], false, BeginWith::LastGood, 7_000));
        assert_eq!(last.iter().map(|(host, _)| host.as_str()).collect::<Vec<_>>(), ["b:1", "c:1", "a:1"]);
    }

    #[test]
    fn each_host_has_its_part_of_the_time() {
        assert_eq!(attempts(&["a"], false, BeginWith::First, 0).share(), Duration::from_secs(5));
        assert_eq!(attempts(&["a", "b"], false, BeginWith::First, 0).share(), Duration::from_millis(2500));
    }

    #[test]
    fn errors_name_the_host_when_there_are_several() {
        let mut one = attempts(&["a"], false, BeginWith::First, 0);
        one.next();
        one.note("gone");
        assert_eq!(one.errors(), "gone");
        let mut two = attempts(&["a", "b"], false, BeginWith::First, 0);
        for error in ["gone", "a standby"] {
            two.next();
            two.note(error);
        }
        assert_eq!(two.errors(), "a:1: gone; b:1: a standby");
    }
}
