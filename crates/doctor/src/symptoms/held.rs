//! Clients hold servers while nothing is asked of the database: transactions left open, and servers that never come back.

use std::collections::BTreeSet;

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom},
    window::{PoolWindow, Step},
};

/// Clients wait at so many looks at least: a burst that passes is none of this.
const WAITING: f64 = 0.3;
/// The share of held servers whose client is elsewhere, from which on that is what others wait for.
const ELSEWHERE: f64 = 0.5;
/// Servers held by the same clients from the first look to the last, as a share of the pool's size.
const NEVER_BACK: f64 = 0.5;
/// A pause within a transaction that no ordinary work needs.
const LONG_PAUSE_MS: f64 = 200.0;
/// A pause so long that ending the transaction is the lesser evil.
const OVERLONG_MS: f64 = 5_000.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share(|step| step.pool.waiters > 0);
    if waiting < WAITING {
        return Verdict::Absent;
    }
    let Some(elsewhere) = pool.mean(share_elsewhere).filter(|share| *share >= ELSEWHERE) else {
        return Verdict::Absent;
    };
    let pauses: Vec<f64> =
        pool.steps.iter().flat_map(|step| step.busy.iter().filter(|c| is_elsewhere(c)).map(|c| c.state_ms)).collect();
    let longest = pauses.iter().copied().fold(0.0, f64::max);
    let kept = held_throughout(pool);
    let in_use = pool.mean(|step| Some(step.pool.servers.in_use as f64)).unwrap_or(0.0);
    if kept.len() as f64 >= NEVER_BACK * pool.last.max_size as f64 {
        return Verdict::Present(Finding {
            symptom: Symptom::Leak,
            of: pool.name(),
            evidence: vec![
                format!(
                    "{} of at most {} servers were held by the same clients for the whole {}, and nothing was asked of them",
                    kept.len(),
                    pool.last.max_size,
                    time(pool.lasts.as_millis() as f64)
                ),
                format!("the longest has paused within its transaction for {}", time(longest)),
                format!("clients waited at {} of the looks, while {:.1} transactions ended a second", percent(waiting), pool.rate()),
            ],
            rules_out: "transactions that are slow would come to an end, and others begin: these do neither".to_owned(),
            setting: Some(Setting { key: "transaction_idle_time", from: None, to: "30s".to_owned() }),
            advice: "Find the clients with `poolhouse top` (the longest come first) and the place where they leave without COMMIT or \
                     ROLLBACK. The setting ends such transactions, with an error for who left them."
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
                percent(elsewhere)
            ),
            format!("the longest such pause was {}", time(longest)),
            format!("clients waited at {} of the looks", percent(waiting)),
        ],
        rules_out: format!(
            "the pool is not too small: of {in_use:.0} servers in use only {:.1} had something to do",
            in_use * (1.0 - elsewhere)
        ),
        // A limit below what applications pause now would break them; above it, it would change nothing.
        setting: (longest > OVERLONG_MS).then(|| Setting {
            key: "transaction_idle_time",
            from: None,
            to: "5s".to_owned(),
        }),
        advice: format!(
            "End transactions before calling other services. Without the pauses {:.0} of the {} servers suffice for the same work.",
            (in_use * (1.0 - elsewhere)).ceil().max(1.0),
            pool.last.max_size
        ),
    })
}

fn is_elsewhere(client: &watch::Client) -> bool {
    matches!(client.state.as_str(), "transaction" | "idle")
}

/// Of those who have a server, the share that asks nothing of it.
fn share_elsewhere(step: &Step<'_>) -> Option<f64> {
    let holders = step.busy.iter().filter(|client| client.state != "waiting").count();
    let elsewhere = step.busy.iter().filter(|client| is_elsewhere(client)).count();
    (holders > 0).then(|| elsewhere as f64 / holders as f64)
}

/// Clients that were elsewhere at every look, and have been for all that time.
fn held_throughout(pool: &PoolWindow<'_>) -> BTreeSet<u64> {
    let of = |step: &Step<'_>| step.busy.iter().filter(|c| is_elsewhere(c)).map(|c| c.id).collect::<BTreeSet<_>>();
    let mut steps = pool.steps.iter();
    let first = steps.next().map(of).unwrap_or_default();
    let throughout = steps.fold(first, |kept, step| kept.intersection(&of(step)).copied().collect());
    let lasts = pool.lasts.as_millis() as f64 / 2.0;
    let last = pool.steps.last().map(|step| &step.busy[..]).unwrap_or_default();
    last.iter().filter(|c| throughout.contains(&c.id) && c.state_ms >= lasts).map(|c| c.id).collect()
}
