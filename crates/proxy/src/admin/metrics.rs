//! A snapshot in Prometheus' text format. Names and labels are promises to users.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::{Error, Write},
    time::Duration,
};

use ::pool::CheckOutFailed;
use driver::{BUCKET_BOUNDS_US, DurationHistogram, ListenerSnapshot, PoolSnapshot, Snapshot};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, LabelSetEncoder, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::Registry,
};
use protocol::PoolId;
use tuner::{Standing, Tuner};

use crate::reload::Reloads;

/// The content type of what [`render`] returns.
pub const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of a snapshot. Without `user_label` the pools of a database are added up. Two databases of one name stay apart where they
/// speak different protocols.
pub fn render(snapshot: Snapshot, user_label: bool, process: Process) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics { snapshot, user_label, process }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

/// Why check-outs fail.
const FAILED: [CheckOutFailed; 7] = [
    CheckOutFailed::PoolClosed,
    CheckOutFailed::PoolCleared,
    CheckOutFailed::Timeout,
    CheckOutFailed::Unavailable,
    CheckOutFailed::Refused,
    CheckOutFailed::QueueFull,
    CheckOutFailed::Paused,
];

#[derive(Debug)]
struct Metrics {
    snapshot: Snapshot,
    user_label: bool,
    process: Process,
}

/// What is counted outside the driver.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Log lines dropped because standard error was too slow.
    pub dropped_log_lines: u64,
    /// How often the configuration was read again.
    pub reloads: Reloads,
    /// By pool: functions and the like that could touch sessions behind the text of a statement.
    pub suspicious: HashMap<PoolId, u64>,
    /// By pool: who tunes its size, where somebody does.
    pub tuners: HashMap<PoolId, Tuner>,
}

/// Label names and values of one line.
#[derive(Debug)]
struct Labels<'a>(&'a [(&'a str, &'a str)]);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), Error> {
        for (name, value) in self.0 {
            let mut label = encoder.encode_label();
            let mut key = label.encode_label_key()?;
            key.write_str(name)?;
            let mut encoded = key.encode_label_value()?;
            encoded.write_str(value)?;
            encoded.finish()?;
        }
        Ok(())
    }
}

/// One line of a metric: its own labels, beside those of the pool, and its value.
type Line<'a, T> = (Vec<(&'a str, &'a str)>, T);

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let encoder = &mut encoder;
        self.process(encoder)?;
        self.clients(encoder)?;
        self.workers(encoder)?;
        self.servers(encoder)?;
        self.tuning(encoder)?;
        self.checkouts(encoder)
    }
}

impl Metrics {
    fn process(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let labels = Labels(&[("version", env!("CARGO_PKG_VERSION")), ("reactor", self.snapshot.reactor)]);
        encoder
            .encode_descriptor("poolhouse_build", "Which Poolhouse this is", None, MetricType::Info)?
            .encode_info(&labels)?;
        let one = |value| vec![(Vec::new(), value)];
        counters(encoder, "poolhouse_auth_failures", "Failed logins of clients", one(self.snapshot.auth_failures))?;
        let help = "Calls into sessions that panicked, which is a defect";
        counters(encoder, "poolhouse_session_panics", help, one(self.snapshot.session_panics))?;
        let help = "Log lines dropped because standard error was too slow";
        counters(encoder, "poolhouse_log_lines_dropped", help, one(self.process.dropped_log_lines))?;
        let Reloads { failed, done, is_behind } = self.process.reloads;
        let lines = vec![(vec![("result", "failed")], failed), (vec![("result", "done")], done)];
        counters(encoder, "poolhouse_reloads", "How often the configuration was read again", lines)?;
        let help = "0 from a reload that failed until the next that does not: the file on disk is not what runs";
        gauges(encoder, "poolhouse_last_reload_successful", help, one(u64::from(!is_behind)))?;
        gauges(encoder, "poolhouse_draining", "1 while shutting down", one(u64::from(self.snapshot.draining)))
    }

    fn clients(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let listeners = &self.snapshot.listeners;
        let each = |of: &dyn Fn(usize) -> Vec<(&'static str, u64)>, label: &'static str| -> Vec<Line<'_, u64>> {
            let lines = listeners.iter().enumerate().flat_map(|(i, listener)| {
                of(i).into_iter().map(move |(name, n)| ([&listener_labels(listener)[..], &[(label, name)]].concat(), n))
            });
            lines.collect()
        };
        let states = |i: usize| {
            let l = &listeners[i];
            let busy = [("active", l.active), ("waiting", l.waiting), ("subscribed", l.subscribed)];
            [vec![("login", l.login), ("idle", l.idle)], busy.to_vec()].concat()
        };
        gauges(encoder, "poolhouse_clients", "Clients now", each(&states, "state"))?;
        let limits = |i: usize| {
            let (soft, hard) = listeners[i].limits;
            vec![("soft", u64::from(soft)), ("hard", u64::from(hard))]
        };
        gauges(encoder, "poolhouse_clients_limit", "Limits of clients", each(&limits, "limit"))?;
        let lines = listeners.iter().map(|l| (listener_labels(l).to_vec(), l.accepted)).collect();
        counters(encoder, "poolhouse_clients_accepted", "Clients let in", lines)?;
        let lines = listeners.iter().map(|l| (listener_labels(l).to_vec(), l.logins)).collect();
        counters(encoder, "poolhouse_client_logins", "Clients that logged in", lines)?;
        let rejections = |i: usize| listeners[i].rejections.clone();
        let lines = each(&rejections, "reason");
        counters(encoder, "poolhouse_client_rejections", "Clients turned away at the door", lines)?;
        let evictions = |i: usize| listeners[i].evictions.clone();
        counters(encoder, "poolhouse_client_evictions", "Clients sent away", each(&evictions, "reason"))?;
        let unanswered = |i: usize| listeners[i].unanswered.clone();
        let help = "Clients sent away that never ended their side of the connection";
        counters(encoder, "poolhouse_client_closes_unanswered", help, each(&unanswered, "reason"))?;
        let lines = listeners.iter().map(|l| (listener_labels(l).to_vec(), l.eviction_loops)).collect();
        let help = "Times that clients were seen to come back as fast as they were evicted";
        counters(encoder, "poolhouse_eviction_loops", help, lines)
    }

    fn workers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let names: Vec<String> = (0..self.snapshot.workers.len()).map(|n| n.to_string()).collect();
        let workers = || names.iter().map(String::as_str).zip(&self.snapshot.workers);
        let lines = workers().map(|(n, w)| (vec![("worker", n)], w.cpu.as_secs_f64())).collect();
        let help = "CPU time of the worker's thread";
        float_counters(encoder, "poolhouse_worker_cpu_seconds", help, lines)?;
        let lines = workers().map(|(n, w)| (vec![("worker", n)], w.clients)).collect();
        gauges(encoder, "poolhouse_worker_clients", "Clients of the worker", lines)?;
        let lines = workers().map(|(n, w)| (vec![("worker", n)], w.transactions)).collect();
        counters(encoder, "poolhouse_worker_transactions", "Transactions of the worker's clients", lines)?;
        let lines = workers().map(|(n, w)| (vec![("worker", n)], w.moves)).collect();
        counters(encoder, "poolhouse_worker_moves", "Servers that moved to the worker", lines)
    }

    fn servers(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let groups = groups(&self.snapshot.pools, self.user_label);
        let lines = labelled(&groups, "state", |g| g.states.iter().copied());
        gauges(encoder, "poolhouse_servers", "Connections to databases now", lines)?;
        let lines = plain(&groups, |g| g.max_size);
        gauges(encoder, "poolhouse_servers_max", "Most connections a pool may have", lines)?;
        let lines = plain(&groups, |g| g.created);
        counters(encoder, "poolhouse_servers_created", "Connections made", lines)?;
        let lines = labelled(&groups, "reason", |g| g.closed.iter().map(|(k, v)| (*k, *v)));
        counters(encoder, "poolhouse_servers_closed", "Connections closed", lines)?;
        let lines = labelled(&groups, "reason", |g| g.pinned.iter().map(|(k, v)| (*k, *v)));
        gauges(encoder, "poolhouse_pinned", "Servers pinned to a client now", lines)?;
        let lines = plain(&groups, |g| {
            g.pools.iter().map(|id| self.process.suspicious.get(id).copied().unwrap_or(0)).max().unwrap_or(0)
        });
        let help = "Functions and the like that could touch a session behind the text of a statement";
        gauges(encoder, "poolhouse_suspicious_functions", help, lines)?;
        let lines = plain(&groups, |g| g.paused);
        gauges(encoder, "poolhouse_pools_paused", "Pools that an operator paused", lines)?;
        let lines = plain(&groups, |g| g.unavailable);
        gauges(encoder, "poolhouse_pools_unavailable", "Pools that cannot reach their upstream", lines)
    }

    /// Of pools whose size is tuned only.
    fn tuning(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let tuners = &self.process.tuners;
        let groups = groups(&self.snapshot.pools, self.user_label);
        let tuned: Vec<Group> =
            groups.into_iter().filter(|g| g.pools.iter().any(|id| tuners.contains_key(id))).collect();
        let of = |g: &Group| g.pools.iter().filter_map(|id| tuners.get(id)).collect::<Vec<_>>();
        let steps = |g: &Group| {
            let mut sums = BTreeMap::new();
            for (reason, count) in of(g).iter().flat_map(|tuner| tuner.steps()) {
                *sums.entry(reason.as_str()).or_insert(0) += count;
            }
            sums.into_iter()
        };
        let help = "Decisions about the size of pools that is tuned";
        counters(encoder, "poolhouse_tuning_steps", help, labelled(&tuned, "reason", steps))?;
        let changes = |g: &Group| of(g).iter().map(|tuner| tuner.changes()).sum::<u64>();
        let help = "Changes of the size of pools that is tuned, each turn of a trial included";
        counters(encoder, "poolhouse_tuning_changes", help, plain(&tuned, changes))?;
        let found = |tuner: &&&Tuner| matches!(tuner.standing(), Standing::Found | Standing::Probing);
        let found = |g: &Group| of(g).iter().filter(found).count() as u64;
        gauges(encoder, "poolhouse_tuning_found", "Pools whose best size is found", plain(&tuned, found))
    }

    fn checkouts(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let groups = groups(&self.snapshot.pools, self.user_label);
        gauges(encoder, "poolhouse_waiters", "Clients waiting for a server", plain(&groups, |g| g.waiters))?;
        gauges(encoder, "poolhouse_pool_clients", "Clients logged in", plain(&groups, |g| g.clients))?;
        let lines = plain(&groups, |g| g.transactions);
        counters(encoder, "poolhouse_transactions", "Transactions (leases ended)", lines)?;
        // A series that is not there before its first failure hides that one from `increase()`.
        let failed =
            |g: &Group| FAILED.map(|why| (why.as_str(), g.checkout_failed.get(why.as_str()).copied().unwrap_or(0)));
        let lines = labelled(&groups, "reason", move |g| failed(g).into_iter());
        counters(encoder, "poolhouse_checkout_failed", "Check-outs that failed", lines)?;
        let lines = labelled(&groups, "path", |g| g.checkout.iter());
        histograms(encoder, "poolhouse_checkout_seconds", "Time to check out a server", lines)?;
        let lines = labelled(&groups, "phase", |g| g.connect.iter());
        histograms(encoder, "poolhouse_connect_phase_seconds", "Phases of making a connection", lines)?;
        let lines = plain(&groups, |g| &g.hold);
        histograms(encoder, "poolhouse_hold_seconds", "How long servers are held", lines)?;
        let lines = plain(&groups, |g| g.oldest_hold.as_secs_f64());
        let help = "For how long the server has been held that has been for longest, pinned ones apart; 0 if none is";
        gauges(encoder, "poolhouse_oldest_hold_seconds", help, lines)
    }
}

/// Pools with the same labels, added up.
#[derive(Default)]
struct Group {
    labels: Vec<(&'static str, String)>,
    pools: Vec<PoolId>,
    states: [(&'static str, u64); 5],
    closed: BTreeMap<&'static str, u64>,
    checkout_failed: BTreeMap<&'static str, u64>,
    pinned: BTreeMap<&'static str, u64>,
    checkout: BTreeMap<&'static str, DurationHistogram>,
    connect: BTreeMap<&'static str, DurationHistogram>,
    hold: DurationHistogram,
    oldest_hold: Duration,
    max_size: u64,
    created: u64,
    clients: u64,
    waiters: u64,
    transactions: u64,
    paused: u64,
    unavailable: u64,
}

fn groups(pools: &[PoolSnapshot], user_label: bool) -> Vec<Group> {
    let mut groups: BTreeMap<Vec<(&'static str, &str)>, Group> = BTreeMap::new();
    for pool in pools {
        let mut labels = vec![("protocol", pool.protocol), ("database", &*pool.database)];
        labels.extend(user_label.then_some(("user", &*pool.user)));
        groups.entry(labels).or_default().add(pool);
    }
    let named = |(labels, group): (Vec<(&'static str, &str)>, Group)| {
        let labels = labels.into_iter().map(|(name, value)| (name, value.to_owned())).collect();
        Group { labels, ..group }
    };
    groups.into_iter().map(named).collect()
}

fn listener_labels(listener: &ListenerSnapshot) -> [(&str, &str); 2] {
    [("listener", &listener.name), ("protocol", listener.protocol)]
}

impl Group {
    fn add(&mut self, pool: &PoolSnapshot) {
        let counts = &pool.counts;
        self.pools.push(pool.id);
        let states = [
            ("connecting", counts.connecting),
            ("idle", counts.idle),
            ("in_use", counts.in_use),
            ("checking", counts.checking),
            ("closing", counts.closing),
        ];
        for (sum, (name, count)) in self.states.iter_mut().zip(states) {
            *sum = (name, sum.1 + u64::from(count));
        }
        add_counts(&mut self.closed, &pool.closed);
        add_counts(&mut self.checkout_failed, &pool.checkout_failed);
        add_counts(&mut self.pinned, &pool.pinned);
        for (name, times) in &pool.checkout {
            add_times(self.checkout.entry(name).or_default(), times);
        }
        for (name, times) in &pool.connect {
            add_times(self.connect.entry(name).or_default(), times);
        }
        add_times(&mut self.hold, &pool.hold);
        self.oldest_hold = self.oldest_hold.max(pool.oldest_hold.unwrap_or_default());
        self.max_size += u64::from(pool.config.max_size);
        self.created += pool.created;
        self.clients += pool.clients;
        self.waiters += u64::from(counts.waiters);
        self.transactions += pool.transactions;
        self.paused += u64::from(pool.paused);
        self.unavailable += u64::from(pool.unavailable_for.is_some());
    }
}

fn add_counts(sums: &mut BTreeMap<&'static str, u64>, counts: &[(&'static str, u64)]) {
    for (name, count) in counts {
        *sums.entry(name).or_default() += count;
    }
}

fn add_times(sum: &mut DurationHistogram, times: &DurationHistogram) {
    for (sum, count) in sum.buckets.iter_mut().zip(times.buckets) {
        *sum += count;
    }
    sum.sum_ns += times.sum_ns;
}

/// One line for each group.
fn plain<'g, T>(groups: &'g [Group], of: impl Fn(&'g Group) -> T) -> Vec<Line<'g, T>> {
    groups.iter().map(|group| (own_labels(group), of(group))).collect()
}

/// One line for each value of a label in each group.
fn labelled<'g, K: AsRef<str> + ?Sized + 'g, T, I: Iterator<Item = (&'g K, T)>>(
    groups: &'g [Group],
    label: &'g str,
    of: impl Fn(&'g Group) -> I,
) -> Vec<Line<'g, T>> {
    let lines = groups.iter().flat_map(|group| {
        of(group).map(move |(name, value)| {
            let mut labels = own_labels(group);
            labels.push((label, name.as_ref()));
            (labels, value)
        })
    });
    lines.collect()
}

fn own_labels(group: &Group) -> Vec<(&str, &str)> {
    group.labels.iter().map(|(name, value)| (*name, &**value)).collect()
}

/// The `_total` of a counter's name is added by the encoder.
fn counters(e: &mut DescriptorEncoder<'_>, name: &str, help: &str, lines: Vec<Line<'_, u64>>) -> Result<(), Error> {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in lines {
        if labels.is_empty() {
            metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
            continue;
        }
        let labels = Labels(&labels);
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn float_counters(
    e: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    lines: Vec<Line<'_, f64>>,
) -> Result<(), Error> {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in lines {
        let labels = Labels(&labels);
        metric.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

fn gauges<T: EncodeGaugeValue>(
    e: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    lines: Vec<Line<'_, T>>,
) -> Result<(), Error> {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in lines {
        if labels.is_empty() {
            metric.encode_gauge(&value)?;
            continue;
        }
        let labels = Labels(&labels);
        metric.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

fn histograms(
    e: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    lines: Vec<Line<'_, &DurationHistogram>>,
) -> Result<(), Error> {
    let mut metric = e.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (labels, times) in lines {
        let bounds = BUCKET_BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(times.buckets).collect();
        let (sum, count) = (times.sum_ns as f64 / 1e9, times.buckets.iter().sum());
        let labels = Labels(&labels);
        metric.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use pool::Counts;
    use protocol::PoolId;

    /// A pool with something of everything.
    pub fn pool(database: &str, user: &str) -> PoolSnapshot {
        let mut times = DurationHistogram::default();
        times.buckets[3] = 2;
        times.sum_ns = 1_000_000;
        let counts = Counts { idle: 2, in_use: 1, total: 3, waiters: 4, ..Counts::default() };
        PoolSnapshot {
            id: PoolId(0),
            protocol: "postgres",
            database: database.to_owned(),
            user: user.to_owned(),
            address: "h:5432".to_owned(),
            counts,
            config: pool::PoolConfig::default(),
            clients: 7,
            created: 9,
            closed: vec![("idle", 5), ("life", 1)],
            checkout_failed: vec![("timeout", 3)],
            pinned: vec![("listen", 1)],
            transactions: 100,
            checkout: ["idle", "created", "queued"].map(|path| (path, times.clone())),
            connect: ["dns", "tcp", "tls", "auth", "ready"].map(|phase| (phase, times.clone())),
            hold: times,
            oldest_hold: None,
            oldest_wait: None,
            unavailable_for: None,
            last_error: None,
            paused: false,
            drained: false,
        }
    }

    fn snapshot() -> Snapshot {
        let listener = ListenerSnapshot {
            name: "127.0.0.1:6432".to_owned(),
            protocol: "http",
            idle: 3,
            accepted: 8,
            rejections: vec![("hard_limit", 2)],
            evictions: vec![("soft_limit", 2)],
            unanswered: vec![("soft_limit", 1)],
            limits: (8, 10),
            ..ListenerSnapshot::default()
        };
        let workers = vec![driver::WorkerSnapshot::default()];
        let pools = vec![pool("d", "u"), pool("d", "v\"\n")];
        Snapshot {
            listeners: vec![listener],
            pools,
            workers,
            reactor: "mio",
            auth_failures: 6,
            session_panics: 1,
            ..Snapshot::default()
        }
    }

    #[track_caller]
    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn every_promised_metric_is_there_with_its_labels() {
        let reloads = Reloads { failed: 1, done: 2, is_behind: true };
        let text = render(snapshot(), true, Process { dropped_log_lines: 11, reloads, ..Process::default() });
        let build = format!("poolhouse_build_info{{version=\"{}\",reactor=\"mio\"}} 1", env!("CARGO_PKG_VERSION"));
        has(
            &text,
            &[
                &build,
                "poolhouse_clients{listener=\"127.0.0.1:6432\",protocol=\"http\",state=\"idle\"} 3",
                "poolhouse_clients_accepted_total{listener=\"127.0.0.1:6432\",protocol=\"http\"} 8",
                "poolhouse_client_rejections_total{listener=\"127.0.0.1:6432\",protocol=\"http\",reason=\"hard_limit\"} 2",
                "poolhouse_client_evictions_total{listener=\"127.0.0.1:6432\",protocol=\"http\",reason=\"soft_limit\"} 2",
                "poolhouse_client_closes_unanswered_total{listener=\"127.0.0.1:6432\",protocol=\"http\",reason=\"soft_limit\"} 1",
                "poolhouse_eviction_loops_total{listener=\"127.0.0.1:6432\",protocol=\"http\"} 0",
                "poolhouse_servers{protocol=\"postgres\",database=\"d\",user=\"u\",state=\"idle\"} 2",
                "poolhouse_servers_max{protocol=\"postgres\",database=\"d\",user=\"u\"} 20",
                "poolhouse_servers_created_total{protocol=\"postgres\",database=\"d\",user=\"u\"} 9",
                "poolhouse_servers_closed_total{protocol=\"postgres\",database=\"d\",user=\"u\",reason=\"idle\"} 5",
                "poolhouse_pinned{protocol=\"postgres\",database=\"d\",user=\"u\",reason=\"listen\"} 1",
                "poolhouse_checkout_seconds_count{protocol=\"postgres\",database=\"d\",user=\"u\",path=\"queued\"} 2",
                "poolhouse_checkout_seconds_bucket{le=\"0.0002\",protocol=\"postgres\",database=\"d\",user=\"u\",path=\"idle\"} 0",
                "poolhouse_checkout_seconds_bucket{le=\"0.0005\",protocol=\"postgres\",database=\"d\",user=\"u\",path=\"idle\"} 2",
                "poolhouse_checkout_seconds_bucket{le=\"+Inf\",protocol=\"postgres\",database=\"d\",user=\"u\",path=\"idle\"} 2",
                "poolhouse_checkout_failed_total{protocol=\"postgres\",database=\"d\",user=\"u\",reason=\"timeout\"} 3",
                "poolhouse_connect_phase_seconds_sum{protocol=\"postgres\",database=\"d\",user=\"u\",phase=\"auth\"} 0.001",
                "poolhouse_hold_seconds_count{protocol=\"postgres\",database=\"d\",user=\"u\"} 2",
                "poolhouse_oldest_hold_seconds{protocol=\"postgres\",database=\"d\",user=\"u\"} 0.0",
                "poolhouse_waiters{protocol=\"postgres\",database=\"d\",user=\"u\"} 4",
                "poolhouse_transactions_total{protocol=\"postgres\",database=\"d\",user=\"u\"} 100",
                "poolhouse_auth_failures_total 6",
                "poolhouse_session_panics_total 1",
                "poolhouse_log_lines_dropped_total 11",
                "poolhouse_reloads_total{result=\"failed\"} 1",
                "poolhouse_last_reload_successful 0",
                "poolhouse_pools_paused{protocol=\"postgres\",database=\"d\",user=\"u\"} 0",
                "# EOF",
            ],
        );
    }

    #[test]
    fn only_pools_that_are_tuned_have_metrics_of_that() {
        let limits = tuner::Limits { least: 1, most: 60, window: std::time::Duration::from_secs(4) };
        let tuners = HashMap::from([(PoolId(0), Tuner::new(limits, 20))]);
        let text = render(snapshot(), true, Process { tuners, ..Process::default() });
        has(
            &text,
            &[
                "poolhouse_tuning_steps_total{protocol=\"postgres\",database=\"d\",user=\"u\",reason=\"better\"} 0",
                "poolhouse_tuning_changes_total{protocol=\"postgres\",database=\"d\",user=\"u\"} 0",
                "poolhouse_tuning_found{protocol=\"postgres\",database=\"d\",user=\"u\"} 0",
            ],
        );
        assert!(!render(snapshot(), true, Process::default()).contains("poolhouse_tuning_changes_total{"));
    }

    #[test]
    fn of_pools_with_the_same_labels_the_longest_hold_is_told() {
        let held = |seconds: Option<u64>| PoolSnapshot {
            oldest_hold: seconds.map(Duration::from_secs),
            ..pool("d", &format!("{seconds:?}"))
        };
        let pools = vec![held(Some(7)), held(Some(90)), held(None)];
        let text = render(Snapshot { pools, ..Snapshot::default() }, false, Process::default());
        has(&text, &["poolhouse_oldest_hold_seconds{protocol=\"postgres\",database=\"d\"} 90.0"]);
        has(&text, &["poolhouse_last_reload_successful 1"]);
    }

    #[test]
    fn label_values_are_escaped() {
        has(
            &render(snapshot(), true, Process::default()),
            &["poolhouse_waiters{protocol=\"postgres\",database=\"d\",user=\"v\\\"\\n\"} 4"],
        );
    }

    #[test]
    fn without_the_user_label_pools_of_a_database_are_added_up() {
        let text = render(snapshot(), false, Process::default());
        has(
            &text,
            &[
                "poolhouse_waiters{protocol=\"postgres\",database=\"d\"} 8",
                "poolhouse_servers_closed_total{protocol=\"postgres\",database=\"d\",reason=\"idle\"} 10",
                "poolhouse_hold_seconds_sum{protocol=\"postgres\",database=\"d\"} 0.002",
            ],
        );
        assert!(!text.contains("user="));
    }

    #[test]
    fn databases_of_two_protocols_with_one_name_are_not_added_up() {
        let pools = vec![pool("0", "u"), PoolSnapshot { protocol: "redis", ..pool("0", "u") }, pool("0", "v")];
        let text = render(Snapshot { pools, ..Snapshot::default() }, false, Process::default());
        has(
            &text,
            &[
                "poolhouse_waiters{protocol=\"postgres\",database=\"0\"} 8",
                "poolhouse_waiters{protocol=\"redis\",database=\"0\"} 4",
            ],
        );
    }
}
