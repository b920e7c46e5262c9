//! Looks at a running Poolhouse over some time, and what they tell of each pool. Judges nothing.

use std::time::Duration;

use watch::{Change, Client, Look, Pool, PoolChange, Times};

/// One look.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When, from the beginning of the window.
    pub at: Duration,
    /// `/api/pools`.
    pub look: Look,
    /// `/api/clients?busy=true`: those that hold a server or wait for one.
    pub busy: Vec<Client>,
}

/// All looks of one process, in order.
#[derive(Clone, Debug, Default)]
pub struct Window {
    observations: Vec<Observation>,
    /// `/api/clients` at the end, as many as were asked for.
    pub clients: Vec<Client>,
}

/// A pool over the window.
pub(crate) struct PoolWindow<'w> {
    /// As it was last.
    pub(crate) last: &'w Pool,
    /// What happened in it over the whole window.
    pub(crate) change: PoolChange,
    /// Between two looks each.
    pub(crate) steps: Vec<Step<'w>>,
    pub(crate) bounds: &'w [f64],
    pub(crate) lasts: Duration,
}

/// What happened in a pool between two looks.
pub(crate) struct Step<'w> {
    /// At its end.
    pub(crate) pool: &'w Pool,
    pub(crate) change: PoolChange,
    /// Who had a server at its end, or waited for one.
    pub(crate) busy: Vec<&'w Client>,
}

impl Window {
    /// False if this look is at another process than those before: then the window begins anew with it.
    pub fn add(&mut self, observation: Observation) -> bool {
        let is_another = self
            .observations
            .last()
            .is_some_and(|before| Change::between(&before.look, &observation.look, Duration::from_secs(1)).is_none());
        if is_another {
            self.observations.clear();
        }
        self.observations.push(observation);
        !is_another
    }

    /// The last look.
    pub fn last(&self) -> Option<&Look> {
        self.observations.last().map(|observation| &observation.look)
    }

    /// From the first look to the last.
    pub fn lasts(&self) -> Duration {
        match &self.observations[..] {
            [first, .., last] => last.at.saturating_sub(first.at),
            _ => Duration::ZERO,
        }
    }

    /// What happened over all of it.
    pub(crate) fn change(&self) -> Option<Change> {
        let [first, .., last] = &self.observations[..] else { return None };
        Change::between(&first.look, &last.look, self.lasts())
    }

    pub(crate) fn pools(&self) -> Vec<PoolWindow<'_>> {
        let (Some(whole), Some(last)) = (self.change(), self.last()) else { return Vec::new() };
        let of = |pool: &'_ Pool| whole.pools.get(&pool.id).cloned();
        let pools = last.pools.iter().filter_map(|pool| {
            Some(PoolWindow {
                change: of(pool)?,
                last: pool,
                steps: self.steps(pool.id),
                bounds: &last.bucket_bounds_ms,
                lasts: self.lasts(),
            })
        });
        pools.collect()
    }

    fn steps(&self, id: u64) -> Vec<Step<'_>> {
        let steps = self.observations.windows(2).filter_map(|pair| {
            let pool = pair[1].look.pools.iter().find(|pool| pool.id == id)?;
            let change = Change::between(&pair[0].look, &pair[1].look, pair[1].at.saturating_sub(pair[0].at))?;
            let own = |client: &&Client| {
                (&client.protocol, &client.database, &client.user) == (&pool.protocol, &pool.database, &pool.user)
            };
            Some(Step { pool, change: change.pools.get(&id)?.clone(), busy: pair[1].busy.iter().filter(own).collect() })
        });
        steps.collect()
    }
}

impl PoolWindow<'_> {
    /// What people call it.
    pub(crate) fn name(&self) -> String {
        let named = |what: &str| {
            what.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect::<String>()
        };
        match self.last.user.as_str() {
            "" => named(&self.last.database),
            user => format!("{} as {}", named(&self.last.database), named(user)),
        }
    }

    /// The share of looks of which this holds, from 0 to 1.
    pub(crate) fn share(&self, holds: impl Fn(&Step<'_>) -> bool) -> f64 {
        let held = self.steps.iter().filter(|step| holds(step)).count();
        held as f64 / self.steps.len().max(1) as f64
    }

    /// The mean of something over the looks at which it is known.
    pub(crate) fn mean(&self, of: impl Fn(&Step<'_>) -> Option<f64>) -> Option<f64> {
        let known: Vec<f64> = self.steps.iter().filter_map(of).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Transactions a second.
    pub(crate) fn rate(&self) -> f64 {
        self.change.transactions as f64 / self.lasts.as_secs_f64().max(1e-3)
    }

    /// Mean hold over the steps that these are, in milliseconds, and their transactions a step.
    pub(crate) fn hold_of(&self, which: impl Fn(&Step<'_>) -> bool) -> Option<(f64, f64)> {
        let steps: Vec<_> = self.steps.iter().filter(|step| which(step)).collect();
        let sum = |of: fn(&Times) -> f64| steps.iter().map(|step| of(&step.change.hold)).sum::<f64>();
        let count = sum(|hold| hold.count() as f64);
        (count > 0.0).then(|| (sum(|hold| hold.sum_ms) / count, count / steps.len() as f64))
    }
}
