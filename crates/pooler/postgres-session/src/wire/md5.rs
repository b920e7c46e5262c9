//! PostgreSQL's md5 password scheme, for old servers and stored md5 passwords.

use md5::{Digest, Md5};

/// The stored form of a password: `md5` and 32 hexadecimal digits.
pub fn md5_hash(password: &str, user: &str) -> String {
    format!("md5{}", digest(&[password.as_bytes(), user.as_bytes()]))
}

/// Whether a text has the form of a stored md5 password.
pub fn is_md5_hash(text: &str) -> bool {
    text.strip_prefix("md5").is_some_and(|hex| hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// The answer to a challenge: the stored form, hashed once more with the salt.
pub(crate) fn answer(stored: &str, salt: [u8; 4]) -> String {
    let digits = stored.strip_prefix("md5").unwrap_or(stored).to_ascii_lowercase();
    format!("md5{}", digest(&[digits.as_bytes(), &salt]))
}

/// A stored form that no known password has, for a user who does not exist.
pub(crate) fn no_hash(random: [u8; 16]) -> std::sync::Arc<str> {
    format!("md5{}", hex(&random)).into()
}

fn digest(parts: &[&[u8]]) -> String {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(part);
    }
    hex(&md5.finalize())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_form_is_what_postgresql_stores() {
        // SELECT 'md5' || md5('secret' || 'app')
        assert_eq!(md5_hash("secret", "app"), format!("md5{}", digest(&[b"secretapp"])));
        assert_eq!(digest(&[b""]), "d41d8cd98f00b204e9800998ecf8427e");
        assert!(is_md5_hash(&md5_hash("secret", "app")));
        assert!(!is_md5_hash("md5secret"));
    }

    #[test]
    fn the_answer_depends_on_the_salt_and_not_on_the_case_of_the_digits() {
        let stored = md5_hash("secret", "app");
        assert_ne!(answer(&stored, [1; 4]), answer(&stored, [2; 4]));
        let upper = format!("md5{}", stored[3..].to_uppercase());
        assert_eq!(answer(&stored, [1; 4]), answer(&upper, [1; 4]));
    }
}
