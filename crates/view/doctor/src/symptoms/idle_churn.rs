//! Idle connections are closed, and made again for the next burst.

use super::{Verdict, format_duration, format_ms, format_percent};
use crate::{
    finding::{Finding, Key, Setting, Symptom},
    gauge::HalvingCounter,
    mongodb::MongoWindow,
    pooler::PoolWindow,
    postgres::{OriginTally, PostgresOrigin, PostgresWindow},
};

/// Servers of a Poolhouse's pool closed for idleness since the start, at least.
const MIN_POOL_IDLE_CLOSES: u64 = 20;
/// The same in an hour.
const MIN_POOL_IDLE_CLOSES_PER_HOUR: f64 = 30.0;
/// A wait for a new connection that clients notice.
const MIN_CONNECT_MS: f64 = 5.0;
/// Where a window has to show the churn: connections that came, and those that closed for idleness, at least.
const MIN_MADE_CONNECTIONS: u64 = 10;
/// Closes for idleness as a share of all closed or made connections: from here on they are why others are made.
const MIN_IDLE_CLOSE_SHARE: f64 = 0.5;
/// From this many made connections a transaction on, clients or failures are the reason and not quiet times.
const MAX_CREATED_PER_TRANSACTION: f64 = 0.2;
/// How often the number of connections must fall to half: a deployment does that once.
const MIN_FALLS: u64 = 3;
/// If looks found this share of the connections of a burst in use, they met the burst.
const MIN_BURST_SHARE: f64 = 0.5;

/// A Poolhouse's pool. Bursts are minutes apart: the counts since the process's start tell whether the churn is a
/// habit, and the window whether it still is.
pub(super) fn examine_pool(pool: &PoolWindow<'_>) -> Verdict {
    let (min, max) = (pool.last.min_size, pool.last.max_size);
    let idle = pool.last.closed.get("idle").copied().unwrap_or(0);
    let now = pool.change.closed.get("idle").copied().unwrap_or(0);
    let (made, transactions) = (pool.last.created, pool.last.transactions);
    let share = idle as f64 / made.max(1) as f64;
    let per_hour = idle as f64 / (pool.uptime.as_secs_f64() / 3600.0).max(1e-6);
    let waits = pool.last.checkout.get("created");
    let slow = waits.and_then(|times| times.quantile_ms(0.95, pool.bounds_ms));
    let Some(slow) = slow.filter(|ms| *ms >= MIN_CONNECT_MS) else { return Verdict::Absent };
    if now == 0
        || idle < MIN_POOL_IDLE_CLOSES
        || per_hour < MIN_POOL_IDLE_CLOSES_PER_HOUR
        || share < MIN_IDLE_CLOSE_SHARE
        || made as f64 / transactions.max(1) as f64 > MAX_CREATED_PER_TRANSACTION
        || min >= max
    {
        return Verdict::Absent;
    }
    // A burst may be over before the next look, but the servers that it made stay for a while.
    let most = pool.max(|step| step.open).min(max);
    // What a burst needs is known only if the window has one.
    let is_burst_seen = most > min && pool.change.created > 0;
    Finding::new(Symptom::IdleChurn, pool.name())
        .evidence(format!(
            "{idle} of the {made} connections made since the start were closed for idleness ({}), {per_hour:.0} an \
             hour, {now} of them while this was looked at",
            format_percent(share)
        ))
        .evidence(format!(
            "{} clients had to wait for a new connection, one in twenty of them for over {}",
            waits.map_or(0, admin_api::Times::count),
            format_ms(slow)
        ))
        .evidence(describe_bursts(pool, most))
        .rules_out(format!(
            "clients do not connect for each transaction: {made} connections were made for {transactions} transactions"
        ))
        .setting(is_burst_seen.then(|| set("min_size", Some(min), most)))
        .advice(
            "Make max_idle_time longer than the quiet time between bursts, or keep as many servers as a burst needs \
             (min_size; to see how many, the looks must have a burst among them). Each kept connection costs the \
             database about 1 MB and a descriptor, for each instance of Poolhouse.",
        )
        .into()
}

/// How many servers a burst leaves, how far bursts are apart, and when idle servers are closed.
fn describe_bursts(pool: &PoolWindow<'_>, most: u64) -> String {
    let step_ms = pool.duration.as_secs_f64() * 1e3 / pool.steps.len().max(1) as f64;
    let making: Vec<usize> = (0..pool.steps.len()).filter(|at| pool.steps[*at].created > 0).collect();
    let apart = making.windows(2).map(|pair| pair[1] - pair[0]).max().filter(|steps| *steps > 1);
    let apart = apart.map_or(String::new(), |steps| format!(", up to {} apart", format_ms(steps as f64 * step_ms)));
    let closed = pool.timeout_ms(Key::MaxIdleTime);
    let closed = closed.map_or(String::new(), |ms| format!("; max_idle_time is {}", format_ms(ms)));
    format!("up to {most} servers were open after a burst{apart}{closed}")
}

fn set(key: &'static str, from: Option<u64>, to: u64) -> Setting {
    Setting { key, from: from.map(|from| from.to_string()), to: to.to_string() }
}

/// The verdict on a driver's own pool. `made_text`: how many connections it has made, in words.
pub(super) fn examine_driver(pool: &PoolWindow<'_>, made_text: &str) -> Verdict {
    let (min, max) = (pool.last.min_size, pool.last.max_size);
    let (made, uses) = (pool.change.created, pool.change.transactions);
    let mut halvings = HalvingCounter::default();
    pool.steps.iter().for_each(|step| halvings.add(step.open));
    let idle = pool.change.closed.get("idle").copied();
    // A pool that tells no reasons is not known to have another one.
    let is_for_idleness = pool.last.closed.is_empty() || idle.unwrap_or(0) as f64 >= MIN_IDLE_CLOSE_SHARE * made as f64;
    if made < MIN_MADE_CONNECTIONS
        || halvings.falls() < MIN_FALLS
        || made as f64 / uses.max(1) as f64 > MAX_CREATED_PER_TRANSACTION
        || min >= max
        || !is_for_idleness
    {
        return Verdict::Absent;
    }
    let (most, taken) = (pool.max(|step| step.open), pool.max(|step| step.in_use));
    // Looks may lie between bursts: then only the connections that a burst leaves open tell what it needs.
    let is_burst_seen = taken as f64 >= MIN_BURST_SHARE * most as f64;
    let (needed, seen) = if is_burst_seen { (taken, "taken at once at the looks") } else { (most, "open after one") };
    let needed = needed.clamp(min.saturating_add(1), max);
    Finding::new(Symptom::IdleChurn, pool.name())
        .evidence(format!(
            "the pool grew to up to {most} connections, and shrank to half or less {} times",
            halvings.falls()
        ))
        .evidence(format!("{made_text} in {}", format_duration(pool.duration)))
        .all_evidence(idle.map(|idle| format!("{idle} connections were closed because they had been idle")))
        .rules_out(format!(
            "they are not made for each use: {made} connections were made for {uses} uses. And a rotation by age makes \
             each anew at once, which does not shrink the pool"
        ))
        .setting(set(pool.key(Key::MinSize), Some(min), needed))
        .advice(format!(
            "Keep as many connections as a burst needs ({needed} were {seen}), or make {} longer than the quiet time \
             between bursts. Each kept connection costs the database about 1 MB and a descriptor, for each process.",
            pool.key(Key::MaxIdleTime)
        ))
        .into()
}

/// The sessions of a PostgreSQL. Seen only where a window has several bursts.
pub(super) fn examine_postgres(window: &PostgresWindow) -> impl Iterator<Item = Verdict> {
    window.tally().origins().map(|(origin, own)| examine_origin(window, origin, own))
}

fn examine_origin(window: &PostgresWindow, origin: &PostgresOrigin, own: &OriginTally) -> Verdict {
    let falls = own.halvings.falls();
    if own.went_idle < MIN_MADE_CONNECTIONS
        || own.came < MIN_MADE_CONNECTIONS
        || (own.went_idle as f64) < MIN_IDLE_CLOSE_SHARE * own.went as f64
        || falls < MIN_FALLS
    {
        return Verdict::Absent;
    }
    let most = own.gauges.sessions.max();
    let needed = own.gauges.busy.max().max(2);
    Finding::new(Symptom::IdleChurn, origin.name())
        .evidence(format!(
            "{} of the {} connections that went had been idle for {} on average when they were last seen; {} came anew \
             in {}",
            own.went_idle,
            own.went,
            format_ms(own.idle_before_ms / own.went_idle as f64),
            own.came,
            format_duration(window.duration())
        ))
        .evidence(format!("their number rose to up to {most} and fell to half or less {falls} times"))
        .rules_out(
            "clients do not connect for each transaction: these connections went after they had been idle, not after \
             their work. And a deployment closes them once",
        )
        .setting(set("min_size", None, needed))
        .advice(format!(
            "Let the application's pool keep as many connections as a burst needs ({needed} had work at once), or make \
             its idle limit longer than the longest quiet time between bursts. The setting is Poolhouse's; HikariCP \
             calls it minimumIdle, MongoDB's drivers minPoolSize."
        ))
        .into()
}

/// The connections of a MongoDB. Seen only where a window has several bursts, and hardly any command comes in between:
/// the server does not tell for how long a connection has been idle.
pub(super) fn examine_mongodb(window: &MongoWindow) -> Verdict {
    let Some((came, commands)) = window.connections_and_commands() else { return Verdict::Absent };
    let tally = window.tally();
    let (falls, most) = (tally.idle_halvings, tally.max_before_halving);
    if came < MIN_MADE_CONNECTIONS
        || falls < MIN_FALLS
        || (falls as f64) < MIN_IDLE_CLOSE_SHARE * tally.halvings.falls() as f64
        || came as f64 / commands.max(1) as f64 > MAX_CREATED_PER_TRANSACTION
    {
        return Verdict::Absent;
    }
    let needed = window.busy().map_or(2, |busy| busy.max()).clamp(2, most.max(2));
    Finding::new(Symptom::IdleChurn, tally.name_most_coming())
        .evidence(format!(
            "the number of connections fell from up to {most} to half or less {falls} times, each time after half a \
             second in which hardly anything was asked"
        ))
        .evidence(format!("{came} connections were made anew in {}", format_duration(window.duration())))
        .rules_out(format!(
            "clients do not connect for each operation: {came} connections were made for {commands} operations. And a \
             deployment closes its connections once"
        ))
        .setting(set("minPoolSize", None, needed))
        .advice(format!(
            "Let the driver's pool keep as many connections as a burst needs (minPoolSize; {needed} had work at once), \
             or make its maxIdleTimeMS longer than the longest quiet time between bursts. Each connection that is made \
             costs a login."
        ))
        .into()
}
