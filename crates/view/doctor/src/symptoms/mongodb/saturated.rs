//! Operations that run get in each other's way: they queue for locks or tickets, or for want of processors.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Symptom},
    mongodb::MongoWindow,
};

/// From this many operations under way for each processor on, more of them gain nothing.
const OPERATIONS_PER_PROCESSOR: f64 = 2.0;
/// The share of looks at which that holds.
const MIN_LOOK_SHARE: f64 = 0.5;
/// Operations in the server's own queue, at least.
const MIN_QUEUED: f64 = 2.0;
/// The same as a share of the operations under way.
const MIN_QUEUED_SHARE: f64 = 0.5;

pub(super) fn examine(window: &MongoWindow, is_held: bool) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let (running, queued) = (&window.sums.running, &window.sums.queued);
    let (took, timed) = (last.took_ms - first.took_ms, last.timed.saturating_sub(first.timed));
    let rate = timed as f64 / window.lasts().as_secs_f64().max(1e-3);
    let took = match timed {
        0 => "no read or write came to an end".to_owned(),
        timed => format!(
            "{rate:.0} reads and writes ended a second, after {} on average",
            time(took.max(0.0) / timed as f64)
        ),
    };
    let of = "the whole server".to_owned();
    let is_queue = queued.share_from(MIN_QUEUED) >= MIN_LOOK_SHARE
        && queued.mean() >= MIN_QUEUED_SHARE * running.mean().max(queued.mean());
    if !is_held && is_queue {
        return Verdict::Present(Finding {
            symptom: Symptom::ServerSaturated,
            of,
            evidence: vec![
                format!(
                    "{:.1} operations on average waited in its own queue for a lock or a ticket, two or more of them at {} of the looks; {:.1} \
                     were under way",
                    queued.mean(),
                    percent(queued.share_from(MIN_QUEUED)),
                    running.mean()
                ),
                took,
            ],
            rules_out: "no pool is too small for it: more connections would only wait in that queue, too".to_owned(),
            setting: None,
            advice: "Find the operations that take long (the profiler, or the slow operations in its log): mostly an index is missing, or all \
                     write to the same documents. Fewer connections at once, by maxPoolSize or a pool in front, lose no throughput."
                .to_owned(),
        });
    }
    let Some(processors) = last.processors.filter(|count| *count > 0) else { return Verdict::Absent };
    let enough = OPERATIONS_PER_PROCESSOR * processors as f64;
    if running.share_from(enough) < MIN_LOOK_SHARE {
        return Verdict::Absent;
    }
    Verdict::Present(Finding {
        symptom: Symptom::ServerSaturated,
        of,
        evidence: vec![
            format!(
                "{:.1} reads and writes on average were under way on {processors} processors, {enough:.0} or more of them at {} of the looks",
                running.mean(),
                percent(running.share_from(enough))
            ),
            took,
        ],
        rules_out: format!(
            "they do not wait for each other: {:.1} on average were in its own queue. More connections would only share the same processors \
             and disks",
            queued.mean()
        ),
        setting: None,
        advice: format!(
            "Find the number of connections at which it stops gaining with `poolhouse sweep`, and keep it at that (maxPoolSize over all \
             processes, or a pool in front); look first between {processors} and {enough:.0}."
        ),
    })
}
