//! How many servers the clients need who were seen to wait. What they would ask for if they did not have to wait
//! follows from what they do while they wait: all of them together are in the pool, or pause (the response time law of
//! a closed system: clients = rate x (response time + pause)).

use std::time::Duration;

use admin_api::Times;

use super::{MAX_PERCENTILE_RATIO, MAX_RATE_RATIO, MAX_UNNOTICED_MS, Planned, alike, small, too_long};
use crate::{
    finding::{Key, Predicted, Setting},
    forecast::{Begins, Effect, Forecast, Held, Load, Sizes},
    symptoms::{MAX_GROWTH, time},
    window::{PoolWindow, Step},
};

/// Transactions that are needed to know how long they hold a server.
const MIN_TRANSACTIONS: u64 = 200;
/// With this many times as many clients as servers, clients come as if at random: one waiting client more or less
/// changes nothing.
const MIN_RANDOM_RATIO: f64 = 2.0;
/// Servers being cleaned, as a share of the servers with clients: cleaning is not simulated.
const MAX_CLEANED_SHARE: f64 = 0.1;
/// Clients that are simulated one by one.
const MAX_CLIENTS: f64 = 2_000.0;

pub(super) fn plan(pool: &PoolWindow<'_>, forecast: &dyn Forecast) -> Planned {
    let busy = Busy::of(pool)?;
    let max = small(pool.last.max_size)?;
    let most = small(pool.last.max_size.saturating_mul(MAX_GROWTH))?;
    let load = busy.load(pool)?;
    let wait = |size: u32| forecast.play(&load, &kept(size)).ok_or_else(too_long);
    let now = Effect {
        transactions_per_s: busy.rate,
        wait_p95_ms: busy.waited.quantile_ms(0.95, pool.bounds),
        created_an_hour: None,
    };
    // Random arrivals do not slow down when they have to wait, so the present pool would have no steady state to
    // compare with.
    let played = match load.begins {
        Begins::Clients { .. } => Some(wait(max)?),
        _ => None,
    };
    if let Some(played) = &played {
        check(&now, played)?;
    }
    let enough_ms = busy.held_ms.max(MAX_UNNOTICED_MS);
    let is_enough = |effect: &Effect| effect.wait_p95_ms.is_some_and(|ms| ms <= enough_ms);
    // `above` is large enough, or as large as may be; `below` is not.
    let (mut below, mut above, mut then) = (max, most, wait(most)?);
    let met = is_enough(&then);
    while met && above - below > 1 {
        let middle = below + (above - below) / 2;
        let effect = wait(middle)?;
        match is_enough(&effect) {
            true => (above, then) = (middle, effect),
            false => below = middle,
        }
    }
    let setting = Setting { key: pool.key(Key::MaxSize), from: Some(max.to_string()), to: above.to_string() };
    let note = match met {
        true => format!("the smallest with which hardly any wait is longer than {}", time(enough_ms)),
        false => "twice the size, which is not enough: look again after the change".to_owned(),
    };
    Ok((setting, Predicted { now, played, then, instead: None, note }))
}

/// All of its servers there from the start, and none of them closed.
fn kept(size: u32) -> Sizes {
    Sizes { max_size: size, min_size: size, max_idle_time: None, max_connecting: None }
}

/// What is played must be what was seen, or the load is another one than is played.
fn check(seen: &Effect, played: &Effect) -> Result<(), String> {
    if !alike(seen.transactions_per_s, played.transactions_per_s, MAX_RATE_RATIO) {
        return Err(format!(
            "played at the present size {:.0} transactions end a second, and {:.0} were seen",
            played.transactions_per_s, seen.transactions_per_s
        ));
    }
    match (seen.wait_p95_ms, played.wait_p95_ms) {
        (Some(seen), Some(played))
            if !alike(seen.max(MAX_UNNOTICED_MS), played.max(MAX_UNNOTICED_MS), MAX_PERCENTILE_RATIO) =>
        {
            Err(format!(
                "played at the present size one wait in twenty lasts over {}, and {} was seen",
                time(played),
                time(seen)
            ))
        }
        _ => Ok(()),
    }
}

/// The pool while all its servers were in use and clients waited.
struct Busy {
    held: Times,
    held_ms: f64,
    waited: Times,
    /// Transactions a second.
    rate: f64,
    /// On average: clients, and those that had a server or waited for one.
    clients: f64,
    inside: f64,
}

impl Busy {
    fn of(pool: &PoolWindow<'_>) -> Result<Self, String> {
        if pool.last.protocol == "redis" {
            return Err("clients of Redis share servers, which is not played".to_owned());
        }
        if pool.last.max_size == 0 {
            return Err("the pool has no size".to_owned());
        }
        let full: Vec<&Step> = pool.steps.iter().copied().filter(|step| step.is_full()).collect();
        let (mut held, mut waited) = (Times::default(), Times::default());
        full.iter().for_each(|step| {
            held.add(&step.hold);
            waited.add(&step.waited);
        });
        let (count, seconds) = (held.count(), full.iter().map(|step| step.lasts).sum::<Duration>().as_secs_f64());
        let Some(held_ms) = held.mean_ms().filter(|ms| *ms > 0.0 && count >= MIN_TRANSACTIONS && seconds > 0.0) else {
            return Err(format!(
                "for how long servers are held is known of {count} transactions that ended while clients waited"
            ));
        };
        let mean = |of: fn(&Step) -> u64| full.iter().map(|step| of(step) as f64).sum::<f64>() / full.len() as f64;
        let in_use = mean(|step| step.in_use);
        let cleaned = mean(|step| step.cleaned);
        if cleaned > MAX_CLEANED_SHARE * in_use {
            return Err(format!(
                "{cleaned:.1} servers on average were cleaned between two clients, which is not played"
            ));
        }
        let inside = in_use + mean(|step| step.waiters);
        let rate = count as f64 / seconds;
        // Little's law. Where it does not hold, times are not those of the servers that are counted.
        let by_law = rate * held_ms / 1e3;
        if !alike(by_law, in_use, MAX_RATE_RATIO) {
            return Err(format!(
                "what was counted does not fit together: {rate:.0} transactions a second, each of which held a server for {}, take {by_law:.1} \
                 servers at a time, while the looks found {in_use:.1} in use (transactions that had begun before the first look count whole)",
                time(held_ms)
            ));
        }
        let clients = mean(|step| step.clients).max(inside);
        Ok(Self { held, held_ms, waited, rate, clients, inside })
    }

    fn load(&self, pool: &PoolWindow<'_>) -> Result<Load, String> {
        let pause = (self.clients - self.inside) / self.rate;
        let begins = if self.clients > MIN_RANDOM_RATIO * self.inside {
            Begins::AtRandom { rate: self.clients / (pause + self.held_ms / 1e3) }
        } else if self.clients <= MAX_CLIENTS {
            Begins::Clients { clients: self.clients.round().max(1.0) as u32, pause: seconds(pause)? }
        } else {
            return Err(format!("{:.0} clients at once are more than are played", self.clients));
        };
        let held = Held { times: self.held.clone(), bounds_ms: pool.bounds.to_vec() };
        Ok(Load { begins, held, connecting: Duration::ZERO })
    }
}

fn seconds(seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds.max(0.0)).map_err(|_| "clients pause for longer than is played".to_owned())
}
