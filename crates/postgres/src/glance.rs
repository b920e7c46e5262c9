//! Whether a text may hold more than its first word tells: one pass over the bytes, for the many texts that do not. It may
//! say yes too often, never too seldom. What the words mean is for `scan` to say.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// Parts of all the words that `scan` looks for anywhere in a statement, in lower case.
const PARTS: [&str; 6] = ["temp", "hold", "set_", "rrval", "tval", "_advisory"];

static FINDER: LazyLock<AhoCorasick> = LazyLock::new(|| {
    let mut builder = AhoCorasick::builder();
    // The texts are short, and their letters are everybody's: looking for rare bytes first costs more than it spares.
    builder.ascii_case_insensitive(true).kind(Some(AhoCorasickKind::DFA)).prefilter(false);
    builder.build(PARTS).expect("six short words make a small automaton")
});

/// Whether `text` is a single statement, and nothing behind its first word is of interest.
pub(crate) fn only_the_first_word_counts(text: &[u8]) -> bool {
    let is_last = |at: usize| text[at + 1..].iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0);
    text.iter().position(|&byte| byte == b';').is_none_or(is_last) && !FINDER.is_match(text)
}
