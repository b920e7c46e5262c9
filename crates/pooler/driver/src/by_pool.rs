//! What is kept by pool. Ids of pools are never used again, so they are no places in a list: it would grow for ever.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

use seam::PoolId;

/// Something for each of some pools.
pub(crate) type ByPool<T> = HashMap<PoolId, T, BuildHasherDefault<IdHasher>>;

/// Ids are handed out here one after another, and no client can choose them: it is enough to spread them.
#[derive(Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write_u32(&mut self, id: u32) {
        let spread = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // The table looks at the lowest bits and at the highest.
        self.0 = spread ^ (spread >> 32);
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("an id is a number of 32 bits");
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_pool_is_found_and_goes_with_it() {
        let mut kept = ByPool::default();
        for id in (0..100_000).map(|id| id * 64) {
            kept.insert(PoolId(id), id);
        }
        assert!((0..100_000).all(|id| kept.get(&PoolId(id * 64)) == Some(&(id * 64))));
        assert_eq!((kept.remove(&PoolId(64)), kept.get(&PoolId(64))), (Some(64), None));
    }
}
