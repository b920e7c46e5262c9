//! Inline commands: words on a line, quoted if they have spaces.

/// Splits a line into its words. In double quotes `\n \r \t \b \a \\ \"` and `\xHH` are as in C; in single quotes only
/// `\'` means something. `None`: a quote does not end, or something follows it without a blank.
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let mut word = Vec::new();
        rest = take_word(rest, &mut word)?.trim_ascii_start();
        words.push(word);
    }
    Some(words)
}

/// Takes the word at the beginning; what is behind it begins with a blank, or is nothing.
fn take_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match byte {
            b'"' | b'\'' => {
                let rest = if byte == b'"' { take_escaped(behind, word)? } else { take_plain(behind, word)? };
                return rest.first().is_none_or(u8::is_ascii_whitespace).then_some(rest);
            }
            blank if blank.is_ascii_whitespace() => break,
            other => {
                word.push(other);
                behind
            }
        };
    }
    Some(rest)
}

/// Up to and with a double quote.
fn take_escaped<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match rest {
            [] => return None,
            [b'"', behind @ ..] => return Some(behind),
            [b'\\', b'x', high, low, behind @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                (hex(*high) << 4 | hex(*low), behind)
            }
            [b'\\', escaped, behind @ ..] => (meaning(*escaped), behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        word.push(byte);
        rest = behind;
    }
}

/// Up to and with a single quote.
fn take_plain<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, behind) = match rest {
            [] => return None,
            [b'\'', behind @ ..] => return Some(behind),
            [b'\\', b'\'', behind @ ..] => (b'\'', behind),
            [byte, behind @ ..] => (*byte, behind),
        };
        word.push(byte);
        rest = behind;
    }
}

fn meaning(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<Vec<u8>>> {
        split(line.as_bytes())
    }

    #[test]
    fn a_line_is_split_at_blanks_outside_of_quotes() {
        let expect = |line: &str, expected: &[&[u8]]| {
            assert_eq!(words(line).unwrap_or_else(|| panic!("{line}")), expected, "{line}");
        };
        expect("", &[]);
        expect("  \t ", &[]);
        expect(" set  a\tb ", &[b"set", b"a", b"b"]);
        expect(r#"set "a b" 'c "d"' """#, &[b"set", b"a b", b"c \"d\"", b""]);
        expect(r#"set "\x00\xfF\n\r\t\b\a\\\"\q""#, &[b"set", b"\x00\xff\n\r\t\x08\x07\\\"q"]);
        expect(r"set 'it\'s \n'", &[b"set", br"it's \n"]);
        expect(r#"set pre"fix""#, &[b"set", b"prefix"]);
        expect(r#"set "\xZZ""#, &[b"set", b"xZZ"]);
    }

    #[test]
    fn a_quote_that_does_not_end_or_is_followed_at_once_is_refused() {
        for line in ["set \"a", "set 'a", r#"set "a\""#, r#"set "a"b"#, "set 'a'b"] {
            assert_eq!(words(line), None, "{line}");
        }
    }
}
