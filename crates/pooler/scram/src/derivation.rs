//! Keys that are derived part by part. A server names the number of iterations, and a million of them take so long that
//! a thread that serves others must not make them at once. Knows no thread and no clock: the owner says when the next
//! part is due.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ::sha1::Sha1;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroize;

use crate::{
    client::KeyCache,
    crypto::{KEY_BYTES, Keys},
    message::Challenge,
    prepare::prepare,
    sha1::{self, SHA1_BYTES},
};

/// Most iterations that are made at once.
pub(crate) const MAX_INLINE_ITERATIONS: u32 = 16 * 1024;
const PART_ITERATIONS: u32 = 8 * 1024;
/// Time between the beginnings of two parts, over all derivations.
const PART_INTERVAL: Duration = Duration::from_millis(20);

/// The hash of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    Sha1,
    Sha256,
}

pub struct Derivation {
    name: [u8; KEY_BYTES],
    rounds: Rounds,
}

enum Rounds {
    Sha1(Hi<Hmac<Sha1>, SHA1_BYTES>),
    Sha256(Hi<Hmac<Sha256>, KEY_BYTES>),
}

/// The state of `Hi` of RFC 5802.
struct Hi<M, const N: usize> {
    keyed: M,
    last: [u8; N],
    sum: [u8; N],
    left: u32,
}

impl Derivation {
    /// Derives one part, unless another login has brought the keys into `cache` meanwhile. True if the cache has the
    /// keys: the client may respond at once.
    pub fn derive_part(&mut self, cache: &KeyCache) -> bool {
        if cache.knows(&self.name) {
            return true;
        }
        let keys = match &mut self.rounds {
            Rounds::Sha1(hi) => hi.make_rounds(PART_ITERATIONS).map(sha1::keys),
            Rounds::Sha256(hi) => hi.make_rounds(PART_ITERATIONS).map(Keys::of),
        };
        let done = keys.is_some();
        keys.into_iter().for_each(|keys| cache.insert(self.name, keys));
        done
    }
}

impl KeyCache {
    /// The derivation that must be made by parts before the client can respond; `None` if the keys are known or quickly
    /// derived, or if the challenge is malformed.
    pub fn slow_derivation(&self, hash: Hash, server_first: &[u8], password: &str) -> Option<Derivation> {
        let Challenge { salt, iterations, .. } = Challenge::read(server_first, "").ok()?;
        let kind: &[u8] = if hash == Hash::Sha1 { sha1::KIND } else { b"" };
        let name = Self::name(kind, password, &salt, iterations);
        if iterations <= MAX_INLINE_ITERATIONS || self.knows(&name) {
            return None;
        }
        let rounds = match hash {
            Hash::Sha1 => Rounds::Sha1(Hi::new(password.as_bytes(), &salt, iterations)),
            Hash::Sha256 => Rounds::Sha256(Hi::new(prepare(password).as_bytes(), &salt, iterations)),
        };
        Some(Derivation { name, rounds })
    }
}

impl<M: Mac + KeyInit + Clone, const N: usize> Hi<M, N> {
    fn new(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let keyed = <M as KeyInit>::new_from_slice(password).expect("HMAC takes a key of any length");
        let first = Self::round(&keyed, &[salt, &1u32.to_be_bytes()]);
        Self { keyed, last: first, sum: first, left: iterations - 1 }
    }

    fn round(keyed: &M, parts: &[&[u8]]) -> [u8; N] {
        let mut mac = keyed.clone();
        parts.iter().for_each(|part| mac.update(part));
        let mut digest = [0; N];
        digest.copy_from_slice(&mac.finalize().into_bytes()[..]);
        digest
    }

    /// Makes this number of rounds at most. Returns the result after the last.
    fn make_rounds(&mut self, most: u32) -> Option<&[u8; N]> {
        let count = most.min(self.left);
        for _ in 0..count {
            self.last = Self::round(&self.keyed, &[&self.last]);
            self.sum.iter_mut().zip(self.last).for_each(|(sum, byte)| *sum ^= byte);
        }
        self.left -= count;
        (self.left == 0).then_some(&self.sum)
    }
}

impl<M, const N: usize> Drop for Hi<M, N> {
    fn drop(&mut self) {
        self.last.zeroize();
        self.sum.zeroize();
    }
}

/// The order of derivations, one part each [`PART_INTERVAL`]: all parts of the first, then those of the second. If they
/// took turns, all might take longer than a login may. At most one entry for each login; that of a connection that has
/// gone stays until its turn.
pub struct DerivationQueue<T>(Mutex<Waiting<T>>);

struct Waiting<T> {
    entries: VecDeque<T>,
    next_at: Duration,
}

impl<T> DerivationQueue<T> {
    pub fn add(&self, whose: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entries.push_back(whose);
    }

    /// The owner of the last part waits for its next one, before all others.
    pub fn put_back(&self, whose: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entries.push_front(whose);
    }

    /// All parts were made elsewhere.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entries.clear();
    }

    /// The owner of the next part, if it is due. If parts are left after it, its owner is [put back](Self::put_back).
    pub fn next(&self, now: Duration) -> Option<T> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now < waiting.next_at {
            return None;
        }
        let next = waiting.entries.pop_front()?;
        waiting.next_at = now + PART_INTERVAL;
        Some(next)
    }
}

impl<T> Default for DerivationQueue<T> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { entries: VecDeque::new(), next_at: Duration::ZERO }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Sha1Client, crypto};

    #[test]
    fn part_by_part_the_same_comes_as_at_once() {
        for iterations in [1, 2, 4096] {
            let (mut long, mut short) = (
                Hi::<Hmac<Sha256>, KEY_BYTES>::new(b"pencil", b"salt", iterations),
                Hi::<Hmac<Sha1>, SHA1_BYTES>::new(b"", b"s", 7),
            );
            while long.make_rounds(1000).is_none() {}
            assert_eq!(long.make_rounds(1), Some(&crypto::salted_password(b"pencil", b"salt", iterations)));
            while short.make_rounds(3).is_none() {}
            assert_eq!(short.make_rounds(1), Some(&pbkdf2::pbkdf2_hmac_array::<Sha1, SHA1_BYTES>(b"", b"s", 7)));
        }
    }

    #[test]
    fn only_many_iterations_are_slow_and_once_they_are_made_none_are() {
        let (cache, challenge) = (KeyCache::default(), |i: u32| format!("r=abcd,s=AAAA,i={i}"));
        for hash in [Hash::Sha1, Hash::Sha256] {
            for i in [0, 1, 4096, MAX_INLINE_ITERATIONS, 1_000_001] {
                assert!(cache.slow_derivation(hash, challenge(i).as_bytes(), "p\u{e4}ss\u{ad}").is_none(), "{i}");
            }
            let many = challenge(3 * PART_ITERATIONS + 1);
            let mut slow = cache.slow_derivation(hash, many.as_bytes(), "p\u{e4}ss\u{ad}").expect("it is slow");
            let mut other = cache.slow_derivation(hash, many.as_bytes(), "p\u{e4}ss\u{ad}").expect("it is slow, too");
            assert!(!other.derive_part(&cache));
            assert_eq!([0; 3].map(|_| slow.derive_part(&cache)), [false, false, true]);
            assert!(other.derive_part(&cache), "what one login has derived is there for all");
            assert!(cache.slow_derivation(hash, many.as_bytes(), "p\u{e4}ss\u{ad}").is_none());
        }
        // What was kept is what is derived at once elsewhere.
        let many = challenge(3 * PART_ITERATIONS + 1);
        let respond = |cache: &KeyCache| {
            let plain = Client::new("abc".into()).0.respond(many.as_bytes(), "p\u{e4}ss\u{ad}", cache);
            (plain, Sha1Client::named("u", "abc").0.respond(many.as_bytes(), "p\u{e4}ss\u{ad}", cache))
        };
        assert_eq!(respond(&cache), respond(&KeyCache::default()));
    }

    #[test]
    fn one_part_is_made_in_each_pause_and_all_of_one_before_those_of_the_next() {
        let queue = DerivationQueue::default();
        queue.add('a');
        queue.add('b');
        let at = |ms| queue.next(Duration::from_millis(ms));
        assert_eq!([at(0), at(1), at(19), at(20)], [Some('a'), None, None, Some('b')]);
        queue.add('c');
        queue.put_back('b');
        assert_eq!([at(39), at(60), at(80), at(100)], [None, Some('b'), Some('c'), None]);
    }
}
