//! A line of the log with sums over all pools, each `stats_period`, in the shape that PgBouncer's has, without
//! the parses and binds, which are not counted.

use std::{sync::Arc, time::Duration};

use driver::{Handle, Snapshot};

use crate::reload::Reloader;

/// How often it is looked whether there is a period now.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What has been counted since the start.
#[derive(Clone, Copy, Default)]
struct Sums {
    transactions: u64,
    queries: u64,
    logins: u64,
    received_bytes: u64,
    sent_bytes: u64,
    query_ns: u64,
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
            queries: totals().map(|totals| totals.queries).sum(),
            received_bytes: totals().map(|totals| totals.received_bytes).sum(),
            sent_bytes: totals().map(|totals| totals.sent_bytes).sum(),
            query_ns: totals().map(|totals| totals.query_ns).sum(),
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
        let queries = since(self.queries, before.queries);
        let rate = |count: u64| (count as f64 / seconds) as u64;
        let each_us = |ns: u64, count: u64| ns.checked_div(count).unwrap_or(0) / 1000;
        format!(
            "stats: {} xacts/s, {} queries/s, {} client logins/s, in {} B/s, out {} B/s, xact {} us, query {} us, \
             wait {} us",
            rate(transactions),
            rate(queries),
            rate(since(self.logins, before.logins)),
            rate(since(self.received_bytes, before.received_bytes)),
            rate(since(self.sent_bytes, before.sent_bytes)),
            each_us(since(self.hold_ns, before.hold_ns), transactions),
            each_us(since(self.query_ns, before.query_ns), queries),
            each_us(since(self.wait_ns, before.wait_ns), transactions),
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
        let before = Sums { transactions: 10, logins: 1, ..Sums::default() };
        let now = Sums {
            transactions: 30,
            queries: 40,
            logins: 5,
            received_bytes: 100,
            sent_bytes: 300,
            query_ns: 120_000,
            hold_ns: 40_000,
            wait_ns: 20_000,
        };
        let line = now.line(&before, Duration::from_secs(2));
        let expected = "stats: 10 xacts/s, 20 queries/s, 2 client logins/s, in 50 B/s, out 150 B/s, xact 2 us, \
                        query 3 us, wait 1 us";
        assert_eq!(line, expected);
        assert!(now.line(&now, Duration::from_secs(2)).ends_with("out 0 B/s, xact 0 us, query 0 us, wait 0 us"));
    }
}
