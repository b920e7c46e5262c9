//! Draws what kind of world a schedule is: mostly small ones, where edge cases lie close together, now and then one
//! with thousands of clients. It runs nothing.

use std::time::Duration;

use pool::{GateConfig, PoolConfig};

use crate::random::Rng;

/// The caps of the budget, 0 meaning none, and where a pool stands under them.
#[derive(Clone, Debug)]
pub struct Caps {
    pub process: u32,
    /// Of each database.
    pub databases: Vec<u32>,
    /// Of each user.
    pub users: Vec<u32>,
}

#[derive(Clone, Debug)]
pub struct PoolPlan {
    pub config: PoolConfig,
    /// Which database it is of.
    pub database: usize,
    pub user: usize,
}

/// What befalls databases, and what makes clients keep their servers.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// Mean time between two things.
    pub every: Duration,
    /// Percent of transactions after which a client keeps its server.
    pub pins: u64,
    /// The most clients of a pool that may.
    pub max_pinned: u32,
    /// Percent of check-ins that a cancel request delays.
    pub cancels: u64,
}

/// Draws the trouble, from a source of chance of its own.
pub fn trouble(rng: &mut Rng) -> Option<Trouble> {
    rng.percent(50).then(|| Trouble {
        every: micros(rng, 50, 3_000),
        pins: rng.pick(&[0, 0, 5, 30]),
        max_pinned: rng.within(0..=3) as u32,
        cancels: rng.pick(&[0, 5, 20]),
    })
}

/// What kind of world a schedule is.
#[derive(Clone, Debug)]
pub struct Plan {
    pub pools: Vec<PoolPlan>,
    /// What bounds them together.
    pub caps: Caps,
    pub gate: GateConfig,
    pub homes: u8,
    /// Clients that ever come.
    pub clients: u32,
    /// Check-outs of each.
    pub check_outs: u32,
    /// Mean time between two of them.
    pub think: Duration,
    /// Mean time a server is held.
    pub hold: Duration,
    pub connect: Duration,
    /// Percent of connects that fail.
    pub unreachable: u64,
    /// Percent of the failures that are permanent.
    pub for_good: u64,
    /// Percent of check-ins that need a reset.
    pub resets: u64,
    /// Percent of check-ins of servers that are no good any more.
    pub discards: u64,
    /// How many of a hundred check-outs are for a new connection only.
    pub unused: u64,
    /// Mean time between two things that are done to the world; none happen if absent.
    pub chaos: Option<Duration>,
    /// What befalls databases and what operators order; nothing if absent.
    pub trouble: Option<Trouble>,
    /// Longest time that an order takes from the pool to who executes it.
    pub delay: Duration,
    /// Longest time by which time-outs are handled late.
    pub late: Duration,
    /// Some callers' clocks are behind.
    pub skewed: bool,
    /// Options of pools and caps change.
    pub changes: bool,
    /// Somebody may have to wait for ever.
    pub endless: bool,
    /// The first so many clients keep their first server until the calm.
    pub keepers: u32,
    /// The mean time between two check-outs of a client of any pool but the first. Then that one is never without
    /// clients that wait, each keeps to its pool, and all that is ordered is done at once. Absent: all clients are
    /// alike.
    pub doze: Option<Duration>,
    /// The longest that a pool may serve nobody though somebody waits there; nothing is said of that if absent.
    pub fair_within: Option<Duration>,
    /// Events before the calm.
    pub steps: u64,
}

/// The mean time that a close takes.
pub const CLOSING: Duration = Duration::from_micros(50);

fn micros(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_micros(rng.within(from..=to))
}

/// Options of a pool of up to `most` servers. `endless`: somebody may wait for ever; then no pool may keep servers that
/// nobody uses, because under a common cap those would never be given up.
pub fn config(rng: &mut Rng, most: u64, endless: bool) -> PoolConfig {
    let max_size = if rng.percent(5) { 0 } else { rng.within(1..=most) as u32 };
    let min_size = if endless || rng.percent(60) { 0 } else { rng.within(0..=u64::from(max_size)) as u32 };
    let waits = if endless { 50 } else { 100 };
    let or_never = |rng: &mut Rng, percent: u64, from: u64, to: u64| {
        let time = micros(rng, from, to);
        rng.percent(percent).then_some(time)
    };
    let backoff_min = micros(rng, 1, 500);
    let backoff_max = backoff_min + micros(rng, 0, 2_000);
    let config = PoolConfig {
        max_size,
        on_proof: false,
        min_size,
        max_connecting: rng.within(1..=3) as u32,
        max_idle_time: or_never(rng, 50, 10, 10_000),
        max_life_time: or_never(rng, 40, 10, 20_000),
        life_time_jitter: rng.pick(&[0.0, 0.1, 1.0]),
        max_wait_time: or_never(rng, waits, 0, 5_000),
        unavailable_wait_time: or_never(rng, waits, 0, 10_000),
        max_waiters: if rng.percent(25) { rng.within(1..=6) as u32 } else { 0 },
        max_overtakes: rng.pick(&[0, 0, 1, 2, 5, 32]),
        check_after_idle: or_never(rng, 30, 0, 500),
        backoff_min,
        backoff_max,
        connect_timeout: micros(rng, 50, 10_000),
        turn: backoff_max,
    };
    config.validate().expect("only possible options are drawn");
    config
}

pub fn plan(rng: &mut Rng) -> Plan {
    let size = rng.below(1000);
    let (clients, servers, steps) = match size {
        0..=1 => (rng.within(500..=4000), 40, 6000),
        2..=39 => (rng.within(20..=120), 10, rng.within(200..=2000)),
        _ => (rng.within(1..=9), 4, rng.within(15..=600)),
    };
    let endless = rng.percent(40);
    let (databases, users) = (rng.within(1..=2), rng.within(1..=2));
    let pools = (0..rng.within(1..=4))
        .map(|_| PoolPlan {
            config: config(rng, servers, endless),
            database: rng.below(databases) as usize,
            user: rng.below(users) as usize,
        })
        .collect::<Vec<_>>();
    let cap = |rng: &mut Rng| if rng.percent(40) { rng.within(1..=servers * 2) as u32 } else { 0 };
    let caps = Caps {
        process: cap(rng),
        databases: (0..databases).map(|_| cap(rng)).collect(),
        users: (0..users).map(|_| cap(rng)).collect(),
    };
    let trouble = rng.percent(60);
    let hard_limit = if rng.percent(50) { clients } else { rng.within(1..=clients) } as u32;
    Plan {
        pools,
        caps,
        gate: GateConfig {
            soft_limit: rng.within(0..=u64::from(hard_limit)) as u32,
            hard_limit,
            evict_min_idle: micros(rng, 0, 500),
        },
        homes: rng.within(1..=4) as u8,
        clients: clients as u32,
        check_outs: rng.within(1..=40) as u32,
        think: micros(rng, 1, 500),
        hold: micros(rng, 1, 800),
        connect: micros(rng, 1, 1_000),
        unreachable: if trouble { rng.pick(&[0, 5, 30, 90]) } else { 0 },
        for_good: rng.pick(&[0, 20]),
        resets: rng.pick(&[0, 20]),
        discards: rng.pick(&[0, 5, 30]),
        unused: rng.pick(&[0, 0, 3, 20]),
        chaos: if rng.percent(70) { Some(micros(rng, 10, 1_000)) } else { None },
        trouble: None,
        delay: if rng.percent(50) { Duration::ZERO } else { micros(rng, 1, 100) },
        late: if rng.percent(70) { Duration::ZERO } else { micros(rng, 1, 100) },
        skewed: rng.percent(20),
        changes: rng.percent(40),
        endless,
        keepers: 0,
        doze: None,
        fair_within: None,
        steps,
    }
}

/// Draws a world in which more pools are busy than there are permits, some of which are kept for good: all are served
/// in turns.
pub fn tight(rng: &mut Rng) -> Plan {
    let pools = rng.within(2..=4) as u32;
    let keepers = rng.within(0..=2) as u32;
    // Who keeps all that a pool has cannot have the last one of another: then there must be one for each pool besides.
    let permits = if keepers == 0 { rng.within(1..=u64::from(pools)) as u32 } else { keepers + pools };
    let (hold, connect, turn) = (micros(rng, 5, 50), micros(rng, 5, 100), micros(rng, 1_000, 2_000));
    let config = PoolConfig {
        // Whoever keeps servers does not take the last one of a pool.
        max_size: keepers + rng.within(1..=3) as u32,
        max_wait_time: None,
        unavailable_wait_time: None,
        max_idle_time: None,
        max_life_time: None,
        max_overtakes: rng.pick(&[0, 2, 32]),
        turn,
        ..PoolConfig::default()
    };
    let clients = pools * rng.within(2..=12) as u32;
    let (delay, late) = (micros(rng, 0, 20), micros(rng, 0, 50));
    // A turn, what may come before the permit changes hands, and that itself.
    let change = turn * 2 + (hold + connect + CLOSING) * 4 + (delay + late) * 4;
    Plan {
        pools: (0..pools).map(|at| PoolPlan { config: config.clone(), database: at as usize % 2, user: 0 }).collect(),
        caps: Caps { process: permits, databases: vec![0; 2], users: vec![0] },
        gate: GateConfig { soft_limit: clients, hard_limit: clients, evict_min_idle: Duration::ZERO },
        homes: rng.within(1..=3) as u8,
        clients,
        check_outs: u32::MAX,
        think: micros(rng, 1, 20),
        hold,
        connect,
        unreachable: 0,
        for_good: 0,
        resets: rng.pick(&[0, 20]),
        discards: 0,
        unused: 0,
        chaos: None,
        trouble: None,
        delay,
        late,
        skewed: false,
        changes: false,
        endless: true,
        keepers,
        doze: None,
        fair_within: Some(change * pools),
        steps: rng.within(3_000..=9_000),
    }
}

/// Draws a world in which one pool could use all permits that there are, and clients of the others seldom come: it gets
/// what they do not use, and they get it back.
pub fn drowsy(rng: &mut Rng) -> Plan {
    let pools = rng.within(2..=4) as u32;
    let permits = rng.within(u64::from(pools)..=u64::from(pools) * 2) as u32;
    // More of the first pool's than it could ever have servers.
    let clients_of_each = permits + rng.within(4..=9) as u32;
    let clients = pools * clients_of_each;
    let (hold, connect, turn) = (micros(rng, 100, 150), micros(rng, 5, 100), micros(rng, 1_000, 1_500));
    let config = PoolConfig {
        max_size: permits,
        max_connecting: rng.within(1..=3) as u32,
        max_wait_time: None,
        unavailable_wait_time: None,
        max_idle_time: None,
        max_life_time: None,
        max_overtakes: rng.pick(&[0, 2, 32]),
        turn,
        ..PoolConfig::default()
    };
    let change = turn * 2 + (hold + connect + CLOSING) * 4;
    Plan {
        pools: (0..pools).map(|at| PoolPlan { config: config.clone(), database: at as usize % 2, user: 0 }).collect(),
        caps: Caps { process: permits, databases: vec![0; 2], users: vec![0] },
        gate: GateConfig { soft_limit: clients, hard_limit: clients, evict_min_idle: Duration::ZERO },
        homes: rng.within(1..=3) as u8,
        clients,
        check_outs: u32::MAX,
        think: micros(rng, 1, 20),
        hold,
        connect,
        unreachable: 0,
        for_good: 0,
        resets: rng.pick(&[0, 20]),
        discards: 0,
        unused: 0,
        chaos: None,
        trouble: None,
        delay: Duration::ZERO,
        late: Duration::ZERO,
        skewed: false,
        changes: false,
        endless: true,
        keepers: 0,
        doze: Some(turn * clients_of_each * rng.within(5..=30) as u32),
        fair_within: Some(change * pools),
        steps: rng.within(6_000..=15_000),
    }
}
