//! One file for each kind of trouble: what decides that it is there, wherever it can be seen. `driver`, `postgres`,
//! `mongodb` and `redis` name the symptoms that such a source shows, and what it hides. Thresholds stand at the head of
//! each file, with the reason.

mod accept_failures;
mod connection_limit;
mod driver;
mod driver_leak;
mod ephemeral_clients;
mod held_servers;
mod idle_churn;
pub(crate) mod mongodb;
mod open_transactions;
mod out_of_reach;
mod oversized_pool;
mod pool_of_pools;
mod pool_too_small;
pub(crate) mod postgres;
pub(crate) mod redis;
mod refused_pins;
mod saturated_server;
mod session_work;
mod stampede;
mod waiting_clients;
mod zombies;

use std::time::Duration;

use admin_api::{Counts, Look, Pooler};

use crate::{
    finding::{Finding, Symptom, Undecided},
    pooler::{PoolWindow, PoolerWindow},
    postgres::{LONG_PAUSE_MS, OVERLONG_PAUSE_MS},
};

/// Clients wait at this share of the looks at least; otherwise it is a burst that passes.
const MIN_WAITING_SHARE: f64 = 0.3;
/// A proposed pool is at most this many times as large as the present one: beyond that the behaviour of the database
/// was never observed.
pub(crate) const MAX_GROWTH: u64 = 2;
/// A limit that breaks overlong pauses is proposed only if at most this share of the pauses is overlong.
const MAX_OVERLONG_SHARE: f64 = 0.1;
/// The proposed limit of a pause where few pauses are overlong.
const OVERLONG_LIMIT_MS: f64 = 5_000.0;
/// The proposed limit of a pause where transactions are never ended.
const LEAK_LIMIT_MS: f64 = 30_000.0;
/// What has a symptom that is of no single client.
const WHOLE_SERVER: &str = "the whole server";
const ALL_LISTENERS: &str = "all listeners";

/// What transactions pause for: the application's own doing, its processors, or the network.
const PAUSE_ADVICE: &str = "Clients pause within their transactions. Where they call other services there, end \
    transactions first; where they lack processors, give them some; where they are far away, each statement costs a \
    round trip: send several at once.";

/// What is known of one symptom, or of two that look alike.
pub(crate) enum Verdict {
    Absent,
    Present(Finding),
    Undecided(Undecided),
}

impl Verdict {
    fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// The first verdict that is not absent. It explains the others, so they are not examined.
    fn first_of(pool: &PoolWindow<'_>, examined: [fn(&PoolWindow<'_>) -> Self; 3]) -> Self {
        let mut verdicts = examined.into_iter().map(|examine| examine(pool));
        verdicts.find(|verdict| !verdict.is_absent()).unwrap_or(Self::Absent)
    }

    /// The clients pause in transactions, or leave them open.
    fn is_of_pauses(&self) -> bool {
        matches!(self, Self::Present(Finding { symptom: Symptom::TransactionsLeftOpen | Symptom::Leak, .. }))
    }
}

impl From<Finding> for Verdict {
    fn from(finding: Finding) -> Self {
        Self::Present(finding)
    }
}

impl From<Undecided> for Verdict {
    fn from(undecided: Undecided) -> Self {
        Self::Undecided(undecided)
    }
}

/// The symptoms of one pool. A pool whose database is out of reach has no other trouble, and servers that are held for
/// nothing are not missing.
pub(crate) fn examine_pool(pool: &PoolWindow<'_>) -> Vec<Verdict> {
    if matches!(pool.pooler, Pooler::HikariCp | Pooler::MongoDriver) {
        return driver::examine(pool);
    }
    let examined = [out_of_reach::examine, held_servers::examine, waiting_clients::examine];
    let (beside, explained) = match Verdict::first_of(pool, examined) {
        Verdict::Present(small @ Finding { symptom: Symptom::PoolTooSmall, .. }) => {
            let beside = held_servers::examine_beside_waits(pool);
            let small = if matches!(beside, Verdict::Present(_)) { after_pauses(small) } else { small };
            (beside, small.into())
        }
        other => (Verdict::Absent, other),
    };
    let names_pauses = explained.is_of_pauses() || beside.is_of_pauses();
    let forgotten = if names_pauses { Verdict::Absent } else { held_servers::examine_forgotten(pool) };
    // A transaction that is left open may hold the locks for which others wait.
    let is_explained = !explained.is_absent() || !forgotten.is_absent();
    let oversized = if is_explained { Verdict::Absent } else { oversized_pool::examine(pool) };
    let others = [refused_pins::examine(pool), idle_churn::examine_pool(pool), stampede::examine(pool)];
    [beside, explained, forgotten, oversized].into_iter().chain(others).collect()
}

/// A pool that is too small, of which some servers are held for nothing: that comes first.
fn after_pauses(small: Finding) -> Finding {
    let advice = format!("End the pauses that are told above first: they may be all that is wanting. {}", small.advice);
    small.advice(advice)
}

/// The symptoms that concern all pools.
pub(crate) fn examine_clients(window: &PoolerWindow) -> [Verdict; 4] {
    [
        accept_failures::examine(window),
        ephemeral_clients::examine_pooler(window),
        pool_of_pools::examine_pooler(window),
        zombies::examine_pooler(window),
    ]
}

/// What a pooler does not tell.
pub(crate) fn name_unseen(window: &PoolerWindow) -> Vec<String> {
    let mut unseen = match window.left_out() {
        0 => Vec::new(),
        more => vec![format!("{more} pools more")],
    };
    match window.last() {
        Some(look) if matches!(look.pooler, Pooler::HikariCp | Pooler::MongoDriver) => {
            unseen.extend(driver::name_unseen(look));
        }
        Some(look) if look.pooler == Pooler::PgBouncer => unseen.extend(name_unseen_of_pgbouncer(window, look)),
        _ => {}
    }
    unseen
}

fn name_unseen_of_pgbouncer(window: &PoolerWindow, look: &Look) -> Vec<String> {
    let mut unseen = vec![
        "connections to the database that are made and closed again: PgBouncer does not count them (idle servers that \
         are closed and made again)"
            .to_owned(),
        "clients that come and go between two looks: PgBouncer does not count logins".to_owned(),
        "clients that vanish without closing, and how many connections were made after an outage".to_owned(),
    ];
    if look.clients_left_out > 0 {
        unseen.push(format!(
            "{} clients beyond those that it shows first, and so which of all of them come and go (clients that \
             connect for each transaction)",
            look.clients_left_out
        ));
    }
    if let Some(pool) = look.pools.iter().find(|pool| pool.busy_ms.is_none()) {
        let database = &pool.database;
        unseen.push(format!(
            "how long servers are held where several users share a database ({database}): PgBouncer counts by database"
        ));
    }
    if window.pools().iter().any(|pool| pool.steps.iter().any(|step| step.has_unknown_holders())) {
        let work = "what servers do while clients have them: the database knows (--database postgres://...)";
        unseen.push(work.to_owned());
    }
    unseen
}

/// A number of clients, and what they do.
fn format_clients(clients: u64, does: &str, do_so: &str) -> String {
    match clients {
        1 => format!("1 client {does}"),
        clients => format!("{clients} clients {do_so}"),
    }
}

/// The reasons that occurred, with their counts.
fn format_reasons(counts: &Counts) -> String {
    let reasons = counts.iter().filter(|(_, count)| **count > 0).map(|(why, count)| format!("{count} for {why}"));
    reasons.collect::<Vec<_>>().join(", ")
}

fn format_percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

pub(crate) fn format_ms(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 120_000.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} min", ms / 60e3),
    }
}

fn format_duration(duration: Duration) -> String {
    format_ms(duration.as_millis() as f64)
}
