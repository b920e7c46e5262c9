//! No client waits for a server, and the servers wait for each other in the database: the pool lets more in than the
//! database can do at once. The database tells it where it is asked, too; the thresholds are those of a database that
//! is looked at alone.

use super::{
    Verdict,
    database::saturated::{MIN_LOCKED, MIN_LOCKED_SHARE, MIN_LOOK_SHARE, READY_PER_PROCESSOR},
    percent, time,
};
use crate::{
    finding::{Finding, Key, Symptom},
    window::PoolWindow,
};

/// Looks at which the database told of the pool's sessions, at least.
const MIN_LOOKS: usize = 4;

/// What the pool's sessions did on average.
struct Seen {
    working: f64,
    ready: f64,
    locked: f64,
    all_ready: f64,
    processors: Option<u64>,
}

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    if pool.steps.iter().filter(|step| step.work.is_some_and(|work| work.sessions > 0)).count() < MIN_LOOKS {
        return Verdict::Absent;
    }
    let work = |step: &crate::window::Step| step.work.unwrap_or_default();
    let mean = |of: fn(&admin_api::Work) -> u64| pool.mean(|step| Some(of(&work(step)) as f64)).unwrap_or(0.0);
    let seen = Seen {
        working: mean(admin_api::Work::working),
        ready: mean(|work| work.ready),
        locked: mean(|work| work.locked),
        all_ready: mean(|work| work.all_ready),
        processors: pool.steps.iter().rev().find_map(|step| work(step).processors).filter(|count| *count > 0),
    };
    let locked = pool.share(|step| work(step).locked as f64 >= MIN_LOCKED);
    if locked >= MIN_LOOK_SHARE && seen.locked >= MIN_LOCKED_SHARE * seen.working {
        return by_locks(pool, &seen, locked);
    }
    let Some(processors) = seen.processors else { return Verdict::Absent };
    let enough = READY_PER_PROCESSOR * processors as f64;
    // Of a pool that has little part in it another one's finding tells.
    let busy = pool.share(|step| work(step).all_ready as f64 >= enough);
    let own = seen.ready >= MIN_LOCKED_SHARE * seen.all_ready;
    if busy >= MIN_LOOK_SHARE && own { by_processors(pool, &seen, processors, busy) } else { Verdict::Absent }
}

fn by_locks(pool: &PoolWindow<'_>, seen: &Seen, share: f64) -> Verdict {
    let going = (seen.working - seen.locked).ceil().max(1.0);
    let evidence = format!(
        "{:.1} of its {:.1} sessions with a statement waited for locks of others, two or more of them at {} of the looks",
        seen.locked,
        seen.working,
        percent(share)
    );
    found(
        pool,
        vec![evidence, held(pool)],
        format!(
            "it is not short of processors: {:.1} sessions of the whole database were ready to run on average",
            seen.all_ready
        ),
        format!("look first between {going:.0} and {:.0}", 2.0 * going),
        "Find the row or table that they contend for (pg_blocking_pids names who blocks whom); shorter transactions gain some.",
    )
}

fn by_processors(pool: &PoolWindow<'_>, seen: &Seen, processors: u64, share: f64) -> Verdict {
    let enough = READY_PER_PROCESSOR * processors as f64;
    let evidence = format!(
        "{:.1} sessions of the whole database, {:.1} of them this pool's, were ready to run on {processors} processors, {enough:.0} or more \
         at {} of the looks",
        seen.all_ready,
        seen.ready,
        percent(share)
    );
    found(
        pool,
        vec![evidence, held(pool)],
        format!("they do not wait for each other: {:.1} of its sessions waited for locks on average", seen.locked),
        format!("look first between {processors} and {enough:.0}"),
        "Make statements cheaper (pg_stat_statements names the dearest), or give the database more processors.",
    )
}

/// What comes of it for clients.
fn held(pool: &PoolWindow<'_>) -> String {
    let hold = pool
        .change
        .hold
        .mean_ms()
        .map_or(String::new(), |ms| format!(", each of which held a server for {} on average", time(ms)));
    let in_use = pool.mean(|step| Some(step.in_use as f64)).unwrap_or(0.0);
    format!(
        "{in_use:.1} of {} servers were in use on average, for {:.0} transactions a second{hold}",
        pool.size(),
        pool.rate()
    )
}

fn found(pool: &PoolWindow<'_>, evidence: Vec<String>, rules_out: String, first: String, advice: &str) -> Verdict {
    let key = pool.key(Key::MaxSize);
    Verdict::Present(Finding {
        symptom: Symptom::ServerSaturated,
        of: pool.name(),
        evidence,
        rules_out: format!("{rules_out}; no client waits for a server, so a larger pool gains nothing"),
        setting: None,
        advice: format!(
            "{advice} The pool lets more in than the database can do at once: `poolhouse sweep` finds the number of connections at which it \
             stops gaining, and {key} may be that ({first})."
        ),
    })
}
