//! Clients wait while all servers work: the pool is too small, or the database is saturated. What tells them apart is whether work takes longer
//! the more of it is under way.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom, Undecided},
    window::PoolWindow,
};

/// Clients wait at so many looks at least: a burst that passes is none of this.
const WAITING: f64 = 0.3;
/// Up to this share of its servers a pool is lightly loaded.
const LIGHT: f64 = 0.5;
/// Looks at a light load that are needed, to compare with.
const LIGHT_LOOKS: usize = 3;
/// Work takes as long under the full load as under a light one.
const ALIKE: f64 = 1.25;
/// Work takes so much longer under the full load that the database gains nothing by it.
const LONGER: f64 = 1.6;
/// A pool is proposed that would be in use up to this share at the load that was seen.
const HEADROOM: f64 = 0.7;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let waiting = pool.share(|step| step.pool.waiters > 0);
    let max = pool.last.max_size;
    if waiting < WAITING || pool.last.paused || pool.last.drained {
        return Verdict::Absent;
    }
    let is_full = |step: &crate::window::Step<'_>| step.pool.servers.in_use >= max && step.pool.waiters > 0;
    let is_light = |step: &crate::window::Step<'_>| {
        step.pool.waiters == 0 && step.pool.servers.in_use as f64 <= LIGHT * max as f64 && step.change.hold.count() > 0
    };
    let queued = pool.change.checkout.get("queued").and_then(|times| times.quantile_ms(0.95, pool.bounds));
    let full = pool.hold_of(is_full);
    let light =
        pool.hold_of(is_light).filter(|_| pool.steps.iter().filter(|step| is_light(step)).count() >= LIGHT_LOOKS);
    let waits = format!(
        "clients waited at {} of the looks; one wait in twenty lasted over {}",
        percent(waiting),
        queued.map_or("an unknown time".to_owned(), time)
    );
    let in_use = format!("all {max} servers were in use at {} of the looks", percent(pool.share(is_full)));
    let (Some((full_ms, full_count)), Some((light_ms, light_count))) = (full, light) else {
        return Verdict::Undecided(Undecided {
            between: vec![Symptom::PoolTooSmall, Symptom::ServerSaturated],
            of: pool.name(),
            seen: vec![waits, in_use],
            needs: "looks at a light load to compare with: a longer window (--window 10m), or `poolhouse sweep` on a copy of the database. \
                    Whether the database's processors are busy decides it, too."
                .to_owned(),
        });
    };
    let ratio = full_ms / light_ms.max(1e-6);
    let compared = format!(
        "servers were held for {} under the full load, and for {} when at most half of them were in use",
        time(full_ms),
        time(light_ms)
    );
    // By Little's law, what would be in use if nobody waited: those in use, and those who wait.
    let wanted =
        pool.mean(|step| Some((step.pool.servers.in_use + step.pool.waiters) as f64).filter(|_| is_full(step)));
    if ratio <= ALIKE {
        let to = (wanted.unwrap_or(max as f64) / HEADROOM).ceil().max(max as f64 + 1.0);
        return Verdict::Present(Finding {
            symptom: Symptom::PoolTooSmall,
            of: pool.name(),
            evidence: vec![waits, in_use, compared],
            rules_out: format!(
                "the database is not saturated: work takes {ratio:.2} times as long under the full load as under a light one"
            ),
            setting: Some(Setting { key: "max_size", from: Some(max.to_string()), to: format!("{to:.0}") }),
            advice: format!(
                "At the load seen, {:.0} clients had or wanted a server at once. `poolhouse plan` tells what a larger pool does before \
                 production does; go no further than `poolhouse sweep` finds that the database gains.",
                wanted.unwrap_or(max as f64)
            ),
        });
    }
    if ratio >= LONGER {
        return Verdict::Present(Finding {
            symptom: Symptom::ServerSaturated,
            of: pool.name(),
            evidence: vec![
                waits,
                compared,
                format!("{full_count:.0} transactions ended between two looks under the full load, {light_count:.0} under the light one"),
            ],
            rules_out: format!("a larger pool does not cure it: work already takes {ratio:.1} times as long when all {max} servers are in use"),
            setting: None,
            advice: "Find the number of connections at which the database stops gaining with `poolhouse sweep`, and set max_size to that; it \
                     may be smaller than today. Then make the statements cheaper, or the database larger."
                .to_owned(),
        });
    }
    Verdict::Undecided(Undecided {
        between: vec![Symptom::PoolTooSmall, Symptom::ServerSaturated],
        of: pool.name(),
        seen: vec![waits, in_use, compared],
        needs: "`poolhouse sweep` on a copy of the database: it measures what more connections gain".to_owned(),
    })
}
