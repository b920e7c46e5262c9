//! A client that checks its answers by itself, such as an application with several connections.

use pool::Time;

use super::environment::Environment;
use crate::network::EndId;

/// `D`: the model of the database.
pub trait SelfCheckingClient<D> {
    fn wake(&self) -> Time;

    fn act(&mut self, env: &Environment<'_, D>);

    /// Whether this end belongs to it.
    fn owns_end(&self, end: EndId) -> bool;

    fn on_event(&mut self, end: EndId, env: &Environment<'_, D>);

    fn has_connection(&self) -> bool;

    fn is_done(&self) -> bool;

    /// From now on the client begins no further task. A task under way goes on, and may still connect.
    fn retire(&mut self);
}
