//! Connections to servers that are to be encrypted: asking for TLS, what follows from the answer, and which way to try
//! next where there are two. The handshake is the driver's.

use std::{
    collections::HashSet,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use seam::{Outbox, PoolId, Upgrade};

use crate::wire::message::{SSL_REQUEST, write_sized};

/// The byte with which a server agrees to TLS.
pub(crate) const AGREED: u8 = b'S';
/// The byte with which a server declines TLS.
pub(crate) const DECLINED: u8 = b'N';

/// How connections to an upstream use TLS. The driver must have it for all but [`Tls::Never`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerEncryption {
    pub tls: Tls,
    /// The handshake begins at once, without asking (libpq's `sslnegotiation=direct`); only with [`Tls::Require`].
    pub direct: bool,
    /// Whether the login is bound to the TLS connection.
    pub binding: Binding,
}

/// When TLS is used towards an upstream. What its certificate must be like is the driver's business.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tls {
    #[default]
    Never,
    /// If the upstream accepts no login without TLS.
    Allow,
    /// If the upstream has TLS, and accepts logins with it.
    Prefer,
    Require,
}

/// Channel binding towards an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Binding {
    Never,
    #[default]
    Prefer,
    /// The login fails without it.
    Require,
}

/// How a server's connection is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    Clear,
    /// By TLS that was asked for.
    Asked,
    /// By TLS from the first byte on.
    Direct,
}

impl Wire {
    /// How a side connection to the same server is encrypted.
    pub(crate) fn upgrade(self, out: &mut Outbox) -> Option<Upgrade> {
        let ask = match self {
            Self::Clear => return None,
            Self::Asked => write_request(&mut out.inserted),
            Self::Direct => 0..0,
        };
        Some(Upgrade { ask, agreed: AGREED })
    }
}

/// Appends an SSLRequest; returns its place.
pub(crate) fn write_request(to: &mut Vec<u8>) -> Range<usize> {
    let start = to.len();
    write_sized(to, |to| to.extend_from_slice(&SSL_REQUEST.to_be_bytes()));
    start..to.len()
}

/// Pools whose next connection is made the other way, because the first was turned away: with TLS for `allow`, without
/// for `prefer`.
#[derive(Default)]
pub(crate) struct SecondTries(Mutex<HashSet<PoolId>>);

impl SecondTries {
    /// Whether the next connection is made the other way.
    pub(crate) fn has(&self, pool: PoolId) -> bool {
        self.lock().contains(&pool)
    }

    /// A connection made this way was turned away. True if the other way is worth trying next.
    pub(crate) fn note_turned_away(&self, pool: PoolId, tls: Tls, secured: bool) -> bool {
        let first_way = match tls {
            Tls::Never | Tls::Require => return false,
            Tls::Allow => !secured,
            Tls::Prefer => secured,
        };
        let mut tries = self.lock();
        if first_way {
            tries.insert(pool)
        } else {
            tries.remove(&pool);
            false
        }
    }

    pub(crate) fn forget(&self, pool: PoolId) {
        self.lock().remove(&pool);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<PoolId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_tried_once_before_it_is_given_up() {
        let (tries, pool) = (SecondTries::default(), PoolId(3));
        assert!(tries.note_turned_away(pool, Tls::Allow, false) && tries.has(pool));
        assert!(!tries.note_turned_away(pool, Tls::Allow, true) && !tries.has(pool));
        assert!(tries.note_turned_away(pool, Tls::Prefer, true) && tries.has(pool));
        assert!(!tries.note_turned_away(pool, Tls::Prefer, false) && !tries.has(pool));
        assert!(!tries.note_turned_away(pool, Tls::Require, true) && !tries.has(pool));
    }

    #[test]
    fn a_connection_beside_another_is_encrypted_like_it() {
        let mut out = Outbox::new();
        assert_eq!(Wire::Clear.upgrade(&mut out), None);
        let upgrade = Wire::Asked.upgrade(&mut out).unwrap();
        assert_eq!(&out.inserted[upgrade.ask], b"\0\0\0\x08\x04\xd2\x16\x2f");
        assert!(Wire::Direct.upgrade(&mut out).unwrap().ask.is_empty());
    }
}
