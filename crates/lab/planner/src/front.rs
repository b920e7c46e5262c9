//! The Poolhouse that clients connect to: who is let in, who is sent away to make room, who was idle for too long, and
//! who has one of its servers. The gate, the queue and the pool are the real ones.

mod servers;

use std::time::Duration;

use load::plan::{PoolhouseWishes, Target};
use pool::{Gate, GateConfig, IdleQueue, IdleTicket, Time};

pub use servers::{Servers, Told};

/// What Poolhouse does where nothing is said.
const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);
/// The same for the idle time of Redis' clients.
const REDIS_IDLE: Duration = Duration::from_secs(310);
/// Clients that it lets in where nothing is said.
const HARD_LIMIT: u32 = 12_500;
/// A soft limit that nobody has given is this share of the hard one.
const SOFT_SHARE: (u64, u64) = (4, 5);

#[derive(Debug)]
pub struct Front {
    gate: Gate,
    evict_min_idle: Duration,
    idle_time: Option<Duration>,
    idle: IdleQueue,
    /// Where each connection waits for its next operation, by its number.
    tickets: Vec<Option<IdleTicket>>,
}

impl Front {
    /// One with these settings, which has no client.
    pub fn new(wishes: &PoolhouseWishes, target: &Target) -> Self {
        let evict_min_idle = wishes.evict_min_idle.unwrap_or(EVICT_MIN_IDLE);
        let hard_limit = hard_limit(wishes);
        let share = u64::from(hard_limit) * SOFT_SHARE.0 / SOFT_SHARE.1;
        let soft_limit = wishes.soft_limit.unwrap_or(share.max(1) as u32);
        let gate = Gate::new(GateConfig { soft_limit, hard_limit, evict_min_idle });
        let usual = matches!(target, Target::Redis(_)).then_some(REDIS_IDLE);
        Self {
            gate,
            evict_min_idle,
            idle_time: wishes.client_idle_time.unwrap_or(usual),
            idle: IdleQueue::new(),
            tickets: Vec::new(),
        }
    }

    /// Whether a client is let in.
    pub fn admits(&mut self) -> bool {
        let admitted = self.gate.admit();
        if admitted {
            self.gate.note_login();
        }
        admitted
    }

    /// A client has nothing to do.
    pub fn is_idle(&mut self, conn: u32, now: Time) {
        if self.tickets.len() <= conn as usize {
            self.tickets.resize(conn as usize + 1, None);
        }
        self.tickets[conn as usize] = Some(self.idle.push(conn, now));
    }

    pub fn is_busy(&mut self, conn: u32) {
        if let Some(ticket) = self.tickets.get_mut(conn as usize).and_then(Option::take) {
            self.idle.remove(ticket);
        }
    }

    /// A client that was let in is gone. `told`: because it was told to go.
    pub fn left(&mut self, conn: u32, told: bool) {
        self.is_busy(conn);
        self.gate.left(told);
    }

    /// When somebody is to be sent away next, unless somebody comes before.
    pub fn deadline(&self) -> Time {
        let Some((_, since)) = self.idle.oldest() else { return Time::NEVER };
        let too_long = self.idle_time.map_or(Time::NEVER, |time| since + time);
        if self.gate.evictions_wanted() > 0 { too_long.min(since + self.evict_min_idle) } else { too_long }
    }

    /// Somebody who is to go, and since when that is so.
    pub fn sent_away(&mut self, now: Time) -> Option<(u32, Time)> {
        let due = self.deadline();
        if due > now {
            return None;
        }
        let (conn, since) = self.idle.oldest()?;
        let evicted = self.idle_time.is_none_or(|time| since + time > now);
        self.is_busy(conn);
        if !evicted || !self.gate.reserve_eviction() {
            self.gate.note_leaving();
            return Some((conn, due));
        }
        self.gate.note_eviction();
        // Room is wanted from when somebody came, which may be later than the client could have gone.
        Some((conn, now))
    }

    /// Rejections and evictions.
    pub fn seen(&self) -> (u64, u64) {
        (self.gate.rejections(), self.gate.evictions())
    }
}

/// At how many clients new ones are turned away.
pub fn hard_limit(wishes: &PoolhouseWishes) -> u32 {
    wishes.hard_limit.unwrap_or(HARD_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::plan::{RedisTarget, RedisWork};
    use settings::Secret;

    /// How many of so many clients are let in, and how many of them are to go as soon as they may.
    fn let_in(wishes: PoolhouseWishes, clients: u32) -> (u32, u32) {
        let target = Target::Redis(RedisTarget { url: Secret::new(""), work: RedisWork::Ping, variables: Vec::new() });
        let mut front = Front::new(&PoolhouseWishes { client_idle_time: Some(None), ..wishes }, &target);
        let within: Vec<u32> = (0..clients).filter(|_| front.admits()).collect();
        within.iter().for_each(|conn| front.is_idle(*conn, Time(0)));
        let sent = std::iter::from_fn(|| front.sent_away(Time(0) + EVICT_MIN_IDLE)).count();
        (within.len() as u32, sent as u32)
    }

    #[test]
    fn limits_that_are_not_given_are_those_of_a_poolhouse() {
        let hard = |hard| PoolhouseWishes { hard_limit: Some(hard), ..PoolhouseWishes::default() };
        // 80% of the hard limit, rounded down, and at least 1.
        assert_eq!([let_in(hard(12), 20), let_in(hard(4), 20), let_in(hard(1), 20)], [(12, 3), (4, 1), (1, 0)]);
        assert_eq!(let_in(PoolhouseWishes::default(), 15_000), (12_500, 2_500));
        let soft = PoolhouseWishes { soft_limit: Some(100), ..PoolhouseWishes::default() };
        assert_eq!(let_in(soft, 15_000), (12_500, 12_400));
    }
}
