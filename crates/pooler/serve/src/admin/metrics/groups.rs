//! Pools that have the same labels: they are shown as one, added up when they are asked for, so that nothing is kept
//! but the snapshot. Two databases of one name stay apart where they speak different protocols. Knows no metric.

use std::collections::BTreeMap;

use driver::{DurationHistogram, PoolSnapshot};

use super::text::Label;

/// All pools of a snapshot, by their labels.
#[derive(Debug)]
pub struct Groups {
    pools: Vec<PoolSnapshot>,
    /// Places in `pools`, in the order of the labels.
    order: Vec<usize>,
    user_label: bool,
}

impl Groups {
    /// Without `user_label` the pools of a database are one group.
    pub fn new(pools: Vec<PoolSnapshot>, user_label: bool) -> Self {
        let mut order: Vec<usize> = (0..pools.len()).collect();
        order.sort_unstable_by_key(|place| key(&pools[*place], user_label));
        Self { pools, order, user_label }
    }

    /// The group that begins after this number of pools, which the groups before it contain; `None` after the last.
    pub fn after(&self, written: usize) -> Option<Group<'_>> {
        let left = self.order.get(written..)?;
        let of = |place: &usize| key(&self.pools[*place], self.user_label);
        let labels = of(left.first()?);
        let length = left.iter().take_while(|place| of(place) == labels).count();
        Some(Group { pools: &self.pools, places: &left[..length], user_label: self.user_label })
    }
}

/// What tells groups apart.
fn key(pool: &PoolSnapshot, user_label: bool) -> (&str, &str, Option<&str>) {
    (pool.protocol, &*pool.database, user_label.then_some(&*pool.user))
}

/// Pools with the same labels, at least one.
#[derive(Clone, Copy, Debug)]
pub struct Group<'g> {
    pools: &'g [PoolSnapshot],
    places: &'g [usize],
    user_label: bool,
}

impl<'g> Group<'g> {
    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn pools(&self) -> impl Iterator<Item = &'g PoolSnapshot> + use<'g> {
        let pools = self.pools;
        self.places.iter().map(move |place| &pools[*place])
    }

    pub fn labels(&self) -> Vec<Label<'g>> {
        let (protocol, database, user) = key(&self.pools[self.places[0]], self.user_label);
        let mut labels = vec![("protocol", protocol), ("database", database)];
        labels.extend(user.map(|user| ("user", user)));
        labels
    }

    /// A number of all of them.
    pub fn sum(&self, of: impl Fn(&PoolSnapshot) -> u64) -> u64 {
        self.pools().map(of).sum()
    }

    /// Numbers of all of them, by their names.
    pub fn counts(&self, of: impl Fn(&'g PoolSnapshot) -> &'g [(&'static str, u64)]) -> BTreeMap<&'static str, u64> {
        let mut sums: BTreeMap<_, u64> = BTreeMap::new();
        for (name, count) in self.pools().flat_map(of) {
            *sums.entry(*name).or_default() += count;
        }
        sums
    }

    /// Histograms of all of them, by their names.
    pub fn times(
        &self,
        of: impl Fn(&'g PoolSnapshot) -> &'g [(&'static str, DurationHistogram)],
    ) -> BTreeMap<&'static str, DurationHistogram> {
        let mut sums: BTreeMap<_, DurationHistogram> = BTreeMap::new();
        for (name, times) in self.pools().flat_map(of) {
            sums.entry(*name).or_default().add(times);
        }
        sums
    }

    /// One histogram of all of them.
    pub fn time(&self, of: impl Fn(&'g PoolSnapshot) -> &'g DurationHistogram) -> DurationHistogram {
        let mut sum = DurationHistogram::default();
        self.pools().for_each(|pool| sum.add(of(pool)));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::metrics::tests::pool;

    fn labels(pools: Vec<PoolSnapshot>, user_label: bool) -> Vec<(String, usize)> {
        let (groups, mut found, mut written) = (Groups::new(pools, user_label), Vec::new(), 0);
        while let Some(group) = groups.after(written) {
            let values: Vec<_> = group.labels().into_iter().map(|(_, value)| value).collect();
            found.push((values.join(" "), group.len()));
            written += group.len();
        }
        found
    }

    fn of(input: &[(&str, usize)]) -> Vec<(String, usize)> {
        input.iter().map(|(name, written)| ((*name).to_owned(), *written)).collect()
    }

    #[test]
    fn every_pool_is_in_one_group_and_the_groups_are_in_the_order_of_their_labels() {
        let redis = PoolSnapshot { protocol: "redis", ..pool("a", "u") };
        let pools = vec![pool("b", "u"), redis, pool("a", "v"), pool("b", "u"), pool("a", "u"), pool("b", "u")];
        let by_user = [("postgres a u", 1), ("postgres a v", 1), ("postgres b u", 3), ("redis a u", 1)];
        assert_eq!(labels(pools.clone(), true), of(&by_user));
        assert_eq!(labels(pools, false), of(&[("postgres a", 2), ("postgres b", 3), ("redis a", 1)]));
        assert_eq!(labels(Vec::new(), true), of(&[]));
    }

    #[test]
    fn what_the_pools_of_a_group_have_is_added_up_by_its_name() {
        let mut other = pool("d", "u");
        other.totals.closed = vec![("error", 2), ("idle", 1)];
        let groups = Groups::new(vec![pool("d", "u"), other], true);
        let group = groups.after(0).unwrap();
        assert_eq!(group.sum(|pool| pool.totals.created), 18);
        assert_eq!(group.counts(|pool| &pool.totals.closed), BTreeMap::from([("error", 2), ("idle", 6), ("life", 1)]));
        let (times, hold) = (group.times(|pool| &pool.totals.checkout), group.time(|pool| &pool.totals.hold));
        assert_eq!((times.len(), &times["queued"]), (3, &hold));
        assert_eq!((hold.buckets[3], hold.count(), hold.sum_ns), (4, 4, 2_000_000));
    }
}
