//! Looks at HikariCP's pools: from what Micrometer tells of them as Prometheus text, scraped now and then, to the look
//! that a Poolhouse would give, as far as they mean the same. What connections do while a thread has them is not told.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{Counts, Look, Pool, PoolServers, Pooler, Times, outage::Outage, unix_time::to_seconds};

/// Pools of one scrape; further ones are ignored.
const MAX_POOLS: usize = 200;
/// Characters of a pool's name. The rest of a longer one becomes a hash: replicas of an application may differ in their
/// last label only.
const MAX_NAME: usize = 100;
/// A larger figure counts as this one, so that sums do not overflow.
const MAX_FIGURE: f64 = 9e12;
/// The beginning of the names of all series.
const PREFIX: &str = "hikaricp_connections";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    /// The time, in seconds of the Unix epoch, if the scrape has one.
    pub at_s: Option<f64>,
    /// How long the process had run, if the scrape tells; of several processes the first one.
    pub uptime_s: Option<f64>,
    uptime_of: String,
    /// By the name of the pool and of the series, without [`PREFIX`].
    pools: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Makes looks of scrapes, and remembers what the next one needs.
#[derive(Debug, Default)]
pub struct Hikari {
    /// How often its counters have begun anew.
    restarts: u64,
    uptime_s: f64,
    pools: BTreeMap<String, KnownPool>,
    next: u64,
}

/// A pool that was seen before.
#[derive(Debug, Default)]
struct KnownPool {
    id: u64,
    /// Counters of the first scrape, or zeros if the process has restarted since.
    base: Counters,
    /// Counters of the last scrape.
    last: Counters,
    outage: Outage,
}

/// Figures that only grow. They count from a pool's first scrape on: what came before may be of days.
#[derive(Clone, Debug, Default)]
struct Counters {
    /// HikariCP counts a connection that could not be made, too.
    made: u64,
    returned: u64,
    timeouts: u64,
    /// In whole milliseconds each, so that a hold that is shorter adds nothing.
    hold: Times,
    acquire: Times,
    creation: Times,
}

struct Sample<'l> {
    name: &'l str,
    labels: Vec<(&'l str, String)>,
    value: f64,
    at_s: Option<f64>,
}

/// A line of a file in which scrapes follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScrapeLine {
    /// The line belongs to this scrape, or to none.
    OfThis,
    /// The next scrape begins with the line, which was not added.
    OfNext,
}

impl Scrape {
    /// The scrape has series of HikariCP.
    pub fn has_pools(&self) -> bool {
        !self.pools.is_empty()
    }

    /// Some pool has all series that a look needs. HikariCP's own tracker for Prometheus has other names, and the
    /// gauges of a pool that is gone are no numbers.
    pub fn has_whole_pools(&self) -> bool {
        self.pools.values().any(is_whole)
    }

    /// A line with nothing but a time, which begins a scrape.
    pub fn is_time(line: &str) -> bool {
        time_of(line).is_some()
    }

    pub fn read(text: &str) -> Self {
        let mut scrape = Self::default();
        text.lines().for_each(|line| scrape.add_line(line));
        scrape
    }

    /// Adds the next line of a file of several scrapes. A line with nothing but a time (`date +%s`), also behind a
    /// `#`, begins one, and so does a series that was there before.
    pub fn add(&mut self, line: &str) -> ScrapeLine {
        if let Some(at_s) = time_of(line) {
            if self.at_s.is_some() || self.has_pools() {
                return ScrapeLine::OfNext;
            }
            self.at_s = Some(at_s);
            return ScrapeLine::OfThis;
        }
        if Sample::read(line).is_some_and(|sample| self.has(&sample)) {
            return ScrapeLine::OfNext;
        }
        self.add_line(line);
        ScrapeLine::OfThis
    }

    fn has(&self, sample: &Sample<'_>) -> bool {
        let known = sample.series().and_then(|series| self.pools.get(&sample.pool())?.get(series));
        known.is_some() || (sample.name == UPTIME && self.uptime_s.is_some() && self.uptime_of == sample.pool())
    }

    fn add_line(&mut self, line: &str) {
        let Some(sample) = Sample::read(line) else { return };
        if sample.name == UPTIME {
            if self.uptime_s.is_none() {
                (self.uptime_s, self.uptime_of) = (Some(sample.value), sample.pool());
            }
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
const SERIES: [&str; 13] = [
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
];

/// A look at a pool needs these series.
const NEEDED: [&str; 3] = ["_active", "_pending", "_max"];

fn known(series: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    series.get(name).copied().filter(|value| !value.is_nan())
}

fn figure(series: &BTreeMap<String, f64>, name: &str) -> f64 {
    known(series, name).unwrap_or(0.0).clamp(0.0, MAX_FIGURE)
}

/// All connections, without those that are still being made.
fn total(series: &BTreeMap<String, f64>) -> u64 {
    let counted = known(series, "").map(|_| figure(series, ""));
    counted.unwrap_or_else(|| figure(series, "_active") + figure(series, "_idle")) as u64
}

fn is_whole(series: &BTreeMap<String, f64>) -> bool {
    NEEDED.iter().all(|name| known(series, name).is_some())
}

/// The time of a line that has nothing else, in seconds of the Unix epoch.
fn time_of(line: &str) -> Option<f64> {
    let text = line.trim().trim_start_matches('#').trim_start();
    let is_number = text.starts_with(|c: char| c.is_ascii_digit()) && !text.contains(char::is_whitespace);
    text.parse::<f64>().ok().filter(|time| is_number && time.is_finite()).map(to_seconds)
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
        Some(Self { name, labels, value, at_s: at_s.map(to_seconds) })
    }

    /// The name of the series, if it is one that is read.
    fn series(&self) -> Option<&'l str> {
        let series = self.name.strip_prefix(PREFIX)?;
        SERIES.contains(&series).then_some(series)
    }

    /// The name of its pool, with all other labels, which tell it from pools of the same name.
    fn pool(&self) -> String {
        let of = |wanted: bool| self.labels.iter().filter(move |(name, _)| (*name == "pool") == wanted);
        let name = of(true).map(|(_, value)| value.as_str()).next().unwrap_or("a pool without a name");
        let others: Vec<&str> = of(false).map(|(_, value)| value.as_str()).collect();
        let more = if others.is_empty() { String::new() } else { format!(" of {}", others.join(" ")) };
        let whole = format!("{name}{more}");
        let Some((end, _)) = whole.char_indices().nth(MAX_NAME) else { return whole };
        let mut hash = DefaultHasher::new();
        whole.hash(&mut hash);
        format!("{}… {:08x}", &whole[..end], hash.finish() as u32)
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
    /// A look, made of a scrape. `at_ms`: the time, on any clock.
    pub fn make_look(&mut self, at_ms: f64, scrape: &Scrape) -> Look {
        let uptime_s = scrape.uptime_s.filter(|uptime| uptime.is_finite()).map(|s| s.clamp(0.0, MAX_FIGURE / 1e3));
        let mut has_begun_anew = uptime_s.is_some_and(|uptime| uptime < self.uptime_s);
        self.uptime_s = uptime_s.unwrap_or(self.uptime_s);
        if has_begun_anew {
            self.pools.values_mut().for_each(|known| known.base = Counters::default());
        }
        if self.pools.len() > MAX_POOLS {
            // Pools that are gone are forgotten: there may be new ones at each scrape.
            self.pools.retain(|name, _| scrape.pools.contains_key(name));
        }
        let pools = scrape.pools.iter().filter(|(_, series)| is_whole(series)).map(|(name, series)| {
            let counted = Counters::of(series);
            let known = self.pools.entry(name.clone()).or_insert_with(|| {
                self.next += 1;
                KnownPool { id: self.next, base: counted.clone(), last: counted.clone(), outage: Outage::default() }
            });
            if counted.is_reset_since(&known.last) {
                has_begun_anew = true;
                known.base = Counters::default();
            }
            let since = counted.since(&known.base);
            let unavailable_ms = known.outage.observe(known.is_without_connection(series, &counted), at_ms);
            known.last = counted;
            Pool { unavailable_ms, ..known.pool(name, series, since) }
        });
        let pools = pools.collect();
        self.restarts += u64::from(has_begun_anew);
        Look {
            pooler: Pooler::HikariCp,
            instance: self.restarts.to_string(),
            uptime_ms: uptime_s.map_or(0.0, |s| s * 1e3),
            pools,
            ..Look::default()
        }
    }
}

impl Counters {
    fn of(series: &BTreeMap<String, f64>) -> Self {
        let count = |name: &str| figure(series, name) as u64;
        // Unknown times have no bucket.
        let times = |what: &str| {
            let all = known(series, &format!("_{what}_seconds_count"))?.clamp(0.0, MAX_FIGURE) as u64;
            let sum_ms = (figure(series, &format!("_{what}_seconds_sum")) * 1e3).min(MAX_FIGURE);
            Some(Times { buckets: vec![all], sum_ms })
        };
        Self {
            made: count("_creation_seconds_count"),
            returned: count("_usage_seconds_count"),
            timeouts: count("_timeout_total"),
            hold: times("usage").unwrap_or_default(),
            acquire: times("acquire").unwrap_or_default(),
            creation: times("creation").unwrap_or_default(),
        }
    }

    /// Whether the counters have begun anew since the process gave the counters in `earlier`.
    fn is_reset_since(&self, earlier: &Self) -> bool {
        self.made < earlier.made || self.returned < earlier.returned
    }

    fn since(&self, base: &Self) -> Self {
        Self {
            made: self.made.saturating_sub(base.made),
            returned: self.returned.saturating_sub(base.returned),
            timeouts: self.timeouts.saturating_sub(base.timeouts),
            hold: self.hold.since(&base.hold),
            acquire: self.acquire.since(&base.acquire),
            creation: self.creation.since(&base.creation),
        }
    }
}

impl KnownPool {
    /// There is no connection, threads wait for one or have given up, and no thread has had one since then.
    fn is_without_connection(&self, series: &BTreeMap<String, f64>, counted: &Counters) -> bool {
        let none_was_returned = !counted.hold.buckets.is_empty() && counted.returned == self.last.returned;
        let some_gave_up = counted.timeouts > self.last.timeouts;
        let is_wanted = figure(series, "_pending") > 0.0;
        total(series) == 0 && (is_wanted || none_was_returned && (some_gave_up || self.outage.has_begun()))
    }

    fn pool(&self, name: &str, series: &BTreeMap<String, f64>, since: Counters) -> Pool {
        let count = |name: &str| figure(series, name) as u64;
        let (active, idle, pending, total) = (count("_active"), count("_idle"), count("_pending"), total(series));
        // A connection that is idle while threads wait is on its way to one of them. HikariCP does not count these at
        // the same moment.
        let handed = idle.min(pending);
        let in_use = active.saturating_add(handed).min(total.max(active));
        let (idle, waiters) = (idle - handed, pending - handed);
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
            created: since.made,
            checkout_failed: Counts::from([("timeout".to_owned(), since.timeouts)]),
            transactions: since.returned,
            checkout: BTreeMap::from([("any".to_owned(), since.acquire)]),
            connect: BTreeMap::from([("all".to_owned(), since.creation)]),
            hold: since.hold,
            ..Pool::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP hikaricp_connections_active Active connections\n# TYPE hikaricp_connections_active \
                        gauge\n\
        hikaricp_connections{pool=\"shop\",} 10.0\nhikaricp_connections_active{pool=\"shop\",} \
        8.0\nhikaricp_connections_idle{pool=\"shop\"} 1\n\
        hikaricp_connections_pending{pool=\"shop\",} 3.0\nhikaricp_connections_max{pool=\"shop\",} 10.0\n\
        hikaricp_connections_usage_seconds_count{pool=\"shop\",} \
        100.0\nhikaricp_connections_usage_seconds_sum{pool=\"shop\",} 2.5\n\
        hikaricp_connections_usage_seconds{pool=\"shop\",quantile=\"0.5\"} \
        7\nhikaricp_connections_timeout_total{pool=\"shop\",} 4.0\n\
        hikaricp_connections_creation_seconds_count{pool=\"shop\",} 12.0\nprocess_uptime_seconds \
        99.5\njvm_threads_live_threads 40.0\n";

    #[test]
    fn what_micrometer_tells_of_a_pool_is_read() {
        let scrape = Scrape::read(TEXT);
        assert_eq!((scrape.uptime_s, scrape.at_s, scrape.has_pools()), (Some(99.5), None, true));
        let before =
            TEXT.replace("100.0", "0.0").replace(" 2.5", " 0.0").replace("} 4.0", "} 0.0").replace("12.0", "0.0");
        let mut hikari = Hikari::default();
        hikari.make_look(0.0, &Scrape::read(&before));
        let look = hikari.make_look(1.0, &scrape);
        let [pool] = &look.pools[..] else { panic!("{look:?}") };
        assert_eq!(
            (pool.database.as_str(), pool.waiters, pool.max_size, pool.created, pool.transactions),
            ("shop", 2, 10, 12, 100)
        );
        assert_eq!(
            (pool.servers.in_use, pool.servers.idle, pool.servers.connecting, pool.servers.total),
            (9, 0, 1, 10),
            "the idle one is on its way to one of the three that wait"
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
        assert!(TEXT.lines().all(|line| scrape.add(line) == ScrapeLine::OfThis));
        assert_eq!(scrape.add("hikaricp_connections_active{pool=\"shop\",} 1.0"), ScrapeLine::OfNext);
        assert_eq!(scrape.add("hikaricp_connections_active{pool=\"other\",} 1.0"), ScrapeLine::OfThis);
        assert_eq!(scrape.add("process_uptime_seconds 100.5"), ScrapeLine::OfNext);
        for line in ["1795670007", "# 1795670007.25", "1795670007250"] {
            assert_eq!(scrape.add(line), ScrapeLine::OfNext, "{line}");
            let mut fresh = Scrape::default();
            assert_eq!(
                (fresh.add(line), fresh.at_s.map(f64::floor)),
                (ScrapeLine::OfThis, Some(1_795_670_007.0)),
                "{line}"
            );
        }
        let mut stamped = Scrape::default();
        stamped.add("hikaricp_connections_active{pool=\"a\"} 1.0 1795670007250");
        assert_eq!(stamped.at_s, Some(1_795_670_007.25));
    }

    /// Series and their values, all of one pool.
    fn series(series: &str, labels: &str) -> String {
        let words: Vec<&str> = series.split(' ').collect();
        words.chunks(2).map(|pair| format!("hikaricp_connections_{}{labels} {}\n", pair[0], pair[1])).collect()
    }

    #[test]
    fn labels_may_hold_anything() {
        let labels = "{application=\"a b\",pool=\"o\\\"n}e,\\\\\",}";
        let scrape = Scrape::read(&series("max 5 active 1 pending 0", labels));
        let look = Hikari::default().make_look(0.0, &scrape);
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
            let mut hikari = Hikari::default();
            hikari.make_look(0.0, &Scrape::read(&TEXT.replace("100.0", "0.0").replace(" 2.5", " 0.0")));
            let look = hikari.make_look(1.0, &scrape);
            assert_eq!(look.pools.is_empty(), value == "NaN", "a gauge of a pool that is gone: {value}");
            let is_sane = |pool: &Pool| pool.servers.in_use <= MAX_FIGURE as u64 && pool.hold.sum_ms.is_finite();
            assert!(look.pools.iter().all(is_sane) && look.uptime_ms.is_finite(), "{value}");
        }
        let many: String =
            (0..1_000).map(|n| series("max 1 active 0 pending 0", &format!("{{pool=\"{n}\"}}"))).collect();
        assert_eq!(Hikari::default().make_look(0.0, &Scrape::read(&many)).pools.len(), MAX_POOLS);
    }

    #[test]
    fn a_pool_that_is_shown_late_does_not_bring_what_it_did_before() {
        let mut hikari = Hikari::default();
        hikari.make_look(0.0, &Scrape::read(TEXT));
        let late = |used: u64| {
            let more = series(&format!("active 1 pending 0 max 5 usage_seconds_count {used}"), "{pool=\"late\"}");
            Scrape::read(&format!("{TEXT}{more}"))
        };
        assert_eq!(hikari.make_look(1.0, &late(1_000_000)).pools[0].transactions, 0);
        assert_eq!(hikari.make_look(2.0, &late(1_000_005)).pools[0].transactions, 5);
    }

    #[test]
    fn two_processes_in_one_scrape_are_told_apart_by_their_labels() {
        let uptime = |instance: &str, s: u64| format!("process_uptime_seconds{{instance=\"{instance}\"}} {s}");
        let mut scrape = Scrape::default();
        assert_eq!([("a", 7), ("b", 9)].map(|(of, s)| scrape.add(&uptime(of, s))), [ScrapeLine::OfThis; 2]);
        assert_eq!((scrape.add(&uptime("a", 8)), scrape.uptime_s), (ScrapeLine::OfNext, Some(7.0)));
    }

    /// A pool without a connection, with these numbers of waiting threads, returned connections and timeouts.
    fn outage(pending: u64, returned: u64, timeouts: u64) -> Scrape {
        let text = TEXT
            .replace(" 10.0\nhikaricp_connections_active", " 0.0\nhikaricp_connections_active")
            .replace("8.0", "0.0")
            .replace("idle{pool=\"shop\"} 1", "idle{pool=\"shop\"} 0")
            .replace("} 3.0", &format!("}} {pending}.0"))
            .replace("100.0", &format!("{returned}.0"))
            .replace("} 4.0", &format!("}} {timeouts}.0"));
        Scrape::read(&text)
    }

    #[test]
    fn a_database_out_of_reach_is_seen_although_no_thread_waits_at_the_looks() {
        let mut hikari = Hikari::default();
        let mut down = |at: f64, pending, returned, timeouts| {
            hikari.make_look(at, &outage(pending, returned, timeouts)).pools[0].unavailable_ms
        };
        assert_eq!(down(0.0, 0, 100, 4), None, "no thread asks");
        assert_eq!(down(5_000.0, 0, 100, 5), None, "one gave up in between");
        assert_eq!(down(10_000.0, 0, 100, 6), Some(5_000.0));
        assert_eq!(down(15_000.0, 0, 100, 6), Some(10_000.0), "no thread has asked again");
        // A thread had a connection meanwhile, which was closed for idleness: a quiet pool is not broken.
        assert_eq!(down(40_000.0, 0, 101, 7), None);
        assert_eq!(down(45_000.0, 0, 101, 7), None);
    }

    #[test]
    fn connections_that_are_handed_over_count_as_taken() {
        let text = |active: u64, idle: u64, pending: u64| {
            let values = format!("active {active} idle {idle} pending {pending} max 4");
            Scrape::read(&format!("hikaricp_connections{{pool=\"a\"}} 4\n{}", series(&values, "{pool=\"a\"}")))
        };
        let seen = |active, idle, pending| {
            let pool = Hikari::default().make_look(0.0, &text(active, idle, pending)).pools.remove(0);
            (pool.servers.in_use, pool.servers.idle, pool.waiters, pool.servers.total)
        };
        assert_eq!(seen(2, 2, 20), (4, 0, 18, 4));
        assert_eq!(seen(1, 3, 1), (2, 2, 0, 4), "it is about to have one");
        // A connection was idle, and then taken, while these were counted one after the other.
        assert_eq!(seen(4, 1, 9), (4, 0, 8, 4));
    }

    #[test]
    fn replicas_whose_names_are_long_are_told_apart() {
        let of = |pod: &str| {
            let labels = format!("{{application=\"{}\",pod=\"{pod}\",pool=\"shop\"}}", "x".repeat(MAX_NAME));
            series("max 5 active 1 pending 0", &labels)
        };
        let scrape = Scrape::read(&(of("a") + &of("b")));
        let names: Vec<String> =
            Hikari::default().make_look(0.0, &scrape).pools.into_iter().map(|pool| pool.database).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("shop of xxx") && name.chars().count() < MAX_NAME + 12));
    }
}
