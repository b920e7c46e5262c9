//! Identities that cross the seam. They are opaque to protocols.

/// A client, unique in the process while its connection lives: the owning worker in the top
/// [`WORKER_BITS`] bits, the worker's slot below. A slot is reused after the client has gone, so a tag alone is
/// no proof of identity (a cancel key pairs it with a secret).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ClientTag(pub u32);

/// A server, named by its present worker and slot. A server gets a new tag when it moves to
/// another worker, which happens only while no client holds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ServerTag(pub u32);

/// A pool of servers that are equal to each other: one (upstream, user, database, role).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct PoolId(pub u32);

/// Bits of a tag that name the worker (up to 256 workers of 16 million slots).
pub const WORKER_BITS: u32 = 8;
const SLOT_BITS: u32 = u32::BITS - WORKER_BITS;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

macro_rules! tag {
    ($name:ident) => {
        impl $name {
            /// Joins a worker's number and a slot. Panics when either does not fit: both are
            /// bounded by the driver's own limits.
            pub fn new(worker: u8, slot: usize) -> Self {
                assert!(slot <= SLOT_MASK as usize, "slot {slot} does not fit a tag");
                Self((u32::from(worker) << SLOT_BITS) | slot as u32)
            }

            /// The worker that owns the connection.
            pub fn worker(self) -> u8 {
                (self.0 >> SLOT_BITS) as u8
            }

            /// The slot within that worker.
            pub fn slot(self) -> usize {
                (self.0 & SLOT_MASK) as usize
            }
        }
    };
}

tag!(ClientTag);
tag!(ServerTag);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_gives_back_its_worker_and_slot() {
        let tag = ClientTag::new(255, SLOT_MASK as usize);
        assert_eq!((tag.worker(), tag.slot()), (255, SLOT_MASK as usize));
        let tag = ServerTag::new(1, 7);
        assert_eq!((tag.worker(), tag.slot()), (1, 7));
    }
}
