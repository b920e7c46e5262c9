//! `/metrics`: a snapshot in Prometheus' words, in pieces of text that are made while they are read. Of thousands of
//! pools the whole text would take ten times the memory of their snapshot. All of it is of one snapshot, so that the
//! samples of a pool agree with each other.
//!
//! - [`families`]: which metrics there are;
//! - [`groups`]: pools that have the same labels;
//! - [`text`]: the format.

use std::{collections::HashMap, sync::Arc};

use driver::{ForgottenPools, PoolSnapshot, Snapshot};
use seam::{PoolId, Tenant};
use tuner::Tuner;

use self::{
    families::{FAMILIES, Of},
    groups::Groups,
    text::Samples,
};
use super::body::PIECE;
use crate::{
    certificates::KnownCertificate, password_commands::CommandStatus, peers::PeerStatus, reload::ReloadCounts,
};

mod families;
mod groups;
mod text;

pub use text::CONTENT;

/// What protocols hold for their clients.
#[derive(Clone, Debug, Default)]
pub struct ProtocolMemory {
    /// Texts of statements for PostgreSQL.
    pub statements: postgres_session::Memory,
    /// Of clients of HTTP, by listener.
    pub http: Vec<redis_session::ListenerMemory>,
}

/// What is counted outside the driver.
#[derive(Clone, Debug, Default)]
pub struct Process {
    /// Log lines dropped because standard error was too slow.
    pub dropped_log_lines: u64,
    /// What is held for clients.
    pub held: ProtocolMemory,
    /// How often the configuration was read again.
    pub reloads: ReloadCounts,
    /// The programs that give passwords of databases.
    pub password_commands: Vec<CommandStatus>,
    pub certificates: Arc<[KnownCertificate]>,
    /// What was handed on to each peer.
    pub peers: Vec<PeerStatus>,
    /// Cancel requests for other nodes that were handed on to none.
    pub dropped_cancels: u64,
    /// By pool, where there are any: functions and the like that could touch sessions behind the text of a statement.
    pub suspicious: HashMap<PoolId, u64>,
    /// The tuners of pools whose size is tuned.
    pub tuners: HashMap<PoolId, Tuner>,
    /// What the last hour of the pools takes, for `/api/history`.
    pub history_bytes: u64,
}

/// What all is written from.
pub struct Input {
    snapshot: Snapshot,
    groups: Groups,
    process: Process,
}

/// The pieces. All samples of a family stand together, as the format wants it, so the pools are gone through once for
/// each.
pub struct Metrics {
    input: Input,
    /// The family that is being written, and the number of pools that were written before.
    family: usize,
    written: usize,
    has_ended: bool,
}

impl Metrics {
    /// Without `user_label` the pools of a database are added up.
    pub fn new(mut snapshot: Snapshot, user_label: bool, process: Process) -> Self {
        snapshot.tenants.retain(|tenant| user_label || matches!(tenant.tenant, Tenant::Database { .. }));
        let mut pools = std::mem::take(&mut snapshot.pools);
        if !user_label {
            count_for_forgotten(&mut pools, &snapshot.forgotten);
        }
        let groups = Groups::new(pools, user_label);
        Self { input: Input { snapshot, groups, process }, family: 0, written: 0, has_ended: false }
    }

    /// Writes a family, or what it has of one group of pools. False if there is nothing left.
    fn write(&mut self, text: &mut String) -> bool {
        let Some(family) = FAMILIES.get(self.family) else { return false };
        if self.written == 0 {
            text::begin(text, family.kind, family.name, family.help);
        }
        let (input, mut to) = (&self.input, Samples::new(text, family.kind, family.name));
        match family.of {
            Of::Process(write) => write(input, &mut to),
            Of::Listener(write) => {
                for listener in &input.snapshot.listeners {
                    to.share(&[("listener", &*listener.name), ("protocol", listener.protocol)]);
                    write(listener, &mut to);
                }
            }
            Of::Tenant(write) => {
                for tenant in &input.snapshot.tenants {
                    let (of, protocol, name) = match &tenant.tenant {
                        Tenant::Database { protocol, name } => ("database", *protocol, name),
                        Tenant::User(name) => ("user", "", name),
                    };
                    to.share(&[("of", of), ("protocol", protocol), ("name", &**name)]);
                    write(tenant, &mut to);
                }
            }
            Of::Worker(write) => {
                for (number, worker) in input.snapshot.workers.iter().enumerate() {
                    to.share(&[("worker", &*number.to_string())]);
                    write(worker, &mut to);
                }
            }
            Of::Pools(write) => {
                if let Some(group) = input.groups.after(self.written) {
                    to.share(&group.labels());
                    write(input, &group, &mut to);
                    self.written += group.len();
                    return true;
                }
            }
        }
        (self.family, self.written) = (self.family + 1, 0);
        true
    }
}

/// Has another pool of each database count for those that were forgotten: the sum of all would go backwards. With
/// labels of users, the samples of a forgotten pool end instead.
fn count_for_forgotten(pools: &mut [PoolSnapshot], forgotten: &[ForgottenPools]) {
    let place = |pool: &PoolSnapshot| ((pool.protocol, pool.database.clone()), pool.id);
    let mut first: HashMap<_, PoolId> = HashMap::new();
    pools.iter().map(place).for_each(|(name, id)| _ = first.entry(name).or_insert(id));
    let heirs = forgotten.iter().filter_map(|old| Some((*first.get(&(old.protocol, old.database.clone()))?, old)));
    let heirs: HashMap<PoolId, &ForgottenPools> = heirs.collect();
    for pool in pools {
        if let Some(forgotten) = heirs.get(&pool.id) {
            pool.totals.add(&forgotten.totals);
        }
    }
}

impl Iterator for Metrics {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if self.has_ended {
            return None;
        }
        let mut piece = String::with_capacity(PIECE);
        while piece.len() < PIECE {
            if !self.write(&mut piece) {
                piece.push_str(text::END);
                self.has_ended = true;
                break;
            }
        }
        Some(piece.into_bytes())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use driver::{DurationHistogram, ListenerSnapshot, PoolSnapshot, PoolTotals};
    use pool::Counts;

    use super::*;

    fn render(snapshot: Snapshot, user_label: bool, process: Process) -> String {
        String::from_utf8(Metrics::new(snapshot, user_label, process).collect::<Vec<_>>().concat()).unwrap()
    }

    fn totals(times: &DurationHistogram) -> PoolTotals {
        PoolTotals {
            created: 9,
            closed: vec![("idle", 5), ("life", 1)],
            checkout_failed: vec![("timeout", 3)],
            pins_refused: vec![("settings", 2)],
            transactions: 100,
            checkout: ["idle", "created", "queued"].map(|path| (path, times.clone())),
            connect: ["dns", "tcp", "tls", "auth", "ready"].map(|phase| (phase, times.clone())),
            hold: times.clone(),
            ..PoolTotals::default()
        }
    }

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
            timeouts: driver::PoolTimes::default(),
            clients: 7,
            totals: totals(&times),
            pinned: vec![("listen", 1)],
            oldest_hold: None,
            oldest_wait: None,
            unavailable_for: None,
            last_error: None,
            limited_by: None,
            paused: false,
            drained: false,
            disabled: false,
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

    /// Checks that the text has these lines. `POOL` and `LISTENER` stand for the labels of the first of each.
    #[track_caller]
    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            let line = line.replace("POOL", "protocol=\"postgres\",database=\"d\",user=\"u\"");
            let line = line.replace("LISTENER", "listener=\"127.0.0.1:6432\",protocol=\"http\"");
            assert!(text.lines().any(|l| l == line), "no line {line} in\n{text}");
        }
    }

    #[test]
    fn the_sum_of_a_database_goes_on_counting_what_forgotten_pools_have_counted() {
        let PoolTotals { hold, .. } = pool("d", "u").totals;
        let closed = vec![("idle", 1), ("stale", 2)];
        let totals = PoolTotals { created: 1, closed, transactions: 11, hold, ..PoolTotals::default() };
        let forgotten = ForgottenPools { protocol: "postgres", database: "d".to_owned(), totals };
        let elsewhere = ForgottenPools { database: "gone".to_owned(), ..forgotten.clone() };
        let mut snapshot = snapshot();
        (1..).zip(&mut snapshot.pools).for_each(|(id, pool)| pool.id = PoolId(id));
        snapshot.forgotten = vec![forgotten, elsewhere];
        let text = render(snapshot.clone(), false, Process::default());
        let labels = "{protocol=\"postgres\",database=\"d\"";
        has(
            &text,
            &[
                &format!("poolhouse_transactions_total{labels}}} 211"),
                &format!("poolhouse_servers_created_total{labels}}} 19"),
                &format!("poolhouse_servers_closed_total{labels},reason=\"idle\"}} 11"),
                &format!("poolhouse_servers_closed_total{labels},reason=\"stale\"}} 2"),
                &format!("poolhouse_hold_seconds_count{labels}}} 6"),
                &format!("poolhouse_servers_max{labels}}} 40"),
            ],
        );
        assert!(!text.contains("\"gone\""), "the database has no pool");
        assert!(render(snapshot, true, Process::default()).contains(",user=\"u\"} 100"));
    }

    #[test]
    fn every_promised_metric_is_there_with_its_labels() {
        let reloads = ReloadCounts { failed: 1, done: 2, is_behind: true };
        let held = ProtocolMemory {
            statements: postgres_session::Memory { named_bytes: 14, unnamed_bytes: 12, unnamed_forgotten: 13 },
            http: vec![redis_session::ListenerMemory { listener: 0, bytes: 15, max_bytes: 16 }],
        };
        let text = render(snapshot(), true, Process { dropped_log_lines: 11, reloads, held, ..Process::default() });
        let build = format!("poolhouse_build_info{{version=\"{}\",reactor=\"mio\"}} 1", env!("CARGO_PKG_VERSION"));
        has(
            &text,
            &[
                &build,
                "poolhouse_clients{LISTENER,state=\"idle\"} 3",
                "poolhouse_clients_accepted_total{LISTENER} 8",
                "poolhouse_client_rejections_total{LISTENER,reason=\"hard_limit\"} 2",
                "poolhouse_client_evictions_total{LISTENER,reason=\"soft_limit\"} 2",
                "poolhouse_client_closes_unanswered_total{LISTENER,reason=\"soft_limit\"} 1",
                "poolhouse_eviction_loops_total{LISTENER} 0",
                "poolhouse_servers{POOL,state=\"idle\"} 2",
                "poolhouse_servers_max{POOL} 20",
                "poolhouse_servers_created_total{POOL} 9",
                "poolhouse_servers_closed_total{POOL,reason=\"idle\"} 5",
                "poolhouse_pinned{POOL,reason=\"listen\"} 1",
                "poolhouse_pins_refused_total{POOL,reason=\"settings\"} 2",
                "poolhouse_pools_drained{POOL} 0",
                "poolhouse_pools_disabled{POOL} 0",
                "poolhouse_checkout_seconds_count{POOL,path=\"queued\"} 2",
                "poolhouse_checkout_seconds_bucket{le=\"0.0002\",POOL,path=\"idle\"} 0",
                "poolhouse_checkout_seconds_bucket{le=\"0.0005\",POOL,path=\"idle\"} 2",
                "poolhouse_checkout_seconds_bucket{le=\"+Inf\",POOL,path=\"idle\"} 2",
                "poolhouse_checkout_failed_total{POOL,reason=\"timeout\"} 3",
                "poolhouse_connect_phase_seconds_sum{POOL,phase=\"auth\"} 0.001",
                "poolhouse_hold_seconds_count{POOL} 2",
                "poolhouse_oldest_hold_seconds{POOL} 0.0",
                "poolhouse_waiters{POOL} 4",
                "poolhouse_transactions_total{POOL} 100",
                "poolhouse_auth_failures_total 6",
                "poolhouse_session_panics_total 1",
                "poolhouse_log_lines_dropped_total 11",
                "poolhouse_statement_bytes{kind=\"named\"} 14",
                "poolhouse_statement_bytes{kind=\"unnamed\"} 12",
                "poolhouse_statements_forgotten_total{kind=\"unnamed\"} 13",
                "poolhouse_http_held_bytes{LISTENER} 15",
                "poolhouse_http_held_bytes_limit{LISTENER} 16",
                "poolhouse_reloads_total{result=\"failed\"} 1",
                "poolhouse_last_reload_successful 0",
                "poolhouse_pools_paused{POOL} 0",
                "# EOF",
            ],
        );
    }

    #[test]
    fn only_pools_that_are_tuned_have_metrics_of_that() {
        let limits = tuner::Limits { min: 1, max: 60, window: Duration::from_secs(4) };
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

    fn of_many_pools() -> Vec<String> {
        let pools = (0..500).map(|n| PoolSnapshot { id: PoolId(n), ..pool("d", &format!("u{n}")) }).collect();
        let pieces = Metrics::new(Snapshot { pools, ..snapshot() }, true, Process::default());
        pieces.map(|piece| String::from_utf8(piece).unwrap()).collect()
    }

    #[test]
    fn however_many_pools_there_are_a_piece_is_small_and_none_is_empty() {
        let pieces = of_many_pools();
        assert!(pieces.len() > 50, "{}", pieces.len());
        // What a family has of one group of pools may be written beyond the end of a piece.
        assert!(pieces.iter().all(|piece| (1..PIECE + 20_000).contains(&piece.len())));
    }

    #[test]
    fn all_samples_of_a_family_stand_together_behind_its_type() {
        let text = of_many_pools().concat();
        let (mut seen, mut family, mut samples) = (std::collections::HashSet::new(), "", HashMap::new());
        for line in text.lines() {
            if let Some(named) = line.strip_prefix("# TYPE ") {
                family = named.split(' ').next().unwrap();
                assert!(seen.insert(family), "{family} comes twice");
            } else if !line.starts_with('#') {
                let suffix = line.split(['{', ' ']).next().and_then(|name| name.strip_prefix(family));
                let suffixes = ["", "_info", "_total", "_sum", "_count", "_bucket"];
                assert!(suffix.is_some_and(|suffix| suffixes.contains(&suffix)), "{line} stands after {family}");
                *samples.entry(family).or_insert(0) += 1;
            }
        }
        assert_eq!(seen.len(), FAMILIES.len());
        assert_eq!((samples["poolhouse_waiters"], samples["poolhouse_hold_seconds"]), (500, 500 * 22));
        assert_eq!(text.matches("# EOF\n").count(), 1);
        assert!(text.ends_with("} 0.0\n# EOF\n"));
    }

    #[test]
    fn a_snapshot_without_pools_has_every_family_too() {
        let text = render(Snapshot { pools: Vec::new(), ..snapshot() }, true, Process::default());
        assert_eq!(text.matches("# TYPE ").count(), FAMILIES.len());
        assert!(!text.contains("poolhouse_waiters{"));
    }
}
