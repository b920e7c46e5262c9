//! Where the clients of a listener stand in line for what time brings them: those who log in, and those who have
//! nothing to do. Knows no limits.

use pool::{IdleQueue, IdleTicket, Time};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    Login,
    Idle,
    /// Nothing in progress, and it holds a server: what it has there would be lost, so it is evicted last.
    Pinned,
}

/// A client's place in a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct InLine {
    pub(super) line: Line,
    ticket: IdleTicket,
}

/// The lines of one listener, in each of which the first has stood longest.
#[derive(Default)]
pub(super) struct Lines {
    login: IdleQueue,
    idle: IdleQueue,
    pinned: IdleQueue,
}

impl Lines {
    /// A client stands in line from now on.
    pub(super) fn join(&mut self, line: Line, slot: usize, now: Time) -> InLine {
        InLine { line, ticket: self.of(line).push(slot as u32, now) }
    }

    /// A client leaves its line.
    pub(super) fn leave(&mut self, place: InLine) {
        self.of(place.line).remove(place.ticket);
    }

    /// The first in a line, and since when it stands there.
    pub(super) fn first(&self, line: Line) -> Option<(usize, Time)> {
        let (slot, since) = self.line(line).oldest()?;
        Some((slot as usize, since))
    }

    pub(super) fn all(&self, line: Line) -> impl Iterator<Item = (usize, Time)> {
        self.line(line).iter().map(|(slot, since)| (slot as usize, since))
    }

    fn line(&self, line: Line) -> &IdleQueue {
        match line {
            Line::Login => &self.login,
            Line::Idle => &self.idle,
            Line::Pinned => &self.pinned,
        }
    }

    fn of(&mut self, line: Line) -> &mut IdleQueue {
        match line {
            Line::Login => &mut self.login,
            Line::Idle => &mut self.idle,
            Line::Pinned => &mut self.pinned,
        }
    }
}
