//! The Poolhouse that clients connect to: who is let in, who is sent away to make room, who was idle for too long, and who has one of its
//! servers. The gate, the queue and the pool are the real ones.

mod servers;

use std::time::Duration;

use bench::plan::{PoolhouseWishes, Target};
use pool::{Admission, Gate, GateConfig, IdleQueue, IdleTicket, Time};

pub use servers::{Servers, Told};

/// What Poolhouse does where nothing is said.
const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);
/// The same for the idle time of Redis' clients.
const REDIS_IDLE: Duration = Duration::from_secs(310);
/// A soft limit that nobody has given is this share of the hard one.
const SOFT_SHARE: (u32, u32) = (4, 5);

/// See the module.
#[derive(Debug)]
pub struct Front {
    gate: Option<Gate>,
    evict_min_idle: Duration,
    idle_time: Option<Duration>,
    idle: IdleQueue,
    /// Where each connection waits for its next operation, by its number.
    tickets: Vec<Option<IdleTicket>>,
    /// Told to go, and not gone yet.
    leaving: u32,
}

impl Front {
    /// One with these settings, which has no client.
    pub fn new(wishes: &PoolhouseWishes, target: &Target) -> Self {
        let evict_min_idle = wishes.evict_min_idle.unwrap_or(EVICT_MIN_IDLE);
        let limits = match (wishes.soft_limit, wishes.hard_limit) {
            (soft, Some(hard)) => Some((soft.unwrap_or(hard / SOFT_SHARE.1 * SOFT_SHARE.0), hard)),
            (Some(soft), None) => Some((soft, u32::MAX)),
            (None, None) => None,
        };
        let gate =
            limits.map(|(soft_limit, hard_limit)| Gate::new(GateConfig { soft_limit, hard_limit, evict_min_idle }));
        let usual = matches!(target, Target::Redis(_)).then_some(REDIS_IDLE);
        Self {
            gate,
            evict_min_idle,
            idle_time: wishes.client_idle_time.unwrap_or(usual),
            idle: IdleQueue::new(),
            tickets: Vec::new(),
            leaving: 0,
        }
    }

    /// Whether a client is let in.
    pub fn admits(&mut self) -> bool {
        self.gate.as_mut().is_none_or(|gate| gate.admit() != Admission::Reject)
    }

    /// A client has nothing to do.
    pub fn is_idle(&mut self, conn: u32, now: Time) {
        if self.tickets.len() <= conn as usize {
            self.tickets.resize(conn as usize + 1, None);
        }
        self.tickets[conn as usize] = Some(self.idle.push(conn, now));
    }

    /// It has.
    pub fn is_busy(&mut self, conn: u32) {
        if let Some(ticket) = self.tickets.get_mut(conn as usize).and_then(Option::take) {
            self.idle.remove(ticket);
        }
    }

    /// A client that was let in is gone. `told`: because it was told to go.
    pub fn left(&mut self, conn: u32, told: bool) {
        self.is_busy(conn);
        self.leaving -= u32::from(told);
        if let Some(gate) = &mut self.gate {
            gate.left();
        }
    }

    /// When somebody is to be sent away next, unless somebody comes before.
    pub fn deadline(&self) -> Time {
        let Some((_, since)) = self.idle.oldest() else { return Time::NEVER };
        let too_long = self.idle_time.map_or(Time::NEVER, |time| since + time);
        if self.wants_room() { too_long.min(since + self.evict_min_idle) } else { too_long }
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
        self.leaving += 1;
        match &mut self.gate {
            Some(gate) if evicted => {
                gate.evicted();
                // Room is wanted from when somebody came, which may be later than the client could have gone.
                Some((conn, now))
            }
            _ => Some((conn, due)),
        }
    }

    /// Rejections and evictions.
    pub fn seen(&self) -> (u64, u64) {
        self.gate.as_ref().map_or((0, 0), |gate| (gate.rejections(), gate.evictions()))
    }

    fn wants_room(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.evictions_wanted() > self.leaving)
    }
}
