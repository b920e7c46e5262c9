//! No client waits for a server, and the servers wait for each other in the database: the pool lets more in than the
//! database can do at once. The database shows it where it is looked at, too; the thresholds are those of a database
//! that is looked at alone.

use admin_api::Work;

use super::{
    Verdict, format_ms, format_percent,
    saturated_server::{MIN_LOCKED, MIN_LOCKED_SHARE, MIN_LOOK_SHARE, READY_PER_PROCESSOR},
};
use crate::{
    finding::{Finding, Key, Symptom},
    pooler::PoolWindow,
};

/// Looks at which the database showed the pool's sessions, at least.
const MIN_WORK_LOOKS: usize = 4;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    // Looks at the pool alone tell nothing of what its sessions did.
    let works: Vec<Work> = pool.steps.iter().filter_map(|step| step.work).collect();
    if works.iter().filter(|work| work.sessions > 0).count() < MIN_WORK_LOOKS {
        return Verdict::Absent;
    }
    let mean = |of: fn(&Work) -> u64| works.iter().map(|work| of(work) as f64).sum::<f64>() / works.len() as f64;
    let share =
        |holds: &dyn Fn(&Work) -> bool| works.iter().filter(|work| holds(work)).count() as f64 / works.len() as f64;
    let (working, locked, all_ready) = (mean(Work::working), mean(|work| work.locked), mean(|work| work.all_ready));
    let locked_share = share(&|work| work.locked as f64 >= MIN_LOCKED);
    if locked_share >= MIN_LOOK_SHARE && locked >= MIN_LOCKED_SHARE * working {
        let useful = (working - locked).ceil().max(1.0);
        return saturated(
            pool,
            format!(
                "{locked:.1} of its {working:.1} sessions with a statement waited for locks of others, two or more of \
                 them at {} of the looks",
                format_percent(locked_share)
            ),
            format!(
                "it is not short of processors: {all_ready:.1} sessions of the whole database were ready to run on \
                 average"
            ),
            "Find the row or table that they contend for (pg_blocking_pids names which session blocks which); shorter \
             transactions \
             gain some.",
            (useful, 2.0 * useful),
        );
    }
    let processors = works.iter().rev().find_map(|work| work.processors).filter(|count| *count > 0);
    let Some(processors) = processors.map(|count| count as f64) else { return Verdict::Absent };
    let enough = READY_PER_PROCESSOR * processors;
    let busy_share = share(&|work| work.all_ready as f64 >= enough);
    // The finding of another pool tells of processors in whose load this pool has little part.
    let ready = mean(|work| work.ready);
    if busy_share < MIN_LOOK_SHARE || ready < MIN_LOCKED_SHARE * all_ready {
        return Verdict::Absent;
    }
    saturated(
        pool,
        format!(
            "{all_ready:.1} sessions of the whole database, {ready:.1} of them this pool's, were ready to run on \
             {processors} processors, {enough:.0} or more at {} of the looks",
            format_percent(busy_share)
        ),
        format!("they do not wait for each other: {locked:.1} of its sessions waited for locks on average"),
        "Make statements cheaper (pg_stat_statements names the dearest), or give the database more processors.",
        (processors, enough),
    )
}

/// `sizes`: the pool sizes between which the best one is to be looked for first.
fn saturated(
    pool: &PoolWindow<'_>,
    evidence: String,
    rules_out: String,
    advice: &str,
    (least, most): (f64, f64),
) -> Verdict {
    Finding::new(Symptom::ServerSaturated, pool.name())
        .evidence(evidence)
        .evidence(describe_use(pool))
        .rules_out(format!("{rules_out}; no client waits for a server, so a larger pool gains nothing"))
        .advice(format!(
            "{advice} The pool lets more in than the database can do at once: `poolhouse sweep` finds the number of \
             connections at which it stops gaining, and {} may be that (look first between {least:.0} and {most:.0}).",
            pool.key(Key::MaxSize)
        ))
        .into()
}

/// What comes of it for clients.
fn describe_use(pool: &PoolWindow<'_>) -> String {
    let hold = pool.change.hold.mean_ms();
    let hold =
        hold.map_or(String::new(), |ms| format!(", each of which held a server for {} on average", format_ms(ms)));
    format!(
        "{:.1} of {} servers were in use on average, for {:.0} transactions a second{hold}",
        pool.mean(|step| Some(step.in_use as f64)).unwrap_or(0.0),
        pool.size(),
        pool.rate()
    )
}
