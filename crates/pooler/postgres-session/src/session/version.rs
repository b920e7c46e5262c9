//! Versions of PostgreSQL, as servers report them, and differences between them that matter.

/// The version of a server; zeros if it cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Version {
    pub(crate) major: u32,
    minor: u32,
}

impl Version {
    /// Reads `server_version`: `17.2 (Debian 17.2-1)`, `18beta1`.
    pub(crate) fn read(text: &[u8]) -> Self {
        let mut numbers = text
            .split(|byte| !byte.is_ascii_digit())
            .map_while(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let major = numbers.next().unwrap_or_default();
        // Of a version that is not released yet the second number is another count.
        let released = text.iter().find(|byte| !byte.is_ascii_digit()) == Some(&b'.');
        Self { major, minor: if released { numbers.next().unwrap_or_default() } else { 0 } }
    }

    /// Whether `DISCARD ALL` alone sets everything back, and for good, without a Sync behind it. Before 14.5 (and the
    /// minor releases of that day) its transaction goes on with what follows, which may undo it; before 14.14
    /// (likewise) the role that was set comes back when a later transaction that sets one is rolled back. (Release
    /// notes of PostgreSQL 14.5 and 14.14.)
    pub(crate) fn discards_all_for_good(self) -> bool {
        match self.major {
            12 => self.minor >= 21,
            13 => self.minor >= 17,
            14 => self.minor >= 14,
            15 => self.minor >= 9,
            16 => self.minor >= 5,
            17 => self.minor >= 1,
            major => major >= 18,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_servers_report_them() {
        let read = |text: &str| Version::read(text.as_bytes());
        assert_eq!(read("17.2 (Debian 17.2-1.pgdg120+1)"), Version { major: 17, minor: 2 });
        assert_eq!(read("18beta1"), Version { major: 18, minor: 0 });
        assert_eq!(read("9.6.24"), Version { major: 9, minor: 6 });
        for odd in ["", "x", "999999999999", "."] {
            assert_eq!(read(odd), Version::default(), "{odd}");
        }
    }

    #[test]
    fn discard_all_is_relied_on_only_where_it_is_for_good() {
        for (text, for_good) in [
            ("14.4", false),
            ("14.13", false),
            ("14.14", true),
            ("15.8", false),
            ("15.18", true),
            ("18.0", true),
            ("9.6.24", false),
            ("", false),
        ] {
            assert_eq!(Version::read(text.as_bytes()).discards_all_for_good(), for_good, "{text}");
        }
    }
}
