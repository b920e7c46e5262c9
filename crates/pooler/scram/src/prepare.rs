//! SASLprep (RFC 4013) as PostgreSQL applies it: a password that cannot be prepared is used as it is.

use std::borrow::Cow;

pub(crate) fn prepare(password: &str) -> Cow<'_, str> {
    match stringprep::saslprep(password) {
        Ok(prepared) if !prepared.is_empty() => prepared,
        _ => Cow::Borrowed(password),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4013_are_prepared() {
        assert_eq!(prepare("I\u{ad}X"), "IX");
        assert_eq!(prepare("user"), "user");
        assert_eq!(prepare("USER"), "USER");
        assert_eq!(prepare("\u{aa}"), "a");
        assert_eq!(prepare("\u{2168}"), "IX");
    }

    #[test]
    fn what_cannot_be_prepared_is_left_alone() {
        assert_eq!(prepare("\u{7}"), "\u{7}");
        assert_eq!(prepare("\u{627}1"), "\u{627}1");
        assert_eq!(prepare("\u{ad}"), "\u{ad}");
    }
}
