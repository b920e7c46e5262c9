//! Patterns of channels, as Redis compares them with names: `*`, `?`, `[abc]`, `[^a-c]`, `\\` before what means itself.

/// Whether the pattern matches the whole name. What follows a star is tried at each place, but only the last star is ever gone back
/// to, so this takes no more steps than both lengths multiplied.
pub(crate) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // Behind the last star, and where in the name that is tried.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, place));
            continue;
        }
        if let Some(length) = one(&pattern[at..], name[place]) {
            (at, place) = (at + length, place + 1);
            continue;
        }
        let Some((behind, tried)) = star else { return false };
        (at, place) = (behind, tried + 1);
        star = Some((behind, tried + 1));
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// How much of the pattern stands for this one byte; `None` if it does not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', set @ ..] => in_set(set, byte).map(|length| length + 1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [same, ..] => (*same == byte).then_some(1),
    }
}

/// The same for what stands behind a bracket. A set that has no end goes to the end of the pattern.
fn in_set(set: &[u8], byte: u8) -> Option<usize> {
    let (negated, mut at) = match set {
        [b'^', ..] => (true, 1),
        _ => (false, 0),
    };
    let mut found = false;
    while let Some(first) = set.get(at) {
        match (first, &set[at + 1..]) {
            (b']', _) => {
                at += 1;
                break;
            }
            (b'\\', [escaped, ..]) => {
                found |= *escaped == byte;
                at += 2;
            }
            (low, [b'-', high, ..]) => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            (one, _) => {
                found |= *one == byte;
                at += 1;
            }
        }
    }
    (found != negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_redis_has_it() {
        for (pattern, name, expected) in [
            ("news.*", "news.it", true),
            ("news.*", "news", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hallo", true),
            ("h[ae]llo", "hello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("a[b", "ab", true),
            ("**", "abc", true),
            ("a*", "b", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
        let (pattern, name) = ("*a".repeat(50), "a".repeat(2000) + "b");
        assert!(!matches(pattern.as_bytes(), name.as_bytes()));
    }
}
