//! Clients wait while all servers work: the pool is too small, or the database is saturated. What tells them apart is
//! whether work takes longer the more of it is under way. That can be told only from loads of different sizes, and only
//! if the work is of one kind.

use admin_api::Pooler;

use super::{MIN_WAITING_SHARE, Verdict, percent, size::too_small, time, working};
use crate::{
    finding::{Finding, Key, Symptom, Undecided},
    window::PoolWindow,
};

/// Looks with one number of servers in use that are needed to know how long work takes then.
const MIN_LOOKS: usize = 2;
/// Numbers of servers in use that are needed to see work get slower from one to the next. With fewer, the work of a
/// busy time may only differ in kind from that of a quiet one.
const MIN_LEVELS: usize = 3;
/// Up to this share of its servers in use a pool is lightly loaded.
const MAX_LIGHT_SHARE: f64 = 0.5;
/// Up to this ratio, work takes as long under the full load as under a light one.
const MAX_SIMILAR_RATIO: f64 = 1.25;
/// From this ratio on, work takes so much longer under the full load that the database gains little by it.
const MIN_LONGER_RATIO: f64 = 1.6;
/// By chance, work at the higher of two levels may take a little less long: this ratio at least.
const MIN_DIP_RATIO: f64 = 0.85;
/// The share of pairs of looks at different levels at which work takes longer at the higher one. A level with few looks
/// decides nothing by itself.
const MIN_GROWING_SHARE: f64 = 0.9;
/// The database's error when it has no connection left. The digits alone may be those of a port.
const TOO_MANY_CONNECTIONS: &str = "SQLSTATE 53300";
/// What PostgreSQL says where the limit of one role or one database is reached; whose limit that is, and how it is
/// changed.
const OWN_LIMITS: [(&str, &str, &str); 2] = [
    ("too many connections for role", "role", "ALTER ROLE"),
    ("too many connections for database", "database", "ALTER DATABASE"),
];
/// Attempts to connect in the window that reached the database and failed, at least: one may still be under way.
const MIN_REFUSED: u64 = 2;

/// A number of servers in use: at how many looks, and how long servers were held on average then, in milliseconds.
#[derive(Clone, Copy)]
struct Level {
    in_use: u64,
    looks: usize,
    ms: f64,
}

/// How many times as long work takes under the full load as under a light one: as it is told on average, and if all
/// that is not told of either was of one of them.
struct Ratio {
    told: f64,
    least: f64,
    greatest: f64,
}

impl Ratio {
    /// `coarse_ms`: by up to so much less than they took both are told.
    fn of(light_ms: f64, full_ms: f64, coarse_ms: f64) -> Self {
        let times = |full: f64, light: f64| full / light.max(1e-6);
        Self {
            told: times(full_ms + coarse_ms / 2.0, light_ms + coarse_ms / 2.0),
            least: times(full_ms, light_ms + coarse_ms),
            greatest: times(full_ms + coarse_ms, light_ms),
        }
    }
}

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share(|step| step.waiters > 0);
    let max = pool.last.max_size;
    if waiting < MIN_WAITING_SHARE {
        return Verdict::Absent;
    }
    let waits = waits(pool, waiting);
    if max == 0 {
        return undecided(pool, vec![waits], "how many servers the pool may have, which is not told");
    }
    let full = pool.share(|step| step.is_full());
    if full < waiting / 2.0 {
        return another_limit(pool, waits);
    }
    let are_cleaned = pool.steps.iter().any(|step| step.is_full() && step.cleaned > 0);
    let taken = if are_cleaned { "in use, or being cleaned after it," } else { "in use" };
    let in_use = format!("all {max} servers were {taken} at {} of the looks", percent(full));
    let levels = levels(pool);
    let light = levels.iter().find(|level| (level.in_use as f64) <= MAX_LIGHT_SHARE * max as f64);
    let (Some(light), Some(most)) = (light, levels.last().filter(|level| level.in_use >= max)) else {
        return working::examine(pool, &[waits.clone(), in_use.clone()]).unwrap_or_else(|| {
            let needs = "looks at a light load to compare with: a longer window (--window 10m)";
            undecided(pool, vec![waits, in_use], needs)
        });
    };
    let Ratio { told: ratio, least, greatest } = Ratio::of(light.ms, most.ms, pool.coarse_ms());
    let compared = format!(
        "servers were held for {} on average when {} of them were in use, and for {} with {}",
        time(most.ms),
        most.in_use,
        time(light.ms),
        light.in_use
    );
    let alike = |level: &Level| Ratio::of(light.ms, level.ms, pool.coarse_ms()).told <= MAX_SIMILAR_RATIO;
    if least < MIN_LONGER_RATIO && greatest >= MIN_LONGER_RATIO {
        let needs = "for how long connections are held to less than a millisecond, which is not told: the database knows (`poolhouse doctor \
                     postgres://...`)";
        return undecided(pool, vec![waits, in_use, compared], needs);
    }
    if ratio <= MAX_SIMILAR_RATIO && levels.iter().all(alike) {
        let rules_out = format!(
            "the database is not saturated: work takes {ratio:.2} times as long under the full load as under a light one, if it is of the \
             same kind"
        );
        return too_small(pool, vec![waits, in_use, compared], rules_out);
    }
    if least >= MIN_LONGER_RATIO && levels.len() >= MIN_LEVELS && grows(&levels) {
        return saturated(pool, &levels, ratio, vec![waits, compared]);
    }
    let seen = vec![waits, in_use, compared];
    working::examine(pool, &seen).unwrap_or_else(|| {
        let needs =
            "loads of several sizes (--window 10m): the work of a busy time may be of another kind than that of a quiet one";
        undecided(pool, seen, needs)
    })
}

/// Work takes longer the more of it there is, apart from what chance does.
fn grows(levels: &[Level]) -> bool {
    let (mut all, mut longer) = (0.0, 0.0);
    for (n, low) in levels.iter().enumerate() {
        for high in &levels[n + 1..] {
            let pairs = low.looks as f64 * high.looks as f64;
            all += pairs;
            longer += if high.ms >= MIN_DIP_RATIO * low.ms { pairs } else { 0.0 };
        }
    }
    longer >= MIN_GROWING_SHARE * all
}

fn saturated(pool: &PoolWindow<'_>, levels: &[Level], ratio: f64, mut evidence: Vec<String>) -> Verdict {
    let steps: Vec<_> = levels.iter().map(|level| format!("{}: {}", level.in_use, time(level.ms))).collect();
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
            "{} Then look for what the statements wait for: locks, processors, disks.",
            match pool.last.tuning {
                Some(_) => "max_size = \"auto\" is in force, and looks for the number of connections at which the database stops gaining.".to_owned(),
                None => format!(
                    "Find the number of connections at which the database stops gaining with `poolhouse sweep`, and set {} to that; it may \
                     be smaller than today.{}",
                    pool.key(Key::MaxSize),
                    if is_tunable(pool) { " With max_size = \"auto\" Poolhouse looks for it while it runs." } else { "" }
                ),
            }
        ),
    })
}

/// That clients wait, for how long, and that some give up.
fn waits(pool: &PoolWindow<'_>, waiting: f64) -> String {
    let queued = pool.change.checkout.get("queued").filter(|times| times.count() > 0);
    let lasted = match (queued, pool.last.oldest_wait_ms) {
        // Beyond the last bound nothing is known but that.
        (Some(times), _) => {
            let ms = times.quantile_ms(0.95, pool.bounds).or(pool.bounds.last().copied());
            ms.map_or(String::new(), |ms| format!("; one wait in twenty lasted over {}", time(ms)))
        }
        (None, Some(ms)) if pool.pooler == Pooler::Poolhouse => {
            format!("; none has come to an end, and the longest has lasted {}", time(ms))
        }
        // Who does not count waits does not tell whether some have ended.
        (None, Some(ms)) => format!("; at the end the first of them had waited for {}", time(ms)),
        (None, None) => String::new(),
    };
    let gave_up = match pool.change.failed.get("timeout") {
        Some(timeouts) => format!("; {timeouts} gave up"),
        None => String::new(),
    };
    format!("clients waited at {} of the looks{lasted}{gave_up}", percent(waiting))
}

/// By servers in use, where enough looks tell.
fn levels(pool: &PoolWindow<'_>) -> Vec<Level> {
    let mut levels = std::collections::BTreeMap::<u64, (usize, u64, f64)>::new();
    for step in pool.steps.iter().filter(|step| step.hold.count() > 0 && step.in_use > 0) {
        let (looks, count, sum) = levels.entry(step.taken()).or_default();
        (*looks, *count, *sum) = (*looks + 1, count.saturating_add(step.hold.count()), *sum + step.hold.sum_ms);
    }
    let enough = levels.into_iter().filter(|(_, (looks, ..))| *looks >= MIN_LOOKS);
    // For a moment it may be less than nothing, where waits are counted before the transactions that they are taken
    // off.
    enough.map(|(in_use, (looks, count, sum))| Level { in_use, looks, ms: (sum / count as f64).max(0.0) }).collect()
}

fn shortened(levels: &[String]) -> String {
    match levels {
        [first, second, .., last] if levels.len() > 4 => format!("{first}, {second}, … {last}"),
        levels => levels.join(", "),
    }
}

/// Whether `max_size = "auto"` is possible. Redis's connections are shared.
fn is_tunable(pool: &PoolWindow<'_>) -> bool {
    pool.pooler == Pooler::Poolhouse && pool.last.protocol != "redis" && pool.last.tuning.is_none()
}

fn undecided(pool: &PoolWindow<'_>, seen: Vec<String>, needs: &str) -> Verdict {
    Verdict::Undecided(Undecided {
        between: vec![Symptom::PoolTooSmall, Symptom::ServerSaturated],
        of: pool.name(),
        seen,
        needs: format!(
            "{needs}; or `poolhouse sweep` on a copy of the database{}. Whether the database's processors are busy, or its statements wait \
             for locks, decides it, too{}.",
            if is_tunable(pool) { "; or max_size = \"auto\", which tries other sizes" } else { "" },
            match pool.steps.iter().any(|step| step.work.is_some()) {
                true => ", and the database that was named has none of its sessions",
                false if pool.last.protocol == "postgres" => ": name it with --database postgres://...",
                false => "",
            }
        ),
    })
}

/// Clients wait although the pool may have more servers than it has.
fn another_limit(pool: &PoolWindow<'_>, waits: String) -> Verdict {
    let below = pool
        .mean(|step| (step.waiters > 0).then_some(step.taken().saturating_add(step.connecting) as f64))
        .unwrap_or(0.0);
    let mut evidence =
        vec![waits, format!("{below:.0} of at most {} servers were in use or being made then", pool.last.max_size)];
    if let Some(setting) = &pool.last.limited_by {
        evidence.push(format!("clients wait because of {setting}, which has no connection left for this pool"));
        return Verdict::Present(Finding {
            symptom: Symptom::AnotherLimit,
            of: pool.name(),
            evidence,
            rules_out: format!("{} is not reached, so raising it changes nothing", pool.key(Key::MaxSize)),
            setting: None,
            advice: format!(
                "Raise {setting}, if the database has room for more connections (max_connections less what is reserved); or lower what other \
                 pools under the same limit may have."
            ),
        });
    }
    if let Some(error) = pool.last.last_error.as_ref().filter(|error| error.contains(TOO_MANY_CONNECTIONS)) {
        let stood = pool.change.connect.get("tcp").map_or(0, admin_api::Times::count);
        let refused = stood.saturating_sub(pool.change.created);
        if refused >= MIN_REFUSED {
            return added_up(pool, evidence, refused, error);
        }
    }
    if let Some(error) = &pool.last.last_error {
        evidence.push(format!("the last attempt to connect that failed ended with: {error}"));
    }
    Verdict::Present(Finding {
        symptom: Symptom::AnotherLimit,
        of: pool.name(),
        evidence,
        rules_out: match pool.key(Key::MaxSize) {
            key if below.round() < pool.last.max_size as f64 => {
                format!("{key} is not reached, so raising it changes nothing")
            }
            key => format!("the pool does not need a larger {key}: most of the servers that it may have are still being made"),
        },
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

/// The database has no connection left for this pool, which is within its own limit: others have them.
fn added_up(pool: &PoolWindow<'_>, mut evidence: Vec<String>, refused: u64, error: &str) -> Verdict {
    evidence.push(format!("{refused} connections were begun and not made, the last that failed with: {error}"));
    if let Some((whose, sql)) =
        OWN_LIMITS.iter().find(|(words, ..)| error.contains(words)).map(|(_, whose, sql)| (whose, sql))
    {
        return Verdict::Present(Finding {
            symptom: Symptom::AnotherLimit,
            of: pool.name(),
            evidence,
            rules_out: format!(
                "{} is not reached, and the database has connections left for others: what refuses is the limit of this {whose}",
                pool.key(Key::MaxSize)
            ),
            setting: None,
            advice: format!(
                "The {whose} has a limit of its own in PostgreSQL. Raise it ({sql} ... CONNECTION LIMIT n), or set {} to no more than it.",
                pool.key(Key::MaxSize)
            ),
        });
    }
    Verdict::Present(Finding {
        symptom: Symptom::LimitsAddUp,
        of: pool.name(),
        evidence,
        rules_out: format!(
            "{} is not reached, and no limit of this configuration either: the database itself refuses",
            pool.key(Key::MaxSize)
        ),
        setting: None,
        advice: "Others have the connections that the database allows: other instances, or applications that come to it directly. \
                 `poolhouse doctor postgres://...` says which. The sum of what all pools may have must stay below max_connections less \
                 what is reserved (`poolhouse plan --instances N --server-limit L`); max_server_connections or max_connections is this one's \
                 part."
            .to_owned(),
    })
}
