//! Somebody who comes beside the players: an application with several connections, which judges by itself what it is
//! answered. Knows no protocol.

use pool::Time;

use super::player::Around;
use crate::network::EndId;

/// See the file's head. `D`: the real database.
pub trait Guest<D> {
    /// When it does something by itself.
    fn wake(&self) -> Time;

    fn act(&mut self, around: &Around<'_, D>);

    /// Whether an end is its own.
    fn has(&self, end: EndId) -> bool;

    /// Something has happened to an end of its own.
    fn listen(&mut self, end: EndId, around: &Around<'_, D>);

    fn is_here(&self) -> bool;

    /// It has done all that it came for, and has gone.
    fn is_done(&self) -> bool;

    /// It does not come again once it has gone.
    fn retire(&mut self);
}
