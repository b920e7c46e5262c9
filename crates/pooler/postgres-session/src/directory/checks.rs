//! Passwords that clients send as they are: what they are compared with, and checks that another program makes.

use std::{fmt, sync::Arc};

use scram::Verifier;
use seam::ClientTag;

/// What a password is compared with. Never logged (no `Debug`).
#[derive(Clone)]
pub enum StoredPassword {
    Plain(Arc<str>),
    /// `md5` and 32 hexadecimal digits.
    Md5(Arc<str>),
    Scram(Arc<Verifier>),
}

/// A password to be checked by another program.
pub struct PasswordCheck {
    pub client: ClientTag,
    /// Tells this check from that of another client that gets the same tag later.
    pub serial: u64,
    pub attempt: super::LoginAttempt,
    pub password: String,
}

impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCheck").field("client", &self.client).finish_non_exhaustive()
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
    Right,
    Wrong,
    /// The password could not be checked. The text is for the log, and holds no secret.
    Unavailable(String),
}
