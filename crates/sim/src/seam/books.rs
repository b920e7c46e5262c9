//! What is under way between pools and workers, kept beside both: so that after every step it can be said of each server of a
//! pool where it is. Knows no sessions.

use std::collections::HashSet;

use pool::{Action, Counts, Pool, PoolConfig, ServerId};

use super::connection::Use;

type Servers = HashSet<(usize, ServerId)>;

/// Orders and grants on their way, and what bounds the pools.
#[derive(Debug)]
pub struct Books {
    /// Ordered to be connected; nobody has begun.
    pub connects: Servers,
    /// Ordered to be reset or checked.
    pub cleans: Servers,
    /// Ordered to be closed.
    closes: Servers,
    /// Granted, and not yet with who gets it.
    grants: Servers,
    /// On their way to another worker.
    pub moving: Servers,
    /// The most servers that each pool may have: more than its maximum after that was lowered.
    ceilings: Vec<u32>,
}

impl Books {
    /// Those of new pools.
    pub fn new(pools: &[PoolConfig]) -> Self {
        Self {
            connects: Servers::new(),
            cleans: Servers::new(),
            closes: Servers::new(),
            grants: Servers::new(),
            moving: Servers::new(),
            ceilings: pools.iter().map(PoolConfig::effective_max_size).collect(),
        }
    }

    /// A pool orders something.
    pub fn ordered(&mut self, pool: usize, action: &Action) {
        match *action {
            Action::Connect { server, .. } => {
                self.connects.insert((pool, server));
            }
            Action::Close { server, .. } => {
                assert!(!self.grants.contains(&(pool, server)), "a server is closed that is granted");
                assert!(self.closes.insert((pool, server)), "a server is closed twice");
            }
            Action::Check { server, .. } | Action::Reset { server, .. } => {
                self.cleans.insert((pool, server));
            }
            Action::Grant(grant) => self.granted(pool, grant.server),
            Action::AskPermit | Action::WithdrawPermit | Action::Insist => {}
            Action::Spare => panic!("a server to spare for nobody"),
            Action::Fail { .. } | Action::Interrupt { .. } => {}
        }
    }

    /// A pool grants a server.
    pub fn granted(&mut self, pool: usize, server: ServerId) {
        assert!(self.grants.insert((pool, server)), "a server is granted to two");
    }

    /// A grant has reached who it is for, or the server is given back in their place.
    pub fn met(&mut self, pool: usize, server: ServerId) {
        assert!(self.grants.remove(&(pool, server)), "a server meets somebody to whom it was not granted");
    }

    /// The pool has been told that a server is no more.
    pub fn gone(&mut self, pool: usize, server: ServerId) {
        for set in [&mut self.connects, &mut self.cleans, &mut self.closes, &mut self.grants] {
            set.remove(&(pool, server));
        }
    }

    /// The pool has ordered a server to close, and not been told that it is closed.
    pub fn is_closing(&self, pool: usize, server: ServerId) -> bool {
        self.closes.contains(&(pool, server))
    }

    /// A pool gets other options.
    pub fn reconfigured(&mut self, pool: usize, config: &PoolConfig, total: u32) {
        self.ceilings[pool] = config.effective_max_size().max(total);
    }

    /// Nothing is under way.
    pub fn check_empty(&self) {
        let sets = [&self.connects, &self.cleans, &self.closes, &self.grants, &self.moving];
        assert!(sets.iter().all(|set| set.is_empty()), "something is under way for ever: {self:?}");
    }

    /// Whether a pool and the workers agree on every server of it: `connections` are those at workers, with what they do,
    /// `dialling` those in the making.
    pub fn check(
        &mut self,
        (number, pool): (usize, &Pool),
        connections: impl Iterator<Item = (ServerId, Use)>,
        dialling: impl Iterator<Item = ServerId>,
    ) {
        pool.check_invariants();
        let of = |set: &Servers| set.iter().filter(|s| s.0 == number).count() as u32;
        let mut counts = Counts { closing: of(&self.closes), ..Counts::default() };
        let open = |server: ServerId| !self.closes.contains(&(number, server));
        let to_connect = self.connects.iter().filter(|s| s.0 == number).map(|s| s.1);
        counts.connecting = dialling.chain(to_connect).filter(|s| open(*s)).count() as u32;
        counts.in_use = of(&self.moving);
        for (server, usage) in connections.filter(|s| open(s.0)) {
            let (granted, cleaned) = (self.grants.contains(&(number, server)), self.cleans.contains(&(number, server)));
            *match usage {
                Use::Starting => &mut counts.connecting,
                Use::Cleaning => &mut counts.checking,
                Use::Idle if cleaned => &mut counts.checking,
                Use::Idle if granted => &mut counts.in_use,
                Use::Idle => &mut counts.idle,
                Use::Lent(_) | Use::Shared | Use::Withheld(_) => {
                    assert!(!granted, "{server:?} is granted, and somebody has it: {usage:?}");
                    &mut counts.in_use
                }
            } += 1;
        }
        let told = pool.counts();
        counts.waiters = told.waiters;
        counts.total = counts.connecting + counts.idle + counts.in_use + counts.checking + counts.closing;
        assert_eq!(told, counts, "pool {number} and the workers disagree");
        self.ceilings[number] = self.ceilings[number].min(pool.config().effective_max_size().max(told.total));
        let most = self.ceilings[number];
        assert!(told.total <= most, "pool {number} has {} servers of {most}", told.total);
    }
}
