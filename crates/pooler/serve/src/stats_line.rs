//! A line of the log with sums over all pools, each `stats_period`, in the shape that PgBouncer's has.

use std::{sync::Arc, time::Duration};

use driver::{Handle, Snapshot};

use crate::reload::Reloader;

/// How often it is looked whether there is a period now.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What has been counted since the start.
#[derive(Clone, Copy, Default)]
struct Sums {
    transactions: u64,
    logins: u64,
    hold_ns: u64,
    wait_ns: u64,
}

impl Sums {
    fn of(snapshot: &Snapshot) -> Self {
        let totals = || {
            let forgotten = snapshot.forgotten.iter().map(|pools| &pools.totals);
            snapshot.pools.iter().map(|pool| &pool.totals).chain(forgotten)
        };
        Self {
            transactions: totals().map(|totals| totals.transactions).sum(),
            logins: snapshot.listeners.iter().map(|listener| listener.logins).sum(),
            hold_ns: totals().map(|totals| totals.hold.sum_ns).sum(),
            wait_ns: totals().flat_map(|totals| &totals.checkout).map(|(_, times)| times.sum_ns).sum(),
        }
    }

    /// The line for what came since `before`.
    fn line(&self, before: &Self, period: Duration) -> String {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let seconds = period.as_secs_f64().max(f64::MIN_POSITIVE);
        let transactions = since(self.transactions, before.transactions);
        let rate = |count: u64| (count as f64 / seconds) as u64;
        let each_us = |ns: u64| ns.checked_div(transactions).unwrap_or(0) / 1000;
        format!(
            "stats: {} xacts/s, {} client logins/s, xact {} us, wait {} us",
            rate(transactions),
            rate(since(self.logins, before.logins)),
            each_us(since(self.hold_ns, before.hold_ns)),
            each_us(since(self.wait_ns, before.wait_ns)),
        )
    }
}

/// Writes the line while the process serves.
pub async fn write(handle: Handle, reloader: Arc<Reloader>) {
    let mut before = Sums::of(&handle.snapshot());
    loop {
        let Some(period) = reloader.in_force().log.stats_period else {
            tokio::time::sleep(RECHECK_INTERVAL).await;
            continue;
        };
        tokio::time::sleep(period).await;
        let now = Sums::of(&handle.snapshot());
        tracing::info!("{}", now.line(&before, period));
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rates_and_averages() {
        let before = Sums { transactions: 10, logins: 1, hold_ns: 0, wait_ns: 0 };
        let now = Sums { transactions: 30, logins: 5, hold_ns: 40_000, wait_ns: 20_000 };
        let line = now.line(&before, Duration::from_secs(2));
        assert_eq!(line, "stats: 10 xacts/s, 2 client logins/s, xact 2 us, wait 1 us");
        assert_eq!(now.line(&now, Duration::from_secs(2)), "stats: 0 xacts/s, 0 client logins/s, xact 0 us, wait 0 us");
    }
}
