//! Randomness of the operating system.

use crate::wire::md5;

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives randomness");
    bytes
}

/// A fresh nonce for SCRAM.
pub(crate) fn nonce() -> String {
    md5::hex(&random::<16>())
}
