//! Clients hold servers while nothing is asked of the database: transactions left open, servers that never come back, and servers that stay with
//! clients that are idle.

use std::collections::BTreeSet;

use super::{Verdict, WAITING, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom},
    window::{PoolWindow, Stands, Step},
};

/// The share of held servers whose client is elsewhere, from which on that is what others wait for.
const ELSEWHERE: f64 = 0.5;
/// Servers held by the same clients from the first look to the last, as a share of the pool's size.
const NEVER_BACK: f64 = 0.5;
/// A pause within a transaction that no ordinary work needs.
const LONG_PAUSE_MS: f64 = 200.0;
/// A pause so long that ending the transaction is the lesser evil.
const OVERLONG_MS: f64 = 5_000.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share(|step| step.waiters > 0);
    if waiting < WAITING {
        return Verdict::Absent;
    }
    let share = |stands| pool.mean(|step| step.share_of(stands)).unwrap_or(0.0);
    let (open, idle) = (share(Stands::InTransaction), share(Stands::Idle));
    let waited = format!("clients waited at {} of the looks", percent(waiting));
    match () {
        () if open >= ELSEWHERE => left_open(pool, open, waited),
        () if idle >= ELSEWHERE => with_idle_clients(pool, idle, waited),
        () => Verdict::Absent,
    }
}

fn left_open(pool: &PoolWindow<'_>, open: f64, waited: String) -> Verdict {
    let pauses =
        pool.steps.iter().flat_map(|step| step.holders.iter().filter(|holder| holder.stands == Stands::InTransaction));
    let longest = pauses.map(|holder| holder.ms).fold(0.0, f64::max);
    let kept = held_throughout(pool);
    let in_use = pool.mean(|step| Some(step.in_use as f64)).unwrap_or(0.0);
    if kept as f64 >= NEVER_BACK * pool.last.max_size as f64 {
        return Verdict::Present(Finding {
            symptom: Symptom::Leak,
            of: pool.name(),
            evidence: vec![
                format!(
                    "{kept} of at most {} servers were held by the same clients for the whole {}, and nothing was asked of them",
                    pool.last.max_size,
                    time(pool.lasts.as_millis() as f64)
                ),
                format!("the longest has paused within its transaction for {}", time(longest)),
                format!("{waited}, while {:.1} transactions ended a second", pool.rate()),
            ],
            rules_out: "transactions that are slow would come to an end, and others begin: these do neither".to_owned(),
            setting: Some(Setting { key: "transaction_idle_time", from: None, to: "30s".to_owned() }),
            advice: "Find the clients with `poolhouse top` (the longest come first) and the place where they leave without COMMIT or \
                     ROLLBACK. The setting, of a listener or a user, ends such transactions, with an error for who left them."
                .to_owned(),
        });
    }
    if longest < LONG_PAUSE_MS {
        return Verdict::Absent;
    }
    Verdict::Present(Finding {
        symptom: Symptom::TransactionsLeftOpen,
        of: pool.name(),
        evidence: vec![
            format!(
                "{} of the servers held had a client that asked nothing of them, within a transaction",
                percent(open)
            ),
            format!("the longest such pause was {}", time(longest)),
            waited,
        ],
        rules_out: format!(
            "the pool is not too small: of {in_use:.0} servers in use only {:.1} had something to do",
            in_use * (1.0 - open)
        ),
        // A limit below what applications pause now would break them; above it, it would change nothing.
        setting: (longest > OVERLONG_MS).then(|| Setting {
            key: "transaction_idle_time",
            from: None,
            to: "5s".to_owned(),
        }),
        advice: format!(
            "End transactions before calling other services. Without the pauses {:.0} of the {} servers suffice for the same work.",
            (in_use * (1.0 - open)).ceil().max(1.0),
            pool.last.max_size
        ),
    })
}

fn with_idle_clients(pool: &PoolWindow<'_>, idle: f64, waited: String) -> Verdict {
    let pinned: Vec<String> =
        pool.last.pinned.iter().filter(|(_, n)| **n > 0).map(|(why, n)| format!("{n} for {why}")).collect();
    let why = if pinned.is_empty() {
        "none of them is pinned: in session mode a server stays with its client until that leaves".to_owned()
    } else {
        format!("servers are pinned to their clients: {}", pinned.join(", "))
    };
    Verdict::Present(Finding {
        symptom: Symptom::HeldByIdleClients,
        of: pool.name(),
        evidence: vec![format!("{} of the servers held had a client with nothing in progress", percent(idle)), why, waited],
        rules_out: "the servers are not busy, and no transaction is open on them".to_owned(),
        setting: None,
        advice: "Use mode = \"transaction\" where the clients allow it; else let idle clients go (client_idle_time), or give the pool as many \
                 servers as there are clients. docs/postgresql.md says what pins a server."
            .to_owned(),
    })
}

/// How many clients were within a transaction at every look, and have been for all that time.
fn held_throughout(pool: &PoolWindow<'_>) -> usize {
    let of = |step: &Step| {
        let holders = step.holders.iter().filter(|holder| holder.stands == Stands::InTransaction);
        holders.map(|holder| holder.id).collect::<BTreeSet<_>>()
    };
    let mut steps = pool.steps.iter();
    let first = steps.next().map(|step| of(step)).unwrap_or_default();
    let throughout = steps.fold(first, |kept, step| kept.intersection(&of(step)).copied().collect());
    let lasts = pool.lasts.as_millis() as f64 / 2.0;
    let last = pool.steps.last().map(|step| &step.holders[..]).unwrap_or_default();
    last.iter().filter(|holder| throughout.contains(&holder.id) && holder.ms >= lasts).count()
}
