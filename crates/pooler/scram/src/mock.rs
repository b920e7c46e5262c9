//! Verifiers of users who do not exist, so that an unknown user looks like a wrong password.

use crate::crypto::{self, KEY_BYTES};
use crate::verifier::{MAX_SALT_BYTES, Shape, Verifier};

/// Makes mock verifiers: always the same for one name and shape, and unpredictable without the secret.
pub struct Mock {
    secret: [u8; KEY_BYTES],
}

impl Mock {
    /// `secret` is randomness that lives as long as the process.
    pub fn new(secret: [u8; KEY_BYTES]) -> Self {
        Self { secret }
    }

    /// The verifier of a user who does not exist. No password is known that fits it.
    pub fn verifier(&self, user: &str, shape: Shape) -> Verifier {
        assert!((1..=MAX_SALT_BYTES).contains(&shape.salt), "a salt has 1 to {MAX_SALT_BYTES} bytes");
        let part = |label: &[u8]| crypto::hmac(&self.secret, &[label, user.as_bytes()]);
        let mut salt = Vec::new();
        while salt.len() < shape.salt {
            salt.extend(part(format!("salt {}:", salt.len()).as_bytes()));
        }
        salt.truncate(shape.salt);
        Verifier {
            iterations: shape.iterations,
            salt: salt.into(),
            stored_key: part(b"stored:"),
            server_key: part(b"server:"),
        }
    }

    /// How well `look` goes with a name: the same each time for both, and unpredictable. The look of the highest rank
    /// of a name stays as long as it is configured.
    pub fn rank(&self, user: &str, look: &[u8]) -> [u8; KEY_BYTES] {
        crypto::hmac(&self.secret, &[b"look:", &(look.len() as u64).to_be_bytes(), look, user.as_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONCE: Shape = Shape { iterations: 1, salt: 16 };

    #[test]
    fn the_salt_of_a_name_is_always_the_same_and_differs_between_names_and_secrets() {
        let mock = Mock::new([7; KEY_BYTES]);
        let salt = |mock: &Mock, user| mock.verifier(user, ONCE).salt.clone();
        assert_eq!(mock.verifier("unknown", ONCE), mock.verifier("unknown", ONCE));
        assert_ne!(salt(&mock, "unknown"), salt(&mock, "another"));
        assert_ne!(salt(&mock, "unknown"), salt(&Mock::new([8; KEY_BYTES]), "unknown"));
    }

    #[test]
    fn a_mock_has_the_shape_that_is_asked_for() {
        for shape in [ONCE, Shape::default(), Shape { iterations: 10_000, salt: 100 }] {
            assert_eq!(Mock::new([7; KEY_BYTES]).verifier("unknown", shape).shape(), shape);
        }
    }
}
