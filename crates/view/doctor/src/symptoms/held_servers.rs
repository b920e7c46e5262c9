//! Clients hold servers that have nothing to do: transactions left open, servers that never come back,
//! and servers that stay with clients that are idle.

use std::{collections::BTreeMap, time::Duration};

use admin_api::{Pooler, Work};

use super::{
    LEAK_LIMIT_MS, LONG_PAUSE_MS, MAX_OVERLONG_SHARE, MIN_WAITING_SHARE, OVERLONG_LIMIT_MS, OVERLONG_PAUSE_MS,
    PAUSE_ADVICE, Verdict, format_duration, format_ms, format_percent, format_reasons,
};
use crate::{
    finding::{Finding, Key, Symptom, Undecided, format_setting_time},
    pooler::{Holder, HolderState, PoolWindow, Step},
};

/// From this share of held servers whose client is busy elsewhere on, that is what waiting clients wait for.
const MIN_ELSEWHERE_SHARE: f64 = 0.5;
/// Servers that the same clients hold from the first look to the last, as a share of the pool's size.
const MIN_KEPT_SHARE: f64 = 0.5;
/// The share of looks that must show a client that holds its server throughout: a look leaves out a worker that answers
/// late.
const MIN_SEEN_SHARE: f64 = 0.8;
/// How inexact the time of a state may be: answers take time, and some poolers tell whole seconds.
const STATE_TIME_ERROR: Duration = Duration::from_secs(1);
/// The same as a share of the window.
const STATE_TIME_ERROR_SHARE: f64 = 0.25;
/// If pauses have lasted less than this on average when they are seen, they are those of a round trip.
const MAX_ROUND_TRIP_MS: f64 = 10.0;
/// From this share on, up to [`MIN_ELSEWHERE_SHARE`], pauses are mentioned beside what clients wait for.
const MIN_MENTIONED_SHARE: f64 = 0.25;
/// Looks at a full pool at which the database showed its sessions, at least.
const MIN_WORK_LOOKS: usize = 4;
/// Transactions that are needed for a mean.
const MIN_TRANSACTIONS: u64 = 5;

/// Where no client waits: a pause in a full pool that the next client will notice.
const MIN_FULL_POOL_PAUSE_MS: f64 = 1_000.0;
/// Where no client waits: a pause that is forgotten, however many servers are free.
const MIN_FORGOTTEN_PAUSE_MS: f64 = 30_000.0;

/// The proposed `transaction_idle_time` where no ordinary pause is known.
const DEFAULT_LIMIT_MS: f64 = 60_000.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    if pool.share_with_waiters() < MIN_WAITING_SHARE {
        return examine_full_pool(pool);
    }
    let (open, idle) = (mean_share(pool, HolderState::InTransaction), mean_share(pool, HolderState::Idle));
    // Where a server does not stay with its client, an idle one was looked at between two transactions.
    let stays = pool.pooler == Pooler::Poolhouse || pool.last.keeps_servers == Some(true);
    if open >= MIN_ELSEWHERE_SHARE {
        left_open(pool, open, describe_waits(pool))
    } else if idle >= MIN_ELSEWHERE_SHARE && stays {
        held_by_idle_clients(pool, idle)
    } else if mean_share(pool, HolderState::Unknown) >= MIN_ELSEWHERE_SHARE {
        examine_unknown_holders(pool)
    } else {
        examine_waits_for_clients(pool)
    }
}

/// Clients wait, and some of the servers are with clients that ask nothing of them: not most, so that this alone does
/// not explain the waits.
pub(super) fn examine_beside_waits(pool: &PoolWindow<'_>) -> Verdict {
    let open = mean_share(pool, HolderState::InTransaction);
    let is_waiting = pool.share_with_waiters() >= MIN_WAITING_SHARE;
    if !is_waiting || open < MIN_MENTIONED_SHARE || mean_pause_ms(pool) < MAX_ROUND_TRIP_MS {
        return Verdict::Absent;
    }
    left_open(pool, open, describe_waits(pool))
}

/// The mean share of holders in a state.
fn mean_share(pool: &PoolWindow<'_>, state: HolderState) -> f64 {
    pool.mean(|step| step.share_of(state)).unwrap_or(0.0)
}

fn describe_waits(pool: &PoolWindow<'_>) -> String {
    format!("clients waited at {} of the looks", format_percent(pool.share_with_waiters()))
}

/// The database tells that sessions wait for clients that are in the middle of something.
fn examine_waits_for_clients(pool: &PoolWindow<'_>) -> Verdict {
    let full = pool.steps.iter().filter(|step| step.is_exhausted());
    let works: Vec<Work> = full.filter_map(|step| step.session_work()).collect();
    let mean = |of: fn(&Work) -> u64| works.iter().map(|work| of(work) as f64).sum::<f64>() / works.len() as f64;
    let (sessions, clients) = (mean(|work| work.sessions), mean(|work| work.clients));
    if works.len() < MIN_WORK_LOOKS || clients < MIN_ELSEWHERE_SHARE * sessions {
        return Verdict::Absent;
    }
    Finding::new(Symptom::TransactionsLeftOpen, pool.name())
        .evidence(format!(
            "of {sessions:.1} sessions of the full pool {clients:.1} waited for their client, on average: for the rest \
             of a pipeline or of a COPY, or until it takes an answer"
        ))
        .evidence(describe_waits(pool))
        .rules_out(format!(
            "the pool is not too small: {:.1} of its sessions had something to do",
            mean(Work::working) - clients
        ))
        .advice(
            "Let clients end a pipeline (Sync) and a COPY, and take answers, before they do something else: until then \
             each keeps its server. query_time bounds that.",
        )
        .into()
}

/// The source does not tell what servers do while clients hold them, but only how long transactions took, and how much
/// of that their statements.
fn examine_unknown_holders(pool: &PoolWindow<'_>) -> Verdict {
    let kept = count_held_throughout(pool, HolderState::Unknown);
    let size = pool.size();
    if kept > 0 && kept as f64 >= MIN_KEPT_SHARE * size as f64 {
        let mut between = vec![Symptom::Leak, Symptom::ServerSaturated];
        if pool.last.keeps_servers == Some(true) {
            between.push(Symptom::HeldByIdleClients);
        }
        return Undecided::new(between, pool.name())
            .seen(format!(
                "{kept} of at most {size} servers stayed with the same clients, and nothing new was asked of them"
            ))
            .seen(describe_waits(pool))
            .needs(
                "whether these servers carry out a statement or wait within a transaction: the database knows, so name \
                 it, too (--database postgres://...)",
            )
            .into();
    }
    let (count, held_ms) = (pool.change.hold.count(), pool.change.hold.sum_ms);
    let busy_ms = pool.change.busy_ms.filter(|_| count >= MIN_TRANSACTIONS && held_ms > 0.0);
    let Some(busy_ms) = busy_ms else { return Verdict::Absent };
    let (open, mean_ms) = (1.0 - (busy_ms / held_ms).min(1.0), held_ms / count as f64);
    let paused_ms = open * mean_ms;
    if open < MIN_ELSEWHERE_SHARE || paused_ms < LONG_PAUSE_MS {
        return Verdict::Absent;
    }
    let in_use = pool.mean_in_use();
    // No setting: a limit below what is usual would break what works today.
    Finding::new(Symptom::TransactionsLeftOpen, pool.name())
        .evidence(format!(
            "{count} transactions took {} on average, of which their statements took {}",
            format_ms(mean_ms),
            format_ms(mean_ms - paused_ms)
        ))
        .evidence(describe_waits(pool))
        .rules_out(format!(
            "the pool is not too small: of {in_use:.0} servers in use only {:.1} had something to do",
            in_use * (1.0 - open)
        ))
        .advice(advise_without_pauses(pool, open))
        .into()
}

/// All servers are with clients that ask nothing of them, within transactions, and none waits: the next one will.
fn examine_full_pool(pool: &PoolWindow<'_>) -> Verdict {
    let size = pool.size();
    let open_share =
        |step: &Step| step.share_of(HolderState::InTransaction).filter(|share| *share >= MIN_ELSEWHERE_SHARE);
    let open_share_if_full = |step: &Step| open_share(step).filter(|_| size > 0 && step.taken() >= size);
    let full = pool.share(|step| open_share_if_full(step).is_some());
    if full < MIN_WAITING_SHARE || longest_pause_ms(pool) < MIN_FULL_POOL_PAUSE_MS {
        return Verdict::Absent;
    }
    let open = pool.mean(open_share_if_full).unwrap_or(0.0);
    let held = format!("all {size} servers were held at {} of the looks: the next client waits", format_percent(full));
    left_open(pool, open, held)
}

/// A transaction without a statement for long, in a pool that has servers left.
pub(super) fn examine_forgotten(pool: &PoolWindow<'_>) -> Verdict {
    let Some(last) = pool.steps.last() else { return Verdict::Absent };
    let paused = last.holders_in(HolderState::InTransaction);
    let forgotten = paused.filter(|holder| holder.state_ms >= MIN_FORGOTTEN_PAUSE_MS).count();
    let clients = match forgotten {
        0 => return Verdict::Absent,
        1 => "a client has".to_owned(),
        clients => format!("{clients} clients have"),
    };
    let size = pool.size();
    let free = match size.saturating_sub(last.taken()) {
        0 => format!("all {size} servers were taken at the end"),
        free => format!("{free} of {size} servers were free at the end"),
    };
    let key = pool.key(Key::TransactionIdleTime);
    let limit = match pool.timeout_ms(Key::TransactionIdleTime) {
        Some(ms) if ms <= DEFAULT_LIMIT_MS => format!(
            "{key} = {} is in force, and ends it with an error for its client once it has paused for so long.",
            format_setting_time(ms)
        ),
        Some(ms) => format!(
            "{key} is {}: 60s would end those that pause for longer, with an error for the clients that left them.",
            format_setting_time(ms)
        ),
        None => format!(
            "Where no {key} is set that is as short, 60s would end those that pause for longer, with an error for the \
             clients that left them."
        ),
    };
    Finding::new(Symptom::TransactionsLeftOpen, pool.name())
        .evidence(format!(
            "{clients} asked nothing within a transaction for over {}",
            format_ms(MIN_FORGOTTEN_PAUSE_MS)
        ))
        .evidence(format!("the longest such pause has lasted {}", format_ms(longest_pause_ms(pool))))
        .evidence(free)
        .rules_out("the statements are not slow: nothing is asked of these servers")
        .advice(format!(
            "Find the client with {}. Until it ends, such a transaction keeps a server and its locks, and what it can \
             see cannot be vacuumed. {limit}",
            name_holder_list(pool)
        ))
        .into()
}

/// How long each pause within a transaction had lasted when it was seen.
fn pauses_ms(pool: &PoolWindow<'_>) -> impl Iterator<Item = f64> {
    let holders = pool.steps.iter().flat_map(|step| step.holders_in(HolderState::InTransaction));
    holders.map(|holder| holder.state_ms)
}

fn longest_pause_ms(pool: &PoolWindow<'_>) -> f64 {
    pauses_ms(pool).fold(0.0, f64::max)
}

fn mean_pause_ms(pool: &PoolWindow<'_>) -> f64 {
    pauses_ms(pool).sum::<f64>() / pauses_ms(pool).count().max(1) as f64
}

/// Where clients that hold servers are listed.
fn name_holder_list(pool: &PoolWindow<'_>) -> &'static str {
    match pool.pooler {
        Pooler::Poolhouse => "`poolhouse top` (the longest come first)",
        _ => "SHOW CLIENTS (those with a link)",
    }
}

fn advise_without_pauses(pool: &PoolWindow<'_>, open: f64) -> String {
    format!(
        "{PAUSE_ADVICE} Without the pauses {:.0} of the {} servers suffice for the same work.",
        (pool.mean_in_use() * (1.0 - open)).ceil().max(1.0),
        pool.size()
    )
}

/// `open`: the share of held servers whose client pauses in a transaction. `effect`: what it does to other clients.
fn left_open(pool: &PoolWindow<'_>, open: f64, effect: String) -> Verdict {
    let kept = count_held_throughout(pool, HolderState::InTransaction);
    if kept > 0 && kept as f64 >= MIN_KEPT_SHARE * pool.size() as f64 {
        return leak(pool, kept, &effect);
    }
    let longest = longest_pause_ms(pool);
    if longest < LONG_PAUSE_MS && mean_pause_ms(pool) < MAX_ROUND_TRIP_MS {
        return Verdict::Absent;
    }
    // A limit below what applications pause now would break them; one that only few of them exceed ends those.
    let overlong = pauses_ms(pool).filter(|ms| *ms > OVERLONG_PAUSE_MS).count();
    let are_few = overlong > 0 && overlong as f64 <= MAX_OVERLONG_SHARE * pauses_ms(pool).count() as f64;
    let setting = if are_few { pool.shorten(Key::TransactionIdleTime, OVERLONG_LIMIT_MS) } else { None };
    let limit = match pool.timeout_ms(Key::TransactionIdleTime).filter(|_| setting.is_none()) {
        Some(ms) if longest < ms => format!(
            " {} is {} already, and the longest of these pauses is within it: it ends none of them.",
            pool.key(Key::TransactionIdleTime),
            format_setting_time(ms)
        ),
        _ => String::new(),
    };
    let in_use = pool.mean_in_use();
    let is_cause = open >= MIN_ELSEWHERE_SHARE;
    Finding::new(Symptom::TransactionsLeftOpen, pool.name())
        .evidence(format!(
            "{} of the servers held had a client that asked nothing of them, within a transaction",
            format_percent(open)
        ))
        .evidence(format!("the longest such pause was {}", format_ms(longest)))
        .evidence(effect)
        .rules_out(format!(
            "{}: of {in_use:.0} servers in use only {:.1} had something to do",
            if is_cause { "the pool is not too small" } else { "it is not the size alone" },
            in_use * (1.0 - open)
        ))
        .setting(setting)
        .advice(format!("{}{limit}", advise_without_pauses(pool, open)))
        .into()
}

/// Most servers are with clients that have paused in their transactions throughout.
fn leak(pool: &PoolWindow<'_>, kept: usize, effect: &str) -> Verdict {
    let ends = match pool.timeout_ms(Key::TransactionIdleTime).filter(|ms| *ms <= LEAK_LIMIT_MS) {
        Some(ms) => format!(
            "{} = {} is in force and ends such transactions",
            pool.key(Key::TransactionIdleTime),
            format_setting_time(ms)
        ),
        None => "The setting ends such transactions".to_owned(),
    };
    Finding::new(Symptom::Leak, pool.name())
        .evidence(format!(
            "{kept} of at most {} servers were held by the same clients for the whole {}, and nothing was asked of \
             them",
            pool.size(),
            format_duration(pool.duration)
        ))
        .evidence(format!("the longest has paused within its transaction for {}", format_ms(longest_pause_ms(pool))))
        .evidence(format!("{effect}, while {:.1} transactions ended a second", pool.rate()))
        .rules_out("transactions that are slow would come to an end, and others begin: these do neither")
        .setting(pool.shorten(Key::TransactionIdleTime, LEAK_LIMIT_MS))
        .advice(format!(
            "Find the clients with {} and the place where they leave without COMMIT or ROLLBACK. {ends}, with an error \
             for the clients that left them.",
            name_holder_list(pool)
        ))
        .into()
}

/// `idle`: the share of held servers whose client has nothing in progress.
fn held_by_idle_clients(pool: &PoolWindow<'_>, idle: f64) -> Verdict {
    let why = match format_reasons(&pool.last.pinned) {
        _ if pool.pooler != Pooler::Poolhouse => {
            "PgBouncer leaves a server with its client until that leaves, in session mode".to_owned()
        }
        none if none.is_empty() => {
            "none of them is pinned: in session mode a server stays with its client until that leaves".to_owned()
        }
        pinned => format!("servers are pinned to their clients: {pinned}"),
    };
    let key = pool.key(Key::ClientIdleTime);
    let limit = match pool.timeout_ms(Key::ClientIdleTime) {
        Some(ms) => format!("sooner than {key} = {} does", format_setting_time(ms)),
        None => key.to_owned(),
    };
    Finding::new(Symptom::HeldByIdleClients, pool.name())
        .evidence(format!("{} of the servers held had a client with nothing in progress", format_percent(idle)))
        .evidence(why)
        .evidence(describe_waits(pool))
        .rules_out("the servers are not busy, and no transaction is open on them")
        .advice(format!(
            "Use transaction mode where the clients allow it; else let idle clients go ({limit}), or give the pool as \
             many servers as there are clients. docs/postgresql.md says what pins a server."
        ))
        .into()
}

/// Clients that have been in this state since the first look, and were seen in it at nearly all looks.
fn count_held_throughout(pool: &PoolWindow<'_>, state: HolderState) -> usize {
    let Some(first) = pool.steps.first() else { return 0 };
    // By client: the number of looks, and the beginning of the state as the last of them tells it.
    let mut seen = BTreeMap::<u64, (usize, f64)>::new();
    for step in &pool.steps {
        for Holder { id, state_ms, .. } in step.holders_in(state) {
            let (looks, since_ms) = seen.entry(*id).or_default();
            (*looks, *since_ms) = (*looks + 1, step.at.as_secs_f64() * 1e3 - state_ms);
        }
    }
    let error = STATE_TIME_ERROR.min(pool.duration.mul_f64(STATE_TIME_ERROR_SHARE));
    let from_ms = (first.at + error).as_secs_f64() * 1e3;
    let enough = MIN_SEEN_SHARE * pool.steps.len() as f64;
    seen.values().filter(|(looks, since_ms)| *looks as f64 >= enough && *since_ms <= from_ms).count()
}
