//! A driver's own pool. It tells how many connections are in use and for how long, how many threads wait, and how many
//! connections are created. It does not tell what connections do while they are in use: one that is never given back,
//! and a statement that takes forever, look alike for a while.

mod never_back;

use admin_api::{Look, Pool, Pooler};

use super::{Verdict, time, waiting};
use crate::{
    database::Swings,
    finding::{Finding, Key, Setting, Symptom},
    window::PoolWindow,
};

/// Created connections, at least, before it is churn.
const MIN_CREATED: u64 = 10;
/// From this many created connections a use on, failures or clients are the reason.
const MAX_CREATED_PER_USE: f64 = 0.2;
/// How often the pool must shrink to half: a deployment does that once.
const MIN_FALLS: u64 = 3;
/// If looks found this share of the connections of a burst in use, they met the burst.
const MIN_BURST_SHARE: f64 = 0.5;
/// Connections closed for idleness, as a share of the created ones, where reasons are told.
const MIN_IDLE_CLOSE_SHARE: f64 = 0.5;

/// Of each pool, what explains it first; and churn besides.
pub(super) fn examine(pool: &PoolWindow<'_>) -> Vec<Verdict> {
    let of: [fn(&PoolWindow<'_>) -> Verdict; 3] = [reach, never_back::examine, waiting::examine];
    let first = of.into_iter().map(|of| of(pool)).find(|verdict| !matches!(verdict, Verdict::Absent));
    vec![first.unwrap_or(Verdict::Absent), churn(pool)]
}

/// What no driver's pool tells.
pub(super) fn unseen(look: &Look) -> Vec<String> {
    let mut unseen = vec![
        "what connections do while they are taken, and for which locks they wait: the database knows (`poolhouse doctor postgres://...` or \
         mongodb://...)"
            .to_owned(),
        "pools of other processes, and what the database allows all of them together".to_owned(),
    ];
    if look.pools.iter().any(|pool| hides_uses(look.pooler, pool)) {
        unseen.push(
            "for how long connections are taken, and so whether they are given back: hikaricp_connections_usage_seconds is lacking"
                .to_owned(),
        );
    }
    unseen
}

/// What comes back, and after how long, is not told.
fn hides_uses(pooler: Pooler, pool: &Pool) -> bool {
    pooler == Pooler::HikariCp && pool.hold.buckets.is_empty()
}

/// No thread gets a connection.
fn reach(pool: &PoolWindow<'_>) -> Verdict {
    let Some(down) = pool.last.unavailable_ms else { return Verdict::Absent };
    let failed: u64 = pool.change.failed.values().fold(0, |sum, count| sum.saturating_add(*count));
    Verdict::Present(Finding {
        symptom: Symptom::OutOfReach,
        of: pool.name(),
        evidence: vec![
            format!("the pool has had no connection for {} although somebody asks for one", time(down)),
            format!("{} wait, and {failed} gave up or failed while this was looked at", pool.last.waiters),
            format!("{} meanwhile", made(pool)),
        ],
        rules_out: "the pool is not too small: nobody gets a connection at all".to_owned(),
        setting: None,
        advice: match pool.pooler {
            Pooler::MongoDriver => {
                "The reasons of events connectionClosed and poolCleared, and the driver's server monitoring (SDAM events), say why the server \
                 cannot be reached. What runs into waitQueueTimeoutMS or serverSelectionTimeoutMS is not tried again by itself."
            }
            _ => "HikariCP's log says why it cannot connect. It tries again by itself; connectionTimeout is how long a thread waits meanwhile.",
        }
        .to_owned(),
    })
}

/// How many connections were made.
fn made(pool: &PoolWindow<'_>) -> String {
    let made = pool.change.created;
    match pool.pooler {
        Pooler::HikariCp => format!("{made} connections were made or could not be (HikariCP counts these together)"),
        _ => format!("{made} connections were made"),
    }
}

/// Idle connections are closed, and made again for the next burst.
fn churn(pool: &PoolWindow<'_>) -> Verdict {
    let (min, max) = (pool.last.min_size, pool.last.max_size);
    let (made, uses) = (pool.change.created, pool.change.transactions);
    let mut swings = Swings::default();
    pool.steps.iter().for_each(|step| swings.add(step.open));
    let idle = pool.change.closed.get("idle").copied();
    let ratio = made as f64 / uses.max(1) as f64;
    // Where no reasons are told, none is known to be another.
    let for_idleness = pool.last.closed.is_empty() || idle.unwrap_or(0) as f64 >= MIN_IDLE_CLOSE_SHARE * made as f64;
    if made < MIN_CREATED || swings.falls < MIN_FALLS || ratio > MAX_CREATED_PER_USE || min >= max || !for_idleness {
        return Verdict::Absent;
    }
    let most = pool.steps.iter().map(|step| step.open).max().unwrap_or(0);
    let taken = pool.steps.iter().map(|step| step.in_use).max().unwrap_or(0);
    // Looks may lie between bursts: then only what these leave open tells what they need.
    let met = taken as f64 >= MIN_BURST_SHARE * most as f64;
    let needed = if met { taken } else { most }.clamp(min.saturating_add(1), max);
    let mut evidence = vec![
        format!("the pool grew to up to {most} connections, and shrank to half or less {} times", swings.falls),
        format!("{} in {}", self::made(pool), time(pool.lasts.as_millis() as f64)),
    ];
    evidence.extend(idle.map(|idle| format!("{idle} connections were closed because they had been idle")));
    let idle_time = pool.key(Key::MaxIdleTime);
    Verdict::Present(Finding {
        symptom: Symptom::IdleChurn,
        of: pool.name(),
        evidence,
        rules_out: format!(
            "they are not made for each use: {made} connections were made for {uses} uses. And a rotation by age makes each anew at once, which \
             does not shrink the pool"
        ),
        setting: Some(Setting { key: pool.key(Key::MinSize), from: Some(min.to_string()), to: needed.to_string() }),
        advice: format!(
            "Keep as many connections as a burst needs ({needed} were {}), or make {idle_time} longer than the quiet time between bursts. Each kept \
             connection costs the database about 1 MB and a descriptor, for each process.",
            if met { "taken at once at the looks" } else { "open after one" }
        ),
    })
}
