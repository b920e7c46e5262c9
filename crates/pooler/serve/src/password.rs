//! Stored passwords. The SCRAM verifier of a plain password is derived at its first use and kept, because the
//! derivation is slow on purpose.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use postgres_session::Look;
use scram::{Shape, Verifier, Verifiers};
use settings::Secret;

#[derive(Clone)]
pub enum Password {
    /// The password itself, and the verifier that is made of it.
    Plain(Secret, Derived),
    /// `md5` and 32 hexadecimal digits: the hash of password and user name.
    Md5(Secret),
    /// A SCRAM-SHA-256 verifier.
    Scram(Arc<Verifier>),
}

/// Passwords beside a user's first one that let it in, too.
#[derive(Clone, Default)]
pub struct OtherPasswords(Vec<(Password, DerivedVerifier)>);

/// The verifier of a plain password with the salt of the user's first password, and that one's verifier.
type DerivedVerifier = Arc<OnceLock<(Arc<Verifier>, Arc<Verifier>)>>;

impl OtherPasswords {
    /// Passwords that can stand beside `first`.
    ///
    /// # Errors
    /// Why one cannot, in a sentence.
    pub fn beside(first: &Password, others: Vec<Password>) -> Result<Self, &'static str> {
        for other in &others {
            let salted = |verifier: &Verifier| (verifier.shape(), verifier.salt().to_vec());
            match (first, other) {
                (Password::Plain(..) | Password::Scram(_), Password::Plain(..)) => {}
                (Password::Md5(_), Password::Md5(_) | Password::Plain(..)) => {}
                (Password::Scram(first), Password::Scram(other)) if salted(first) == salted(other) => {}
                (Password::Scram(_), Password::Scram(_)) => {
                    return Err("two SCRAM verifiers of a user must have the same salt and iterations: the client is \
                                told these before it is known which password it has; give the password itself");
                }
                (Password::Plain(..), Password::Scram(_)) => {
                    return Err("put the SCRAM verifier first: its salt is then used for the other passwords");
                }
                _ => return Err("an md5 hash and a SCRAM verifier of one user do not go together"),
            }
        }
        Ok(Self(others.into_iter().map(|other| (other, Arc::default())).collect()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Password> {
        self.0.iter().map(|(password, _)| password)
    }

    /// Whether [`Self::verifiers_with`] this one takes no time.
    fn are_derived_with(&self, first: &Arc<Verifier>) -> bool {
        let is_derived = |(password, derived): &(Password, DerivedVerifier)| match password {
            Password::Plain(..) => derived.get().is_some_and(|(salted_as, _)| Arc::ptr_eq(salted_as, first)),
            Password::Md5(_) | Password::Scram(_) => true,
        };
        self.0.iter().all(is_derived)
    }

    /// The verifiers by which these passwords and `first` let in. The first call takes some milliseconds for each
    /// plain one.
    pub fn verifiers_with(&self, first: &Arc<Verifier>) -> Verifiers {
        let others = self.0.iter().map(|(password, derived)| match password {
            Password::Plain(secret, _) => {
                let (salted_as, verifier) =
                    derived.get_or_init(|| (Arc::clone(first), Arc::new(first.of_other_password(secret.reveal()))));
                assert!(Arc::ptr_eq(salted_as, first), "the first password of a user keeps its verifier");
                Arc::clone(verifier)
            }
            Password::Scram(verifier) => Arc::clone(verifier),
            Password::Md5(_) => unreachable!("no md5 hash stands beside a verifier"),
        });
        let all = std::iter::once(Arc::clone(first)).chain(others).collect();
        Verifiers::new(all).expect("all have the salt of the first")
    }
}

/// The verifier of a plain password, once it has been derived, and the rounds of the derivation.
#[derive(Clone)]
pub struct Derived {
    iterations: u32,
    verifier: Arc<OnceLock<Arc<Verifier>>>,
}

impl Default for Derived {
    fn default() -> Self {
        Self { iterations: scram::DEFAULT_ITERATIONS, verifier: Arc::default() }
    }
}

/// Length of the salt of derived verifiers, as in PostgreSQL.
const SALT_BYTES: usize = 16;

impl Password {
    /// Reads a stored password: a verifier, an md5 hash, or else the password itself.
    pub fn parse(stored: &Secret) -> Result<Self, String> {
        let text = stored.reveal();
        if text.starts_with("SCRAM-SHA-256$") {
            let verifier = Verifier::parse(text).map_err(|error| error.to_string())?;
            return Ok(Self::Scram(Arc::new(verifier)));
        }
        let hash = text.strip_prefix("md5").filter(|hash| hash.len() == 32);
        if hash.is_some_and(|hash| hash.bytes().all(|b| b.is_ascii_hexdigit())) {
            return Ok(Self::Md5(Secret::new(text.to_ascii_lowercase())));
        }
        if text.is_empty() {
            return Err(
                "the password is empty, and lets no client in: give the user a password, or leave this out".to_owned()
            );
        }
        Ok(Self::Plain(stored.clone(), Derived::default()))
    }

    /// The password itself, if it is known.
    pub fn plain(&self) -> Option<&Secret> {
        match self {
            Self::Plain(secret, _) => Some(secret),
            Self::Md5(_) | Self::Scram(_) => None,
        }
    }

    /// Whether both are the same stored text.
    pub fn is_same_text(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plain(a, _), Self::Plain(b, _)) | (Self::Md5(a), Self::Md5(b)) => a == b,
            (Self::Scram(a), Self::Scram(b)) => a == b,
            _ => false,
        }
    }

    /// The md5 hash, if that is what is stored.
    pub fn md5(&self) -> Option<&Secret> {
        match self {
            Self::Md5(hash) => Some(hash),
            Self::Plain(..) | Self::Scram(_) => None,
        }
    }

    /// How a login with this password looks, unless a rule asks for another one.
    pub fn look(&self) -> Look {
        match self {
            Self::Plain(_, derived) => Look::Scram(Shape { iterations: derived.iterations, salt: SALT_BYTES }),
            Self::Md5(_) => Look::Md5,
            Self::Scram(verifier) => Look::Scram(verifier.shape()),
        }
    }

    /// Has the verifier of a plain password have this many rounds.
    pub fn derive_with(&mut self, iterations: u32) {
        if let Self::Plain(_, derived) = self
            && derived.iterations != iterations
        {
            *derived = Derived { iterations, verifier: Arc::default() };
        }
    }

    /// Takes over the verifier of an equal password, so that a reload does not change a user's salt.
    pub fn reuse_verifier(&self, earlier: &Self) {
        if let (Self::Plain(secret, derived), Self::Plain(same, before)) = (self, earlier)
            && (secret, derived.iterations) == (same, before.iterations)
            && let Some(verifier) = before.verifier.get()
        {
            let _ = derived.verifier.set(Arc::clone(verifier));
        }
    }

    /// The verifiers by which this password and `others` let in; `None` if they have to be
    /// [derived](Self::derive_verifiers) first, or there can be none.
    pub fn known_verifiers(&self, others: &OtherPasswords) -> Option<Verifiers> {
        let own = match self {
            Self::Plain(_, derived) => derived.verifier.get()?,
            Self::Scram(verifier) => verifier,
            Self::Md5(_) => return None,
        };
        others.are_derived_with(own).then(|| others.verifiers_with(own))
    }

    /// Derives these verifiers. Takes some milliseconds for each plain password.
    pub fn derive_verifiers(&self, others: &OtherPasswords) {
        if let Some(verifier) = self.verifier() {
            others.verifiers_with(&verifier);
        }
    }

    /// The verifier of a plain or SCRAM password. The first call for a plain one takes some milliseconds.
    pub fn verifier(&self) -> Option<Arc<Verifier>> {
        match self {
            Self::Plain(secret, derived) => {
                let verifier = derived.verifier.get_or_init(|| Arc::new(derive(secret, derived.iterations)));
                Some(Arc::clone(verifier))
            }
            Self::Scram(verifier) => Some(Arc::clone(verifier)),
            Self::Md5(_) => None,
        }
    }
}

fn derive(secret: &Secret, iterations: u32) -> Verifier {
    let mut salt = [0; SALT_BYTES];
    getrandom::fill(&mut salt).expect("the system gives random bytes");
    Verifier::from_password(secret.reveal(), &salt, iterations)
}

impl fmt::Debug for OtherPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OtherPasswords").field(&self.0.len()).finish()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(..) => "Plain(***)",
            Self::Md5(_) => "Md5(***)",
            Self::Scram(_) => "Scram(***)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Password, String> {
        Password::parse(&Secret::new(text))
    }

    #[test]
    fn the_three_stored_forms_are_told_apart() {
        assert!(matches!(parse("md50123456789ABCDEF0123456789abcdef"), Ok(Password::Md5(_))));
        assert!(matches!(parse("md5 is a word"), Ok(Password::Plain(..))));
        assert!(parse("SCRAM-SHA-256$nonsense").is_err());
        let verifier = Verifier::from_password("x", b"salt", 1).format();
        assert!(matches!(parse(&verifier), Ok(Password::Scram(_))));
    }

    #[test]
    fn a_login_looks_as_what_is_stored() {
        let verifier = |iterations| Verifier::from_password("x", b"0123456789abcdef", iterations).format();
        let stored = ["x", &verifier(4096), &verifier(5), "md50123456789abcdef0123456789abcdef"];
        let looks = stored.map(|text| parse(text).unwrap().look());
        let shape = |iterations| Look::Scram(Shape { iterations, salt: 16 });
        assert_eq!(looks, [shape(4096), shape(4096), shape(5), Look::Md5]);
    }

    #[test]
    fn a_password_that_is_read_again_keeps_its_salt() {
        let (before, after, other) = (parse("x").unwrap(), parse("x").unwrap(), parse("y").unwrap());
        let verifier = before.verifier().unwrap();
        after.reuse_verifier(&before);
        other.reuse_verifier(&before);
        assert!(Arc::ptr_eq(&verifier, &after.verifier().unwrap()));
        assert!(other.verifier().unwrap().matches("y"));
    }

    #[test]
    fn the_verifier_of_a_plain_password_is_computed_once() {
        let password = parse("hunter2").unwrap();
        let first = password.verifier().unwrap();
        assert!(Arc::ptr_eq(&first, &password.clone().verifier().unwrap()));
        assert!(first.matches("hunter2"));
        assert!(!format!("{password:?}").contains("hunter2"));
    }
}
