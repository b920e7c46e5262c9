//! Whether a client is in a transaction, or watches keys for one.

/// What MULTI and WATCH have made of a connection, as its replies say. It needs the same server until that ends.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Transaction {
    #[default]
    None,
    /// WATCH was executed, and MULTI was not.
    Watching,
    /// MULTI was executed: Redis queues commands.
    Open { watching: bool },
}

impl Transaction {
    pub(super) fn needs_its_server(self) -> bool {
        matches!(self, Self::Watching | Self::Open { .. })
    }

    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Open { .. })
    }

    pub(super) fn is_watching(self) -> bool {
        matches!(self, Self::Watching | Self::Open { watching: true })
    }

    pub(super) fn open(&mut self) {
        *self = Self::Open { watching: self.is_watching() };
    }

    pub(super) fn watch(&mut self) {
        *self = if self.is_open() { Self::Open { watching: true } } else { Self::Watching };
    }

    /// EXEC, DISCARD or UNWATCH was executed.
    pub(super) fn end(&mut self) {
        *self = Self::None;
    }
}
