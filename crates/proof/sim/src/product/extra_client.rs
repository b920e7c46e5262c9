//! A client beside the players, such as an application with several connections that checks its answers by itself.

use pool::Time;

use super::player::Around;
use crate::network::EndId;

/// `D`: the model of the database.
pub trait ExtraClient<D> {
    /// When it acts next by itself.
    fn wake(&self) -> Time;

    fn act(&mut self, around: &Around<'_, D>);

    /// Whether this end belongs to it.
    fn has(&self, end: EndId) -> bool;

    /// Something has happened to one of its ends.
    fn listen(&mut self, end: EndId, around: &Around<'_, D>);

    fn is_here(&self) -> bool;

    /// Whether it has finished and disconnected.
    fn is_done(&self) -> bool;

    /// Does not connect again after its present connections.
    fn retire(&mut self);
}
