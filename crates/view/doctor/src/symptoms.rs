//! One file for each kind of trouble of a pooler: what decides it; in `driver` that of a driver's own pool, in
//! `database`, `mongodb` and `redis` those that a database alone tells. Thresholds stand at the head of each file, with
//! the reason.

mod accepting;
mod churn;
pub(crate) mod database;
mod driver;
mod ephemeral;
mod held;
pub(crate) mod mongodb;
mod nested;
mod oversized;
mod pins;
mod reach;
pub(crate) mod redis;
mod size;
mod stampede;
mod vanished;
mod waiting;
mod working;

use admin_api::Pooler;

use crate::{
    finding::{Finding, Symptom, Undecided},
    window::{PoolWindow, Window},
};

/// What is known of one symptom, or of two that look alike.
pub(crate) enum Verdict {
    Absent,
    Present(Finding),
    Undecided(Undecided),
}

/// Clients wait at this share of the looks at least; otherwise it is a burst that passes.
const MIN_WAITING_SHARE: f64 = 0.3;
/// A proposed pool is at most this many times as large as the present one: beyond that the behaviour of the database
/// was never observed.
pub(crate) const MAX_GROWTH: u64 = 2;

/// What transactions pause for: the application's own doing, its processors, or the way.
pub(crate) const PAUSES: &str = "Clients pause within their transactions. Where they call other services there, end transactions first; where \
                                 they lack processors, give them some; where they are far away, each statement costs a round trip: send \
                                 several at once.";

/// Of each pool, what explains it first: who cannot reach the database has no other trouble, and what is held for
/// nothing is not wanting.
pub(crate) fn of_pool(pool: &PoolWindow<'_>) -> Vec<Verdict> {
    if matches!(pool.pooler, Pooler::HikariCp | Pooler::MongoDriver) {
        return driver::examine(pool);
    }
    let first = |verdicts: [fn(&PoolWindow<'_>) -> Verdict; 3]| {
        verdicts
            .into_iter()
            .map(|of| of(pool))
            .find(|verdict| !matches!(verdict, Verdict::Absent))
            .unwrap_or(Verdict::Absent)
    };
    let explained = first([reach::examine, held::examine, waiting::examine]);
    let (beside, explained) = match explained {
        Verdict::Present(small @ Finding { symptom: Symptom::PoolTooSmall, .. }) => {
            after_pauses(held::beside(pool), small)
        }
        other => (Verdict::Absent, other),
    };
    let is_of_pauses = |verdict: &Verdict| {
        matches!(verdict, Verdict::Present(Finding { symptom: Symptom::TransactionsLeftOpen | Symptom::Leak, .. }))
    };
    let is_told = is_of_pauses(&explained) || is_of_pauses(&beside);
    let forgotten = if is_told { Verdict::Absent } else { held::forgotten(pool) };
    // A transaction that is left open may hold the locks for which others wait.
    let is_explained = [&explained, &forgotten].into_iter().any(|verdict| !matches!(verdict, Verdict::Absent));
    let oversized = if is_explained { Verdict::Absent } else { oversized::examine(pool) };
    vec![beside, explained, forgotten, oversized, pins::examine(pool), churn::examine(pool), stampede::examine(pool)]
}

/// A pool that is too small, of which some servers are held for nothing: that comes first.
fn after_pauses(pauses: Verdict, small: Finding) -> (Verdict, Verdict) {
    let small = match &pauses {
        Verdict::Present(_) => Finding {
            advice: format!(
                "End the pauses that are told above first: they may be all that is wanting. {}",
                small.advice
            ),
            ..small
        },
        _ => small,
    };
    (pauses, Verdict::Present(small))
}

/// Of what concerns all pools.
pub(crate) fn of_clients(window: &Window) -> Vec<Verdict> {
    vec![accepting::examine(window), ephemeral::examine(window), nested::examine(window), vanished::examine(window)]
}

/// What a pooler does not tell.
pub(crate) fn unseen(window: &Window) -> Vec<String> {
    let mut unseen = match window.left_out() {
        0 => Vec::new(),
        more => vec![format!("{more} pools more")],
    };
    let of_driver = window.look().filter(|look| matches!(look.pooler, Pooler::HikariCp | Pooler::MongoDriver));
    unseen.extend(of_driver.into_iter().flat_map(driver::unseen));
    let Some(look) = window.look().filter(|look| look.pooler == Pooler::PgBouncer) else { return unseen };
    unseen.extend([
        "connections to the database that are made and closed again: PgBouncer does not count them (idle servers that are closed and made \
         again)"
            .to_owned(),
        "clients that come and go between two looks: PgBouncer does not count logins".to_owned(),
        "clients that vanish without closing, and how many connections were made after an outage".to_owned(),
    ]);
    if look.clients_left_out > 0 {
        unseen.push(format!(
            "{} clients beyond those that it shows first, and so which of all of them come and go (clients that connect for each transaction)",
            look.clients_left_out
        ));
    }
    let alone: Vec<&str> =
        look.pools.iter().filter(|pool| pool.busy_ms.is_none()).map(|pool| pool.database.as_str()).collect();
    if let Some(database) = alone.first() {
        unseen.push(format!(
            "how long servers are held where several users share a database ({database}): PgBouncer counts by database"
        ));
    }
    if window.pools().iter().any(|pool| pool.steps.iter().any(|step| step.is_of_unknown_work())) {
        unseen
            .push("what servers do while clients have them: the database knows (--database postgres://...)".to_owned());
    }
    unseen
}

/// A number of clients, and what they do.
fn clients(many: u64, does: &str, do_so: &str) -> String {
    match many {
        1 => format!("1 client {does}"),
        many => format!("{many} clients {do_so}"),
    }
}

/// A share as people say it.
fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Milliseconds as people say them.
pub(crate) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 120_000.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} min", ms / 60e3),
    }
}
