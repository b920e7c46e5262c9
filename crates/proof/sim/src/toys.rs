//! A toy protocol that needs of the seam what neither PostgreSQL nor Redis does: several hosts with roles that change,
//! and sessions that no client has asked for. It exists to try the seam, and as an example; no real database speaks it.

pub mod cluster;
pub mod topology;
