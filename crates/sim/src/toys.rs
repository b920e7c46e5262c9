//! Three toy protocols that implement the seam in the three ways real protocols need: a server for one client alone,
//! several servers at a time, one server shared by many. They exist to try the seam; no real database speaks them.

pub mod cluster;
pub mod exclusive;
pub mod several;
pub mod shared;
pub mod topology;
pub mod wire;
mod words;

/// A defect built in on purpose, to prove that the checks can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// None: the toy is meant to be right.
    None,
    /// Sometimes a reply goes to another client.
    LeakReply,
    /// A server is released as clean although a client has left something in it.
    DirtyRelease,
    /// A request is forwarded twice.
    SendTwice,
    /// Input that had to wait is thrown away.
    LoseInput,
    /// A client is not told that its server has died.
    SilentLoss,
    /// A server is kept when its client leaves.
    KeepServer,
    /// A client keeps its share of a server after its last reply.
    KeepShare,
    /// The same, and it is not even called idle.
    SitOnShare,
    /// More clients keep their servers than may.
    PinWithoutBound,
    /// Who leaves is still counted as keeping its server.
    KeepPin,
}
