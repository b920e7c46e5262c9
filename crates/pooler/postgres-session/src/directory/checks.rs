//! What a login waits for that no worker may find out itself, and how passwords are compared that clients send as they
//! are.

use std::{fmt, sync::Arc};

use scram::{Shape, Verifier};
use seam::ClientTag;

use crate::wire::md5;

/// What a password is compared with. Never logged (no `Debug`).
#[derive(Clone)]
pub enum StoredPassword {
    Plain(Arc<str>),
    /// `md5` and 32 hexadecimal digits.
    Md5(Arc<str>),
    Scram(Arc<Verifier>),
}

impl StoredPassword {
    /// Whether a comparison with it has to derive keys first.
    pub(crate) fn is_slow(&self) -> bool {
        matches!(self, Self::Scram(_))
    }

    pub(crate) fn is_password(&self, password: &str, user: &str) -> bool {
        match self {
            Self::Plain(stored) => scram::equal(stored.as_bytes(), password.as_bytes()),
            Self::Md5(stored) => {
                scram::equal(stored.to_ascii_lowercase().as_bytes(), md5::md5_hash(password, user).as_bytes())
            }
            Self::Scram(verifier) => verifier.matches(password),
        }
    }
}

/// A comparison of a password that takes long. Never logged (no `Debug`).
pub struct SlowComparison {
    pub(crate) password: String,
    pub(crate) user: String,
    pub(crate) with: ComparedWith,
}

pub(crate) enum ComparedWith {
    Stored(Arc<[StoredPassword]>),
    /// There is no such user. It takes as long as a comparison with a verifier of this shape, so that the time tells
    /// nothing.
    Nothing(Shape),
}

impl SlowComparison {
    /// Makes it.
    pub fn verdict(&self) -> CheckVerdict {
        let is_right = match &self.with {
            ComparedWith::Stored(stored) => {
                stored.iter().fold(false, |found, stored| found | stored.is_password(&self.password, &self.user))
            }
            ComparedWith::Nothing(shape) => {
                let salt = vec![0; shape.salt.max(1)];
                std::hint::black_box(Verifier::from_password(&self.password, &salt, shape.iterations.max(1)));
                false
            }
        };
        if is_right { CheckVerdict::Right } else { CheckVerdict::Wrong }
    }
}

/// What a login waits for.
pub struct LoginCheck {
    pub client: ClientTag,
    /// Tells this check from that of another client that gets the same tag later.
    pub serial: u64,
    pub attempt: super::LoginAttempt,
    pub question: LoginQuestion,
}

/// Never logged (no `Debug`).
pub enum LoginQuestion {
    /// Whether a password is right, which [another program](super::Proof::Elsewhere) knows.
    Password(String),
    /// Whether a password is right.
    Comparison(SlowComparison),
    /// What has to be known before the proof of the client is: see [`Proof::Later`](super::Proof::Later).
    Proof,
}

impl fmt::Debug for LoginCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginCheck").field("client", &self.client).finish_non_exhaustive()
    }
}

/// How a check has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CheckOutcome {
    pub client: ClientTag,
    pub serial: u64,
    pub verdict: CheckVerdict,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CheckVerdict {
    /// The password is right.
    Right,
    /// It is not.
    Wrong,
    /// What the proof needs is known.
    Known,
    /// It could not be found out. The text is for the log, and holds no secret.
    Unavailable(String),
}
