//! Statements that run get in each other's way: they wait for each other's locks, or there are too few processors.

use super::{Verdict, WHOLE_SERVER, format_ms, format_percent};
use crate::{
    finding::{Finding, Symptom},
    mongodb::MongoWindow,
    postgres::PostgresWindow,
};

/// From this many ready sessions or running operations for each processor on, more of them gain nothing.
pub(super) const READY_PER_PROCESSOR: f64 = 2.0;
/// The share of looks at which that holds.
pub(super) const MIN_LOOK_SHARE: f64 = 0.5;
/// Sessions that wait for a lock, or operations in the server's own queue, at least.
pub(super) const MIN_LOCKED: f64 = 2.0;
/// The same as a share of the working sessions or running operations.
pub(super) const MIN_LOCKED_SHARE: f64 = 0.5;

/// `is_explained`: open transactions hold the locks.
pub(super) fn examine_postgres(window: &PostgresWindow, is_explained: bool) -> Verdict {
    let Some((_, last)) = window.first_and_last() else { return Verdict::Absent };
    let all = &window.tally().all;
    let (working, ready, locked) = (all.working.mean(), all.ready.mean(), all.locked.mean());
    let ended = window.tally().ended;
    let rate = ended as f64 / window.duration().as_secs_f64().max(1e-3);
    let throughput = match ended {
        0 => format!("no transaction ended, while {working:.1} sessions had a statement under way"),
        _ => format!(
            "{rate:.0} transactions ended a second, while {working:.1} sessions had a statement under way: {} for each \
             transaction",
            format_ms(working / rate.max(1e-3) * 1e3)
        ),
    };
    let locked_share = all.locked.share_from(MIN_LOCKED);
    if !is_explained && locked_share >= MIN_LOOK_SHARE && locked >= MIN_LOCKED_SHARE * working {
        return Finding::new(Symptom::ServerSaturated, WHOLE_SERVER)
            .evidence(format!(
                "{locked:.1} of {working:.1} sessions with a statement waited for locks of others, two or more of them \
                 at {} of the looks",
                format_percent(locked_share)
            ))
            .evidence(throughput)
            .rules_out(format!(
                "it is not short of processors: {ready:.1} sessions on average were ready to run; more connections \
                 would only wait, too"
            ))
            .advice(
                "Find the row or table that they contend for (pg_blocking_pids names which session blocks which). \
                 Fewer \
                 connections at once, by a pool in front, lose no throughput; shorter transactions gain some.",
            )
            .into();
    }
    let Some(processors) = last.processors.filter(|count| *count > 0) else { return Verdict::Absent };
    let enough = READY_PER_PROCESSOR * processors as f64;
    let busy_share = all.ready.share_from(enough);
    if busy_share < MIN_LOOK_SHARE {
        return Verdict::Absent;
    }
    Finding::new(Symptom::ServerSaturated, WHOLE_SERVER)
        .evidence(format!(
            "{ready:.1} sessions on average were ready to run on {processors} processors, {enough:.0} or more of them \
             at {} of the looks",
            format_percent(busy_share)
        ))
        .evidence(throughput)
        .rules_out(format!(
            "they do not wait for each other: {locked:.1} on average waited for locks. More connections would only \
             share the same processors"
        ))
        .advice(format!(
            "Find the number of connections at which it stops gaining with `poolhouse sweep`, and keep it at that with \
             a pool in front; look first between {processors} and {enough:.0}."
        ))
        .into()
}

/// `is_explained`: open transactions hold the locks.
pub(super) fn examine_mongodb(window: &MongoWindow, is_explained: bool) -> Verdict {
    let Some((first, last)) = window.first_and_last() else { return Verdict::Absent };
    let (running, queued) = (&window.tally().running, &window.tally().queued);
    let (took_ms, timed) = (last.took_ms - first.took_ms, last.timed.saturating_sub(first.timed));
    let throughput = match timed {
        0 => "no read or write came to an end".to_owned(),
        timed => format!(
            "{:.0} reads and writes ended a second, after {} on average",
            timed as f64 / window.duration().as_secs_f64().max(1e-3),
            format_ms(took_ms.max(0.0) / timed as f64)
        ),
    };
    let queued_share = queued.share_from(MIN_LOCKED);
    let is_queue =
        queued_share >= MIN_LOOK_SHARE && queued.mean() >= MIN_LOCKED_SHARE * running.mean().max(queued.mean());
    if !is_explained && is_queue {
        return Finding::new(Symptom::ServerSaturated, WHOLE_SERVER)
            .evidence(format!(
                "{:.1} operations on average waited in its own queue for a lock or a ticket, two or more of them at {} \
                 of the looks; {:.1} were under way",
                queued.mean(),
                format_percent(queued_share),
                running.mean()
            ))
            .evidence(throughput)
            .rules_out("no pool is too small for it: more connections would only wait in that queue, too")
            .advice(
                "Find the operations that take long (the profiler, or the slow operations in its log): mostly an index \
                 is missing, or all write to the same documents. Fewer connections at once, by maxPoolSize or a pool \
                 in front, lose no throughput.",
            )
            .into();
    }
    let Some(processors) = last.processors.filter(|count| *count > 0) else { return Verdict::Absent };
    let enough = READY_PER_PROCESSOR * processors as f64;
    let busy_share = running.share_from(enough);
    if busy_share < MIN_LOOK_SHARE {
        return Verdict::Absent;
    }
    Finding::new(Symptom::ServerSaturated, WHOLE_SERVER)
        .evidence(format!(
            "{:.1} reads and writes on average were under way on {processors} processors, {enough:.0} or more of them \
             at {} of the looks",
            running.mean(),
            format_percent(busy_share)
        ))
        .evidence(throughput)
        .rules_out(format!(
            "they do not wait for each other: {:.1} on average were in its own queue. More connections would only \
             share the same processors and disks",
            queued.mean()
        ))
        .advice(format!(
            "Find the number of connections at which it stops gaining with `poolhouse sweep`, and keep it at that \
             (maxPoolSize over all processes, or a pool in front); look first between {processors} and {enough:.0}."
        ))
        .into()
}
