//! How far a client's connection is on its way to its end.

/// How far a client's connection is on its way to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Open,
    /// Its session gets no more input. `broken`: the session panicked, and is shown nothing any more.
    Closing {
        broken: bool,
    },
    /// The session gets no further call, but for the last one that is about to come.
    Ended {
        broken: bool,
    },
}

impl Life {
    pub(super) fn is_closing(self) -> bool {
        self != Self::Open
    }

    pub(super) fn is_broken(self) -> bool {
        matches!(self, Self::Closing { broken: true } | Self::Ended { broken: true })
    }

    /// The session gets no more input. Returns whether it did until now.
    pub(super) fn close(&mut self) -> bool {
        let was_open = *self == Self::Open;
        if was_open {
            *self = Self::Closing { broken: false };
        }
        was_open
    }

    /// The session has panicked. Returns whether that is news.
    pub(super) fn mark_broken(&mut self) -> bool {
        let is_news = !self.is_broken();
        *self = match self {
            Self::Open | Self::Closing { .. } => Self::Closing { broken: true },
            Self::Ended { .. } => Self::Ended { broken: true },
        };
        is_news
    }

    /// The session is about to have its last call. Returns whether it has had it before.
    pub(super) fn end(&mut self) -> bool {
        let was_ended = matches!(self, Self::Ended { .. });
        *self = Self::Ended { broken: self.is_broken() };
        was_ended
    }
}

/// The client's side of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadSide {
    Open,
    /// The reactor has reported the end, which has yet to be read.
    HungUp,
    /// Its end has been read, and the client is still owed answers.
    Ended,
}
