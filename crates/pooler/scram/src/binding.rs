//! Channel binding: what ties a login to the TLS connection it runs in, so that a man in the middle cannot pass it on.
//! The one kind is `tls-server-end-point` (RFC 5929), as in PostgreSQL. Where the data come from is not known here.

use crate::Error;

/// The name of the one kind of channel binding.
pub(crate) const KIND: &str = "tls-server-end-point";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    Plain,
    Plus,
}

impl Mechanism {
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "SCRAM-SHA-256",
            Self::Plus => "SCRAM-SHA-256-PLUS",
        }
    }

    /// The mechanism of this name.
    ///
    /// # Errors
    /// When it is another one.
    pub fn named(name: &[u8]) -> Result<Self, Error> {
        let found = [Self::Plain, Self::Plus].into_iter().find(|mechanism| mechanism.name().as_bytes() == name);
        found.ok_or(Error::Unsupported("a mechanism other than SCRAM-SHA-256"))
    }
}

/// What a client does about channel binding.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ChannelBinding {
    /// The client cannot bind, or will not: there is no TLS, or no data to bind to.
    #[default]
    Unsupported,
    /// The client could bind, but the server has not offered it. A server that has offered it learns from this of a man
    /// in the middle.
    Unused,
    /// The client binds to these data.
    Bound(Box<[u8]>),
}

impl ChannelBinding {
    pub fn mechanism(&self) -> Mechanism {
        match self {
            Self::Unsupported | Self::Unused => Mechanism::Plain,
            Self::Bound(_) => Mechanism::Plus,
        }
    }

    /// The GS2 header of the first message.
    pub(crate) fn header(&self) -> String {
        match self {
            Self::Unsupported => "n,,".to_owned(),
            Self::Unused => "y,,".to_owned(),
            Self::Bound(_) => format!("p={KIND},,"),
        }
    }

    /// The data that are bound to; empty without binding.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Self::Unsupported | Self::Unused => &[],
            Self::Bound(data) => data,
        }
    }
}

/// What the last message of a client must hold: the header of its first message, and the data.
pub(crate) fn input(header: &str, data: &[u8]) -> Vec<u8> {
    [header.as_bytes(), data].concat()
}
