//! What `poolhouse --version` says of this executable. Knows nothing of what it does.

use std::sync::LazyLock;

/// The release, for `-V`.
pub const SHORT: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from, or "unknown"; `build.rs` finds it.
const COMMIT: &str = env!("POOLHOUSE_COMMIT");

/// The same with what tells one build of a release from another, for `--version`.
pub static LONG: LazyLock<String> = LazyLock::new(|| {
    let features = if cfg!(feature = "lab") { "lab" } else { "none" };
    format!("{SHORT}\ncommit: {COMMIT}\nfeatures: {features}\nreactor: {}", serve::REACTOR)
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_build_says_what_it_is_built_from() {
        assert!(LONG.starts_with(SHORT) && !COMMIT.is_empty());
        assert!(LONG.ends_with("\nreactor: epoll"));
    }
}
