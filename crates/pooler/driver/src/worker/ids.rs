//! How pools, workers and sessions name clients and servers, and where a pool's connection is on this worker.

use pool::{Grant, Home, ServerId, WaiterId};
use seam::{ClientTag, PoolId, Protocol, ServerTag};

use super::{Work, Worker, pools::Location};
use crate::{
    mailbox::{Mailbox, Message},
    reactor::Reactor,
};

/// The slot by which pools know a mux as a waiter; no client has it.
const MUX_SLOT: u32 = (1 << (u32::BITS - seam::WORKER_BITS)) - 1;

/// What a pool's waiter is on this worker.
pub(super) enum Waiter {
    /// The client in this slot, under this number of its own.
    Client(u32, u32),
    /// A mux, under this number of its own.
    Mux(u32),
}

impl From<WaiterId> for Waiter {
    fn from(id: WaiterId) -> Self {
        let (slot, number) = (ClientTag(id.0 as u32).slot() as u32, (id.0 >> 32) as u32);
        if slot == MUX_SLOT { Self::Mux(number) } else { Self::Client(slot, number) }
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A number that no client and no mux of this worker has had for long.
    pub(super) fn new_serial(&mut self) -> u32 {
        let serial = self.next_serial;
        self.next_serial = self.next_serial.wrapping_add(1);
        serial
    }

    /// A client as its pool knows it: its worker and its slot there, since clients of several workers wait in one
    /// queue, and a number that is new for each request that could be confused with another.
    pub(super) fn client_waiter(&self, slot: usize, number: u32) -> WaiterId {
        WaiterId(u64::from(number) << 32 | u64::from(self.client_tag(slot).0))
    }

    pub(super) fn mux_waiter(&self, number: u32) -> WaiterId {
        self.client_waiter(MUX_SLOT as usize, number)
    }

    pub(super) fn home(&self) -> Home {
        Home(self.number)
    }

    pub(super) fn client_tag(&self, slot: usize) -> ClientTag {
        ClientTag::new(self.number, slot)
    }

    pub(super) fn server_tag(&self, slot: usize) -> ServerTag {
        ServerTag::new(self.number, slot)
    }

    pub(super) fn mailbox(&self, home: Home) -> &Mailbox<P, R> {
        &self.shared.mailboxes[usize::from(home.0)]
    }

    /// Where a pool's connection is on this worker, if it is still there.
    pub(super) fn locate(&self, pool: PoolId, server: ServerId) -> Location {
        let location = self.pools.location(pool, server);
        let is_there = match location {
            Location::None => false,
            Location::Dial(slot) => self.dials.get(slot as usize).is_some_and(|dial| dial.id == server),
            Location::Server(slot) => self.servers.get(slot as usize).is_some_and(|s| s.id == server),
            Location::Closing(slot) => self.closing_servers.get(slot as usize).is_some_and(|f| f.is_of(pool, server)),
        };
        if is_there { location } else { Location::None }
    }

    /// The slot of a server that lives here.
    pub(super) fn server_here(&self, pool: PoolId, server: ServerId) -> Option<usize> {
        match self.locate(pool, server) {
            Location::Server(slot) => Some(slot as usize),
            Location::Dial(_) | Location::Closing(_) | Location::None => None,
        }
    }

    /// Whether a server lives here and its end has not been seen.
    pub(super) fn server_usable(&self, pool: PoolId, server: ServerId) -> bool {
        self.server_here(pool, server).is_some_and(|slot| !self.servers[slot].link.is_ending())
    }

    /// A pool has granted a server: brings it and its client together, wherever they live.
    pub(super) fn deliver(&mut self, pool: PoolId, grant: Grant) {
        match (grant.home == self.home(), grant.waiter_home == self.home()) {
            (true, true) => self.work.push_back(Work::Granted(pool, grant)),
            // Not before the outbox at hand is done: it may yet close the server.
            (true, false) => self.work.push_back(Work::Bring(pool, grant)),
            (false, _) => self.mailbox(grant.home).send(Message::Bring(pool, grant)),
        }
    }
}
