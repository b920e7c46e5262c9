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

/// Three letters in a row of each part, that are rare in SQL: not those of VALUES or CURRENT_TIMESTAMP.
const TRIPLES: [[u8; 3]; 6] = [*b"emp", *b"hol", *b"et_", *b"rva", *b"tva", *b"adv"];

/// Bytes looked at together: as many as a register of the plainest processors holds.
const LANES: usize = 16;

/// Whether `text` is a single statement, and nothing behind its first word is of interest.
pub(crate) fn only_the_first_word_counts(text: &[u8]) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    let end = text.iter().rposition(|byte| !is_end(byte)).map_or(0, |last| last + 1);
    let text = &text[..end];
    let text = text.strip_suffix(b";").unwrap_or(text);
    match first_look(text) {
        FirstLook::Nothing => true,
        FirstLook::Several => false,
        FirstLook::Perhaps => !FINDER.is_match(text),
    }
}

/// What many bytes looked at together show.
enum FirstLook {
    /// There is none of the parts in it, and no semicolon.
    Nothing,
    /// There is a semicolon.
    Several,
    /// There is one of the triples.
    Perhaps,
}

/// Bytes handed over for `LANES` triples.
const WINDOW: usize = LANES + 2;

/// Looks for triples and semicolons without a branch per byte, which compilers turn into a few instructions per `LANES` bytes.
fn first_look(text: &[u8]) -> FirstLook {
    let mut seen = Seen::default();
    let mut at = 0;
    while let Some(window) = text[at..].first_chunk() {
        seen.look(window);
        at += LANES;
    }
    match text.last_chunk() {
        // Some of it was seen before, which does no harm.
        Some(window) => seen.look(window),
        None => {
            let mut window = [0; WINDOW];
            window[..text.len()].copy_from_slice(text);
            seen.look(&window);
        }
    }
    let any = |lanes: [u8; LANES]| u128::from_ne_bytes(lanes) != 0;
    // The last two bytes begin no triple.
    if any(seen.ends) || text.iter().rev().take(2).any(|&byte| byte == b';') {
        FirstLook::Several
    } else if any(seen.triples) {
        FirstLook::Perhaps
    } else {
        FirstLook::Nothing
    }
}

/// What was seen, by lane: not 0 if anything.
#[derive(Default)]
struct Seen {
    triples: [u8; LANES],
    ends: [u8; LANES],
}

impl Seen {
    /// Looks at the triples that begin in all bytes but the last two.
    #[inline]
    fn look(&mut self, bytes: &[u8; WINDOW]) {
        /// Makes a letter small; of the others it makes at most something that is no letter of a triple, or one too many.
        const SMALL: u8 = 0x20;
        for lane in 0..LANES {
            let [one, two, three] = [bytes[lane] | SMALL, bytes[lane + 1] | SMALL, bytes[lane + 2] | SMALL];
            for [first, second, third] in TRIPLES {
                let here = u8::from(one == first | SMALL) & u8::from(two == second | SMALL);
                self.triples[lane] |= here & u8::from(three == third | SMALL);
            }
            self.ends[lane] |= u8::from(bytes[lane] == b';');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_part_has_a_triple() {
        for part in PARTS {
            assert!(TRIPLES.iter().any(|triple| part.as_bytes().windows(3).any(|three| three == triple)), "{part}");
        }
    }

    proptest! {
        /// Wherever a part stands, in whatever case, it is seen; and so is the end of a statement.
        #[test]
        fn nothing_is_overlooked(
            before in "[ -~]{0,40}", part in 0..PARTS.len(), upper in any::<u8>(), after in "[ -~]{0,40}",
        ) {
            let mut word = PARTS[part].to_owned().into_bytes();
            for at in (0..word.len()).filter(|at| upper >> (at % 8) & 1 == 1) {
                word[at].make_ascii_uppercase();
            }
            let text = [before.as_bytes(), &word, after.as_bytes()].concat();
            prop_assert!(!only_the_first_word_counts(&text));
        }

        /// It says what looking for everything byte by byte says.
        #[test]
        fn it_is_as_looking_byte_by_byte(text in "[a-z_;\\x00 THMP]{0,60}[; \\x00]{0,3}") {
            let text = text.as_bytes();
            let is_last = |at: usize| text[at + 1..].iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0);
            let one = text.iter().position(|&byte| byte == b';').is_none_or(is_last);
            let lower = text.to_ascii_lowercase();
            let found = PARTS.iter().any(|part| lower.windows(part.len()).any(|here| here == part.as_bytes()));
            prop_assert_eq!(only_the_first_word_counts(text), one && !found);
        }
    }
}
