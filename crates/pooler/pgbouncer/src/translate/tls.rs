//! Versions and ciphers of TLS. OpenSSL's lists have words for many ciphers, and ciphers that are not spoken here: what
//! is left of them is written, and what is left out is told.

use super::Writer;
use crate::general::Given;

/// Words that stand for several versions.
const SHORTCUTS: [(&str, &[&str]); 4] = [
    ("all", &["tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3"]),
    ("legacy", &["tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3"]),
    ("secure", &["tlsv1.2", "tlsv1.3"]),
    ("default", &["tlsv1.2", "tlsv1.3"]),
];
/// Versions that are out of use for good, and are not spoken here.
const OUT_OF_USE: [&str; 3] = ["tlsv1", "tlsv1.0", "tlsv1.1"];

impl<'a> Writer<'a> {
    /// The versions of a setting that is not at its default; none for an empty text, which is all there are.
    pub(super) fn protocols(&mut self, name: &'static str) -> Option<(Vec<String>, Given<'a>)> {
        let given = self.get(name);
        let spot = given.spot.filter(|_| !given.is_default())?;
        let of_word = |word: &str| {
            let word = word.to_ascii_lowercase();
            let shortcut = SHORTCUTS.iter().find(|(name, _)| *name == word);
            shortcut.map_or_else(|| vec![word], |(_, all)| all.iter().map(|name| (*name).to_owned()).collect())
        };
        let words = given.value.split([',', ':', ' ']).filter(|word| !word.is_empty());
        let (out, left): (Vec<String>, Vec<String>) =
            words.flat_map(of_word).partition(|name| OUT_OF_USE.contains(&name.as_str()));
        if out.is_empty() && left.is_empty() {
            return None;
        }
        if !out.is_empty() && left.is_empty() {
            self.refuse_given(given, format!("{name} asks for versions of TLS that are out of use"), "write secure");
        } else if !out.is_empty() {
            self.note(spot, format!("{name}: TLS 1.0 and 1.1 are out of use and are not spoken; 1.2 and 1.3 are"));
        }
        Some((left, given))
    }

    /// The ciphers of two settings that are not at their defaults, for TLS 1.2 and for 1.3; none if no cipher of theirs
    /// is spoken here.
    pub(super) fn ciphers(&mut self, older: &'static str, newer: &'static str) -> Option<(Vec<String>, Given<'a>)> {
        let mut names = Vec::new();
        let mut first = None;
        for given in [self.get(older), self.get(newer)].into_iter().filter(|given| !given.is_default()) {
            let all: Vec<&str> = given.value.split([',', ':', ' ']).filter(|name| !name.is_empty()).collect();
            let left: Vec<&str> = all.iter().copied().filter(|name| is_spoken(name)).collect();
            if let Some(spot) = given.spot.filter(|_| left.len() < all.len()) {
                let kept = if left.is_empty() { "all of Poolhouse's own".to_owned() } else { left.join(", ") };
                let text = format!(
                    "{}: words for many ciphers, and ciphers without forward secrecy and authenticated encryption, are \
                     left out; what holds is {kept}",
                    given.known.name
                );
                self.note(spot, text);
            }
            if !left.is_empty() {
                first = first.or(Some(given));
                names.extend(left.into_iter().map(str::to_owned));
            }
        }
        first.map(|given| (names, given))
    }
}

/// Whether this is a word of PgBouncer's own, or may be the name of a cipher that is spoken here.
fn is_spoken(name: &str) -> bool {
    let has_secrecy = name.starts_with("ECDHE-") || name.starts_with("TLS_");
    let is_one = has_secrecy && (name.contains("GCM") || name.contains("CHACHA20"));
    is_one || matches!(name, "default" | "secure" | "fast" | "normal")
}
