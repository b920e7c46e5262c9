//! What a client sees of the simulation.

use pool::Time;

use crate::network::Network;

pub struct Environment<'a, D> {
    pub network: &'a Network,
    /// The database behind the product.
    pub product_database: &'a D,
    pub now: Time,
    /// Faults so far.
    pub faults: u64,
    /// Clients are being sent away, one after the other.
    pub departing: bool,
    /// 1 if a new connection may still notice effects of earlier faults, else 0. A new connection counts that many of
    /// `faults` as later than its begin.
    pub lingering_faults: u64,
    /// Whether to print all messages.
    pub trace: bool,
}
