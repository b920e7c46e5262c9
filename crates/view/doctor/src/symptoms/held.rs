//! Clients hold servers while nothing is asked of the database: transactions left open, servers that never come back,
//! and servers that stay with clients that are idle.

use std::{collections::BTreeMap, time::Duration};

use admin_api::Pooler;

use super::{MIN_WAITING_SHARE, PAUSES, Verdict, percent, time};
use crate::{
    finding::{Finding, Key, Symptom, Undecided, setting_time},
    window::{Holder, PoolWindow, Stands, Step},
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
/// Ordinary work needs no such pause within a transaction.
const LONG_PAUSE_MS: f64 = 200.0;
/// If pauses have lasted less than this on average when they are seen, they are those of a round trip.
const MAX_ROUND_TRIP_MS: f64 = 10.0;
/// From this share on, up to [`MIN_ELSEWHERE_SHARE`], pauses are mentioned beside what clients wait for.
const MIN_MENTIONED_SHARE: f64 = 0.25;
/// Looks at a full pool at which the database told of its sessions, at least.
const MIN_WORK_LOOKS: usize = 4;
/// Transactions that are needed for a mean.
const MIN_TRANSACTIONS: u64 = 5;
/// Ending the transaction is better than so long a pause, if at most [`MAX_OVERLONG_SHARE`] of the pauses are as long.
const OVERLONG_PAUSE_MS: f64 = 5_000.0;
/// See [`OVERLONG_PAUSE_MS`].
const MAX_OVERLONG_SHARE: f64 = 0.1;

/// Where no client waits: a pause in a full pool that the next client will notice.
const MIN_FULL_POOL_PAUSE_MS: f64 = 1_000.0;
/// Where no client waits: a pause that is forgotten, however many servers are free.
const MIN_FORGOTTEN_PAUSE_MS: f64 = 30_000.0;

/// The proposed `transaction_idle_time` where no ordinary pause is known.
const DEFAULT_LIMIT_MS: f64 = 60_000.0;
/// The same where clients never come back.
const LEAK_LIMIT_MS: f64 = 30_000.0;
/// The same where few pauses are overlong.
const OVERLONG_LIMIT_MS: f64 = 5_000.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share(|step| step.waiters > 0);
    if waiting < MIN_WAITING_SHARE {
        return full_of_open(pool);
    }
    let share = |stands| pool.mean(|step| step.share_of(stands)).unwrap_or(0.0);
    let (open, idle) = (share(Stands::InTransaction), share(Stands::Idle));
    let waited = format!("clients waited at {} of the looks", percent(waiting));
    // Where a server does not stay with its client, one that is idle was looked at between two transactions.
    let stays = pool.pooler == Pooler::Poolhouse || pool.last.keeps_servers == Some(true);
    match () {
        () if open >= MIN_ELSEWHERE_SHARE => left_open(pool, open, waited),
        () if idle >= MIN_ELSEWHERE_SHARE && stays => with_idle_clients(pool, idle, waited),
        () if share(Stands::Unknown) >= MIN_ELSEWHERE_SHARE => not_told(pool, waited),
        () => with_clients(pool, waited),
    }
}

/// Clients wait, and some of the servers are with clients that ask nothing of them: not most, so that this alone does
/// not explain it.
pub(super) fn beside(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share(|step| step.waiters > 0);
    let open = pool.mean(|step| step.share_of(Stands::InTransaction)).unwrap_or(0.0);
    if waiting < MIN_WAITING_SHARE || open < MIN_MENTIONED_SHARE || mean_pause_ms(pool) < MAX_ROUND_TRIP_MS {
        return Verdict::Absent;
    }
    left_open(pool, open, format!("clients waited at {} of the looks", percent(waiting)))
}

/// The database tells that sessions wait for clients that are in the middle of something.
fn with_clients(pool: &PoolWindow<'_>, waited: String) -> Verdict {
    let works = || pool.steps.iter().filter(|step| step.is_full()).filter_map(|step| step.work);
    let works: Vec<_> = works().filter(|work| work.sessions > 0).collect();
    let mean =
        |of: fn(&admin_api::Work) -> u64| works.iter().map(|work| of(work) as f64).sum::<f64>() / works.len() as f64;
    let (sessions, clients) = (mean(|work| work.sessions), mean(|work| work.clients));
    if works.len() < MIN_WORK_LOOKS || clients < MIN_ELSEWHERE_SHARE * sessions {
        return Verdict::Absent;
    }
    Verdict::Present(Finding {
        symptom: Symptom::TransactionsLeftOpen,
        of: pool.name(),
        evidence: vec![
            format!(
                "of {sessions:.1} sessions of the full pool {clients:.1} waited for their client, on average: for the rest of a pipeline or of a \
                 COPY, or until it takes an answer"
            ),
            waited,
        ],
        rules_out: format!(
            "the pool is not too small: {:.1} of its sessions had something to do",
            mean(admin_api::Work::working) - clients
        ),
        setting: None,
        advice: "Let clients end a pipeline (Sync) and a COPY, and take answers, before they do something else: until then each keeps its \
                 server. query_time bounds that."
            .to_owned(),
    })
}

/// The source does not tell what servers do while clients hold them, but only how long transactions took, and how much
/// of that their statements.
fn not_told(pool: &PoolWindow<'_>, waited: String) -> Verdict {
    let kept = held_throughout(pool, Stands::Unknown);
    let size = pool.size();
    if kept > 0 && kept as f64 >= MIN_KEPT_SHARE * size as f64 {
        let mut between = vec![Symptom::Leak, Symptom::ServerSaturated];
        if pool.last.keeps_servers == Some(true) {
            between.push(Symptom::HeldByIdleClients);
        }
        return Verdict::Undecided(Undecided {
            between,
            of: pool.name(),
            seen: vec![
                format!("{kept} of at most {size} servers stayed with the same clients, and nothing new was asked of them"),
                waited,
            ],
            needs: "whether these servers carry out a statement or wait within a transaction: the database knows, so name it, too \
                    (--database postgres://...)"
                .to_owned(),
        });
    }
    let (count, held, busy) = (pool.change.hold.count(), pool.change.hold.sum_ms, pool.change.busy_ms);
    let Some(busy) = busy.filter(|_| count >= MIN_TRANSACTIONS && held > 0.0) else { return Verdict::Absent };
    let (open, mean) = (1.0 - (busy / held).min(1.0), held / count as f64);
    let paused = open * mean;
    if open < MIN_ELSEWHERE_SHARE || paused < LONG_PAUSE_MS {
        return Verdict::Absent;
    }
    let in_use = pool.mean(|step| (step.in_use > 0).then_some(step.in_use as f64)).unwrap_or(0.0);
    Verdict::Present(Finding {
        symptom: Symptom::TransactionsLeftOpen,
        of: pool.name(),
        evidence: vec![
            format!(
                "{count} transactions took {} on average, of which their statements took {}",
                time(mean),
                time(mean - paused)
            ),
            waited,
        ],
        rules_out: format!(
            "the pool is not too small: of {in_use:.0} servers in use only {:.1} had something to do",
            in_use * (1.0 - open)
        ),
        // Longer than what is usual: a limit below that would break what works today.
        setting: None,
        advice: without_pauses(pool, in_use, open),
    })
}

/// All servers are with clients that ask nothing of them, within transactions, and none waits: the next one will.
fn full_of_open(pool: &PoolWindow<'_>) -> Verdict {
    let size = pool.size();
    let is_open = |step: &Step| step.share_of(Stands::InTransaction).is_some_and(|share| share >= MIN_ELSEWHERE_SHARE);
    let is_full = |step: &Step| size > 0 && step.taken() >= size && is_open(step);
    let full = pool.share(is_full);
    let open = pool.mean(|step| is_full(step).then(|| step.share_of(Stands::InTransaction)).flatten());
    if full < MIN_WAITING_SHARE || longest_pause_ms(pool) < MIN_FULL_POOL_PAUSE_MS {
        return Verdict::Absent;
    }
    let said = format!("all {size} servers were held at {} of the looks: who comes then waits", percent(full));
    left_open(pool, open.unwrap_or(0.0), said)
}

/// A transaction in which nothing has been asked for long, in a pool that has servers left.
pub(super) fn forgotten(pool: &PoolWindow<'_>) -> Verdict {
    let Some(last) = pool.steps.last() else { return Verdict::Absent };
    let is_forgotten = |holder: &&Holder| holder.stands == Stands::InTransaction && holder.ms >= MIN_FORGOTTEN_PAUSE_MS;
    let forgotten = last.holders.iter().filter(is_forgotten).count();
    if forgotten == 0 {
        return Verdict::Absent;
    }
    let size = pool.size();
    let room = match size.saturating_sub(last.taken()) {
        0 => format!("all {size} servers were taken at the end"),
        free => format!("{free} of {size} servers were free at the end"),
    };
    let key = pool.key(Key::TransactionIdleTime);
    let limit = match pool.in_force(Key::TransactionIdleTime) {
        Some(ms) if ms <= DEFAULT_LIMIT_MS => format!(
            "{key} = {} is in force, and ends it with an error for its client once it has paused for so long.",
            setting_time(ms)
        ),
        Some(ms) => format!(
            "{key} is {}: 60s would end those that pause for longer, with an error for who left them.",
            setting_time(ms)
        ),
        None => format!(
            "Where no {key} is set that is as short, 60s would end those that pause for longer, with an error for who left them."
        ),
    };
    let clients = if forgotten == 1 { "a client has".to_owned() } else { format!("{forgotten} clients have") };
    Verdict::Present(Finding {
        symptom: Symptom::TransactionsLeftOpen,
        of: pool.name(),
        evidence: vec![
            format!("{clients} asked nothing within a transaction for over {}", time(MIN_FORGOTTEN_PAUSE_MS)),
            format!("the longest such pause has lasted {}", time(longest_pause_ms(pool))),
            room,
        ],
        rules_out: "the statements are not slow: nothing is asked of these servers".to_owned(),
        setting: None,
        advice: format!(
            "Find the client with {}. Until it ends, such a transaction keeps a server and its locks, and what it can see cannot be \
             vacuumed. {limit}",
            who_holds(pool)
        ),
    })
}

/// The longest pause within a transaction that was seen.
fn longest_pause_ms(pool: &PoolWindow<'_>) -> f64 {
    let holders = pool.steps.iter().flat_map(|step| &step.holders);
    holders.filter(|holder| holder.stands == Stands::InTransaction).map(|holder| holder.ms).fold(0.0, f64::max)
}

/// For how long pauses within transactions had lasted, on average.
fn mean_pause_ms(pool: &PoolWindow<'_>) -> f64 {
    let holders = pool.steps.iter().flat_map(|step| &step.holders);
    let pauses = holders.filter(|holder| holder.stands == Stands::InTransaction).map(|holder| holder.ms);
    let (count, sum) = pauses.fold((0, 0.0), |(count, sum), ms| (count + 1, sum + ms));
    sum / f64::from(count.max(1))
}

/// Where clients that hold servers are listed.
fn who_holds(pool: &PoolWindow<'_>) -> &'static str {
    match pool.pooler {
        Pooler::Poolhouse => "`poolhouse top` (the longest come first)",
        _ => "SHOW CLIENTS (those with a link)",
    }
}

fn without_pauses(pool: &PoolWindow<'_>, in_use: f64, open: f64) -> String {
    format!(
        "{PAUSES} Without the pauses {:.0} of the {} servers suffice for the same work.",
        (in_use * (1.0 - open)).ceil().max(1.0),
        pool.size()
    )
}

fn left_open(pool: &PoolWindow<'_>, open: f64, waited: String) -> Verdict {
    let holders = pool.steps.iter().flat_map(|step| &step.holders);
    let pauses: Vec<f64> =
        holders.filter(|holder| holder.stands == Stands::InTransaction).map(|holder| holder.ms).collect();
    let longest = longest_pause_ms(pool);
    let overlong = pauses.iter().filter(|ms| **ms > OVERLONG_PAUSE_MS).count();
    let are_few = overlong > 0 && overlong as f64 <= MAX_OVERLONG_SHARE * pauses.len() as f64;
    let in_use = pool.mean(|step| (step.in_use > 0).then_some(step.in_use as f64)).unwrap_or(0.0);
    let kept = held_throughout(pool, Stands::InTransaction);
    if kept > 0 && kept as f64 >= MIN_KEPT_SHARE * pool.size() as f64 {
        return leak(pool, kept, &waited);
    }
    if longest < LONG_PAUSE_MS && mean_pause_ms(pool) < MAX_ROUND_TRIP_MS {
        return Verdict::Absent;
    }
    // A limit below what applications pause now would break them; one that only few of them exceed ends those.
    let setting = if are_few { pool.shorter(Key::TransactionIdleTime, OVERLONG_LIMIT_MS) } else { None };
    let limit = match pool.in_force(Key::TransactionIdleTime).filter(|_| setting.is_none()) {
        Some(ms) if longest < ms => format!(
            " {} is {} already, and the longest of these pauses is within it: it ends none of them.",
            pool.key(Key::TransactionIdleTime),
            setting_time(ms)
        ),
        _ => String::new(),
    };
    let is_cause = open >= MIN_ELSEWHERE_SHARE;
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
            "{}: of {in_use:.0} servers in use only {:.1} had something to do",
            if is_cause { "the pool is not too small" } else { "it is not the size alone" },
            in_use * (1.0 - open)
        ),
        setting,
        advice: format!("{}{limit}", without_pauses(pool, in_use, open)),
    })
}

/// Most servers are with clients that have stood within their transactions throughout.
fn leak(pool: &PoolWindow<'_>, kept: usize, waited: &str) -> Verdict {
    Verdict::Present(Finding {
        symptom: Symptom::Leak,
        of: pool.name(),
        evidence: vec![
            format!(
                "{kept} of at most {} servers were held by the same clients for the whole {}, and nothing was asked of them",
                pool.size(),
                time(pool.lasts.as_millis() as f64)
            ),
            format!("the longest has paused within its transaction for {}", time(longest_pause_ms(pool))),
            format!("{waited}, while {:.1} transactions ended a second", pool.rate()),
        ],
        rules_out: "transactions that are slow would come to an end, and others begin: these do neither".to_owned(),
        setting: pool.shorter(Key::TransactionIdleTime, LEAK_LIMIT_MS),
        advice: format!(
            "Find the clients with {} and the place where they leave without COMMIT or ROLLBACK. {}, with an error for who left them.",
            who_holds(pool),
            match pool.in_force(Key::TransactionIdleTime).filter(|ms| *ms <= LEAK_LIMIT_MS) {
                Some(ms) => format!(
                    "{} = {} is in force and ends such transactions",
                    pool.key(Key::TransactionIdleTime),
                    setting_time(ms)
                ),
                None => "The setting ends such transactions".to_owned(),
            }
        ),
    })
}

fn with_idle_clients(pool: &PoolWindow<'_>, idle: f64, waited: String) -> Verdict {
    let pinned: Vec<String> =
        pool.last.pinned.iter().filter(|(_, n)| **n > 0).map(|(why, n)| format!("{n} for {why}")).collect();
    let why = if pool.pooler != Pooler::Poolhouse {
        "PgBouncer leaves a server with its client until that leaves, in session mode".to_owned()
    } else if pinned.is_empty() {
        "none of them is pinned: in session mode a server stays with its client until that leaves".to_owned()
    } else {
        format!("servers are pinned to their clients: {}", pinned.join(", "))
    };
    Verdict::Present(Finding {
        symptom: Symptom::HeldByIdleClients,
        of: pool.name(),
        evidence: vec![
            format!("{} of the servers held had a client with nothing in progress", percent(idle)),
            why,
            waited,
        ],
        rules_out: "the servers are not busy, and no transaction is open on them".to_owned(),
        setting: None,
        advice: format!(
            "Use transaction mode where the clients allow it; else let idle clients go ({}), or give the pool as many servers as there are \
             clients. docs/postgresql.md says what pins a server.",
            match pool.in_force(Key::ClientIdleTime) {
                Some(ms) => format!("sooner than {} = {} does", pool.key(Key::ClientIdleTime), setting_time(ms)),
                None => pool.key(Key::ClientIdleTime).to_owned(),
            }
        ),
    })
}

/// How many clients have stood so since the first look, and were seen to at nearly all of them.
fn held_throughout(pool: &PoolWindow<'_>, stands: Stands) -> usize {
    let Some(first) = pool.steps.first() else { return 0 };
    // At how many looks, and since when as the last of them tells.
    let mut seen = BTreeMap::<u64, (usize, f64)>::new();
    for step in &pool.steps {
        for holder in step.holders.iter().filter(|holder| holder.stands == stands) {
            let (looks, since_ms) = seen.entry(holder.id).or_default();
            (*looks, *since_ms) = (*looks + 1, step.at.as_secs_f64() * 1e3 - holder.ms);
        }
    }
    let from = (first.at + STATE_TIME_ERROR.min(pool.lasts.mul_f64(STATE_TIME_ERROR_SHARE))).as_secs_f64() * 1e3;
    let enough = MIN_SEEN_SHARE * pool.steps.len() as f64;
    seen.values().filter(|(looks, since_ms)| *looks as f64 >= enough && *since_ms <= from).count()
}
