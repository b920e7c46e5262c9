//! What decides between a pool that is too small and a database that is saturated where the load is always the same:
//! what the sessions of the pool's servers wait for, which the database tells.

use admin_api::Work;

use super::{Verdict, percent, size::too_small};
use crate::{
    finding::{Finding, Key, Symptom, Undecided},
    window::PoolWindow,
};

/// Looks at a full pool, at least.
const MIN_LOOKS: usize = 4;
/// From this share of the working sessions on, what they do is what occupies the pool.
const MIN_MAJORITY: f64 = 0.5;
/// Up to this many sessions ready to run for each processor, there is room for more.
const MAX_IDLE_CPU_LOAD: f64 = 0.5;
/// From this many sessions ready to run for each processor on, more of them gain nothing.
const MIN_BUSY_CPU_LOAD: f64 = 1.0;

/// What was seen of the sessions while the pool was full, on average.
#[derive(Clone, Copy, Default)]
struct Seen {
    working: f64,
    ready: f64,
    locked: f64,
    disks: f64,
    others: f64,
    all_ready: f64,
    processors: Option<f64>,
}

/// Decides, if the sessions tell; `evidence` is what was seen of the pool itself.
pub(super) fn examine(pool: &PoolWindow<'_>, evidence: &[String]) -> Option<Verdict> {
    let seen = Seen::of(pool)?;
    let evidence = [evidence, &[seen.told()]].concat();
    let share = |some: f64| some / seen.working;
    if share(seen.locked) >= MIN_MAJORITY {
        return Some(saturated(
            pool,
            evidence,
            "a larger pool does not cure it: its sessions would wait for the same locks",
            "Find who holds the locks (pg_blocking_pids names who blocks whom), and make the transactions that take them shorter.",
        ));
    }
    if share(seen.others) >= MIN_MAJORITY {
        let rules_out =
            "the database is not saturated: most statements wait for neither a processor nor a lock nor a disk";
        return Some(too_small(pool, evidence, rules_out.to_owned()));
    }
    let busy = seen.processors.map(|processors| seen.all_ready / processors);
    match busy.filter(|_| share(seen.ready) >= MIN_MAJORITY) {
        Some(busy) if busy >= MIN_BUSY_CPU_LOAD => Some(saturated(
            pool,
            evidence,
            "a larger pool does not cure it: as many sessions are ready to run as there are processors, or more",
            "Make statements cheaper (pg_stat_statements names the dearest), or give the database more processors.",
        )),
        Some(busy) if busy <= MAX_IDLE_CPU_LOAD => {
            let rules_out = "the database is not saturated: at least half of its processors have nothing to do";
            Some(too_small(pool, evidence, rules_out.to_owned()))
        }
        _ => Some(undecided(pool, evidence, &seen)),
    }
}

impl Seen {
    /// `None`: the database was not asked, or shows none of these sessions.
    fn of(pool: &PoolWindow<'_>) -> Option<Self> {
        let full = || pool.steps.iter().filter(|step| step.is_full());
        let works: Vec<Work> = full().filter_map(|step| step.work).filter(|work| work.working() > 0).collect();
        if works.len() < MIN_LOOKS {
            return None;
        }
        let mean = |of: fn(&Work) -> u64| works.iter().map(|work| of(work) as f64).sum::<f64>() / works.len() as f64;
        Some(Self {
            working: mean(Work::working),
            ready: mean(|work| work.ready),
            locked: mean(|work| work.locked),
            disks: mean(|work| work.disks),
            others: mean(|work| work.others),
            all_ready: mean(|work| work.all_ready),
            processors: works
                .last()
                .and_then(|work| work.processors)
                .filter(|count| *count > 0)
                .map(|count| count as f64),
        })
    }

    fn told(&self) -> String {
        let share = |some: f64| percent(some / self.working);
        let of = self.processors.map_or(String::new(), |count| format!(" on {count} processors"));
        format!(
            "of its sessions with a statement {} waited for a processor or ran, {} for locks, {} for disks, {} for something else (a time, \
             another server); {:.1} of all sessions were ready to run{of}",
            share(self.ready),
            share(self.locked),
            share(self.disks),
            share(self.others),
            self.all_ready
        )
    }
}

fn saturated(pool: &PoolWindow<'_>, evidence: Vec<String>, rules_out: &str, advice: &str) -> Verdict {
    Verdict::Present(Finding {
        symptom: Symptom::ServerSaturated,
        of: pool.name(),
        evidence,
        rules_out: rules_out.to_owned(),
        setting: None,
        advice: format!(
            "{advice} `poolhouse sweep` finds the number of connections at which the database stops gaining; {} may be smaller than today.",
            pool.key(Key::MaxSize)
        ),
    })
}

fn undecided(pool: &PoolWindow<'_>, seen: Vec<String>, sessions: &Seen) -> Verdict {
    let needs = match sessions.processors {
        _ if sessions.disks / sessions.working >= MIN_MAJORITY => {
            "how much its disks can do at once, which no view tells: `poolhouse sweep` on a copy of the database measures it"
        }
        None => "on how many processors the database runs: say it with --processors",
        Some(_) => {
            "loads of several sizes (--window 10m), or `poolhouse sweep` on a copy of the database: its processors are neither idle nor all taken"
        }
    };
    Verdict::Undecided(Undecided {
        between: vec![Symptom::PoolTooSmall, Symptom::ServerSaturated],
        of: pool.name(),
        seen,
        needs: needs.to_owned(),
    })
}
