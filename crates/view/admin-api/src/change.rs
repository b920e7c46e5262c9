//! What happened between two looks.

use std::{collections::BTreeMap, time::Duration};

use crate::{Counts, Listener, Look, Pool, Times, Worker, sum};

/// What happened in the process between two looks.
#[derive(Clone, Debug)]
pub struct Change {
    /// The time from one look to the other.
    pub duration: Duration,
    /// By [`Pool::id`], without pools whose earlier state is unknown.
    pub pools: BTreeMap<u64, PoolChange>,
    pub accepted: u64,
    /// Clients that logged in, or were seen for the first time.
    pub logins: u64,
    /// Clients that were gone at the look after the one that first saw them; `None` where logins are counted.
    pub brief: Option<u64>,
    /// How often the system refused to accept a client.
    pub accepts_failed: u64,
    pub rejected: u64,
    pub evicted: u64,
    pub evicted_for: Counts,
    /// Evicted clients that did not close their side of the connection, by reason, where that is known.
    pub unanswered: Counts,
    pub auth_failures: u64,
    /// The share of a core that each worker used, from 0 to 1.
    pub cpu: Vec<f64>,
}

/// What happened in a pool between two looks.
#[derive(Clone, Debug, Default)]
pub struct PoolChange {
    pub transactions: u64,
    pub created: u64,
    /// Connections closed, by reason.
    pub closed: Counts,
    /// Check-outs that failed, by reason.
    pub failed: Counts,
    /// Sessions that were to keep a server and got none, by reason.
    pub pins_refused: Counts,
    /// Time to check out a server, by path.
    pub checkout: BTreeMap<String, Times>,
    /// Time that phases of making a connection took.
    pub connect: BTreeMap<String, Times>,
    /// How long servers were held, of leases that ended.
    pub hold: Times,
    /// How long the database needed the servers within `hold`, if that is counted.
    pub busy_ms: Option<f64>,
}

impl Change {
    /// The rate of events between the looks.
    pub fn per_second(&self, events: u64) -> f64 {
        events as f64 / self.duration.as_secs_f64().max(1e-3)
    }

    /// `None` if the looks are at different processes: then counters have begun anew.
    pub fn between(before: &Look, after: &Look, duration: Duration) -> Option<Self> {
        if before.instance != after.instance {
            return None;
        }
        let earlier: BTreeMap<u64, &Pool> = before.pools.iter().map(|pool| (pool.id, pool)).collect();
        let nothing = Pool::default();
        // A pool that the earlier look lacks is new if that look showed all pools; otherwise its counters may be old.
        let are_all = before.pools_left_out == 0;
        let had = |id: u64| earlier.get(&id).copied().or(are_all.then_some(&nothing));
        let pools = after.pools.iter().filter_map(|pool| Some((pool.id, PoolChange::of(had(pool.id)?, pool))));
        let logins = |look: &Look| sum(look.listeners.iter().map(|l| &l.logins));
        let accepted = |look: &Look| sum(look.listeners.iter().map(|l| &l.accepted));
        let accepts_failed = |look: &Look| sum(look.listeners.iter().map(|l| &l.accepts_failed));
        let rejected = |look: &Look| sum(look.listeners.iter().flat_map(|l| l.rejections.values()));
        let evicted = |look: &Look| sum(look.listeners.iter().flat_map(|l| l.evictions.values()));
        let brief = |look: &Look| look.listeners.iter().filter_map(|l| l.brief).reduce(u64::saturating_add);
        let by_reason = |of: fn(&Listener) -> &Counts| grown(&together(before, of), &together(after, of));
        let share =
            |(now, earlier): (&Worker, &Worker)| (now.cpu_ms - earlier.cpu_ms) / 1e3 / duration.as_secs_f64().max(1e-3);
        Some(Self {
            duration,
            pools: pools.collect(),
            logins: logins(after).saturating_sub(logins(before)),
            brief: brief(after).map(|gone| gone.saturating_sub(brief(before).unwrap_or(0))),
            accepted: accepted(after).saturating_sub(accepted(before)),
            accepts_failed: accepts_failed(after).saturating_sub(accepts_failed(before)),
            rejected: rejected(after).saturating_sub(rejected(before)),
            evicted: evicted(after).saturating_sub(evicted(before)),
            evicted_for: by_reason(|listener| &listener.evictions),
            unanswered: by_reason(|listener| &listener.unanswered),
            auth_failures: after.auth_failures.saturating_sub(before.auth_failures),
            cpu: after.workers.iter().zip(&before.workers).map(share).collect(),
        })
    }
}

impl PoolChange {
    fn of(before: &Pool, after: &Pool) -> Self {
        Self {
            transactions: after.transactions.saturating_sub(before.transactions),
            created: after.created.saturating_sub(before.created),
            closed: grown(&before.closed, &after.closed),
            failed: grown(&before.checkout_failed, &after.checkout_failed),
            pins_refused: grown(&before.pins_refused, &after.pins_refused),
            checkout: since(&before.checkout, &after.checkout),
            connect: since(&before.connect, &after.connect),
            hold: after.hold.since(&before.hold),
            busy_ms: after.busy_ms.map(|busy| (busy - before.busy_ms.unwrap_or(0.0)).max(0.0)),
        }
    }
}

/// What has come since, of each histogram.
fn since(before: &BTreeMap<String, Times>, after: &BTreeMap<String, Times>) -> BTreeMap<String, Times> {
    let none = Times::default();
    let of = |(name, times): (&String, &Times)| (name.clone(), times.since(before.get(name).unwrap_or(&none)));
    after.iter().map(of).collect()
}

/// Counts of all listeners, by reason.
fn together(look: &Look, of: fn(&Listener) -> &Counts) -> Counts {
    let mut all = Counts::new();
    for (reason, count) in look.listeners.iter().flat_map(of) {
        let sum = all.entry(reason.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    all
}

/// By how much each count has grown; those that have not are left out.
fn grown(before: &Counts, after: &Counts) -> Counts {
    let by = |(reason, count): (&String, &u64)| {
        (reason.clone(), count.saturating_sub(before.get(reason).copied().unwrap_or(0)))
    };
    after.iter().map(by).filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(transactions: u64, created: u64, idle_closed: u64) -> Look {
        let closed = Counts::from([("idle".to_owned(), idle_closed), ("life".to_owned(), 1)]);
        let pool = Pool { id: 3, transactions, created, closed, ..Pool::default() };
        let worker = Worker { cpu_ms: transactions as f64, ..Worker::default() };
        Look { pools: vec![pool], workers: vec![worker], ..Look::default() }
    }

    #[test]
    fn counters_are_told_by_their_growth() {
        let change = Change::between(&look(100, 5, 2), &look(350, 9, 4), Duration::from_secs(2)).unwrap();
        let pool = &change.pools[&3];
        assert_eq!((pool.transactions, pool.created), (250, 4));
        assert_eq!(pool.closed, Counts::from([("idle".to_owned(), 2)]));
        assert_eq!(change.per_second(pool.transactions), 125.0);
        assert_eq!(change.cpu, [0.125]);
    }

    #[test]
    fn nothing_is_told_across_a_restart() {
        let another = Look { instance: "another".to_owned(), ..look(350, 9, 4) };
        assert!(Change::between(&look(100, 5, 2), &another, Duration::from_secs(1)).is_none());
    }

    #[test]
    fn a_pool_that_was_left_out_before_is_not_new() {
        let mut before = Look {
            pools: vec![Pool { id: 1, ..Pool::default() }, look(5_000, 9, 0).pools.remove(0)],
            ..Look::default()
        };
        before.keep_pools(1);
        assert_eq!((before.pools.len(), before.pools_left_out), (1, 1));
        let change = Change::between(&before, &look(5_007, 9, 0), Duration::from_secs(1)).unwrap();
        assert!(change.pools.is_empty(), "what it did before is unknown: {change:?}");
    }

    #[test]
    fn a_pool_that_is_new_began_from_nothing() {
        let change = Change::between(&Look::default(), &look(7, 1, 0), Duration::from_secs(1)).unwrap();
        assert_eq!(change.pools[&3].transactions, 7);
    }
}
