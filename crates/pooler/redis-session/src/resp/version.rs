//! The versions of the protocol.

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Version {
    /// What a connection begins with.
    #[default]
    Resp2,
    /// After HELLO 3.
    Resp3,
}

impl Version {
    pub fn number(self) -> u8 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}
