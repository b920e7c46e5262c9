//! What a client has of a pool: a request for a server, a server of its own, or a share of one. Whatever holds only for
//! as long as the client has that server is here, so that it ends with the lease.

use seam::{LeaseKind, ServerTag};

use super::transaction::Transaction;
use crate::Version;

/// What a client has of a pool.
#[derive(Debug)]
pub(crate) enum Lease {
    None,
    Requested(LeaseRequest),
    /// A server that no other client uses.
    Held(Held),
    /// A server that other clients use, too. The client leaves it when no reply is pending.
    Shared {
        server: ServerTag,
        /// The client waits until it is known whether this logical database exists.
        selecting: Option<u32>,
    },
}

#[derive(Debug)]
pub(crate) struct LeaseRequest {
    kind: LeaseKind,
    purpose: Purpose,
    /// The server is to be in another logical database than the client.
    in_other_database: bool,
}

/// What a server is requested for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// For the next command, which may block.
    Command { blocks: bool },
    /// To find out whether this logical database exists.
    Select(u32),
    /// To answer HELLO with the server's own answer to it. These are the version and the name that HELLO sets.
    Hello(Version, Option<Box<[u8]>>),
    /// To hold the subscriptions of all clients of the pool.
    Subscriptions,
    /// To unblock the client with this id (CLIENT UNBLOCK).
    Unblock { id: Box<[u8]>, with_error: bool },
}

/// A server that only this client uses.
#[derive(Debug)]
pub(crate) struct Held {
    server: ServerTag,
    in_other_database: bool,
    /// The client may keep the server without a time limit.
    long_term: bool,
    /// The server stays with the client until one of them goes: bytes pass unchanged.
    pinned: bool,
    transaction: Transaction,
    /// The id of the server connection on which a blocking command of the client waits.
    blocked_on: Option<u32>,
    /// Another client has sent CLIENT UNBLOCK for this connection. Redis may execute it late, so no other client may
    /// get the connection.
    unblock_sent: bool,
    /// The client was asked to give its server back, and no reply has come since.
    gives_way: bool,
    /// A side connection has sent CLIENT UNBLOCK for this connection, so that the client gives way. Redis may execute
    /// it late, for another command of the client.
    unblocked_to_give_way: bool,
}

/// How a client gives its server back to other clients.
pub(super) enum GiveWay {
    /// It will, when a reply or the rest of a command has come.
    ByItself,
    /// Redis has to unblock this connection.
    Unblock(u32),
    /// Only if its connection is closed.
    Close,
}

impl Lease {
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(crate) fn is_requested(&self) -> bool {
        matches!(self, Self::Requested(_))
    }

    pub(crate) fn is_requested_for_subscriptions(&self) -> bool {
        matches!(self, Self::Requested(LeaseRequest { purpose: Purpose::Subscriptions, .. }))
    }

    pub(super) fn is_requested_for_command(&self) -> bool {
        matches!(self, Self::Requested(LeaseRequest { purpose: Purpose::Command { .. }, .. }))
    }

    pub(super) fn server(&self) -> Option<ServerTag> {
        match self {
            Self::Held(held) => Some(held.server),
            Self::Shared { server, .. } => Some(*server),
            Self::None | Self::Requested(_) => None,
        }
    }

    pub(super) fn held(&self) -> Option<&Held> {
        match self {
            Self::Held(held) => Some(held),
            _ => None,
        }
    }

    pub(super) fn held_mut(&mut self) -> Option<&mut Held> {
        match self {
            Self::Held(held) => Some(held),
            _ => None,
        }
    }

    pub(super) fn transaction(&self) -> Transaction {
        self.held().map_or(Transaction::None, |held| held.transaction)
    }

    pub(super) fn is_pinned(&self) -> bool {
        self.held().is_some_and(|held| held.pinned)
    }

    /// The client waits until the server has selected its database, which may not exist.
    pub(super) fn wait_for_database(&mut self, database: u32) {
        if let Self::Shared { selecting, .. } = self {
            *selecting = Some(database);
        }
    }

    /// The logical database that the client waits for.
    pub(super) fn selecting(&self) -> Option<u32> {
        match self {
            Self::Shared { selecting, .. } => *selecting,
            _ => None,
        }
    }

    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::None)
    }

    pub(super) fn take_request(&mut self) -> LeaseRequest {
        match self.take() {
            Self::Requested(request) => request,
            other => unreachable!("a request was answered, and the client has {other:?}"),
        }
    }
}

impl LeaseRequest {
    pub(super) fn new(kind: LeaseKind, purpose: Purpose, in_other_database: bool) -> Self {
        Self { kind, purpose, in_other_database }
    }

    /// This server answers the request.
    pub(super) fn granted(self, server: ServerTag) -> (Lease, Purpose) {
        let lease = match self.kind {
            LeaseKind::Shared => Lease::Shared { server, selecting: None },
            LeaseKind::Exclusive | LeaseKind::LongTerm | LeaseKind::Fresh => Lease::Held(Held {
                server,
                in_other_database: self.in_other_database,
                long_term: self.kind == LeaseKind::LongTerm,
                pinned: false,
                transaction: Transaction::None,
                blocked_on: None,
                unblock_sent: false,
                gives_way: false,
                unblocked_to_give_way: false,
            }),
        };
        (lease, self.purpose)
    }

    pub(super) fn kind(&self) -> LeaseKind {
        self.kind
    }

    pub(super) fn into_purpose(self) -> Purpose {
        self.purpose
    }

    pub(super) fn purpose(&self) -> &Purpose {
        &self.purpose
    }

    /// Whether it is for a command that may keep the server without a time limit.
    pub(super) fn is_for_long_term_command(&self) -> bool {
        self.kind == LeaseKind::LongTerm && matches!(self.purpose, Purpose::Command { .. })
    }

    pub(super) fn is_for_blocking_command(&self) -> bool {
        self.kind == LeaseKind::LongTerm && self.purpose == (Purpose::Command { blocks: true })
    }
}

impl Held {
    pub(super) fn server(&self) -> ServerTag {
        self.server
    }

    pub(super) fn is_in_other_database(&self) -> bool {
        self.in_other_database
    }

    pub(super) fn is_long_term(&self) -> bool {
        self.long_term
    }

    /// Whether the client has begun a transaction, or watches keys for one.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.needs_its_server()
    }

    pub(super) fn pin(&mut self) {
        self.pinned = true;
    }

    pub(super) fn transaction_mut(&mut self) -> &mut Transaction {
        &mut self.transaction
    }

    /// A blocking command was sent to this connection of Redis.
    pub(super) fn block_on(&mut self, connection: u32) {
        self.blocked_on = Some(connection);
    }

    pub(super) fn blocked_on(&self) -> Option<u32> {
        self.blocked_on
    }

    /// Another client unblocks this one. Returns the id of the connection on which it waits.
    pub(super) fn unblock(&mut self) -> Option<u32> {
        self.unblock_sent |= self.blocked_on.is_some();
        self.blocked_on
    }

    /// A reply has come. `last`: no other one is pending.
    pub(super) fn on_reply(&mut self, last: bool) {
        if last {
            self.blocked_on = None;
        }
        self.gives_way = false;
    }

    /// The client is asked to give its server back.
    pub(super) fn give_way(&mut self) -> GiveWay {
        let again = std::mem::replace(&mut self.gives_way, true);
        match self.blocked_on {
            Some(connection @ 1..) if !again => {
                self.unblocked_to_give_way = true;
                GiveWay::Unblock(connection)
            }
            None if !again && !self.pinned => GiveWay::ByItself,
            _ => GiveWay::Close,
        }
    }

    pub(super) fn was_unblocked_to_give_way(&self) -> bool {
        self.unblocked_to_give_way
    }

    /// Whether another client may get the server's connection, if no reply is pending.
    pub(super) fn is_clean(&self) -> bool {
        !self.unblock_sent
    }

    /// Whether the client has left no state in the server's connection, if no reply is pending.
    pub(super) fn is_without_state(&self) -> bool {
        !self.transaction.needs_its_server() && !self.pinned && !self.unblock_sent
    }
}
