//! The ids of pools. An id is never used again: a pool that was forgotten gets another one.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use seam::PoolId;

/// The first id of pools that were forgotten before.
const FIRST_REUSED_ID: u32 = 1 << 16;

/// A pool is known by its index among all possible pools.
#[derive(Default)]
pub(super) struct PoolIds(Mutex<Table>);

#[derive(Default)]
struct Table {
    ids: BTreeMap<u32, PoolId>,
    places: BTreeMap<PoolId, u32>,
    forgotten: u32,
}

impl PoolIds {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self, place: u32) -> PoolId {
        let Table { ids, places, forgotten } = &mut *self.table();
        let new = if *forgotten > 0 { FIRST_REUSED_ID + *forgotten * (1 << 8) + place } else { place };
        let id = *ids.entry(place).or_insert(PoolId(new));
        places.insert(id, place);
        id
    }

    /// The index of a pool; `None` if the pool is forgotten.
    pub(super) fn index_of(&self, id: PoolId) -> Option<u32> {
        self.table().places.get(&id).copied()
    }

    pub(super) fn forget(&self, id: PoolId) {
        let mut table = self.table();
        let place = table.places.remove(&id).expect("a pool is forgotten once");
        table.ids.remove(&place);
        table.forgotten += 1;
    }

    /// Number of forgotten pools.
    pub(super) fn forgotten(&self) -> u32 {
        self.table().forgotten
    }
}
