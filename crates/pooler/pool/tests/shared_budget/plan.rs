//! What a schedule of pools under one budget is like: drawn from its seed.

use std::time::Duration;

use pool::{PoolConfig, Random};

/// The longest that closing a connection takes.
pub const MAX_CLOSING: Duration = Duration::from_micros(100);

pub struct Rng(pub Random);

impl Rng {
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.bits() % (most - least + 1)
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.within(0, 99) < percent
    }

    pub fn micros(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.within(least, most))
    }

    /// Up to twice the mean.
    pub fn around(&mut self, mean: Duration) -> Duration {
        Duration::from_nanos(self.within(1, mean.as_nanos() as u64 * 2 + 1))
    }
}

/// What a schedule is about.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// Fewer permits than busy pools: they take turns.
    Scarce,
    /// Clients of the first pool keep it busy, clients of the others seldom come.
    Sleepy,
    /// Connects fail, servers die, clients leave while they wait, pools are cleared. Some clients want new servers.
    Rough,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub kind: Kind,
    pub pools: usize,
    pub permits: u32,
    /// Clients that never give their servers back, all of one pool.
    pub keepers: usize,
    pub clients_of_each: usize,
    pub config: PoolConfig,
    pub think: Duration,
    pub hold: Duration,
    pub connect: Duration,
    /// The longest that a letter takes.
    pub delay: Duration,
    /// How late a time-out is at most.
    pub late: Duration,
    /// How long a client of a sleepy pool thinks.
    pub doze: Duration,
}

impl Plan {
    pub fn draw(kind: Kind, rng: &mut Rng) -> Self {
        let pools = rng.within(2, 4);
        let keepers = if kind == Kind::Scarce { rng.within(0, 2) } else { 0 };
        let permits = match kind {
            Kind::Scarce if keepers == 0 => rng.within(1, pools),
            // A pool never gets another pool's last server, so each pool needs a permit besides those that keepers
            // hold.
            Kind::Scarce => keepers + pools,
            Kind::Sleepy => rng.within(pools, pools * 2),
            Kind::Rough => rng.within(1, pools * 2),
        };
        let turn = rng.micros(1000, 1500);
        // Sleepy pools leave the busy one too few servers for its clients, always.
        let least_hold = if kind == Kind::Sleepy { 100 } else { 5 };
        let (hold, connect) = (rng.micros(least_hold, 150), rng.micros(5, 100));
        let on_time = kind == Kind::Sleepy;
        let clients_of_each = if kind == Kind::Scarce { rng.within(2, 12) } else { permits + rng.within(4, 9) };
        Self {
            kind,
            pools: pools as usize,
            permits: permits as u32,
            keepers: keepers as usize,
            clients_of_each: clients_of_each as usize,
            config: PoolConfig {
                max_size: if kind == Kind::Scarce { keepers + rng.within(1, 3) } else { permits } as u32,
                max_connecting: rng.within(1, 3) as u32,
                max_idle_time: None,
                max_life_time: None,
                max_wait_time: None,
                unavailable_wait_time: None,
                max_overtakes: rng.within(0, 4) as u32,
                backoff_min: Duration::from_micros(50),
                backoff_max: Duration::from_micros(500),
                turn,
                ..PoolConfig::default()
            },
            think: rng.micros(1, 20),
            hold,
            connect,
            delay: if on_time { Duration::ZERO } else { rng.micros(0, 20) },
            late: if on_time { Duration::ZERO } else { rng.micros(0, 50) },
            doze: turn * (clients_of_each * rng.within(5, 30)) as u32,
        }
    }

    /// The longest that a pool whose clients wait may serve none of them: for each pool a turn, what may precede the
    /// order to change hands, and the change itself.
    pub fn longest_without_service(&self) -> Duration {
        let change = (self.hold + self.connect + MAX_CLOSING + self.delay + self.late) * 4;
        (self.config.turn * 2 + change) * self.pools as u32
    }
}
