//! The ids of pools, which are never used again: a pool that is forgotten gets another one when it is next asked for.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use seam::PoolId;

/// Ids from here on are of pools that were forgotten before.
const AGAIN: u32 = 1 << 16;

/// See the file's head. A pool is known by its place among those that there may be.
#[derive(Default)]
pub(super) struct Numbers(Mutex<Table>);

#[derive(Default)]
struct Table {
    ids: BTreeMap<u32, PoolId>,
    places: BTreeMap<PoolId, u32>,
    forgotten: u32,
}

impl Numbers {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The id of the pool in this place.
    pub(super) fn id(&self, place: u32) -> PoolId {
        let Table { ids, places, forgotten } = &mut *self.table();
        let new = if *forgotten > 0 { AGAIN + *forgotten * (1 << 8) + place } else { place };
        let id = *ids.entry(place).or_insert(PoolId(new));
        places.insert(id, place);
        id
    }

    /// The place of a pool; `None` if it is forgotten.
    pub(super) fn place(&self, id: PoolId) -> Option<u32> {
        self.table().places.get(&id).copied()
    }

    pub(super) fn forget(&self, id: PoolId) {
        let mut table = self.table();
        let place = table.places.remove(&id).expect("a pool is forgotten once");
        table.ids.remove(&place);
        table.forgotten += 1;
    }

    /// How many were forgotten.
    pub(super) fn forgotten(&self) -> u32 {
        self.table().forgotten
    }
}
