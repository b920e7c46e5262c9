//! No client gets a server: the database cannot be reached, or an operator has paused the pool.

use admin_api::Pooler;

use super::{Verdict, clients, time};
use crate::{
    finding::{Finding, Symptom, Undecided},
    window::PoolWindow,
};

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let (failed, waiters) = (admin_api::sum(pool.change.failed.values()), pool.last.waiters);
    if pool.last.paused && waiters > 0 {
        return Verdict::Present(Finding {
            symptom: Symptom::Paused,
            of: pool.name(),
            evidence: vec![
                "an operator paused it".to_owned(),
                format!(
                    "{}, the first of them for {}",
                    clients(waiters, "waits", "wait"),
                    time(pool.last.oldest_wait_ms.unwrap_or(0.0))
                ),
            ],
            rules_out: "neither the pool nor the database is slow: nothing is let through".to_owned(),
            setting: None,
            advice: match pool.pooler {
                Pooler::Poolhouse => "`poolhouse ctl ADMIN_URL resume` ends the pause.",
                _ => "RESUME on PgBouncer's console ends the pause.",
            }
            .to_owned(),
        });
    }
    if pool.last.drained {
        return drained(pool);
    }
    let Some(down) = pool.last.unavailable_ms else { return Verdict::Absent };
    // PgBouncer tells of no attempt: there only those who wait do. An attempt of Poolhouse's that failed is trouble
    // although no client waits now: a name that a client made up is no outage.
    let is_known = pool.pooler == Pooler::Poolhouse && pool.last.last_error.is_some();
    if !is_known && pool.last.created == 0 && failed == 0 && waiters == 0 {
        return Verdict::Absent;
    }
    if pool.hides_pause {
        return away_or_paused(pool, down);
    }
    let of_outage = ["unavailable", "refused"].iter().filter_map(|reason| pool.change.failed.get(*reason));
    let failed = admin_api::sum(of_outage);
    let waits = clients(waiters, "waits", "wait");
    let said = pool.last.last_error.clone().unwrap_or_else(|| "no attempt has ended yet".to_owned());
    Verdict::Present(Finding {
        symptom: Symptom::OutOfReach,
        of: pool.name(),
        evidence: vec![
            format!("there has been no connection to {} for {}", pool.last.address, time(down)),
            match pool.pooler {
                Pooler::Poolhouse => format!("the last attempt ended with: {said}"),
                _ => {
                    format!("the first client has waited for {}", time(pool.last.oldest_wait_ms.unwrap_or(0.0)))
                }
            },
            match pool.pooler {
                Pooler::Poolhouse => format!(
                    "in the {} that were looked at, {failed} check-outs failed for want of a connection; {waits} at the end",
                    time(pool.lasts.as_millis() as f64)
                ),
                _ => format!("{waits}, and no server works for anybody"),
            },
        ],
        rules_out: "the pool is not too small: nobody gets a server at all".to_owned(),
        setting: None,
        advice: match pool.pooler {
            Pooler::Poolhouse => {
                "Poolhouse tries again by itself, at most 5 s apart. If the error is one of configuration (password, name), change that and \
                 reload."
            }
            _ => {
                "PgBouncer's log says why it cannot connect. It tries again after server_login_retry (15 s). Another limit of its own \
                 (max_db_connections) that other pools use up looks the same from here."
            }
        }
        .to_owned(),
    })
}

/// An operator has ordered it, and may have forgotten that.
fn drained(pool: &PoolWindow<'_>) -> Verdict {
    Verdict::Present(Finding {
        symptom: Symptom::Drained,
        of: pool.name(),
        evidence: vec![
            "an operator drains it: every client that comes for it is refused".to_owned(),
            match pool.last.clients {
                0 => "no client of it is left".to_owned(),
                here => format!("{} still", clients(here, "is here", "are here")),
            },
        ],
        rules_out: "the database is not out of reach: Poolhouse lets no client in".to_owned(),
        setting: None,
        advice: "`poolhouse ctl ADMIN_URL resume` ends the drain.".to_owned(),
    })
}

/// The source does not tell whether the pooler tries to connect at all.
fn away_or_paused(pool: &PoolWindow<'_>, down: f64) -> Verdict {
    let waiters = pool.last.waiters;
    Verdict::Undecided(Undecided {
        between: vec![Symptom::OutOfReach, Symptom::Paused],
        of: pool.name(),
        seen: vec![
            format!("there has been no connection to {} for {}", pool.last.address, time(down)),
            format!(
                "{}, the first of them for {}",
                clients(waiters, "waits", "wait"),
                time(pool.last.oldest_wait_ms.unwrap_or(0.0))
            ),
        ],
        needs: "PgBouncer's log, which says why it cannot connect, or that somebody paused all databases: this one's console does not \
                (newer ones have SHOW STATE)"
            .to_owned(),
    })
}
