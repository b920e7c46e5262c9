//! The key that a client cancels its work with: 32 bits that say whose work is meant, sent as BackendKeyData's process
//! id, and random bits that prove the right to cancel it: 30 of them, or 61 for a client that speaks protocol 3.2.
//! It only packs and unpacks keys.
//!
//! ```text
//! process id:  0 | end of the client's slot, 7 bits | node, 14 bits, its lower byte first | worker + 1, 8 bits
//!              without a node, 14 more bits of the slot are in its place
//! secret:      30 random bits | hops, 2 bits
//! long secret: 1 | 29 random bits | hops, 2 bits | 32 random bits: no short one is the number of a long one
//! ```
//!
//! The node tells several processes behind one address apart; a request that reaches another node is handed on at most
//! as often as the hops say. Node and hops stand where PgBouncer (since 1.21) has them, so that each can hand on the
//! other's requests. The topmost bit stays clear and the number is never zero, because clients take it for a process
//! id. A worker may have several clients whose slots end alike: the secret is offered to each of them. So a process
//! without peers, whose node is 0, names more of the slot.

use seam::ClientTag;

use crate::wire::message::PROTOCOL_3_2;

pub const MAX_NODE: u16 = (1 << NODE_BITS) - 1;

const NODE_BITS: u32 = 14;
/// The bits of the slot in the first byte.
const FIRST_SLOT_BITS: u32 = 7;

/// The lowest bits of a client's slot that the keys of this node have.
pub(crate) fn slot_bits(own: u16) -> u32 {
    if own == 0 { FIRST_SLOT_BITS + NODE_BITS } else { FIRST_SLOT_BITS }
}

/// The number that a client is told as its process id.
pub(crate) fn process_id(node: u16, client: ClientTag) -> u32 {
    assert!(node <= MAX_NODE && client.worker() < u8::MAX, "node and worker fit a key");
    let slot = client.slot() & ((1 << slot_bits(node)) - 1);
    let first = slot & ((1 << FIRST_SLOT_BITS) - 1);
    // Of a node there is nothing of the slot left here.
    let [low, high] = (node | (slot >> FIRST_SLOT_BITS) as u16).to_le_bytes();
    u32::from_be_bytes([first as u8, low, high, client.worker() + 1])
}

/// The node of a process id, as node `own` reads it; `None` for an id that no node gives out. Node 0 has no others.
pub(crate) fn node(own: u16, process_id: u32) -> Option<u16> {
    let [first, low, high, _] = process_id.to_be_bytes();
    let field = u16::from_le_bytes([low, high]);
    (first >> FIRST_SLOT_BITS == 0 && field <= MAX_NODE).then_some(if own == 0 { 0 } else { field })
}

/// The client of a process id of this node, whose slot is known by its [lowest bits](slot_bits). `None` for an id that
/// was never given out.
pub(crate) fn target(own: u16, process_id: u32) -> Option<ClientTag> {
    let [first, low, high, worker] = process_id.to_be_bytes();
    let more = if own == 0 { usize::from(u16::from_le_bytes([low, high])) << FIRST_SLOT_BITS } else { 0 };
    Some(ClientTag::new(worker.checked_sub(1)?, usize::from(first) | more))
}

/// The topmost bit of a long secret.
const LONG: u64 = 1 << 63;

/// How often a request that carries a new secret may be handed on.
const MAX_HOPS: u64 = 3;

/// Where the hops of a secret begin.
fn hops_shift(secret: u64) -> u32 {
    if secret & LONG == 0 { 0 } else { 32 }
}

/// A secret of `random` bits for a client that speaks this version.
pub(crate) fn new_secret(version: u32, random: [u8; 8]) -> u64 {
    let random = u64::from_be_bytes(random);
    original(if version < PROTOCOL_3_2 { random & u64::from(u32::MAX) } else { random | LONG })
}

/// A secret as its client was told it, before any node handed it on.
pub(crate) fn original(secret: u64) -> u64 {
    secret | MAX_HOPS << hops_shift(secret)
}

/// The secret for the next node; `None` if the request has been handed on as often as it may be.
pub(crate) fn handed_on(secret: u64) -> Option<u64> {
    let shift = hops_shift(secret);
    (secret >> shift & MAX_HOPS != 0).then(|| secret - (1 << shift))
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
    fn a_secret_is_handed_on_three_times_and_stays_the_same_otherwise() {
        for version in [PROTOCOL_3_0, PROTOCOL_3_2] {
            for random in [[0; 8], [0xFF; 8], [0x5A; 8]] {
                let given = new_secret(version, random);
                let all: Vec<u64> = std::iter::successors(Some(given), |secret| handed_on(*secret)).collect();
                assert_eq!(all.len(), 4, "as it was told, and thrice handed on");
                assert!(all.iter().all(|secret| original(*secret) == given));
                let mut bytes = Vec::new();
                write_secret(&mut bytes, all[3]);
                assert_eq!(bytes[3] & 3, 0, "the hops are the lowest bits of the eighth byte of the key");
            }
        }
    }

    #[test]
    fn a_key_gives_back_node_worker_and_slot() {
        for (own, worker, slot) in [(0, 0, 0), (0, 254, (1 << 21) - 1), (MAX_NODE, 254, 127), (5, 7, 9)] {
            let client = ClientTag::new(worker, slot);
            let id = process_id(own, client);
            assert_eq!((node(own, id), target(own, id)), (Some(own), Some(client)));
            assert!(id != 0 && id >> 31 == 0, "it looks like a process id");
        }
    }

    #[test]
    fn a_node_stands_where_pgbouncer_has_it() {
        assert_eq!(node(1, 0x5F34_129C), Some(0x1234), "a key of PgBouncer 1.26 with peer_id 4660");
    }

    #[test]
    fn a_high_slot_is_known_by_its_lowest_bits() {
        let id = process_id(1, ClientTag::new(3, 128 * 2 + 5));
        assert_eq!((target(1, id), slot_bits(1)), (Some(ClientTag::new(3, 5)), 7));
        let id = process_id(0, ClientTag::new(3, (1 << 21) + 128 * 2 + 5));
        assert_eq!((target(0, id), slot_bits(0)), (Some(ClientTag::new(3, 128 * 2 + 5)), 21));
    }

    #[test]
    fn a_key_that_was_never_given_out_names_no_client() {
        assert_eq!((target(1, 0), target(1, 9 << 24)), (None, None), "no worker");
        assert_eq!([1 << 31, u32::MAX, 0x0000_4000].map(|id| node(1, id)), [None; 3], "no such bits");
    }
}
