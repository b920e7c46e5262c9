//! What decides between a pool that is too small and a database that is saturated where the load is always the same:
//! what the sessions of the pool's servers wait for, which the database tells.

use admin_api::Work;

use super::{Verdict, format_percent, pool_too_small::pool_too_small};
use crate::{
    finding::{Finding, Key, Symptom, Undecided},
    pooler::PoolWindow,
};

/// Looks at a full pool at which its sessions worked, at least.
const MIN_WORK_LOOKS: usize = 4;
/// From this share of the working sessions on, what they do is what occupies the pool.
const MIN_MAJORITY: f64 = 0.5;
/// Up to this many sessions ready to run for each processor, there is room for more.
const MAX_IDLE_CPU_LOAD: f64 = 0.5;
/// From this many sessions ready to run for each processor on, more of them gain nothing.
const MIN_BUSY_CPU_LOAD: f64 = 1.0;

/// What the working sessions of a full pool waited for: the mean of each kind as a share of the working sessions.
#[derive(Clone, Copy)]
struct WaitShares {
    ready: f64,
    locked: f64,
    latched: f64,
    disks: f64,
    others: f64,
    /// Sessions of the whole database that were ready to run, on average.
    all_ready: f64,
    processors: Option<f64>,
}

/// The verdict, if the sessions tell; `evidence` is what was seen of the pool itself.
pub(super) fn examine(pool: &PoolWindow<'_>, mut evidence: Vec<String>) -> Option<Verdict> {
    let shares = WaitShares::of(pool)?;
    evidence.push(shares.describe());
    if shares.locked + shares.latched >= MIN_MAJORITY {
        let (rules_out, advice) = if shares.locked >= shares.latched {
            (
                "a larger pool does not cure it: its sessions would wait for the same locks",
                "Find who holds the locks (pg_blocking_pids names which session blocks which), and make the \
                 transactions that take them shorter.",
            )
        } else {
            (
                "a larger pool does not cure it: its sessions would wait for the same latches",
                "Find the latch (wait_event of pg_stat_activity names it): fewer sessions at once wait less for it.",
            )
        };
        return Some(saturated(pool, evidence, rules_out, advice));
    }
    if shares.others >= MIN_MAJORITY {
        let rules_out =
            "the database is not saturated: most statements wait for neither a processor nor a lock nor a disk";
        return Some(pool_too_small(pool, evidence, rules_out.to_owned()));
    }
    let load = shares.processors.map(|processors| shares.all_ready / processors);
    Some(match load.filter(|_| shares.ready >= MIN_MAJORITY) {
        Some(load) if load >= MIN_BUSY_CPU_LOAD => saturated(
            pool,
            evidence,
            "a larger pool does not cure it: as many sessions are ready to run as there are processors, or more",
            "Make statements cheaper (pg_stat_statements names the dearest), or give the database more processors.",
        ),
        Some(load) if load <= MAX_IDLE_CPU_LOAD => {
            let rules_out = "the database is not saturated: at least half of its processors have nothing to do";
            pool_too_small(pool, evidence, rules_out.to_owned())
        }
        Some(_) | None => undecided(pool, evidence, &shares),
    })
}

impl WaitShares {
    /// `None` if the database was not looked at, or shows none of these sessions.
    fn of(pool: &PoolWindow<'_>) -> Option<Self> {
        let full = pool.steps.iter().filter(|step| step.is_exhausted());
        let works: Vec<Work> = full.filter_map(|step| step.work).filter(|work| work.working() > 0).collect();
        if works.len() < MIN_WORK_LOOKS {
            return None;
        }
        let mean = |of: fn(&Work) -> u64| works.iter().map(|work| of(work) as f64).sum::<f64>() / works.len() as f64;
        let working = mean(Work::working);
        let processors = works.last().and_then(|work| work.processors).filter(|count| *count > 0);
        Some(Self {
            ready: mean(|work| work.ready) / working,
            locked: mean(|work| work.locked) / working,
            latched: mean(|work| work.latched) / working,
            disks: mean(|work| work.disks) / working,
            others: mean(|work| work.others) / working,
            all_ready: mean(|work| work.all_ready),
            processors: processors.map(|count| count as f64),
        })
    }

    fn describe(&self) -> String {
        let processors = self.processors.map_or(String::new(), |count| format!(" on {count} processors"));
        format!(
            "of its sessions with a statement {} waited for a processor or ran, {} for locks, {} for latches of the \
             server, {} for disks, {} for something else (a time, another server); {:.1} of all sessions were ready to \
             run{processors}",
            format_percent(self.ready),
            format_percent(self.locked),
            format_percent(self.latched),
            format_percent(self.disks),
            format_percent(self.others),
            self.all_ready
        )
    }
}

fn saturated(pool: &PoolWindow<'_>, evidence: Vec<String>, rules_out: &str, advice: &str) -> Verdict {
    Finding::new(Symptom::ServerSaturated, pool.name())
        .all_evidence(evidence)
        .rules_out(rules_out)
        .advice(format!(
            "{advice} `poolhouse sweep` finds the number of connections at which the database stops gaining; {} may be \
             smaller than today.",
            pool.key(Key::MaxSize)
        ))
        .into()
}

fn undecided(pool: &PoolWindow<'_>, seen: Vec<String>, shares: &WaitShares) -> Verdict {
    Undecided::new([Symptom::PoolTooSmall, Symptom::ServerSaturated], pool.name())
        .all_seen(seen)
        .needs(match shares.processors {
            _ if shares.disks >= MIN_MAJORITY => {
                "how much its disks can do at once, which no view tells: `poolhouse sweep` on a copy of the database \
                 measures it"
            }
            None => "on how many processors the database runs: say it with --processors",
            Some(_) => {
                "loads of several sizes (--window 10m), or `poolhouse sweep` on a copy of the database: its processors \
                 are neither idle nor all taken"
            }
        })
        .into()
}
