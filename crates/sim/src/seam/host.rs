//! Whether the database behind a pool can be reached. What happens to it is in `weather`.

use pool::Time;

/// The database behind a pool.
#[derive(Clone, Copy, Default, Debug)]
pub struct Host {
    /// It answers nothing until then, not even connects.
    pub silent_until: Time,
    /// It refuses connections.
    pub down: bool,
    /// The pool is to become empty.
    pub drained: bool,
}

impl Host {
    /// Connections are refused.
    pub fn refuses(&self) -> bool {
        self.down
    }

    /// Until when nothing is answered.
    pub fn silent_until(&self, now: Time) -> Option<Time> {
        (self.silent_until > now).then_some(self.silent_until)
    }
}
