//! The ids of pools. An id is never used again: a pool that was forgotten gets another one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use seam::PoolId;

/// After any pool was forgotten, new ids are at least this.
const MIN_LATER_ID: u32 = 1 << 16;

/// A pool is known by its index among all possible pools.
#[derive(Default)]
pub(super) struct PoolIds(Mutex<Table>);

#[derive(Default)]
struct Table {
    ids: BTreeMap<u32, PoolId>,
    indices: BTreeMap<PoolId, u32>,
    forgotten: u32,
}

impl PoolIds {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of a pool, which gets one if it has none.
    pub(super) fn id_or_new(&self, index: u32) -> PoolId {
        let Table { ids, indices, forgotten } = &mut *self.table();
        let new = if *forgotten > 0 { MIN_LATER_ID + *forgotten * (1 << 8) + index } else { index };
        let id = *ids.entry(index).or_insert(PoolId(new));
        indices.insert(id, index);
        id
    }

    /// The index of a pool; `None` if the pool is forgotten.
    pub(super) fn index_of(&self, id: PoolId) -> Option<u32> {
        self.table().indices.get(&id).copied()
    }

    pub(super) fn forget(&self, id: PoolId) {
        let mut table = self.table();
        let index = table.indices.remove(&id).expect("a pool is forgotten once");
        table.ids.remove(&index);
        table.forgotten += 1;
    }

    /// Number of forgotten pools.
    pub(super) fn forgotten(&self) -> u32 {
        self.table().forgotten
    }
}
