//! Which metrics there are, in the order in which they are written. Names and labels are promises to users.

use std::{collections::BTreeMap, time::SystemTime};

use ::pool::CheckOutFailed;
use driver::{DurationHistogram, ListenerSnapshot, PoolSnapshot, TenantSnapshot, WorkerSnapshot};
use tuner::{Tuner, TunerState};

use self::Of::{Listener, Pools, Process, Tenant, Worker};
use super::{
    Input,
    groups::Group,
    text::{
        Kind::{self, Counter, Gauge, Histogram, Info},
        Samples,
    },
};
use crate::reload::ReloadCounts;

/// A metric with all its samples.
pub struct Family {
    pub kind: Kind,
    /// Samples have the suffix of their kind besides.
    pub name: &'static str,
    /// What it tells, in one line.
    pub help: &'static str,
    pub of: Of,
}

/// Whose samples a family has, and what writes them.
pub enum Of {
    /// Of the process as a whole.
    Process(fn(&Input, &mut Samples<'_>)),
    /// Of each listener, whose labels are there already.
    Listener(fn(&ListenerSnapshot, &mut Samples<'_>)),
    /// Of each database and user with limits of its own, whose labels are there already.
    Tenant(fn(&TenantSnapshot, &mut Samples<'_>)),
    /// Of each worker, whose label is there already.
    Worker(fn(&WorkerSnapshot, &mut Samples<'_>)),
    /// Of each group of pools, whose labels are there already.
    Pools(fn(&Input, &Group<'_>, &mut Samples<'_>)),
}

const fn family(kind: Kind, name: &'static str, help: &'static str, of: Of) -> Family {
    Family { kind, name, help, of }
}

pub const FAMILIES: &[Family] = &[
    // ---- the process ----
    family(
        Info,
        "poolhouse_build",
        "Which Poolhouse this is",
        Process(|input, to| {
            to.count(&[("version", env!("CARGO_PKG_VERSION")), ("reactor", input.snapshot.reactor)], 1);
        }),
    ),
    family(
        Counter,
        "poolhouse_password_command_failures",
        "How often the program for a database's password has failed",
        Process(|input, to| {
            for status in &input.process.password_commands {
                status.databases.iter().for_each(|database| to.count(&[("database", database)], status.failures));
            }
        }),
    ),
    family(
        Gauge,
        "poolhouse_password_command_valid_seconds",
        "For how long the password holds that the program of a database gave last; 0 without one",
        Process(|input, to| {
            for status in &input.process.password_commands {
                let seconds = status.remaining.unwrap_or_default().as_secs_f64();
                status.databases.iter().for_each(|database| to.seconds(&[("database", database)], seconds));
            }
        }),
    ),
    family(
        Counter,
        "poolhouse_peer_cancels",
        "Cancel requests for another process: dealt with by the peer, or failed",
        Process(|input, to| {
            for peer in &input.process.peers {
                let node = peer.node.to_string();
                to.count(&[("peer", &*node), ("outcome", "delivered")], peer.delivered);
                to.count(&[("peer", &*node), ("outcome", "failed")], peer.failed);
            }
        }),
    ),
    family(
        Counter,
        "poolhouse_foreign_cancels_dropped",
        "Cancel requests for another process that were handed on to none",
        Process(|input, to| to.count(&[], input.process.dropped_cancels)),
    ),
    family(
        Gauge,
        "poolhouse_certificate_expiry_seconds",
        "Until a certificate of a listener or a database expires; negative after that",
        Process(|input, to| {
            let now = SystemTime::now();
            for known in input.process.certificates.iter() {
                let file = known.file.to_string_lossy();
                let labels = [("used_by", known.used_by), ("name", &*known.name), ("file", &*file)];
                to.seconds(&labels, known.remaining_seconds(now));
            }
        }),
    ),
    family(
        Counter,
        "poolhouse_auth_failures",
        "Failed logins of clients",
        Process(|input, to| to.count(&[], input.snapshot.auth_failures)),
    ),
    family(
        Counter,
        "poolhouse_session_panics",
        "Calls into sessions that panicked, which is a defect",
        Process(|input, to| to.count(&[], input.snapshot.session_panics)),
    ),
    family(
        Counter,
        "poolhouse_log_lines_dropped",
        "Log lines dropped because standard error was too slow",
        Process(|input, to| to.count(&[], input.process.dropped_log_lines)),
    ),
    family(
        Gauge,
        "poolhouse_statement_bytes",
        "Bytes of clients' statements for PostgreSQL that are held",
        Process(|input, to| {
            let held = input.process.held.statements;
            each(to, "kind", [("named", held.named_bytes), ("unnamed", held.unnamed_bytes)]);
        }),
    ),
    family(
        Counter,
        "poolhouse_statements_forgotten",
        "Statements that clients might have used, and that had to go because there were too many bytes of them",
        Process(|input, to| each(to, "kind", [("unnamed", input.process.held.statements.unnamed_forgotten)])),
    ),
    family(
        Gauge,
        "poolhouse_http_held_bytes",
        "Bytes held for clients of HTTP, without the first 64 KB of each connection",
        Process(|input, to| http(input, to, |held| held.bytes)),
    ),
    family(
        Gauge,
        "poolhouse_http_held_bytes_limit",
        "Most bytes that are held for clients of HTTP",
        Process(|input, to| http(input, to, |held| held.max_bytes)),
    ),
    family(
        Gauge,
        "poolhouse_history_bytes",
        "Bytes that the last hour of the pools takes",
        Process(|input, to| to.count(&[], input.process.history_bytes)),
    ),
    family(
        Counter,
        "poolhouse_reloads",
        "How often the configuration was read again",
        Process(|input, to| {
            let ReloadCounts { failed, done, .. } = input.process.reloads;
            each(to, "result", [("failed", failed), ("done", done)]);
        }),
    ),
    family(
        Gauge,
        "poolhouse_last_reload_successful",
        "0 from a reload that failed until the next that does not: the file on disk is not what runs",
        Process(|input, to| to.count(&[], u64::from(!input.process.reloads.is_behind))),
    ),
    family(
        Gauge,
        "poolhouse_draining",
        "1 while shutting down",
        Process(|input, to| to.count(&[], u64::from(input.snapshot.draining))),
    ),
    // ---- clients ----
    family(Gauge, "poolhouse_clients", "Clients now", Listener(clients)),
    family(
        Gauge,
        "poolhouse_clients_limit",
        "Limits of clients",
        Listener(|l, to| {
            let (soft, hard) = l.limits;
            each(to, "limit", [("soft", u64::from(soft)), ("hard", u64::from(hard))]);
        }),
    ),
    family(Counter, "poolhouse_clients_accepted", "Clients let in", Listener(|l, to| to.count(&[], l.accepted))),
    family(Counter, "poolhouse_client_logins", "Clients that logged in", Listener(|l, to| to.count(&[], l.logins))),
    family(
        Counter,
        "poolhouse_client_rejections",
        "Clients turned away at the door",
        Listener(|l, to| each(to, "reason", l.rejections.iter().copied())),
    ),
    family(
        Counter,
        "poolhouse_accepts_failed",
        "Times that the system refused to accept a client, as without a free file descriptor",
        Listener(|l, to| to.count(&[], l.accepts_failed)),
    ),
    family(
        Counter,
        "poolhouse_client_evictions",
        "Clients sent away",
        Listener(|l, to| each(to, "reason", l.evictions.iter().copied())),
    ),
    family(
        Counter,
        "poolhouse_client_closes_unanswered",
        "Clients sent away that never ended their side of the connection",
        Listener(|l, to| each(to, "reason", l.unanswered.iter().copied())),
    ),
    family(
        Counter,
        "poolhouse_eviction_loops",
        "Times that clients were seen to come back as fast as they were evicted",
        Listener(|l, to| to.count(&[], l.eviction_loops)),
    ),
    // ---- databases and users with limits of their own ----
    family(
        Gauge,
        "poolhouse_tenant_clients",
        "Clients of a database or a user that has limits of its own, by whether they have a place",
        Tenant(|tenant, to| {
            to.count(&[("state", "inside")], tenant.clients.into());
            to.count(&[("state", "waiting")], tenant.waiting);
        }),
    ),
    family(
        Gauge,
        "poolhouse_tenant_hard_limit",
        "Clients that a database or a user may have",
        Tenant(|tenant, to| to.count(&[], tenant.limits.1.into())),
    ),
    family(
        Counter,
        "poolhouse_tenant_evictions",
        "Clients evicted because their database or their user had more than its soft_limit",
        Tenant(|tenant, to| to.count(&[], tenant.evictions)),
    ),
    family(
        Counter,
        "poolhouse_tenant_rejections",
        "Clients refused because their database or their user had as many as its hard_limit",
        Tenant(|tenant, to| to.count(&[], tenant.rejections)),
    ),
    // ---- workers ----
    family(
        Counter,
        "poolhouse_worker_cpu_seconds",
        "CPU time of the worker's thread",
        Worker(|w, to| to.seconds(&[], w.cpu.as_secs_f64())),
    ),
    family(Gauge, "poolhouse_worker_clients", "Clients of the worker", Worker(|w, to| to.count(&[], w.clients))),
    family(
        Counter,
        "poolhouse_worker_transactions",
        "Transactions of the worker's clients",
        Worker(|w, to| to.count(&[], w.transactions)),
    ),
    family(
        Counter,
        "poolhouse_worker_moves",
        "Servers that moved to the worker",
        Worker(|w, to| to.count(&[], w.moves)),
    ),
    // ---- servers ----
    family(Gauge, "poolhouse_servers", "Connections to databases now", Pools(|_, group, to| servers(group, to))),
    family(
        Gauge,
        "poolhouse_servers_max",
        "Most connections a pool may have",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| u64::from(pool.config.max_size)))),
    ),
    family(
        Counter,
        "poolhouse_servers_created",
        "Connections made",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| pool.totals.created))),
    ),
    family(
        Counter,
        "poolhouse_servers_closed",
        "Connections closed",
        Pools(|_, group, to| each(to, "reason", group.counts(|pool| &pool.totals.closed))),
    ),
    family(
        Gauge,
        "poolhouse_pinned",
        "Servers pinned to a client now",
        Pools(|_, group, to| each(to, "reason", group.counts(|pool| &pool.pinned))),
    ),
    family(
        Counter,
        "poolhouse_pins_refused",
        "Sessions that needed a server of their own and got none, as max_pinned had one",
        Pools(|_, group, to| each(to, "reason", group.counts(|pool| &pool.totals.pins_refused))),
    ),
    family(
        Gauge,
        "poolhouse_suspicious_functions",
        "Functions and the like that could touch a session behind the text of a statement",
        Pools(|input, group, to| {
            let of = |pool: &PoolSnapshot| input.process.suspicious.get(&pool.id).copied();
            to.count(&[], group.pools().filter_map(of).max().unwrap_or(0));
        }),
    ),
    family(
        Gauge,
        "poolhouse_pools_paused",
        "Pools that an operator paused",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| u64::from(pool.paused)))),
    ),
    family(
        Gauge,
        "poolhouse_pools_drained",
        "Pools that an operator drains: their clients are refused",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| u64::from(pool.drained)))),
    ),
    family(
        Gauge,
        "poolhouse_pools_disabled",
        "Pools that take no new clients, by order of an operator",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| u64::from(pool.disabled)))),
    ),
    family(
        Gauge,
        "poolhouse_pools_unavailable",
        "Pools that cannot reach their upstream",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| u64::from(pool.unavailable_for.is_some())))),
    ),
    // ---- tuning, of pools whose size is tuned only ----
    family(
        Counter,
        "poolhouse_tuning_steps",
        "Decisions about the size of pools that is tuned",
        Pools(|input, group, to| {
            let mut sums: BTreeMap<_, u64> = BTreeMap::new();
            for (reason, count) in tuners(input, group).iter().flat_map(|tuner| tuner.steps()) {
                *sums.entry(reason.as_str()).or_default() += count;
            }
            each(to, "reason", sums);
        }),
    ),
    family(
        Counter,
        "poolhouse_tuning_changes",
        "Changes of the size of pools that is tuned, each turn of a trial included",
        Pools(|input, group, to| {
            let tuners = tuners(input, group);
            if !tuners.is_empty() {
                to.count(&[], tuners.iter().map(|tuner| tuner.changes()).sum());
            }
        }),
    ),
    family(
        Gauge,
        "poolhouse_tuning_found",
        "Pools whose best size is found",
        Pools(|input, group, to| {
            let found = |tuner: &&&Tuner| matches!(tuner.state(), TunerState::Found | TunerState::Probing);
            let tuners = tuners(input, group);
            if !tuners.is_empty() {
                to.count(&[], tuners.iter().filter(found).count() as u64);
            }
        }),
    ),
    // ---- check-outs ----
    family(
        Gauge,
        "poolhouse_waiters",
        "Clients waiting for a server",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| u64::from(pool.counts.waiters)))),
    ),
    family(
        Gauge,
        "poolhouse_pool_clients",
        "Clients logged in",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| pool.clients))),
    ),
    family(
        Counter,
        "poolhouse_transactions",
        "Transactions (leases ended)",
        Pools(|_, group, to| to.count(&[], group.sum(|pool| pool.totals.transactions))),
    ),
    family(
        Counter,
        "poolhouse_checkout_failed",
        "Check-outs that failed",
        Pools(|_, group, to| {
            let failed = group.counts(|pool| &pool.totals.checkout_failed);
            let count = |why: CheckOutFailed| (why.as_str(), failed.get(why.as_str()).copied().unwrap_or(0));
            // `increase()` misses the first failure of a series that begins with it, so each series is written from
            // the start.
            each(to, "reason", CheckOutFailed::ALL.map(count));
        }),
    ),
    family(
        Histogram,
        "poolhouse_checkout_seconds",
        "Time to check out a server",
        Pools(|_, group, to| times(to, "path", group.times(|pool| &pool.totals.checkout))),
    ),
    family(
        Histogram,
        "poolhouse_connect_phase_seconds",
        "Phases of making a connection",
        Pools(|_, group, to| times(to, "phase", group.times(|pool| &pool.totals.connect))),
    ),
    family(
        Histogram,
        "poolhouse_hold_seconds",
        "How long servers are held",
        Pools(|_, group, to| to.times(&[], &group.time(|pool| &pool.totals.hold))),
    ),
    family(
        Gauge,
        "poolhouse_oldest_hold_seconds",
        "For how long the server has been held that has been for longest, pinned ones apart; 0 if none is",
        Pools(|_, group, to| {
            let oldest = group.pools().filter_map(|pool| pool.oldest_hold).max().unwrap_or_default();
            to.seconds(&[], oldest.as_secs_f64());
        }),
    ),
];

/// A number of each listener of HTTP.
fn http(input: &Input, to: &mut Samples<'_>, of: fn(&redis_session::ListenerMemory) -> u64) {
    for held in &input.process.held.http {
        let listener = &input.snapshot.listeners[usize::from(held.listener)];
        to.count(&[("listener", &*listener.name), ("protocol", listener.protocol)], of(held));
    }
}

fn clients(listener: &ListenerSnapshot, to: &mut Samples<'_>) {
    let states = [
        ("login", listener.login),
        ("idle", listener.idle),
        ("active", listener.active),
        ("waiting", listener.waiting),
        ("subscribed", listener.subscribed),
    ];
    each(to, "state", states);
}

fn servers(group: &Group<'_>, to: &mut Samples<'_>) {
    let sum = |of: fn(&::pool::Counts) -> u32| group.sum(|pool| u64::from(of(&pool.counts)));
    let states = [
        ("connecting", sum(|counts| counts.connecting)),
        ("idle", sum(|counts| counts.idle)),
        ("in_use", sum(|counts| counts.in_use)),
        ("checking", sum(|counts| counts.checking)),
        ("closing", sum(|counts| counts.closing)),
    ];
    each(to, "state", states);
}

/// The tuners of a group's pools.
fn tuners<'t>(input: &'t Input, group: &Group<'_>) -> Vec<&'t Tuner> {
    group.pools().filter_map(|pool| input.process.tuners.get(&pool.id)).collect()
}

/// A sample for each value of a label.
fn each(to: &mut Samples<'_>, label: &str, counts: impl IntoIterator<Item = (&'static str, u64)>) {
    for (value, count) in counts {
        to.count(&[(label, value)], count);
    }
}

/// A histogram for each value of a label. Those without a value yet are written, too: `increase()` would not see the
/// first value of a new series.
fn times(to: &mut Samples<'_>, label: &str, times: BTreeMap<&'static str, DurationHistogram>) {
    for (value, times) in times {
        to.times(&[(label, value)], &times);
    }
}
