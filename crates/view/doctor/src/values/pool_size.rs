//! How many servers the clients need that were seen to wait. What they would ask for if they did not have to wait
//! follows from what they do while they wait: all of them together are in the pool, or pause (the response time law of
//! a closed system: clients = rate x (response time + pause)).

use std::time::Duration;

use admin_api::Times;

use super::{
    MAX_SIMULATED_PERCENTILE_RATIO, MAX_SIMULATED_RATE_RATIO, MAX_UNNOTICED_MS, Planned, SIMULATION_TOO_LONG,
    are_alike, fit_size, smallest_enough,
};
use crate::{
    finding::{Key, Predicted, Setting},
    forecast::{Arrivals, Effect, Forecast, ForecastPool, HoldTimes, Load},
    pooler::{PoolWindow, Step},
    symptoms::{MAX_GROWTH, format_ms},
};

/// Transactions that are needed to know how long they hold a server.
const MIN_TRANSACTIONS: u64 = 200;
/// With this many clients for each client that has a server or waits, clients come as if at random: one waiting client
/// more or less changes nothing.
const MIN_RANDOM_CLIENT_RATIO: f64 = 2.0;
/// Servers being cleaned, as a share of the servers with clients: cleaning is not simulated.
const MAX_CLEANED_SHARE: f64 = 0.1;
/// Clients that are simulated one by one.
const MAX_CLIENTS: f64 = 2_000.0;

pub(super) fn plan(pool: &PoolWindow<'_>, forecast: &dyn Forecast) -> Planned {
    let busy = BusyPool::of(pool)?;
    let max = fit_size(pool.last.max_size)?;
    let most = fit_size(pool.last.max_size.saturating_mul(MAX_GROWTH))?;
    let load = busy.load(pool)?;
    let predict = |size: u32| forecast.predict(&load, &all_kept(size)).ok_or_else(|| SIMULATION_TOO_LONG.to_owned());
    let now = Effect {
        transactions_per_s: busy.rate,
        wait_p95_ms: busy.waited.quantile_ms(0.95, pool.bounds_ms),
        created_an_hour: None,
    };
    // Random arrivals do not slow down when they have to wait, so the present pool would have no steady state to
    // compare with.
    let simulated = match load.arrivals {
        Arrivals::Clients { .. } => Some(predict(max)?),
        Arrivals::AtRandom { .. } | Arrivals::Bursts { .. } => None,
    };
    if let Some(simulated) = &simulated {
        check_agreement(&now, simulated)?;
    }
    let enough_ms = busy.hold_ms.max(MAX_UNNOTICED_MS);
    let is_enough = |effect: &Effect| effect.wait_p95_ms.is_some_and(|ms| ms <= enough_ms);
    let largest = predict(most)?;
    let (to, after, note) = if is_enough(&largest) {
        let (to, after) = smallest_enough((max, most), largest, predict, is_enough)?;
        (to, after, format!("the smallest with which hardly any wait is longer than {}", format_ms(enough_ms)))
    } else {
        (most, largest, "twice the size, which is not enough: look again after the change".to_owned())
    };
    let setting = Setting { key: pool.key(Key::MaxSize), from: Some(max.to_string()), to: to.to_string() };
    Ok((setting, Predicted { now, simulated, after, instead: None, note }))
}

/// A pool whose servers are all there from the start, and are never closed.
fn all_kept(size: u32) -> ForecastPool {
    ForecastPool { max_size: size, min_size: size, max_idle_time: None, max_connecting: None }
}

/// What is simulated must be what was seen, or the load is another one than is simulated.
fn check_agreement(seen: &Effect, simulated: &Effect) -> Result<(), String> {
    if !are_alike(seen.transactions_per_s, simulated.transactions_per_s, MAX_SIMULATED_RATE_RATIO) {
        return Err(format!(
            "played at the present size {:.0} transactions end a second, and {:.0} were seen",
            simulated.transactions_per_s, seen.transactions_per_s
        ));
    }
    let Some((seen, simulated)) = seen.wait_p95_ms.zip(simulated.wait_p95_ms) else { return Ok(()) };
    if !are_alike(seen.max(MAX_UNNOTICED_MS), simulated.max(MAX_UNNOTICED_MS), MAX_SIMULATED_PERCENTILE_RATIO) {
        return Err(format!(
            "played at the present size one wait in twenty lasts over {}, and {} was seen",
            format_ms(simulated),
            format_ms(seen)
        ));
    }
    Ok(())
}

/// The pool while all its servers were in use and clients waited.
struct BusyPool {
    hold: Times,
    hold_ms: f64,
    waited: Times,
    /// Transactions a second.
    rate: f64,
    /// Clients, on average.
    clients: f64,
    /// Clients that had a server or waited for one, on average.
    inside: f64,
}

impl BusyPool {
    fn of(pool: &PoolWindow<'_>) -> Result<Self, String> {
        if pool.last.protocol == "redis" {
            return Err("clients of Redis share servers, which is not played".to_owned());
        }
        if pool.last.max_size == 0 {
            return Err("the pool has no size".to_owned());
        }
        let full: Vec<&Step> = pool.steps.iter().copied().filter(|step| step.is_exhausted()).collect();
        let (mut hold, mut waited) = (Times::default(), Times::default());
        for step in &full {
            hold.add(&step.hold);
            waited.add(&step.waited);
        }
        let (count, seconds) = (hold.count(), full.iter().map(|step| step.duration).sum::<Duration>().as_secs_f64());
        let hold_ms = hold.mean_ms().filter(|ms| *ms > 0.0 && count >= MIN_TRANSACTIONS && seconds > 0.0);
        let hold_ms = hold_ms.ok_or_else(|| {
            format!("for how long servers are held is known of {count} transactions that ended while clients waited")
        })?;
        let mean = |of: fn(&Step) -> u64| full.iter().map(|step| of(step) as f64).sum::<f64>() / full.len() as f64;
        let (in_use, cleaned) = (mean(|step| step.in_use), mean(|step| step.cleaned));
        if cleaned > MAX_CLEANED_SHARE * in_use {
            return Err(format!(
                "{cleaned:.1} servers on average were cleaned between two clients, which is not played"
            ));
        }
        let inside = in_use + mean(|step| step.waiters);
        let rate = count as f64 / seconds;
        // Little's law. Where it does not hold, times are not those of the servers that are counted.
        let by_law = rate * hold_ms / 1e3;
        if !are_alike(by_law, in_use, MAX_SIMULATED_RATE_RATIO) {
            return Err(format!(
                "what was counted does not fit together: {rate:.0} transactions a second, each of which held a server \
                 for {}, take {by_law:.1} servers at a time, while the looks found {in_use:.1} in use (transactions \
                 that had begun before the first look count whole)",
                format_ms(hold_ms)
            ));
        }
        let clients = mean(|step| step.clients).max(inside);
        Ok(Self { hold, hold_ms, waited, rate, clients, inside })
    }

    fn load(&self, pool: &PoolWindow<'_>) -> Result<Load, String> {
        let pause_s = (self.clients - self.inside) / self.rate;
        let arrivals = if self.clients > MIN_RANDOM_CLIENT_RATIO * self.inside {
            Arrivals::AtRandom { rate: self.clients / (pause_s + self.hold_ms / 1e3) }
        } else if self.clients <= MAX_CLIENTS {
            let pause = Duration::try_from_secs_f64(pause_s.max(0.0))
                .map_err(|_| "clients pause for longer than is played".to_owned())?;
            Arrivals::Clients { clients: self.clients.round().max(1.0) as u32, pause }
        } else {
            return Err(format!("{:.0} clients at once are more than are played", self.clients));
        };
        let hold = HoldTimes { times: self.hold.clone(), bounds_ms: pool.bounds_ms.to_vec() };
        Ok(Load { arrivals, hold, connect_time: Duration::ZERO })
    }
}
