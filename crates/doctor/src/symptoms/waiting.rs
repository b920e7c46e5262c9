//! Clients wait while all servers work: the pool is too small, or the database is saturated. What tells them apart is whether work takes longer
//! the more of it is under way. That can be told only from loads of different sizes, and only if the work is of one kind.

use watch::Pooler;

use super::{Verdict, WAITING, percent, time};
use crate::{
    finding::{Finding, Key, Setting, Symptom, Undecided},
    window::PoolWindow,
};

/// Looks with so many servers in use that are needed to speak of how long work takes then.
const LOOKS: usize = 2;
/// Numbers of servers in use that are needed to see work get slower from one to the next. With fewer, the work of a busy time may only be of
/// another kind than that of a quiet one.
const LEVELS: usize = 3;
/// Up to this share of its servers a pool is lightly loaded.
const LIGHT: f64 = 0.5;
/// Work takes as long under the full load as under a light one.
const ALIKE: f64 = 1.25;
/// Work takes so much longer under the full load that the database gains little by it.
const LONGER: f64 = 1.6;
/// From one level to the next work may also take a little less long, by chance.
const DIP: f64 = 0.85;
/// A pool is never proposed that is more times as large: what the database does then nobody has seen.
const MOST: u64 = 2;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share(|step| step.waiters > 0);
    let max = pool.last.max_size;
    if waiting < WAITING {
        return Verdict::Absent;
    }
    let waits = waits(pool, waiting);
    let full = pool.share(|step| step.is_full());
    if full < waiting / 2.0 {
        return another_limit(pool, waits);
    }
    let in_use = format!("all {max} servers were in use at {} of the looks", percent(full));
    let levels = levels(pool);
    let light = levels.iter().find(|(n, _)| (*n as f64) <= LIGHT * max as f64);
    let (Some((light_n, light_ms)), Some((most_n, full_ms))) = (light, levels.last().filter(|(n, _)| *n >= max)) else {
        return undecided(
            pool,
            vec![waits, in_use],
            "looks at a light load to compare with: a longer window (--window 10m)",
        );
    };
    let ratio = full_ms / light_ms.max(1e-6);
    let compared = format!(
        "servers were held for {} on average when {most_n} of them were in use, and for {} with {light_n}",
        time(*full_ms),
        time(*light_ms)
    );
    let grows = levels.windows(2).all(|pair| pair[1].1 >= DIP * pair[0].1);
    if ratio <= ALIKE && levels.iter().all(|(_, ms)| *ms <= ALIKE * light_ms) {
        // By Little's law those in use and those who wait are what would be in use if nobody waited; where clients wait for an answer
        // before they ask again, there will be fewer.
        let wanted =
            pool.mean(|step| step.is_full().then_some((step.in_use + step.waiters) as f64)).unwrap_or(max as f64);
        let to = (wanted.ceil() as u64).min(MOST * max).max(max + 1);
        return Verdict::Present(Finding {
            symptom: Symptom::PoolTooSmall,
            of: pool.name(),
            evidence: vec![waits, in_use, compared],
            rules_out: format!(
                "the database is not saturated: work takes {ratio:.2} times as long under the full load as under a light one, if it is of the \
                 same kind"
            ),
            setting: Some(Setting { key: pool.key(Key::MaxSize), from: Some(max.to_string()), to: to.to_string() }),
            advice: format!(
                "At the load seen {wanted:.0} clients had or wanted a server at once. Look again after the change: what the database does with \
                 more connections has not been seen. `poolhouse sweep` measures it, and its own limit must allow them."
            ),
        });
    }
    if ratio >= LONGER && levels.len() >= LEVELS && grows {
        return saturated(pool, &levels, ratio, vec![waits, compared]);
    }
    let needs = "loads of several sizes (--window 10m): the work of a busy time may be of another kind than that of a quiet one";
    undecided(pool, vec![waits, in_use, compared], needs)
}

fn saturated(pool: &PoolWindow<'_>, levels: &[(u64, f64)], ratio: f64, mut evidence: Vec<String>) -> Verdict {
    let steps: Vec<_> = levels.iter().map(|(n, ms)| format!("{n}: {}", time(*ms))).collect();
    evidence.push(format!("work takes longer with each server more in use: {}", shortened(&steps)));
    Verdict::Present(Finding {
        symptom: Symptom::ServerSaturated,
        of: pool.name(),
        evidence,
        rules_out: format!(
            "a larger pool does not cure it: work already takes {ratio:.1} times as long when all {} servers are in use",
            pool.last.max_size
        ),
        setting: None,
        advice: format!(
            "Find the number of connections at which the database stops gaining with `poolhouse sweep`, and set {} to that; it may be \
             smaller than today.{} Then look for what the statements wait for: locks, processors, disks.",
            pool.key(Key::MaxSize),
            if is_tunable(pool) { " With max_size = \"auto\" Poolhouse looks for it while it runs." } else { "" }
        ),
    })
}

fn waits(pool: &PoolWindow<'_>, waiting: f64) -> String {
    let queued = pool.change.checkout.get("queued").and_then(|times| times.quantile_ms(0.95, pool.bounds));
    let lasted = match (queued, pool.last.oldest_wait_ms) {
        (Some(ms), _) => format!("; one wait in twenty lasted over {}", time(ms)),
        (None, Some(ms)) => format!("; none has come to an end, and the longest has lasted {}", time(ms)),
        (None, None) => String::new(),
    };
    format!("clients waited at {} of the looks{lasted}", percent(waiting))
}

/// By servers in use: how long they were held on average, in milliseconds, where enough looks tell.
fn levels(pool: &PoolWindow<'_>) -> Vec<(u64, f64)> {
    let mut levels = std::collections::BTreeMap::<u64, (usize, u64, f64)>::new();
    for step in pool.steps.iter().filter(|step| step.hold.count() > 0 && step.in_use > 0) {
        let (looks, count, sum) = levels.entry(step.in_use).or_default();
        (*looks, *count, *sum) = (*looks + 1, *count + step.hold.count(), *sum + step.hold.sum_ms);
    }
    let enough = levels.into_iter().filter(|(_, (looks, ..))| *looks >= LOOKS);
    enough.map(|(n, (_, count, sum))| (n, sum / count as f64)).collect()
}

fn shortened(levels: &[String]) -> String {
    match levels {
        [first, second, .., last] if levels.len() > 4 => format!("{first}, {second}, … {last}"),
        levels => levels.join(", "),
    }
}

/// Whether `max_size = "auto"` is possible. Redis's connections are shared.
fn is_tunable(pool: &PoolWindow<'_>) -> bool {
    pool.pooler == Pooler::Poolhouse && pool.last.protocol != "redis"
}

fn undecided(pool: &PoolWindow<'_>, seen: Vec<String>, needs: &str) -> Verdict {
    Verdict::Undecided(Undecided {
        between: vec![Symptom::PoolTooSmall, Symptom::ServerSaturated],
        of: pool.name(),
        seen,
        needs: format!(
            "{needs}; or `poolhouse sweep` on a copy of the database{}. Whether the database's processors are busy, or its statements wait \
             for locks, decides it, too.",
            if is_tunable(pool) { "; or max_size = \"auto\", which tries other sizes" } else { "" }
        ),
    })
}

/// Clients wait although the pool may have more servers than it has.
fn another_limit(pool: &PoolWindow<'_>, waits: String) -> Verdict {
    let below = pool.mean(|step| (step.waiters > 0).then_some((step.in_use + step.connecting) as f64)).unwrap_or(0.0);
    let mut evidence =
        vec![waits, format!("{below:.0} of at most {} servers were in use or being made then", pool.last.max_size)];
    if let Some(error) = &pool.last.last_error {
        evidence.push(format!("the last attempt to connect that failed ended with: {error}"));
    }
    Verdict::Present(Finding {
        symptom: Symptom::AnotherLimit,
        of: pool.name(),
        evidence,
        rules_out: format!("{} is not reached, so raising it changes nothing", pool.key(Key::MaxSize)),
        setting: None,
        advice: match pool.pooler {
            Pooler::Poolhouse => {
                "Look for what allows fewer: max_server_connections, max_connections or max_user_connections of the configuration, \
                 max_connecting with connections that take long to make, or the database's own limits."
            }
            Pooler::PgBouncer => {
                "Look for what allows fewer: max_db_connections or max_user_connections of the configuration, or the database's own limits; \
                 PgBouncer's log says which."
            }
            Pooler::HikariCp => {
                "Look for what keeps connections from being made: how long that takes (hikaricp_connections_creation_seconds), and the database's \
                 own limits; HikariCP's log says why an attempt failed."
            }
            Pooler::MongoDriver => {
                "Look for what keeps connections from being made: maxConnecting (2 at a time) with logins that take long, and the server's own \
                 limits; the reasons of events connectionClosed and poolCleared say why an attempt failed."
            }
        }
        .to_owned(),
    })
}
