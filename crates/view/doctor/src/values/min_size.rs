//! How many servers are to be kept for the next burst, or for how long: from bursts that were seen, and how far they
//! are apart.

use std::time::Duration;

use admin_api::Times;

use super::{Planned, SIMULATION_TOO_LONG, are_alike, fit_size, smallest_enough};
use crate::{
    finding::{Instead, Key, Predicted, Setting},
    forecast::{Arrivals, Effect, Forecast, ForecastPool, HoldTimes, Load},
    pooler::{PoolWindow, Step},
};

/// Bursts that are needed to know their distance.
const MIN_BURSTS: usize = 3;
/// The distance, in looks, up to which two looks with new connections belong to the same burst: it may begin shortly
/// before a look.
const MAX_BURST_LOOKS: f64 = 1.5;
/// The share of connections that may still be created although nothing is closed between bursts.
const MAX_CREATED_SHARE: f64 = 0.1;
/// Connections created an hour, as seen and as simulated, may differ by this factor: bursts differ in size.
const MAX_CREATED_RATE_RATIO: f64 = 1.5;
/// Transactions of a burst that are simulated.
const MAX_BURST_TRANSACTIONS: f64 = 2_000.0;
/// The proposed max_idle_time, as a factor of the longest time between the beginnings of two bursts.
const IDLE_TIME_FACTOR: f64 = 1.5;

pub(super) fn plan(pool: &PoolWindow<'_>, forecast: &dyn Forecast) -> Planned {
    let seen = SeenBursts::of(pool)?;
    let (min, most) = (fit_size(pool.last.min_size)?, fit_size(seen.left_open)?);
    let sizes = ForecastPool {
        max_size: fit_size(pool.last.max_size)?,
        min_size: min,
        max_idle_time: Some(seen.max_idle_time),
        max_connecting: pool.last.settings.max_connecting.and_then(|most| u32::try_from(most).ok()),
    };
    let predict =
        |sizes: &ForecastPool| forecast.predict(&seen.load, sizes).ok_or_else(|| SIMULATION_TOO_LONG.to_owned());
    let predict_min_size = |min_size: u32| predict(&ForecastPool { min_size, ..sizes });
    let simulated = predict(&sizes)?;
    let (made, was) = (created_an_hour(&simulated), created_an_hour(&seen.now));
    if !are_alike(made, was, MAX_CREATED_RATE_RATIO) {
        return Err(format!(
            "bursts of {most} at once, played with the present settings, make {made:.0} connections an hour, and \
             {was:.0} were seen"
        ));
    }
    let is_enough = |effect: &Effect| created_an_hour(effect) <= MAX_CREATED_SHARE * made;
    if min >= most {
        return Err("as many servers are kept as a burst was seen to need".to_owned());
    }
    let largest = predict_min_size(most)?;
    if !is_enough(&largest) {
        return Err(format!(
            "with {} = {most} {:.0} connections an hour would still be made",
            pool.key(Key::MinSize),
            created_an_hour(&largest)
        ));
    }
    let (to, after) = smallest_enough((min, most), largest, predict_min_size, is_enough)?;
    let longer = round_up(seen.max_interval.mul_f64(IDLE_TIME_FACTOR));
    let instead = predict(&ForecastPool { max_idle_time: Some(longer), ..sizes })?;
    let instead = is_enough(&instead).then(|| Instead {
        key: pool.key(Key::MaxIdleTime),
        to: format_rounded(longer),
        after: instead,
    });
    let setting = Setting { key: pool.key(Key::MinSize), from: Some(min.to_string()), to: to.to_string() };
    let note = "the smallest with which at most a tenth as many connections are made".to_owned();
    Ok((setting, Predicted { now: seen.now, simulated: Some(simulated), after, instead, note }))
}

fn created_an_hour(effect: &Effect) -> f64 {
    effect.created_an_hour.unwrap_or(0.0)
}

struct SeenBursts {
    load: Load,
    now: Effect,
    /// Servers that a burst left open.
    left_open: u64,
    max_idle_time: Duration,
    /// The longest time from the beginning of a burst to the beginning of the next.
    max_interval: Duration,
}

impl SeenBursts {
    fn of(pool: &PoolWindow<'_>) -> Result<Self, String> {
        let time = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok().filter(|time| !time.is_zero());
        let max_idle_time = pool.timeout_ms(Key::MaxIdleTime).and_then(time);
        let max_idle_time = max_idle_time.ok_or("when idle servers are closed is not told")?;
        let connect_time = time(pool.last.connect.values().filter_map(Times::mean_ms).sum());
        let connect_time = connect_time.ok_or("what making a connection takes is not told")?;
        let begins = find_begins(&pool.steps, max_idle_time);
        if begins.len() < MIN_BURSTS {
            return Err(format!(
                "{} bursts were seen, and three tell how far they are apart: a longer --window",
                begins.len()
            ));
        }
        let (first, last) = (begins[0], begins[begins.len() - 1]);
        let bursts = (begins.len() - 1) as f64;
        let of_bursts = &pool.steps[first..last];
        let seconds = (pool.steps[last].at - pool.steps[first].at).as_secs_f64();
        let intervals = begins.windows(2).map(|pair| pool.steps[pair[1]].at - pool.steps[pair[0]].at);
        let mut times = Times::default();
        of_bursts.iter().for_each(|step| times.add(&step.hold));
        let hold_ms = times.mean_ms().filter(|_| seconds > 0.0);
        let hold_ms = hold_ms.ok_or("no transaction ended in the bursts that were seen")?;
        let size = (times.count() as f64 / bursts).round().max(1.0);
        if size > MAX_BURST_TRANSACTIONS {
            return Err(format!("bursts of {size:.0} transactions are more than are played"));
        }
        let left_open = pool.max(|step| step.open).min(pool.last.max_size);
        let at_once = pool.max(|step| step.in_use.saturating_add(step.waiters)).max(left_open).max(1);
        // The length of a burst is computed: looks are further apart.
        let parallel = at_once.min(pool.last.max_size).max(1) as f64;
        let busy_s = size / parallel * hold_ms / 1e3 + connect_time.as_secs_f64();
        let quiet = Duration::try_from_secs_f64(seconds / bursts - busy_s)
            .map_err(|_| "bursts follow each other without a quiet time")?;
        let made = admin_api::sum(of_bursts.iter().map(|step| &step.created));
        let mut waited = Times::default();
        pool.change.checkout.values().for_each(|times| waited.add(times));
        let now = Effect {
            transactions_per_s: times.count() as f64 / seconds,
            wait_p95_ms: waited.quantile_ms(0.95, pool.bounds_ms),
            created_an_hour: Some(made as f64 / seconds * 3_600.0),
        };
        let arrivals = Arrivals::Bursts { size: size as u32, at_once: fit_size(at_once)?, quiet };
        let load = Load { arrivals, hold: HoldTimes { times, bounds_ms: pool.bounds_ms.to_vec() }, connect_time };
        Ok(Self { load, now, left_open, max_idle_time, max_interval: intervals.max().unwrap_or_default() })
    }
}

/// Steps with which bursts begin: connections are made, and before that none has been for as long as it takes until
/// idle ones are closed.
fn find_begins(steps: &[&Step], max_idle_time: Duration) -> Vec<usize> {
    let mut begins = Vec::new();
    let mut before: Option<Duration> = None;
    for (n, step) in steps.iter().enumerate().filter(|(_, step)| step.created > 0) {
        let apart = max_idle_time.max(step.duration.mul_f64(MAX_BURST_LOOKS));
        if before.is_none_or(|before| step.at.saturating_sub(before) >= apart) {
            begins.push(n);
        }
        before = Some(step.at);
    }
    begins
}

/// The time rounded up to one that people write into a configuration.
fn round_up(time: Duration) -> Duration {
    let to = |unit: u64| Duration::from_secs((time.as_secs_f64() / unit as f64).ceil() as u64 * unit);
    match time.as_secs() {
        0..20 => to(1),
        20..600 => to(10),
        _ => to(60),
    }
}

fn format_rounded(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 60 && seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_those_that_people_write() {
        let written = |ms: u64| format_rounded(round_up(Duration::from_millis(ms)));
        assert_eq!(
            [300, 1_000, 19_500, 61_000, 599_000, 601_000].map(written),
            ["1s", "1s", "20s", "70s", "10m", "11m"]
        );
    }
}
