//! Patterns for names, as Redis reads them: `*`, `?`, `[a-c]`, `[^a]` and `\`.

/// Whether a name is one of those that a pattern stands for.
pub fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern, name) {
        ([], _) => name.is_empty(),
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        (_, []) => false,
        ([b'?', rest @ ..], [_, behind @ ..]) => matches(rest, behind),
        ([b'[', rest @ ..], [byte, behind @ ..]) => {
            let (is_one, rest) = class(rest, *byte);
            is_one && matches(rest, behind)
        }
        ([b'\\', escaped, rest @ ..], [byte, behind @ ..]) => escaped == byte && matches(rest, behind),
        ([literal, rest @ ..], [byte, behind @ ..]) => literal == byte && matches(rest, behind),
    }
}

/// Whether a byte is one of a class, and what stands behind that.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_not, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, pattern),
    };
    let mut is_one = false;
    loop {
        rest = match rest {
            [b'\\', escaped, rest @ ..] => {
                is_one |= *escaped == byte;
                rest
            }
            [b']', rest @ ..] => return (is_one != is_not, rest),
            [] => return (is_one != is_not, rest),
            [one, b'-', other, rest @ ..] => {
                is_one |= (*one.min(other)..=*one.max(other)).contains(&byte);
                rest
            }
            [literal, rest @ ..] => {
                is_one |= *literal == byte;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names() {
        for (pattern, name) in
            [("*", ""), ("a*", "abc"), ("a?c", "abc"), ("[a-c]", "b"), ("[^a]", "b"), ("\\*", "*"), ("*b*", "abc")]
        {
            assert!(matches(pattern.as_bytes(), name.as_bytes()), "{pattern}");
        }
        for (pattern, name) in [("a*", "b"), ("?", ""), ("[a-c]", "d"), ("\\*", "a"), ("a", "ab")] {
            assert!(!matches(pattern.as_bytes(), name.as_bytes()), "{pattern}");
        }
    }
}
