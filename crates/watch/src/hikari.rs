//! Looks at HikariCP's pools: from what Micrometer tells of them as Prometheus text, scraped now and then, to the look that a Poolhouse would
//! give, as far as they mean the same. What connections do while a thread has them is not told.

use std::collections::BTreeMap;

use crate::{Counts, Look, Pool, PoolServers, Pooler, Times};

/// Pools of one scrape; of more nothing is known.
const MAX_POOLS: usize = 200;
/// Characters of a pool's name.
const MAX_NAME: usize = 100;
/// A figure that is larger is taken for this: so that sums of them have room.
const MAX_FIGURE: f64 = 9e12;
/// A pool without any connection for which threads wait is cold at first, and then its database is out of reach.
const COLD_MS: f64 = 1_000.0;
/// Times of the Unix epoch from here on are milliseconds.
const IN_MILLISECONDS: f64 = 1e11;
/// What all of its series begin with.
const PREFIX: &str = "hikaricp_connections";

/// What one scrape tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// When it was, in seconds of the Unix epoch, if it says.
    pub at_s: Option<f64>,
    /// For how many seconds the process had run, if it says.
    pub uptime_s: Option<f64>,
    /// By the name of the pool and of the series, without [`PREFIX`].
    pools: BTreeMap<String, BTreeMap<String, f64>>,
}

/// What is remembered from one scrape to the next.
#[derive(Debug, Default)]
pub struct Hikari {
    /// How often its counters have begun anew.
    restarts: u64,
    pools: BTreeMap<String, Known>,
    next: u64,
}

/// A pool that was seen before.
#[derive(Debug, Default)]
struct Known {
    id: u64,
    /// Counters of the last scrape.
    made: u64,
    returned: u64,
    /// Since when it has had no connection though threads wait.
    bare_since_ms: Option<f64>,
}

/// A line of the text.
struct Sample<'l> {
    name: &'l str,
    labels: Vec<(&'l str, String)>,
    value: f64,
    at_s: Option<f64>,
}

/// What a line is to who reads scrapes that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is of this scrape, or says nothing.
    Here,
    /// Another scrape begins with it; it was not taken.
    Next,
}

impl Scrape {
    /// The text has something of HikariCP's.
    pub fn has_pools(&self) -> bool {
        !self.pools.is_empty()
    }

    /// A line with nothing but a time, which begins a scrape.
    pub fn is_time(line: &str) -> bool {
        time_of(line).is_some()
    }

    /// From one answer.
    pub fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        text.lines().for_each(|line| scrape.add(line));
        scrape
    }

    /// Takes the next line of a file of several scrapes. A line with nothing but a time (`date +%s`), also behind a `#`, begins one, and so does
    /// a series that was there before.
    pub fn take(&mut self, line: &str) -> Taken {
        if let Some(at_s) = time_of(line) {
            if self.at_s.is_some() || self.has_pools() {
                return Taken::Next;
            }
            self.at_s = Some(at_s);
            return Taken::Here;
        }
        if Sample::read(line).is_some_and(|sample| self.has(&sample)) {
            return Taken::Next;
        }
        self.add(line);
        Taken::Here
    }

    fn has(&self, sample: &Sample<'_>) -> bool {
        let known = sample.series().and_then(|series| self.pools.get(&sample.pool())?.get(series));
        known.is_some() || (sample.name == UPTIME && self.uptime_s.is_some())
    }

    fn add(&mut self, line: &str) {
        let Some(sample) = Sample::read(line) else { return };
        if sample.name == UPTIME {
            self.uptime_s = Some(sample.value);
            return;
        }
        let Some(series) = sample.series() else { return };
        self.at_s = self.at_s.or(sample.at_s);
        let name = sample.pool();
        if self.pools.len() < MAX_POOLS || self.pools.contains_key(&name) {
            self.pools.entry(name).or_default().insert(series.to_owned(), sample.value);
        }
    }
}

/// Micrometer's name of the time that the process has run.
const UPTIME: &str = "process_uptime_seconds";
/// What is read of a pool, behind [`PREFIX`].
const SERIES: [&str; 14] = [
    "",
    "_active",
    "_idle",
    "_pending",
    "_max",
    "_min",
    "_timeout_total",
    "_acquire_seconds_count",
    "_acquire_seconds_sum",
    "_usage_seconds_count",
    "_usage_seconds_sum",
    "_creation_seconds_count",
    "_creation_seconds_sum",
    "_acquire_seconds_max",
];

/// The time that a line is, in seconds of the Unix epoch.
fn time_of(line: &str) -> Option<f64> {
    let text = line.trim().trim_start_matches('#').trim_start();
    let is_number = text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(char::is_whitespace);
    text.parse::<f64>().ok().filter(|time| is_number && time.is_finite()).map(seconds)
}

fn seconds(time: f64) -> f64 {
    if time >= IN_MILLISECONDS { time / 1e3 } else { time }
}

impl<'l> Sample<'l> {
    fn read(line: &'l str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
        let (name, rest) = line.split_at(end);
        if !name.starts_with(PREFIX) && name != UPTIME {
            return None;
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        let mut rest = rest.split_whitespace();
        let value = rest.next()?.parse::<f64>().ok()?;
        let at_s = rest.next().and_then(|time| time.parse::<f64>().ok()).filter(|time| time.is_finite());
        Some(Self { name, labels, value, at_s: at_s.map(seconds) })
    }

    /// Which series of a pool it is, if it is one that is read.
    fn series(&self) -> Option<&'l str> {
        let series = self.name.strip_prefix(PREFIX)?;
        SERIES.contains(&series).then_some(series)
    }

    /// The pool that it is of: its name, and whatever tells it from those of that name.
    fn pool(&self) -> String {
        let of = |wanted: bool| self.labels.iter().filter(move |(name, _)| (*name == "pool") == wanted);
        let name = of(true).map(|(_, value)| value.as_str()).next().unwrap_or("a pool without a name");
        let others: Vec<&str> = of(false).map(|(_, value)| value.as_str()).collect();
        let more = if others.is_empty() { String::new() } else { format!(" of {}", others.join(" ")) };
        format!("{name}{more}").chars().take(MAX_NAME).collect()
    }
}

/// Labels, and what stands behind their closing brace.
fn labels(mut rest: &str) -> Option<(Vec<(&str, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, value) = rest.split_once('=')?;
        let value = value.trim_start().strip_prefix('"')?;
        let mut text = String::new();
        let mut escaped = false;
        let end = value.char_indices().find_map(|(at, c)| {
            match (escaped, c) {
                (false, '"') => return Some(at),
                (false, '\\') => escaped = true,
                (was_escaped, c) => {
                    escaped = false;
                    text.push(if was_escaped && c == 'n' { '\n' } else { c });
                }
            }
            None
        })?;
        labels.push((name.trim(), text));
        rest = &value[end + 1..];
    }
}

impl Hikari {
    /// The look that a scrape is. `at_ms`: when, on any clock.
    pub fn look(&mut self, at_ms: f64, scrape: &Scrape) -> Look {
        let mut has_begun_anew = false;
        if self.pools.len() > MAX_POOLS {
            // They are new at each scrape: those that are gone are forgotten.
            self.pools.retain(|name, _| scrape.pools.contains_key(name));
        }
        let pools = scrape.pools.iter().map(|(name, series)| {
            let known = self.pools.entry(name.clone()).or_insert_with(|| {
                self.next += 1;
                Known { id: self.next, ..Known::default() }
            });
            let pool = known.pool(at_ms, name, series);
            has_begun_anew |= pool.created < known.made || pool.transactions < known.returned;
            (known.made, known.returned) = (pool.created, pool.transactions);
            pool
        });
        let pools = pools.collect();
        self.restarts += u64::from(has_begun_anew);
        Look {
            pooler: Pooler::HikariCp,
            instance: self.restarts.to_string(),
            uptime_ms: scrape
                .uptime_s
                .filter(|uptime| uptime.is_finite())
                .map_or(0.0, |s| s.clamp(0.0, MAX_FIGURE / 1e3) * 1e3),
            pools,
            ..Look::default()
        }
    }
}

impl Known {
    fn pool(&mut self, at_ms: f64, name: &str, series: &BTreeMap<String, f64>) -> Pool {
        let known = |series_name: &str| series.get(series_name).copied().filter(|value| !value.is_nan());
        let figure = |name: &str| known(name).unwrap_or(0.0).clamp(0.0, MAX_FIGURE);
        let count = |name: &str| figure(name) as u64;
        let times = |what: &str| Times {
            buckets: vec![count(&format!("_{what}_seconds_count"))],
            sum_ms: (figure(&format!("_{what}_seconds_sum")) * 1e3).min(MAX_FIGURE),
        };
        let (in_use, idle, waiters) = (count("_active"), count("_idle"), count("_pending"));
        let total = known("").map_or(in_use.saturating_add(idle), |_| count(""));
        let is_bare = waiters > 0 && total == 0;
        self.bare_since_ms = is_bare.then(|| self.bare_since_ms.unwrap_or(at_ms));
        Pool {
            id: self.id,
            protocol: "jdbc".to_owned(),
            database: name.to_owned(),
            waiters,
            servers: PoolServers {
                connecting: total.saturating_sub(in_use).saturating_sub(idle),
                idle,
                in_use,
                total,
                ..PoolServers::default()
            },
            max_size: count("_max"),
            min_size: count("_min"),
            created: count("_creation_seconds_count"),
            checkout_failed: Counts::from([("timeout".to_owned(), count("_timeout_total"))]),
            transactions: count("_usage_seconds_count"),
            checkout: BTreeMap::from([("any".to_owned(), times("acquire"))]),
            connect: BTreeMap::from([("all".to_owned(), times("creation"))]),
            hold: times("usage"),
            unavailable_ms: self.bare_since_ms.map(|since| at_ms - since).filter(|ms| *ms >= COLD_MS),
            ..Pool::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP hikaricp_connections_active Active connections\n# TYPE hikaricp_connections_active gauge\n\
        hikaricp_connections{pool=\"shop\",} 10.0\nhikaricp_connections_active{pool=\"shop\",} 8.0\nhikaricp_connections_idle{pool=\"shop\"} 1\n\
        hikaricp_connections_pending{pool=\"shop\",} 3.0\nhikaricp_connections_max{pool=\"shop\",} 10.0\n\
        hikaricp_connections_usage_seconds_count{pool=\"shop\",} 100.0\nhikaricp_connections_usage_seconds_sum{pool=\"shop\",} 2.5\n\
        hikaricp_connections_usage_seconds{pool=\"shop\",quantile=\"0.5\"} 7\nhikaricp_connections_timeout_total{pool=\"shop\",} 4.0\n\
        hikaricp_connections_creation_seconds_count{pool=\"shop\",} 12.0\nprocess_uptime_seconds 99.5\njvm_threads_live_threads 40.0\n";

    #[test]
    fn what_micrometer_tells_of_a_pool_is_read() {
        let scrape = Scrape::read(TEXT);
        assert_eq!((scrape.uptime_s, scrape.at_s, scrape.has_pools()), (Some(99.5), None, true));
        let look = Hikari::default().look(0.0, &scrape);
        let [pool] = &look.pools[..] else { panic!("{look:?}") };
        assert_eq!(
            (pool.database.as_str(), pool.waiters, pool.max_size, pool.created, pool.transactions),
            ("shop", 3, 10, 12, 100)
        );
        assert_eq!(
            (pool.servers.in_use, pool.servers.idle, pool.servers.connecting, pool.servers.total),
            (8, 1, 1, 10)
        );
        assert_eq!(
            (pool.hold.mean_ms(), pool.checkout_failed["timeout"], look.pooler),
            (Some(25.0), 4, Pooler::HikariCp)
        );
        assert!(!Scrape::read("# nothing\nup 1\n").has_pools());
    }

    #[test]
    fn scrapes_that_follow_each_other_are_told_apart() {
        let mut scrape = Scrape::default();
        assert!(TEXT.lines().all(|line| scrape.take(line) == Taken::Here));
        assert_eq!(scrape.take("hikaricp_connections_active{pool=\"shop\",} 1.0"), Taken::Next);
        assert_eq!(scrape.take("hikaricp_connections_active{pool=\"other\",} 1.0"), Taken::Here);
        assert_eq!(scrape.take("process_uptime_seconds 100.5"), Taken::Next);
        for line in ["1795670007", "# 1795670007.25", "1795670007250"] {
            assert_eq!(scrape.take(line), Taken::Next, "{line}");
            let mut fresh = Scrape::default();
            assert_eq!((fresh.take(line), fresh.at_s.map(f64::floor)), (Taken::Here, Some(1_795_670_007.0)), "{line}");
        }
        let mut stamped = Scrape::default();
        stamped.take("hikaricp_connections_active{pool=\"a\"} 1.0 1795670007250");
        assert_eq!(stamped.at_s, Some(1_795_670_007.25));
    }

    #[test]
    fn labels_may_hold_anything() {
        let scrape = Scrape::read("hikaricp_connections_max{application=\"a b\",pool=\"o\\\"n}e,\\\\\",} 5\n");
        let look = Hikari::default().look(0.0, &scrape);
        assert_eq!((look.pools[0].database.as_str(), look.pools[0].max_size), ("o\"n}e,\\ of a b", 5));
        for broken in [
            "hikaricp_connections{",
            "hikaricp_connections{pool",
            "hikaricp_connections{pool=\"",
            "hikaricp_connections",
            "hikaricp_connections{} x",
        ] {
            assert!(!Scrape::read(broken).has_pools(), "{broken}");
        }
    }

    #[test]
    fn hostile_figures_are_cut_and_pools_are_bounded() {
        for value in ["NaN", "+Inf", "-Inf", "1e308", "-7", "18446744073709551615"] {
            let scrape = Scrape::read(
                &TEXT.replace("8.0", value).replace("100.0", value).replace("99.5", value).replace("2.5", value),
            );
            let look = Hikari::default().look(0.0, &scrape);
            let pool = &look.pools[0];
            assert!(
                pool.servers.in_use <= MAX_FIGURE as u64 && pool.hold.sum_ms.is_finite() && look.uptime_ms.is_finite(),
                "{value}"
            );
        }
        let many: String = (0..1_000).map(|n| format!("hikaricp_connections_max{{pool=\"{n}\"}} 1\n")).collect();
        assert_eq!(Hikari::default().look(0.0, &Scrape::read(&many)).pools.len(), MAX_POOLS);
    }

    #[test]
    fn counters_that_begin_anew_are_another_process() {
        let mut hikari = Hikari::default();
        let before = hikari.look(0.0, &Scrape::read(TEXT)).instance;
        assert_eq!(hikari.look(1.0, &Scrape::read(TEXT)).instance, before);
        assert_ne!(hikari.look(2.0, &Scrape::read(&TEXT.replace("100.0", "3.0"))).instance, before);
    }

    #[test]
    fn a_pool_that_stays_without_a_connection_is_out_of_reach() {
        let bare = TEXT
            .replace(" 10.0\nhikaricp_connections_active", " 0.0\nhikaricp_connections_active")
            .replace("8.0", "0.0");
        let mut hikari = Hikari::default();
        let mut down = |at| hikari.look(at, &Scrape::read(&bare)).pools[0].unavailable_ms;
        assert_eq!((down(100.0), down(1_600.0)), (None, Some(1_500.0)));
    }
}
