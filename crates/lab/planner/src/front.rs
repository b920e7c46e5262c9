//! The Poolhouse in front of the server: admission, eviction and idle time-outs of its clients, and its server pool.
//! The gate, the idle queue and the pool are those of the real Poolhouse.

mod servers;

use std::time::Duration;

use load::plan::{PoolhouseWishes, Target};
use pool::{Gate, GateConfig, IdleQueue, IdleTicket, Time};

pub use servers::{PoolDecision, ServerPool};

/// Defaults of Poolhouse's settings.
pub const DEFAULT_EVICT_MIN_IDLE: Duration = Duration::from_secs(5);
const REDIS_CLIENT_IDLE_TIME: Duration = Duration::from_secs(310);
const DEFAULT_HARD_LIMIT: u32 = 12_500;
/// The default soft limit as a fraction of the hard limit.
const DEFAULT_SOFT_SHARE: (u64, u64) = (4, 5);

/// Numbers of clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FrontStats {
    pub rejected: u64,
    pub evicted: u64,
}

#[derive(Debug)]
pub struct Front {
    gate: Gate,
    evict_min_idle: Duration,
    idle_time: Option<Duration>,
    idle: IdleQueue,
    /// The place of each idle connection in the idle queue, by its number.
    tickets: Vec<Option<IdleTicket>>,
}

impl Front {
    pub fn new(wishes: &PoolhouseWishes, target: &Target) -> Self {
        let evict_min_idle = wishes.evict_min_idle.unwrap_or(DEFAULT_EVICT_MIN_IDLE);
        let hard_limit = client_hard_limit(wishes);
        let share = u64::from(hard_limit) * DEFAULT_SOFT_SHARE.0 / DEFAULT_SOFT_SHARE.1;
        let soft_limit = wishes.soft_limit.unwrap_or(share.max(1) as u32);
        let gate = Gate::new(GateConfig { soft_limit, hard_limit, evict_min_idle });
        let usual = matches!(target, Target::Redis(_)).then_some(REDIS_CLIENT_IDLE_TIME);
        Self {
            gate,
            evict_min_idle,
            idle_time: wishes.client_idle_time.unwrap_or(usual),
            idle: IdleQueue::new(),
            tickets: Vec::new(),
        }
    }

    /// Admits or rejects a new client.
    pub fn admit(&mut self) -> bool {
        let admitted = self.gate.admit();
        if admitted {
            self.gate.note_login();
        }
        admitted
    }

    pub fn mark_idle(&mut self, conn: u32, now: Time) {
        if self.tickets.len() <= conn as usize {
            self.tickets.resize(conn as usize + 1, None);
        }
        self.tickets[conn as usize] = Some(self.idle.push(conn, now));
    }

    pub fn mark_busy(&mut self, conn: u32) {
        if let Some(ticket) = self.tickets.get_mut(conn as usize).and_then(Option::take) {
            self.idle.remove(ticket);
        }
    }

    /// Removes an admitted client that has disconnected. `closed_by_front`: the Poolhouse itself closed the connection.
    pub fn remove_client(&mut self, conn: u32, closed_by_front: bool) {
        self.mark_busy(conn);
        self.gate.left(closed_by_front);
    }

    /// When the next client is due for eviction or reaches its idle time-out, unless a client connects before.
    pub fn deadline(&self) -> Time {
        let Some((_, since)) = self.idle.oldest() else { return Time::NEVER };
        let too_long = self.idle_time.map_or(Time::NEVER, |time| since + time);
        if self.gate.evictions_wanted() > 0 { too_long.min(since + self.evict_min_idle) } else { too_long }
    }

    /// Removes a client that is to be disconnected by now, and counts an eviction as such. Returns the client, and
    /// since when it is due.
    pub fn pop_removal(&mut self, now: Time) -> Option<(u32, Time)> {
        let due = self.deadline();
        if due > now {
            return None;
        }
        let (conn, since) = self.idle.oldest()?;
        let evicted = self.idle_time.is_none_or(|time| since + time > now);
        self.mark_busy(conn);
        if !evicted || !self.gate.reserve_eviction() {
            self.gate.note_leaving();
            return Some((conn, due));
        }
        self.gate.note_eviction();
        // An eviction is due when a new client needs the place, which may be later than the victim became evictable.
        Some((conn, now))
    }

    pub fn stats(&self) -> FrontStats {
        FrontStats { rejected: self.gate.rejections(), evicted: self.gate.evictions() }
    }
}

/// The number of clients from which on new ones are rejected.
pub fn client_hard_limit(wishes: &PoolhouseWishes) -> u32 {
    wishes.hard_limit.unwrap_or(DEFAULT_HARD_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::plan::{RedisTarget, RedisWork};
    use settings::Secret;

    /// How many of `clients` are admitted, and how many of these are evicted once they are evictable.
    fn admitted_and_evicted(wishes: PoolhouseWishes, clients: u32) -> (u32, u32) {
        let target = Target::Redis(RedisTarget { url: Secret::new(""), work: RedisWork::Ping, variables: Vec::new() });
        let mut front = Front::new(&PoolhouseWishes { client_idle_time: Some(None), ..wishes }, &target);
        let within: Vec<u32> = (0..clients).filter(|_| front.admit()).collect();
        within.iter().for_each(|conn| front.mark_idle(*conn, Time(0)));
        let sent = std::iter::from_fn(|| front.pop_removal(Time(0) + DEFAULT_EVICT_MIN_IDLE)).count();
        (within.len() as u32, sent as u32)
    }

    #[test]
    fn default_limits_are_those_of_a_poolhouse() {
        let hard = |hard| PoolhouseWishes { hard_limit: Some(hard), ..PoolhouseWishes::default() };
        // 80% of the hard limit, rounded down, and at least 1.
        assert_eq!(
            [admitted_and_evicted(hard(12), 20), admitted_and_evicted(hard(4), 20), admitted_and_evicted(hard(1), 20)],
            [(12, 3), (4, 1), (1, 0)]
        );
        assert_eq!(admitted_and_evicted(PoolhouseWishes::default(), 15_000), (12_500, 2_500));
        let soft = PoolhouseWishes { soft_limit: Some(100), ..PoolhouseWishes::default() };
        assert_eq!(admitted_and_evicted(soft, 15_000), (12_500, 12_400));
    }
}
