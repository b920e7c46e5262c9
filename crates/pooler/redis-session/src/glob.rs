//! Glob patterns of channels, as Redis matches them: `*`, `?`, `[abc]`, `[^a-c]`, and `\` as an escape. A pattern is
//! parsed once. The caller bounds the cost of matching by a number of steps for all patterns together.

/// Bytes of a pattern that is compared with names. Longer ones, which have no use, are left to Redis.
pub(crate) const MAX_PATTERN: usize = 4096;

/// Sets of a pattern that is compared with names: what was read of each takes more memory than its text.
const MAX_SETS: usize = 64;

#[derive(Debug)]
pub(crate) struct Pattern {
    elements: Box<[Element]>,
    sets: Box<[Set]>,
}

/// What one byte of a name is compared with, or any number of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Element {
    Any,
    Byte(u8),
    Set(u8),
    Star,
}

/// Which of all bytes it has, a bit for each.
#[derive(Clone, Copy, Default, Debug)]
struct Set([u64; 4]);

impl Set {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

impl Pattern {
    /// Reads a pattern; `None` if it is longer, or has more sets, than what is compared.
    pub(crate) fn read(mut pattern: &[u8]) -> Option<Self> {
        if pattern.len() > MAX_PATTERN {
            return None;
        }
        let (mut elements, mut sets) = (Vec::new(), Vec::new());
        while let [first, rest @ ..] = pattern {
            pattern = rest;
            let element = match (first, rest) {
                (b'*', _) if elements.last() == Some(&Element::Star) => continue,
                (b'*', _) => Element::Star,
                (b'?', _) => Element::Any,
                (b'[', _) if sets.len() == MAX_SETS => return None,
                (b'[', _) => {
                    sets.push(set(&mut pattern));
                    Element::Set(sets.len() as u8 - 1)
                }
                (b'\\', [escaped, behind @ ..]) => {
                    pattern = behind;
                    Element::Byte(*escaped)
                }
                (byte, _) => Element::Byte(*byte),
            };
            elements.push(element);
        }
        Some(Self { elements: elements.into(), sets: sets.into() })
    }

    /// Whether it matches the whole name; `None` if `steps` do not suffice to find out. What follows a star is tried at
    /// each position. A mismatch goes back to the last star only.
    pub(crate) fn matches(&self, name: &[u8], steps: &mut usize) -> Option<bool> {
        if name.is_empty() {
            // To Redis not even a star matches nothing.
            return Some(self.elements.is_empty());
        }
        let (mut at, mut position) = (0, 0);
        // Behind the last star, and where in the name that is tried.
        let mut star: Option<(usize, usize)> = None;
        while position < name.len() {
            *steps = steps.checked_sub(1)?;
            let element = self.elements.get(at);
            if element == Some(&Element::Star) {
                at += 1;
                if at == self.elements.len() {
                    return Some(true);
                }
                star = Some((at, position));
            } else if element.is_some_and(|element| self.is(*element, name[position])) {
                (at, position) = (at + 1, position + 1);
            } else {
                let Some((behind, tried)) = star else { return Some(false) };
                (at, position) = (behind, tried + 1);
                star = Some((behind, tried + 1));
            }
        }
        Some(self.elements[at..].iter().all(|element| *element == Element::Star))
    }

    fn is(&self, element: Element, byte: u8) -> bool {
        match element {
            Element::Any => true,
            Element::Byte(same) => same == byte,
            Element::Set(number) => self.sets[usize::from(number)].has(byte),
            Element::Star => false,
        }
    }
}

/// Reads what stands behind a bracket. A set that has no end goes to the end of the pattern.
fn set(pattern: &mut &[u8]) -> Set {
    let negated = pattern.first() == Some(&b'^');
    if negated {
        *pattern = &pattern[1..];
    }
    let mut set = Set::default();
    while let [first, rest @ ..] = *pattern {
        *pattern = match (first, rest) {
            (b'\\', [escaped, behind @ ..]) => {
                set.add(*escaped);
                behind
            }
            (b']', _) => {
                *pattern = rest;
                break;
            }
            (low, [b'-', high, behind @ ..]) => {
                (*low.min(high)..=*low.max(high)).for_each(|byte| set.add(byte));
                behind
            }
            (one, _) => {
                set.add(*one);
                rest
            }
        };
    }
    if negated { Set(set.0.map(|bits| !bits)) } else { set }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MANY: usize = 1 << 20;

    fn matches(pattern: &[u8], name: &[u8]) -> bool {
        Pattern::read(pattern).unwrap().matches(name, &mut { MANY }).unwrap()
    }

    /// The same as slowly as it can be: at each star all that may follow is tried. Redis 7.0 said the same of 6,000
    /// random patterns.
    fn matches_slowly(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], _) => name.is_empty(),
            ([b'*', rest @ ..], _) => (0..=name.len()).any(|length| matches_slowly(rest, &name[length..])),
            (_, []) => false,
            ([b'?', rest @ ..], [_, behind @ ..]) => matches_slowly(rest, behind),
            ([b'[', rest @ ..], [byte, behind @ ..]) => {
                let (negated, mut rest) = rest.strip_prefix(b"^").map_or((false, rest), |rest| (true, rest));
                let mut has = false;
                loop {
                    rest = match rest {
                        [b'\\', same, rest @ ..] => {
                            has |= same == byte;
                            rest
                        }
                        [b']', rest @ ..] => break has != negated && matches_slowly(rest, behind),
                        [one, b'-', other, rest @ ..] => {
                            has |= (one <= byte && byte <= other) || (other <= byte && byte <= one);
                            rest
                        }
                        [same, rest @ ..] => {
                            has |= same == byte;
                            rest
                        }
                        [] => break has != negated && matches_slowly(rest, behind),
                    };
                }
            }
            ([b'\\', same, rest @ ..] | [same, rest @ ..], [byte, behind @ ..]) => {
                same == byte && matches_slowly(rest, behind)
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn a_pattern_that_was_read_matches_what_a_slow_one_matches(
            pattern in "[abc*?\\[\\]^\\\\-]{0,9}",
            name in "[abc\\]^\\\\*-]{1,8}",
        ) {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches(pattern, name), matches_slowly(pattern, name));
        }
    }

    #[test]
    fn patterns_match_as_redis_has_it() {
        for (pattern, name, expected) in [
            ("news.*", "news.it", true),
            ("news.*", "news", false),
            ("*", "a", true),
            ("*", "", false),
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
    }

    #[test]
    fn what_comparing_may_cost_is_bounded_at_every_bound() {
        let name = vec![b'a'; 15_000];
        let sets = [b"*[".as_slice(), &[b'b'; 60_000]].concat();
        assert!(Pattern::read(&sets).is_none(), "a pattern that is longer than what is compared");
        let longest = [b"*[".as_slice(), &[b'b'; MAX_PATTERN - 2]].concat();
        let mut steps = MANY;
        assert_eq!(Pattern::read(&longest).unwrap().matches(&name, &mut steps), Some(false));
        assert!(MANY - steps <= 2 * name.len(), "a set is one step, however long it is");
        let many = |count| Pattern::read(&b"[a]".repeat(count));
        assert!(many(MAX_SETS).is_some_and(|most| most.matches(&[b'a'; MAX_SETS], &mut { MANY }) == Some(true)));
        assert!(many(MAX_SETS + 1).is_none(), "what is read takes no more than some times the text");
        // The worst there is: what follows the star fits almost everywhere to its end.
        let worst = Pattern::read(&[b"*".as_slice(), &[b'a'; MAX_PATTERN - 2], b"b"].concat()).unwrap();
        assert_eq!(worst.matches(&name, &mut { MANY }), None);
        assert_eq!(worst.matches(&name, &mut { 100 * MANY }), Some(false));
        assert_eq!(worst.matches(&name, &mut 0), None);
    }
}
