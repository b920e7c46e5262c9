//! SHOW STATS and what is made of the same figures: totals since the start, and averages over the last period.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use console::{Show, Table, Value};
use driver::{PoolTotals, Snapshot};
use upstream::Kind;

use super::{
    Console,
    inventory::{database_of, pools},
};
use crate::config::Config;

/// The period if none is configured.
const DEFAULT_PERIOD: Duration = Duration::from_secs(60);

/// Averages are over one to two of these times.
pub fn period(config: &Config) -> Duration {
    config.log.stats_period.unwrap_or(DEFAULT_PERIOD)
}

/// Figures of a database, in the order of the columns.
const FIGURES: usize = 12;
type Figures = [u64; FIGURES];

/// Where these stand among the figures.
const ASSIGNMENTS: usize = 0;
const TRANSACTIONS: usize = 1;
const QUERIES: usize = 2;
const TRANSACTION_TIME: usize = 5;
const QUERY_TIME: usize = 6;
const WAIT_TIME: usize = 7;
const LOGINS: usize = 11;

/// The figures at the beginnings of the last two periods, and those of the console itself.
pub struct Statistics {
    moments: Mutex<[Moment; 2]>,
    commands: AtomicU64,
    logins: AtomicU64,
}

#[derive(Clone)]
struct Moment {
    at: Instant,
    figures: BTreeMap<String, Figures>,
}

impl Statistics {
    pub fn new(snapshot: Snapshot) -> Self {
        let now = Moment::of(&snapshot);
        let moments = Mutex::new([now.clone(), now]);
        Self { moments, commands: AtomicU64::new(0), logins: AtomicU64::new(0) }
    }

    /// A user has logged in at the console.
    pub fn count_login(&self) {
        self.logins.fetch_add(1, Relaxed);
    }

    /// A user has given a command.
    pub fn count_command(&self) {
        self.commands.fetch_add(1, Relaxed);
    }

    /// The figures of the console's own database.
    fn own(&self) -> Figures {
        let (mut figures, commands) = ([0; FIGURES], self.commands.load(Relaxed));
        (figures[TRANSACTIONS], figures[QUERIES], figures[LOGINS]) = (commands, commands, self.logins.load(Relaxed));
        figures
    }

    /// A new period begins.
    pub fn begin_period(&self, snapshot: Snapshot) {
        let mut moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        moments.swap(0, 1);
        moments[1] = Moment::of(&snapshot);
    }

    fn older(&self) -> Moment {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)[0].clone()
    }
}

impl Moment {
    fn of(snapshot: &Snapshot) -> Self {
        let mut figures = BTreeMap::<String, Figures>::new();
        let mut add = |database: &str, totals: &PoolTotals| {
            let sums = figures.entry(database.to_owned()).or_default();
            sums.iter_mut().zip(figures_of(totals)).for_each(|(sum, more)| *sum += more);
        };
        pools(snapshot).for_each(|pool| add(database_of(pool), &pool.totals));
        for pools in snapshot.forgotten.iter().filter(|pools| pools.protocol == Kind::Postgres.word()) {
            add(&pools.database, &pools.totals);
        }
        Self { at: Instant::now(), figures }
    }
}

/// The figures of one pool. Times are in microseconds.
fn figures_of(totals: &PoolTotals) -> Figures {
    let micros = |nanos: u64| nanos / 1_000;
    let assignments = totals.checkout.iter().map(|(_, times)| times.count()).sum();
    let waited = totals.checkout.iter().map(|(_, times)| times.sum_ns).sum();
    [
        assignments,
        totals.transactions,
        totals.queries,
        totals.received_bytes,
        totals.sent_bytes,
        // As there, a transaction's time begins when its client asks for a server.
        micros(totals.hold.sum_ns.saturating_add(waited)),
        micros(totals.query_ns),
        micros(waited),
        // Statements are not counted by database.
        0,
        0,
        0,
        totals.logins,
    ]
}

/// Averages between two moments: counts and bytes a second, times for each of what they are the times of.
fn averages(now: &Figures, before: &Figures, time: Duration) -> Figures {
    let grown: Figures = std::array::from_fn(|index| now[index].saturating_sub(before[index]));
    let for_each = |sum: usize, count: usize| grown[sum].checked_div(grown[count]).unwrap_or(0);
    let seconds = time.as_secs_f64().max(1e-3);
    std::array::from_fn(|index| match index {
        TRANSACTION_TIME => for_each(TRANSACTION_TIME, TRANSACTIONS),
        QUERY_TIME => for_each(QUERY_TIME, QUERIES),
        WAIT_TIME => for_each(WAIT_TIME, ASSIGNMENTS),
        _ => (grown[index] as f64 / seconds) as u64,
    })
}

impl Console {
    pub(super) fn list_statistics(&self, show: Show, table: &mut Table) {
        self.handle.publish_traffic();
        let (now, before) = (Moment::of(&self.handle.snapshot()), self.statistics.older());
        let own = self.reloader().in_force().console.name.clone();
        let time = now.at - before.at;
        let mut figures = now.figures;
        figures.insert(own, self.statistics.own());
        if show == Show::Totals {
            let sum = |all: &BTreeMap<String, Figures>| -> Figures {
                std::array::from_fn(|index| all.values().map(|figures| figures[index]).sum())
            };
            let (now, before) = (sum(&figures), sum(&before.figures));
            let values = now.into_iter().chain(averages(&now, &before, time));
            for (name, value) in Show::names_of_totals().zip(values) {
                table.push([Value::from(&name), value.into()]);
            }
            return;
        }
        for (database, figures) in &figures {
            let none = [0; FIGURES];
            let averages = averages(figures, before.figures.get(database).unwrap_or(&none), time);
            let (totals, averages) = (figures.iter().copied(), averages.into_iter());
            let shown: Vec<u64> = match show {
                Show::StatsTotals => totals.collect(),
                Show::StatsAverages => averages.collect(),
                _ => totals.chain(averages).collect(),
            };
            table.push([Value::from(database)].into_iter().chain(shown.into_iter().map(Value::from)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_by_second_or_by_what_took_the_time() {
        let before = [10; FIGURES];
        let mut now = before.map(|figure| figure + 100);
        now[TRANSACTION_TIME] += 900;
        let averages = averages(&now, &before, Duration::from_secs(10));
        assert_eq!((averages[TRANSACTIONS], averages[TRANSACTION_TIME], averages[WAIT_TIME]), (10, 10, 1));
        assert_eq!(super::averages(&before, &before, Duration::ZERO), [0; FIGURES]);
    }
}
