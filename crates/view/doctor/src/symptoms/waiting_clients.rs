//! Clients wait while all servers work: the pool is too small, or the database is saturated. What tells them apart is
//! whether work takes longer the more of it is under way. Only loads of different sizes show that, and only
//! if the work is of one kind.

use std::collections::BTreeMap;

use admin_api::Pooler;

use super::{MIN_WAITING_SHARE, Verdict, format_ms, format_percent, pool_too_small::pool_too_small, session_work};
use crate::{
    finding::{Finding, Key, Symptom, Undecided},
    pooler::PoolWindow,
};

/// Looks with one number of taken servers that are needed to know how long work takes then.
const MIN_LOOKS_AT_LEVEL: usize = 2;
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
/// The share of pairs of looks at different levels at which work takes at least [`MIN_DIP_RATIO`] times as long at the
/// higher one. A level with few looks decides nothing by itself.
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

/// What the looks with one number of taken servers tell.
#[derive(Clone, Copy)]
struct LoadLevel {
    /// Servers in use, or being cleaned after it.
    taken: u64,
    looks: usize,
    /// How long servers were held on average.
    hold_ms: f64,
}

/// How many times as long work takes under the full load as under a light one.
struct HoldRatio {
    mean: f64,
    /// Bounds, where one of the two times has all of the error.
    min: f64,
    max: f64,
}

impl HoldRatio {
    /// `error_ms`: each time may be too short by this.
    fn new(light_ms: f64, full_ms: f64, error_ms: f64) -> Self {
        let ratio = |full: f64, light: f64| full / light.max(1e-6);
        Self {
            mean: ratio(full_ms + error_ms / 2.0, light_ms + error_ms / 2.0),
            min: ratio(full_ms, light_ms + error_ms),
            max: ratio(full_ms + error_ms, light_ms),
        }
    }
}

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share_with_waiters();
    let max = pool.last.max_size;
    if waiting < MIN_WAITING_SHARE {
        return Verdict::Absent;
    }
    let waits = describe_waits(pool, waiting);
    if max == 0 {
        return undecided(pool, vec![waits], "how many servers the pool may have, which is not told");
    }
    let full = pool.share(|step| step.is_exhausted());
    if full < waiting / 2.0 {
        return another_limit(pool, waits);
    }
    let are_cleaned = pool.steps.iter().any(|step| step.is_exhausted() && step.cleaned > 0);
    let taken = if are_cleaned { "in use, or being cleaned after it," } else { "in use" };
    let in_use = format!("all {max} servers were {taken} at {} of the looks", format_percent(full));
    examine_full_pool(pool, waits, in_use)
}

/// `waits` and `in_use` are evidence.
fn examine_full_pool(pool: &PoolWindow<'_>, waits: String, in_use: String) -> Verdict {
    let max = pool.last.max_size;
    let levels = load_levels(pool);
    let light = levels.iter().find(|level| (level.taken as f64) <= MAX_LIGHT_SHARE * max as f64);
    let (Some(light), Some(most)) = (light, levels.last().filter(|level| level.taken >= max)) else {
        let needs = "looks at a light load to compare with: a longer window (--window 10m)";
        return by_session_work(pool, vec![waits, in_use], needs);
    };
    let ratio_of = |level: &LoadLevel| HoldRatio::new(light.hold_ms, level.hold_ms, pool.hold_error_ms());
    let ratio = ratio_of(most);
    let compared = format!(
        "servers were held for {} on average when {} of them were in use, and for {} with {}",
        format_ms(most.hold_ms),
        most.taken,
        format_ms(light.hold_ms),
        light.taken
    );
    if ratio.min < MIN_LONGER_RATIO && ratio.max >= MIN_LONGER_RATIO {
        let needs = "for how long connections are held to less than a millisecond, which is not told: the database \
                     knows \
                     (`poolhouse doctor postgres://...`)";
        return undecided(pool, vec![waits, in_use, compared], needs);
    }
    if ratio.mean <= MAX_SIMILAR_RATIO && levels.iter().all(|level| ratio_of(level).mean <= MAX_SIMILAR_RATIO) {
        let rules_out = format!(
            "the database is not saturated: work takes {:.2} times as long under the full load as under a light one, \
             if \
             it is of the same kind",
            ratio.mean
        );
        return pool_too_small(pool, vec![waits, in_use, compared], rules_out);
    }
    if ratio.min >= MIN_LONGER_RATIO && levels.len() >= MIN_LEVELS && grows(&levels) {
        return saturated(pool, &levels, ratio.mean, [waits, compared]);
    }
    let needs = "loads of several sizes (--window 10m): the work of a busy time may be of another kind than that of a \
                 quiet one";
    by_session_work(pool, vec![waits, in_use, compared], needs)
}

/// The verdict of the database's sessions, or what would decide where they are not known.
fn by_session_work(pool: &PoolWindow<'_>, seen: Vec<String>, needs: &str) -> Verdict {
    session_work::examine(pool, seen.clone()).unwrap_or_else(|| undecided(pool, seen, needs))
}

/// At hardly any pair of levels does work take less time at the higher one.
fn grows(levels: &[LoadLevel]) -> bool {
    let (mut all, mut not_shorter) = (0.0, 0.0);
    for (n, low) in levels.iter().enumerate() {
        for high in &levels[n + 1..] {
            let pairs = low.looks as f64 * high.looks as f64;
            all += pairs;
            not_shorter += if high.hold_ms >= MIN_DIP_RATIO * low.hold_ms { pairs } else { 0.0 };
        }
    }
    not_shorter >= MIN_GROWING_SHARE * all
}

fn saturated(pool: &PoolWindow<'_>, levels: &[LoadLevel], ratio: f64, evidence: [String; 2]) -> Verdict {
    let find = match pool.last.tuning {
        Some(_) => {
            "max_size = \"auto\" is in force, and looks for the number of connections at which the database stops \
             gaining."
                .to_owned()
        }
        None => format!(
            "Find the number of connections at which the database stops gaining with `poolhouse sweep`, and set {} to \
             that; it may be smaller than today.{}",
            pool.key(Key::MaxSize),
            if is_tunable(pool) { " With max_size = \"auto\" Poolhouse looks for it while it runs." } else { "" }
        ),
    };
    Finding::new(Symptom::ServerSaturated, pool.name())
        .all_evidence(evidence)
        .evidence(format!("work takes longer with each server more in use: {}", describe_levels(levels)))
        .rules_out(format!(
            "a larger pool does not cure it: work already takes {ratio:.1} times as long when all {} servers are in \
             use",
            pool.last.max_size
        ))
        .advice(format!("{find} Then look for what the statements wait for: locks, processors, disks."))
        .into()
}

/// That clients wait, for how long, and that some give up.
fn describe_waits(pool: &PoolWindow<'_>, waiting: f64) -> String {
    let queued = pool.change.checkout.get("queued").filter(|times| times.count() > 0);
    let lasted = match (queued, pool.last.oldest_wait_ms) {
        (Some(times), _) => {
            // Of a quantile beyond the last bound nothing more is known.
            let ms = times.quantile_ms(0.95, pool.bounds_ms).or(pool.bounds_ms.last().copied());
            ms.map_or(String::new(), |ms| format!("; one wait in twenty lasted over {}", format_ms(ms)))
        }
        (None, Some(ms)) if pool.pooler == Pooler::Poolhouse => {
            format!("; none has come to an end, and the longest has lasted {}", format_ms(ms))
        }
        // A pooler that does not count waits does not tell whether some have ended.
        (None, Some(ms)) => format!("; at the end the first of them had waited for {}", format_ms(ms)),
        (None, None) => String::new(),
    };
    let gave_up = match pool.change.failed.get("timeout") {
        Some(timeouts) => format!("; {timeouts} gave up"),
        None => String::new(),
    };
    format!("clients waited at {} of the looks{lasted}{gave_up}", format_percent(waiting))
}

/// By servers in use, where enough looks tell.
fn load_levels(pool: &PoolWindow<'_>) -> Vec<LoadLevel> {
    let mut levels = BTreeMap::<u64, (usize, u64, f64)>::new();
    for step in pool.steps.iter().filter(|step| step.hold.count() > 0 && step.in_use > 0) {
        let (looks, count, sum) = levels.entry(step.taken()).or_default();
        (*looks, *count, *sum) = (*looks + 1, count.saturating_add(step.hold.count()), *sum + step.hold.sum_ms);
    }
    let enough = levels.into_iter().filter(|(_, (looks, ..))| *looks >= MIN_LOOKS_AT_LEVEL);
    // For a moment a sum may be negative, where waits are counted before the transactions from which they are
    // subtracted.
    let level = |(taken, (looks, count, sum)): (u64, (usize, u64, f64))| LoadLevel {
        taken,
        looks,
        hold_ms: (sum / count as f64).max(0.0),
    };
    enough.map(level).collect()
}

fn describe_levels(levels: &[LoadLevel]) -> String {
    let texts: Vec<_> = levels.iter().map(|level| format!("{}: {}", level.taken, format_ms(level.hold_ms))).collect();
    match &texts[..] {
        [first, second, .., last] if texts.len() > 4 => format!("{first}, {second}, … {last}"),
        texts => texts.join(", "),
    }
}

/// Whether `max_size = "auto"` is possible. Redis's connections are shared.
fn is_tunable(pool: &PoolWindow<'_>) -> bool {
    pool.pooler == Pooler::Poolhouse && pool.last.protocol != "redis" && pool.last.tuning.is_none()
}

fn undecided(pool: &PoolWindow<'_>, seen: Vec<String>, needs: &str) -> Verdict {
    let auto = if is_tunable(pool) { "; or max_size = \"auto\", which tries other sizes" } else { "" };
    let database = match pool.steps.iter().any(|step| step.work.is_some()) {
        true => ", and the database that was named has none of its sessions",
        false if pool.last.protocol == "postgres" => ": name it with --database postgres://...",
        false => "",
    };
    Undecided::new([Symptom::PoolTooSmall, Symptom::ServerSaturated], pool.name())
        .all_seen(seen)
        .needs(format!(
            "{needs}; or `poolhouse sweep` on a copy of the database{auto}. Whether the database's processors are \
             busy, \
             or its statements wait for locks, decides it, too{database}."
        ))
        .into()
}

/// Clients wait although the pool may have more servers than it has.
fn another_limit(pool: &PoolWindow<'_>, waits: String) -> Verdict {
    let (key, max) = (pool.key(Key::MaxSize), pool.last.max_size);
    let open = |step: &crate::pooler::Step| step.taken().saturating_add(step.connecting) as f64;
    let below = pool.mean(|step| (step.waiters > 0).then(|| open(step))).unwrap_or(0.0);
    let finding = Finding::new(Symptom::AnotherLimit, pool.name())
        .evidence(waits)
        .evidence(format!("{below:.0} of at most {max} servers were in use or being made then"));
    if let Some(setting) = &pool.last.limited_by {
        return finding
            .evidence(format!("clients wait because of {setting}, which has no connection left for this pool"))
            .rules_out(format!("{key} is not reached, so raising it changes nothing"))
            .advice(format!(
                "Raise {setting}, if the database has room for more connections (max_connections less what is \
                 reserved); \
                 or lower what other pools under the same limit may have."
            ))
            .into();
    }
    let error = pool.last.last_error.as_ref();
    if let Some(error) = error.filter(|error| error.contains(TOO_MANY_CONNECTIONS)) {
        let begun = pool.change.connect.get("tcp").map_or(0, admin_api::Times::count);
        let refused = begun.saturating_sub(pool.change.created);
        if refused >= MIN_REFUSED {
            return refused_by_database(finding, key, refused, error);
        }
    }
    let rules_out = match below.round() < max as f64 {
        true => format!("{key} is not reached, so raising it changes nothing"),
        false => {
            format!("the pool does not need a larger {key}: most of the servers that it may have are still being made")
        }
    };
    finding
        .all_evidence(error.map(|error| format!("the last attempt to connect that failed ended with: {error}")))
        .rules_out(rules_out)
        .advice(match pool.pooler {
            Pooler::Poolhouse => {
                "Look for what allows fewer: max_server_connections, max_connections or max_user_connections of the \
                 configuration, max_connecting with connections that take long to make, or the database's own limits."
            }
            Pooler::PgBouncer => {
                "Look for what allows fewer: max_db_connections or max_user_connections of the configuration, or the \
                 database's own limits; PgBouncer's log says which."
            }
            Pooler::HikariCp => {
                "Look for what keeps connections from being made: how long that takes \
                 (hikaricp_connections_creation_seconds), and the database's own limits; HikariCP's log says why an \
                 attempt failed."
            }
            Pooler::MongoDriver => {
                "Look for what keeps connections from being made: maxConnecting (2 at a time) with logins that take \
                 long, and the server's own limits; the reasons of events connectionClosed and poolCleared say why an \
                 attempt failed."
            }
        })
        .into()
}

/// The database has no connection left for this pool, which is within its own limit: other clients have them.
fn refused_by_database(finding: Finding, key: &str, refused: u64, error: &str) -> Verdict {
    let finding =
        finding.evidence(format!("{refused} connections were begun and not made, the last that failed with: {error}"));
    if let Some((_, whose, sql)) = OWN_LIMITS.iter().find(|(words, ..)| error.contains(words)) {
        return finding
            .rules_out(format!(
                "{key} is not reached, and the database has connections left for others: what refuses is the limit of \
                 this {whose}"
            ))
            .advice(format!(
                "The {whose} has a limit of its own in PostgreSQL. Raise it ({sql} ... CONNECTION LIMIT n), or set \
                 {key} \
                 to no more than it."
            ))
            .into();
    }
    Finding { symptom: Symptom::LimitsAddUp, ..finding }
        .rules_out(format!(
            "{key} is not reached, and no limit of this configuration either: the database itself refuses"
        ))
        .advice(
            "Others have the connections that the database allows: other instances, or applications that come to it \
             directly. `poolhouse doctor postgres://...` says which. The sum of what all pools may have must stay \
             below \
             max_connections less what is reserved (`poolhouse plan --instances N --server-limit L`); \
             max_server_connections or max_connections is this one's part.",
        )
        .into()
}
