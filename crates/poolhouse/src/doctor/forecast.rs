//! Predicts for the doctor: plays the loads that it has seen with the planner's simulation, which runs the pool core in
//! virtual time. Knows no symptom.

use std::{cell::Cell, time::Duration};

use ::load::plan::{MAX_IN_FLIGHT, Plan, PoolWishes, Shape, Spacing, Stage, Target};
use ::report::{histogram::Histogram, result::BenchResult};
use doctor::{Arrivals, Effect, Forecast, ForecastPool, HoldTimes, Load};
use planner::{
    run,
    server::{Connect, Spec, Times},
};

/// Simulations of one diagnosis: with so few operations each they take less than 0.3 s together.
const MAX_SIMULATIONS: u32 = 32;
/// Operations of a simulation, which give a percentile to about 3%.
const OPERATIONS: u32 = 10_000;
/// The longest that one lasts, in virtual time.
const MAX_VIRTUAL_TIME: Duration = Duration::from_secs(1_200);
/// The largest pool that is played, and the longest time until an idle server is closed.
const MAX_POOL_SIZE: u32 = 5_000;
const MAX_IDLE_TIME: Duration = Duration::from_secs(7 * 86_400);
/// Bursts of one: the first is not counted.
const MIN_BURSTS: u32 = 4;
const MAX_BURSTS: u32 = 20;
/// Every client has asked so often before it counts.
const WARMUP_ROUNDS: u32 = 3;
/// Before it counts, arrivals at random have come for this share of the time.
const WARMUP_SHARE: f64 = 0.1;
/// Values that a histogram of few buckets is drawn with.
const DRAWN_VALUES: f64 = 1_000.0;
/// The same for everybody: the same looks give the same advice.
const SEED: u64 = 1;

/// See the module.
#[derive(Debug, Default)]
pub struct Player {
    played: Cell<u32>,
}

impl Forecast for Player {
    fn predict(&self, load: &Load, pool: &ForecastPool) -> Option<Effect> {
        if self.played.get() >= MAX_SIMULATIONS {
            return None;
        }
        self.played.set(self.played.get() + 1);
        let service = times(&load.hold)?;
        if service.mean().max(load.connect_time) > MAX_VIRTUAL_TIME || pool.max_size > MAX_POOL_SIZE {
            return None;
        }
        let (shape, warmup) = shape(&load.arrivals, service.mean(), pool.max_size)?;
        let plan = plan(shape, warmup, pool);
        plan.check().ok()?;
        let result = run::run(&plan, &spec(service, load.connect_time)).result;
        let created_an_hour =
            matches!(load.arrivals, Arrivals::Bursts { .. }).then(|| created_an_hour(&result)).flatten();
        Some(Effect {
            transactions_per_s: result.total.rate()?,
            wait_p95_ms: result.total.pool_wait_ms.as_ref().map(|waits| waits.p95),
            created_an_hour,
        })
    }
}

/// The load, and how much of its beginning does not count.
fn shape(arrivals: &Arrivals, held: Duration, max_size: u32) -> Option<(Shape, Duration)> {
    Some(match *arrivals {
        Arrivals::Clients { clients, pause } => {
            if pause > MAX_VIRTUAL_TIME {
                return None;
            }
            let round = held.checked_mul(clients)? / max_size.max(1) + pause;
            let shape = Shape::Closed {
                clients,
                think: pause,
                duration: MAX_VIRTUAL_TIME,
                operations: Some(u64::from(OPERATIONS)),
            };
            (shape, round.saturating_mul(WARMUP_ROUNDS).min(MAX_VIRTUAL_TIME))
        }
        Arrivals::AtRandom { rate } => {
            let duration = Duration::try_from_secs_f64(f64::from(OPERATIONS) / rate).ok()?.min(MAX_VIRTUAL_TIME);
            let stages = vec![Stage { duration, from: rate, to: rate }];
            let shape = Shape::Open { stages, spacing: Spacing::Poisson, max_in_flight: MAX_IN_FLIGHT };
            (shape, duration.mul_f64(WARMUP_SHARE))
        }
        Arrivals::Bursts { size, at_once, quiet } => {
            let by_time = MAX_VIRTUAL_TIME.as_secs_f64() / quiet.as_secs_f64().max(1e-3);
            let rounds = (OPERATIONS / size.max(1)).min(by_time as u32).clamp(MIN_BURSTS, MAX_BURSTS);
            (Shape::Burst { size, at_once, idle: quiet, rounds }, Duration::ZERO)
        }
    })
}

fn plan(shape: Shape, warmup: Duration, pool: &ForecastPool) -> Plan {
    let wishes = PoolWishes {
        max_size: Some(pool.max_size),
        min_size: Some(pool.min_size),
        max_connecting: pool.max_connecting,
        max_idle_time: Some(pool.max_idle_time.map(|time| time.min(MAX_IDLE_TIME))),
        max_life_time: Some(None),
        max_wait_time: Some(None),
        ..PoolWishes::default()
    };
    let pool = wishes.pool(&shape);
    Plan {
        warmup,
        timeout: MAX_VIRTUAL_TIME.saturating_mul(WARMUP_ROUNDS),
        seed: SEED,
        ..Plan::new("as seen".to_owned(), Target::nowhere(), shape, pool)
    }
}

/// A server to which one operation does nothing to another, as it was seen.
fn spec(service: Times, connecting: Duration) -> Spec {
    let connect = Connect { auth: Some(Times::Constant(connecting)), ..Connect::default() };
    Spec { connect, ..Spec::new(service) }
}

/// For how long servers are held: within each bucket evenly, with the mean that they really had. Where only the mean is
/// known they are distributed exponentially.
fn times(held: &HoldTimes) -> Option<Times> {
    let mean_ms = held.times.mean_ms()?;
    let mean = Duration::try_from_secs_f64(mean_ms / 1e3).ok().filter(|mean| !mean.is_zero())?;
    if held.bounds_ms.is_empty() {
        return Some(Times::Exponential(mean));
    }
    let count: f64 = held.times.buckets.iter().map(|in_bucket| *in_bucket as f64).sum();
    let mut values = Vec::new();
    let mut lower = 0.0;
    for (n, in_bucket) in held.times.buckets.iter().enumerate() {
        let upper = held.bounds_ms.get(n).copied().unwrap_or(2.0 * lower);
        let drawn = (DRAWN_VALUES * *in_bucket as f64 / count).ceil();
        values.extend((0..drawn as u32).map(|k| lower + (upper - lower) * (f64::from(k) + 0.5) / drawn));
        lower = upper;
    }
    let factor = mean_ms / (values.iter().sum::<f64>() / values.len() as f64);
    let mut histogram = Histogram::new();
    for ms in values {
        histogram.record(Duration::try_from_secs_f64(ms * factor / 1e3).ok()?);
    }
    Times::measured(&histogram)
}

/// Of all bursts but the first, which begins with none.
fn created_an_hour(result: &BenchResult) -> Option<f64> {
    let (after, last) = (result.steps.get(1..)?, result.steps.last()?);
    let span = last.from_s + last.measured.duration_s - after.first()?.from_s;
    let created: u64 = after.iter().map(|step| step.measured.connections.created).sum();
    (span > 0.0).then(|| created as f64 / span * 3_600.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [f64; 5] = [1.0, 2.0, 5.0, 10.0, 20.0];

    fn hold_times(buckets: &[u64], mean_ms: f64) -> HoldTimes {
        let count: u64 = buckets.iter().sum();
        let times = admin_api::Times { buckets: buckets.to_vec(), sum_ms: mean_ms * count as f64 };
        HoldTimes { times, bounds_ms: BOUNDS.to_vec() }
    }

    fn sizes(max_size: u32, min_size: u32, idle: u64) -> ForecastPool {
        ForecastPool { max_size, min_size, max_idle_time: Some(Duration::from_millis(idle)), max_connecting: Some(2) }
    }

    fn near(value: f64, expected: f64, part: f64) {
        assert!((value - expected).abs() <= expected * part, "{value} is not within {part} of {expected}");
    }

    #[test]
    fn clients_that_do_not_pause_share_the_servers() {
        let arrivals = Arrivals::Clients { clients: 16, pause: Duration::ZERO };
        let load = Load { arrivals, hold: hold_times(&[0, 0, 90, 10, 0, 0], 4.3), connect_time: Duration::ZERO };
        let player = Player::default();
        let four = player.predict(&load, &sizes(4, 4, 60_000)).unwrap();
        // Four servers, each of which ends a transaction every 4.3 ms; sixteen clients of which twelve wait.
        near(four.transactions_per_s, 4.0 / 0.0043, 0.03);
        assert!((10.0..25.0).contains(&four.wait_p95_ms.unwrap()), "{four:?}");
        assert_eq!(four.created_an_hour, None);
        let sixteen = player.predict(&load, &sizes(16, 16, 60_000)).unwrap();
        assert_eq!(sixteen.wait_p95_ms, Some(0.0));
        near(sixteen.transactions_per_s, 16.0 / 0.0043, 0.03);
        assert_eq!(player.predict(&load, &sizes(4, 4, 60_000)), Some(four), "the same question has the same answer");
    }

    #[test]
    fn bursts_make_connections_that_idleness_has_closed() {
        let arrivals = Arrivals::Bursts { size: 64, at_once: 8, quiet: Duration::from_secs(1) };
        let hold = hold_times(&[0, 0, 0, 0, 64, 0], 15.0);
        let load = Load { arrivals, hold, connect_time: Duration::from_millis(30) };
        let player = Player::default();
        let now = player.predict(&load, &sizes(8, 0, 300)).unwrap();
        // A burst takes its 1 s of quiet and a bit more than 64 x 15 ms / 8.
        assert!((12_000.0..27_000.0).contains(&now.created_an_hour.unwrap()), "{now:?}");
        assert!(now.wait_p95_ms.unwrap() > 10.0, "{now:?}");
        for kept in [sizes(8, 8, 300), sizes(8, 0, 3_000)] {
            assert_eq!(player.predict(&load, &kept).unwrap().created_an_hour, Some(0.0), "{kept:?}");
        }
    }

    #[test]
    fn a_histogram_of_few_buckets_keeps_its_mean_and_its_order() {
        let times = times(&hold_times(&[10, 0, 70, 0, 0, 20], 12.0)).unwrap();
        near(times.mean().as_secs_f64(), 0.012, 0.01);
        assert!(super::times(&hold_times(&[0, 0, 0, 0, 0, 0], 0.0)).is_none());
        let hostile = admin_api::Times { buckets: vec![u64::MAX; 40], sum_ms: f64::MAX };
        assert!(super::times(&HoldTimes { times: hostile, bounds_ms: BOUNDS.to_vec() }).is_none());
    }

    #[test]
    fn only_so_much_is_played() {
        let arrivals = Arrivals::AtRandom { rate: 100.0 };
        let load = Load { arrivals, hold: hold_times(&[1, 0, 0, 0, 0, 0], 0.5), connect_time: Duration::ZERO };
        let player = Player::default();
        let answered = (0..100).filter(|_| player.predict(&load, &sizes(2, 2, 1_000)).is_some()).count();
        assert_eq!(answered, MAX_SIMULATIONS as usize);
    }
}
