//! Where connections come from, for people.

use std::cmp::Reverse;

/// Origins that a window tells apart; the connections of all further origins count as one origin.
pub(crate) const MAX_ORIGINS: usize = 1_000;
/// The name of the origin that stands for all further ones.
pub(crate) const OTHER_CLIENTS: &str = "all other clients";
/// Origins that a finding names.
const MAX_NAMED_ORIGINS: usize = 3;

/// The origins with the most connections, each with its number.
pub(crate) fn name_largest(origins: impl Iterator<Item = (String, u64)>) -> String {
    let mut origins: Vec<_> = origins.collect();
    origins.sort_by_key(|(_, connections)| Reverse(*connections));
    let named = origins.iter().take(MAX_NAMED_ORIGINS).map(|(name, connections)| format!("{connections} of {name}"));
    named.collect::<Vec<_>>().join(", ")
}
