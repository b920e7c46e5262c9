//! What some schedules have in addition: a reserve, dedicated servers, time-outs, limits of users, orders of operators,
//! a drain over time. They are drawn apart, so that the other schedules of a seed do not depend on them.

use std::time::Duration;

use driver::Timeouts;
use pool::Time;
use postgres_session::PoolMode;

use crate::{
    harness::Rules,
    product::{Bounds, client_times::TimeOuts, faults::FaultPlan},
    random::Rng,
};

pub(super) const RESERVE_WAIT_TIME: Duration = Duration::from_millis(40);
/// Turns the seed of a schedule into that of its additions.
const SALT: u64 = 0x5eed_0fad_d171_0115;

pub(super) struct Additions {
    /// Size of the reserve of each pool; 0: none.
    pub(super) reserve: u32,
    pub(super) round_robin: bool,
    /// The most dedicated servers of each user; 0: no client asks for one.
    pub(super) dedicated: u32,
    /// The clients whose number leaves this remainder of three ask for dedicated servers.
    pub(super) replicating: usize,
    /// All servers of a user together have a limit.
    pub(super) caps_users: bool,
    pub(super) time_outs: TimeOuts,
    orders: bool,
    departures: Option<(Time, Duration)>,
}

impl Additions {
    pub(super) fn draw(seed: u64, mode: PoolMode, bounds: Bounds) -> Self {
        let mut rng = Rng::new(seed ^ SALT);
        let ms = |drawn: Option<u64>| drawn.map(Duration::from_millis);
        let some = |rng: &mut Rng, percent, of: &[u64]| {
            let drawn = rng.pick(of);
            rng.percent(percent).then_some(drawn)
        };
        let departure =
            (Time(0) + rng.exponential(Duration::from_millis(60)), Duration::from_millis(rng.pick(&[20, 100])));
        Self {
            reserve: some(&mut rng, 30, &[1, 2]).filter(|_| mode == PoolMode::Transaction).unwrap_or(0) as u32,
            round_robin: rng.percent(20),
            dedicated: some(&mut rng, 25, &[1, 1, 2]).unwrap_or(0) as u32,
            replicating: rng.index(3),
            caps_users: rng.percent(25) && mode == PoolMode::Transaction,
            time_outs: TimeOuts {
                idle: ms(some(&mut rng, 15, &[100, 300])),
                transaction: ms(some(&mut rng, 15, &[80, 250])),
            },
            orders: rng.percent(40) && bounds.faults,
            departures: (rng.percent(10) && bounds.faults).then_some(departure),
        }
    }

    pub(super) fn rules(&self, rules: Rules) -> Rules {
        let TimeOuts { idle, transaction } = self.time_outs;
        Rules { timeouts: Timeouts { client_idle: idle, transaction, ..rules.timeouts }, ..rules }
    }

    pub(super) fn fault_plan(&self, plan: FaultPlan) -> FaultPlan {
        FaultPlan { orders: self.orders, departures: self.departures, ..plan }
    }
}
