//! What the toy for a cluster knows of its hosts: terms and roles, and who waits for a primary. Shared by all workers.
//! It tells sessions by posts, and knows nothing of their states.

use seam::{ClientTag, Effect, Outbox, Peer};

/// Hosts of the cluster. Each has a pool, by its number, and behind all of these one of its monitor.
pub const HOSTS: usize = 3;

#[derive(Default)]
pub(super) struct Topology {
    turn: usize,
    /// The term of each host, and whether it is the primary of it.
    hosts: [(u64, bool); HOSTS],
    /// Who waits for a primary.
    pub(super) parked: Vec<ClientTag>,
}

impl Topology {
    /// The primary of the latest term, if it is known.
    pub(super) fn primary(&self) -> Option<usize> {
        let term = self.hosts.iter().map(|host| host.0).max()?;
        self.hosts.iter().position(|host| *host == (term, true))
    }

    /// Each host in its turn.
    pub(super) fn any(&mut self) -> usize {
        self.turn += 1;
        self.turn % HOSTS
    }

    /// A host says what it is, and in which term. Whoever waits for a primary goes on when one is known.
    pub(super) fn learn(&mut self, host: usize, said: &str, out: &mut Outbox) {
        let term = said.rsplit(' ').next().and_then(|term| term.parse().ok()).unwrap_or(0);
        if term >= self.hosts[host].0 {
            self.hosts[host] = (term, said[1..].starts_with("primary"));
        }
        if self.primary().is_some() {
            for client in self.parked.drain(..) {
                out.push(Effect::Post { to: Peer::Client(client), key: 0, bytes: 0..0 });
            }
        }
    }

    /// What the host is now nobody knows.
    pub(super) fn end_watch(&mut self, host: usize) {
        self.hosts[host].1 = false;
    }
}
