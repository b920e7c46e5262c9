//! The key that a client cancels its work with: 32 bits that say whose work is meant, sent as BackendKeyData's process
//! id, and random bits that prove the right to cancel it: 32 of them, or 64 for a client that speaks protocol 3.2.
//! It only packs and unpacks keys.
//!
//! ```text
//! process id:  0 | node, 7 bits | worker + 1, 8 bits | lowest 16 bits of the client's slot
//! secret:      32 random bits, or 1 | 63 random bits: no short one is the number of a long one
//! ```
//!
//! The node tells several Poolhouses behind one address apart. The topmost bit stays clear and the number is never
//! zero, because clients take it for a process id. A worker with more than 65,536 clients has several whose slots end
//! alike: the secret is offered to each of them, so none of its bits are given up for the slot's.

use seam::ClientTag;

use crate::wire::message::PROTOCOL_3_2;

pub const MAX_NODE: u8 = 127;

const SLOT_BITS: u32 = 16;
const WORKER_BITS: u32 = 8;

/// The number that a client is told as its process id.
pub(crate) fn process_id(node: u8, client: ClientTag) -> u32 {
    assert!(node <= MAX_NODE && client.worker() < u8::MAX, "node and worker fit a key");
    let slot = client.slot() as u32 & ((1 << SLOT_BITS) - 1);
    u32::from(node) << (SLOT_BITS + WORKER_BITS) | (u32::from(client.worker()) + 1) << SLOT_BITS | slot
}

/// Node and client of a process id; the client's slot is known by its lowest bits. `None` for an id that was never
/// given out.
pub(crate) fn target(process_id: u32) -> Option<(u8, ClientTag)> {
    let node = (process_id >> (SLOT_BITS + WORKER_BITS)) as u8;
    let worker = ((process_id >> SLOT_BITS) as u8).checked_sub(1)?;
    let slot = process_id & ((1 << SLOT_BITS) - 1);
    (node <= MAX_NODE).then(|| (node, ClientTag::new(worker, slot as usize)))
}

/// The topmost bit of a long secret.
const LONG: u64 = 1 << 63;

/// A secret of `random` bits for a client that speaks this version.
pub(crate) fn new_secret(version: u32, random: [u8; 8]) -> u64 {
    let random = u64::from_be_bytes(random);
    if version < PROTOCOL_3_2 { random & u64::from(u32::MAX) } else { random | LONG }
}

/// Appends a secret in the length that its client was told.
pub(crate) fn write_secret(to: &mut Vec<u8>, secret: u64) {
    match u32::try_from(secret) {
        Ok(short) => to.extend_from_slice(&short.to_be_bytes()),
        Err(_) => to.extend_from_slice(&secret.to_be_bytes()),
    }
}

/// Reads a secret; `None` for one that was never given out.
pub(crate) fn secret(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [a, b, c, d] => Some(u32::from_be_bytes([a, b, c, d]).into()),
        _ => bytes.try_into().ok().map(u64::from_be_bytes).filter(|secret| secret & LONG != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::PROTOCOL_3_0;

    #[test]
    fn a_secret_is_read_as_it_was_written_and_no_short_one_is_a_long_one() {
        for random in [[0; 8], [0xFF; 8], [0, 0, 0, 0, 1, 2, 3, 4]] {
            for (version, length) in [(PROTOCOL_3_0, 4), (PROTOCOL_3_0 + 1, 4), (PROTOCOL_3_2, 8)] {
                let (given, mut bytes) = (new_secret(version, random), Vec::new());
                write_secret(&mut bytes, given);
                assert_eq!((bytes.len(), secret(&bytes)), (length, Some(given)));
            }
        }
        assert_eq!(secret(&[0, 0, 0, 0, 1, 2, 3, 4]), None, "the number of a short one");
        assert_eq!((secret(&[]), secret(&[0x80; 7]), secret(&[0x80; 9])), (None, None, None));
    }

    #[test]
    fn a_key_gives_back_node_worker_and_slot() {
        for (node, worker, slot) in [(0, 0, 0), (127, 254, 65_535), (5, 7, 9)] {
            let client = ClientTag::new(worker, slot);
            let id = process_id(node, client);
            assert_eq!(target(id), Some((node, client)));
            assert!(id != 0 && id >> 31 == 0, "it looks like a process id");
        }
    }

    #[test]
    fn a_high_slot_is_known_by_its_lowest_bits() {
        let id = process_id(0, ClientTag::new(3, 65_536 * 2 + 5));
        assert_eq!(target(id), Some((0, ClientTag::new(3, 5))));
    }

    #[test]
    fn a_key_that_was_never_given_out_names_no_client() {
        for id in [0, 9, 1 << 31, u32::MAX] {
            assert_eq!(target(id), None);
        }
    }
}
