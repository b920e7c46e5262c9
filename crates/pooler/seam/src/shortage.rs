//! Why no server became free in time, in words that all protocols use.

use alloc::sync::Arc;
use core::fmt;

/// The servers of a pool when a client had waited for too long, and what allowed no more of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Servers that clients hold.
    pub in_use: u32,
    /// Servers that are being connected.
    pub connecting: u32,
    /// Servers that are being cleaned, checked or closed.
    pub between: u32,
    /// Servers that are free, but are not lent to a client that keeps one for long.
    pub left: u32,
    pub limit: Limit,
}

/// What allows no more servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Limit {
    Setting(&'static str),
    /// The setting that bounds the connections that are made at a time.
    AtATime(&'static str),
    /// The database, which has refused another connection with this message.
    Database(Arc<str>),
    /// Nothing but the time that connecting takes.
    Connecting,
}

impl Limit {
    /// What can be done about it.
    pub fn remedy(&self) -> Remedy<'_> {
        Remedy(self)
    }
}

/// See [`Limit::remedy`].
pub struct Remedy<'a>(&'a Limit);

impl fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Limit::Setting(name) | Limit::AtATime(name) => write!(f, "raise {name} or max_wait_time"),
            Limit::Database(_) => write!(f, "raise the database's own limit, or max_wait_time"),
            Limit::Connecting => write!(f, "raise max_wait_time, or find out why connecting takes so long"),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.connecting + self.between + self.left == 0 {
            match self.in_use {
                0 => write!(f, "this pool has none")?,
                1 => write!(f, "the only one is in use")?,
                all => write!(f, "all {all} are in use")?,
            }
        } else {
            let verb = |count| if count == 1 { "is" } else { "are" };
            write!(f, "{} {} in use", self.in_use, verb(self.in_use))?;
            let others = [
                (self.connecting, "being connected"),
                (self.between, "being cleaned or closed"),
                (self.left, "left to clients that keep none for long"),
            ];
            for (count, what) in others {
                if count > 0 {
                    write!(f, ", {count} {} {what}", verb(count))?;
                }
            }
        }
        match &self.limit {
            Limit::Setting(name) => write!(f, ", and {name} allows no more"),
            Limit::AtATime(name) => write!(f, ", and {name} allows no more to be connected at a time"),
            Limit::Database(said) => write!(f, ", and the database refused another: {said}"),
            Limit::Connecting => write!(f, ", and connecting takes longer than that"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn shortage(in_use: u32, connecting: u32, between: u32, limit: Limit) -> alloc::string::String {
        Shortage { in_use, connecting, between, left: 0, limit }.to_string()
    }

    #[test]
    fn the_limit_that_held_is_named() {
        assert_eq!(shortage(2, 0, 0, Limit::Setting("max_size")), "all 2 are in use, and max_size allows no more");
        assert_eq!(
            shortage(1, 0, 0, Limit::Setting("max_size")),
            "the only one is in use, and max_size allows no more"
        );
        assert_eq!(
            shortage(0, 0, 0, Limit::Setting("max_server_connections")),
            "this pool has none, and max_server_connections allows no more"
        );
        assert_eq!(
            shortage(1, 2, 0, Limit::AtATime("max_connecting")),
            "1 is in use, 2 are being connected, and max_connecting allows no more to be connected at a time"
        );
        assert_eq!(
            shortage(2, 0, 1, Limit::Database("too many connections".into())),
            "2 are in use, 1 is being cleaned or closed, and the database refused another: too many connections"
        );
        let text = shortage(3, 1, 0, Limit::Connecting);
        assert_eq!(text, "3 are in use, 1 is being connected, and connecting takes longer than that");
        let kept = Shortage { in_use: 1, connecting: 0, between: 0, left: 1, limit: Limit::Setting("max_size") };
        assert_eq!(
            kept.to_string(),
            "1 is in use, 1 is left to clients that keep none for long, and max_size allows no more"
        );
    }
}
