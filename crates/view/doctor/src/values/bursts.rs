//! How many servers are to be kept for the next burst, or for how long: from bursts that were seen, and how far they
//! are apart.

use std::time::Duration;

use super::{Planned, alike, small, too_long};
use crate::{
    finding::{Instead, Key, Predicted, Setting},
    forecast::{Begins, Effect, Forecast, Held, Load, Sizes},
    window::{PoolWindow, Step},
};

/// Bursts that are needed to know their distance.
const MIN_BURSTS: usize = 3;
/// The distance, in looks, up to which two looks with new connections belong to the same burst: it may begin shortly
/// before a look.
const MAX_BURST_LOOKS: f64 = 1.5;
/// The share of connections that may still be created although nothing is closed between bursts.
const MAX_CREATED_SHARE: f64 = 0.1;
/// Connections created an hour, as seen and as simulated, may differ by this factor: bursts differ in size.
const MAX_RATE_RATIO: f64 = 1.5;
/// Transactions of a burst that are simulated.
const MAX_BURST_TRANSACTIONS: f64 = 2_000.0;
/// Idle servers outlive the longest quiet time by this factor.
const IDLE_TIME_FACTOR: f64 = 1.5;

pub(super) fn plan(pool: &PoolWindow<'_>, forecast: &dyn Forecast) -> Planned {
    let seen = Seen::of(pool)?;
    let (min, most) = (small(pool.last.min_size)?, small(seen.most)?);
    let sizes = Sizes {
        max_size: small(pool.last.max_size)?,
        min_size: min,
        max_idle_time: Some(seen.max_idle_time),
        max_connecting: pool.last.settings.max_connecting.and_then(|most| u32::try_from(most).ok()),
    };
    let play = |sizes: &Sizes| forecast.play(&seen.load, sizes).ok_or_else(too_long);
    let played = play(&sizes)?;
    let (made, was) = (created(&played), created(&seen.now));
    if !alike(made, was, MAX_RATE_RATIO) {
        return Err(format!(
            "bursts of {} at once, played with the present settings, make {made:.0} connections an hour, and {was:.0} were seen",
            seen.most
        ));
    }
    let is_enough = |effect: &Effect| created(effect) <= MAX_CREATED_SHARE * made;
    let (mut below, mut above) = (min, most);
    if below >= above {
        return Err("as many servers are kept as a burst was seen to need".to_owned());
    }
    let mut then = play(&Sizes { min_size: above, ..sizes })?;
    if !is_enough(&then) {
        return Err(format!(
            "with {} = {above} {:.0} connections an hour would still be made",
            pool.key(Key::MinSize),
            created(&then)
        ));
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        let effect = play(&Sizes { min_size: middle, ..sizes })?;
        match is_enough(&effect) {
            true => (above, then) = (middle, effect),
            false => below = middle,
        }
    }
    let longer = rounded(seen.longest.mul_f64(IDLE_TIME_FACTOR));
    let instead = play(&Sizes { max_idle_time: Some(longer), ..sizes })?;
    let instead =
        is_enough(&instead).then(|| Instead { key: pool.key(Key::MaxIdleTime), to: text(longer), then: instead });
    let setting = Setting { key: pool.key(Key::MinSize), from: Some(min.to_string()), to: above.to_string() };
    let note = "the smallest with which at most a tenth as many connections are made".to_owned();
    Ok((setting, Predicted { now: seen.now, played: Some(played), then, instead, note }))
}

fn created(effect: &Effect) -> f64 {
    effect.created_an_hour.unwrap_or(0.0)
}

struct Seen {
    load: Load,
    now: Effect,
    /// Servers that a burst left open.
    most: u64,
    max_idle_time: Duration,
    /// From the beginning of one to the beginning of the next, at most.
    longest: Duration,
}

impl Seen {
    fn of(pool: &PoolWindow<'_>) -> Result<Self, String> {
        let time = |ms: f64| Duration::try_from_secs_f64(ms / 1e3).ok();
        let idle = pool.last.settings.max_idle_time.and_then(time).filter(|idle| !idle.is_zero());
        let Some(max_idle_time) = idle else { return Err("when idle servers are closed is not told".to_owned()) };
        let connecting: f64 = pool.last.connect.values().filter_map(admin_api::Times::mean_ms).sum();
        let Some(connecting) = time(connecting).filter(|connecting| !connecting.is_zero()) else {
            return Err("what making a connection takes is not told".to_owned());
        };
        let begins = begins(&pool.steps, max_idle_time);
        if begins.len() < MIN_BURSTS {
            return Err(format!(
                "{} bursts were seen, and three tell how far they are apart: a longer --window",
                begins.len()
            ));
        }
        let (first, last) = (begins[0], begins[begins.len() - 1]);
        let bursts = (begins.len() - 1) as f64;
        let of_bursts = &pool.steps[first..last];
        let span = (pool.steps[last].at - pool.steps[first].at).as_secs_f64();
        let apart = begins.windows(2).map(|pair| pool.steps[pair[1]].at - pool.steps[pair[0]].at);
        let longest = apart.max().unwrap_or_default();
        let mut times = admin_api::Times::default();
        of_bursts.iter().for_each(|step| times.add(&step.hold));
        let Some(held_ms) = times.mean_ms().filter(|_| span > 0.0) else {
            return Err("no transaction ended in the bursts that were seen".to_owned());
        };
        let size = (times.count() as f64 / bursts).round().max(1.0);
        if size > MAX_BURST_TRANSACTIONS {
            return Err(format!("bursts of {size:.0} transactions are more than are played"));
        }
        let all = pool.steps.iter();
        let wanted = all.clone().map(|step| step.in_use.saturating_add(step.waiters)).max().unwrap_or(0);
        let most = all.map(|step| step.open).max().unwrap_or(0).min(pool.last.max_size);
        let at_once = wanted.max(most).max(1);
        // How long a burst lasts is hardly seen: looks are further apart.
        let busy = size / (at_once.min(pool.last.max_size).max(1) as f64) * held_ms / 1e3 + connecting.as_secs_f64();
        let quiet = Duration::try_from_secs_f64(span / bursts - busy);
        let Ok(quiet) = quiet else { return Err("bursts follow each other without a quiet time".to_owned()) };
        let made = admin_api::sum(of_bursts.iter().map(|step| &step.created));
        let mut waited = admin_api::Times::default();
        pool.change.checkout.values().for_each(|times| waited.add(times));
        let begins = Begins::Bursts { size: size as u32, at_once: small(at_once)?, quiet };
        let now = Effect {
            transactions_per_s: times.count() as f64 / span,
            wait_p95_ms: waited.quantile_ms(0.95, pool.bounds),
            created_an_hour: Some(made as f64 / span * 3_600.0),
        };
        let load = Load { begins, held: Held { times, bounds_ms: pool.bounds.to_vec() }, connecting };
        Ok(Self { load, now, most, max_idle_time, longest })
    }
}

/// Steps with which bursts begin: connections are made, and before that none has been for as long as it takes until
/// idle ones are closed.
fn begins(steps: &[&Step], max_idle_time: Duration) -> Vec<usize> {
    let mut begins = Vec::new();
    let mut before: Option<Duration> = None;
    for (n, step) in steps.iter().enumerate().filter(|(_, step)| step.created > 0) {
        let apart = max_idle_time.max(step.lasts.mul_f64(MAX_BURST_LOOKS));
        if before.is_none_or(|before| step.at.saturating_sub(before) >= apart) {
            begins.push(n);
        }
        before = Some(step.at);
    }
    begins
}

/// The time rounded up to one that people write into a configuration.
fn rounded(time: Duration) -> Duration {
    let to = |unit: u64| Duration::from_secs((time.as_secs_f64() / unit as f64).ceil() as u64 * unit);
    match time.as_secs() {
        0..20 => to(1),
        20..600 => to(10),
        _ => to(60),
    }
}

fn text(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds >= 60 && seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_what_somebody_would_write() {
        let written = |ms: u64| text(rounded(Duration::from_millis(ms)));
        assert_eq!(
            [300, 1_000, 19_500, 61_000, 599_000, 601_000].map(written),
            ["1s", "1s", "20s", "70s", "10m", "11m"]
        );
    }
}
