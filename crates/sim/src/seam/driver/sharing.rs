//! The clients of a worker that share a server: they join, and leave when nothing is due to them any more. To the pool all of them are
//! one holder, the mux. The server may be wanted back at any time: then the mux yields, and that must come to an end.

use std::collections::BTreeSet;

use pool::{Ticket, Time};
use protocol::{ClientTag, LeaseFailure, LeaseKind, Outbox, Peer, Protocol, ServerTag, Verdict};

use super::{
    super::connection::{Asker, Asking, Use},
    Call, Driver,
};

/// A worker and a pool.
pub type Place = (u8, usize);

/// The clients of one worker that share a server of one pool: a single holder to the pool.
#[derive(Debug, Default)]
pub struct Mux {
    /// Its number as a waiter.
    pub waiter: u64,
    /// Its place in the queue, while there is no server.
    pub ticket: Option<Ticket>,
    /// What is shared.
    pub server: Option<ServerTag>,
    /// Clients that have a share.
    pub members: BTreeSet<ClientTag>,
    /// Members that have been handed no input yet: nothing can be due to them.
    pub fresh: BTreeSet<ClientTag>,
    /// Clients that are just being told that they have a share, by tag and serial.
    pub invited: Vec<(ClientTag, u64)>,
    /// Clients that wait for a share, by tag and serial.
    pub joining: Vec<(ClientTag, u64)>,
    /// The worst verdict of those who left.
    worst: Option<Verdict>,
    /// Since when the server is wanted back: nobody joins any more, and members get no more input.
    pub yielding: Option<Time>,
}

impl Mux {
    fn takes_more(&self) -> bool {
        self.server.is_some() && self.yielding.is_none()
    }

    /// It has a server, and nobody who needs it.
    pub fn is_unused(&self) -> bool {
        self.server.is_some() && self.members.is_empty() && self.invited.is_empty()
    }
}

impl<P: Protocol> Driver<P> {
    // ---- joining ----

    /// A client asks for a share.
    pub(super) fn share(&mut self, client: ClientTag, serial: u64, pool: usize) {
        let place = (client.worker(), pool);
        let Some(mux) = self.muxes.get_mut(&place) else { return self.start_sharing(place, (client, serial)) };
        if mux.takes_more() {
            mux.invited.push((client, serial));
            self.call(place.0, Call::Joined(client, serial, pool));
        } else {
            mux.joining.push((client, serial));
        }
    }

    fn start_sharing(&mut self, place: Place, first: (ClientTag, u64)) {
        let waiter = self.serial();
        self.muxes.insert(place, Mux { waiter, joining: vec![first], ..Mux::default() });
        self.check_out(place.1, waiter, Asker::Mux(place.0, place.1));
    }

    /// The mux has its server, which all may have who wait.
    pub(super) fn invite(&mut self, place: Place, tag: ServerTag) {
        let conn = self.servers.get_mut(&tag).expect("seen by the caller");
        conn.check_lendable();
        conn.usage = Use::Shared;
        let mux = self.muxes.get_mut(&place).expect("a mux waits for its server");
        (mux.server, mux.ticket) = (Some(tag), None);
        mux.invited = std::mem::take(&mut mux.joining);
        let calls: Vec<_> = mux.invited.iter().map(|&(client, serial)| Call::Joined(client, serial, place.1)).collect();
        calls.into_iter().for_each(|call| self.call(place.0, call));
        self.call(place.0, Call::ServerInput(tag));
    }

    /// A client is told that it has a share, unless the invitation does not hold any more.
    pub(super) fn joined(&mut self, client: ClientTag, serial: u64, pool: usize) {
        let place = (client.worker(), pool);
        let Some(mux) = self.muxes.get_mut(&place) else { return };
        let Some(at) = mux.invited.iter().position(|i| *i == (client, serial)) else { return };
        mux.invited.remove(at);
        assert!(mux.yielding.is_none(), "client {serial} is invited to a server that is wanted back");
        let tag = mux.server.expect("who is invited is invited to a server");
        let conn = self.clients.get_mut(&client).filter(|c| c.serial == serial && !c.closing);
        let wish = |a: &Asking| a.kind == LeaseKind::Shared && a.pool == pool;
        let asking = conn.and_then(|c| Some((c.asking.iter().position(wish)?, c)));
        let Some((at, conn)) = asking else { return self.give_back_if_unused(place) };
        conn.asking.remove(at);
        assert!(mux.members.insert(client), "client {serial} gets a second share of {tag:?}");
        mux.fresh.insert(client);
        self.lend(client, tag, Use::Shared);
    }

    /// There is no server for a mux.
    pub(super) fn fail_sharing(&mut self, place: Place, why: &LeaseFailure) {
        let mux = self.muxes.remove(&place).expect("a waiting mux exists");
        for (tag, serial) in mux.joining {
            let Some(conn) = self.clients.get(&tag).filter(|c| c.serial == serial) else { continue };
            if let Some(asking) = conn.asking.iter().find(|a| a.kind == LeaseKind::Shared && a.pool == place.1) {
                self.lease_failed(tag, serial, asking.waiter, why.clone());
            }
        }
    }

    /// A client waits for a share no longer.
    pub(super) fn withdraw_share(&mut self, client: ClientTag, pool: usize) {
        let place = (client.worker(), pool);
        let Some(mux) = self.muxes.get_mut(&place) else { return };
        mux.joining.retain(|j| j.0 != client);
        mux.invited.retain(|i| i.0 != client);
        let (empty, waiter, ticket) = (mux.joining.is_empty(), mux.waiter, mux.ticket);
        if mux.server.is_some() {
            self.give_back_if_unused(place);
        } else if empty && self.leave_queue(place.0, pool, waiter, ticket) {
            self.muxes.remove(&place);
        }
    }

    // ---- having a share ----

    /// The muxes that a client has a share in.
    pub(super) fn shares_of(&self, client: ClientTag) -> impl Iterator<Item = &Mux> {
        let worker = client.worker();
        let muxes = self.muxes.range((worker, 0)..=(worker, usize::MAX)).map(|m| m.1);
        muxes.filter(move |mux| mux.members.contains(&client))
    }

    /// Whether a client's input must wait because of what it shares: that is wanted back, or does not take what it gets. Who has just
    /// been granted its share is listened to all the same: nothing is due to it, and it would have no reason to leave.
    pub(super) fn is_withheld(&mut self, client: ClientTag) -> bool {
        let wanted_back = |mux: &Mux| mux.yielding.is_some() && !mux.fresh.contains(&client);
        if self.shares_of(client).any(wanted_back) {
            return true;
        }
        let most = self.plan.cut.output;
        let full = self.shares_of(client).filter_map(|mux| mux.server).find(|s| self.servers[s].output.len() > most);
        if let Some(server) = full {
            self.clients.get_mut(&client).expect("seen by the caller").blocked = Some(Peer::Server(server));
        }
        full.is_some()
    }

    /// A client is handed input.
    pub(super) fn note_heard(&mut self, client: ClientTag) {
        let worker = client.worker();
        for (_, mux) in self.muxes.range_mut((worker, 0)..=(worker, usize::MAX)) {
            mux.fresh.remove(&client);
        }
    }

    // ---- leaving ----

    /// A client gives its share back.
    pub(super) fn leave(&mut self, client: ClientTag, tag: ServerTag, verdict: Verdict) {
        let found = self.muxes.iter_mut().find(|(_, mux)| mux.server == Some(tag) && mux.members.contains(&client));
        let (&place, mux) = found.unwrap_or_else(|| panic!("{client:?} leaves {tag:?}, of which it has no share"));
        mux.members.remove(&client);
        mux.fresh.remove(&client);
        mux.worst = mux.worst.max(Some(verdict));
        if mux.yielding.is_some() {
            // It was not listened to on account of this server.
            self.call(place.0, Call::ClientInput(client));
        }
        if verdict == Verdict::Discard {
            self.want_back(place);
        } else {
            self.give_back_if_unused(place);
        }
    }

    /// The server is to be given back as soon as nobody waits for a reply.
    pub(super) fn want_back(&mut self, place: Place) {
        let now = self.now();
        let Some(mux) = self.muxes.get_mut(&place).filter(|mux| mux.server.is_some()) else { return };
        mux.yielding.get_or_insert(now);
        mux.joining.append(&mut mux.invited);
        self.give_back_if_unused(place);
    }

    fn give_back_if_unused(&mut self, place: Place) {
        let mux = &self.muxes[&place];
        let worst = mux.worst.unwrap_or(Verdict::Clean);
        let lingers = self.lingers() && mux.yielding.is_none() && worst == Verdict::Clean;
        if lingers || !mux.is_unused() {
            return;
        }
        let mux = self.muxes.remove(&place).expect("just seen");
        self.check_in(mux.server.expect("an unused mux has a server"), worst);
        self.share_anew(place.1, mux.joining);
    }

    /// Whether muxes keep clean servers that nobody needs until these are wanted back.
    pub(super) fn lingers(&self) -> bool {
        self.plan.lingers && !self.calm
    }

    // ---- the server has gone ----

    /// The session of a shared server has been told that it has gone: those hear of it who had a share.
    pub(super) fn end_shares(&mut self, mux: &Mux) {
        for &tag in &mux.members {
            let session = self.clients.get_mut(&tag).and_then(|c| c.session.as_mut());
            let mut out = Outbox::new();
            self.protocol.share_ended(tag, session.expect("who has a share lives"), &mut out);
            self.execute(out, &[], Peer::Client(tag));
            self.call(tag.worker(), Call::ClientInput(tag));
        }
    }

    /// Nothing was sent for those who have no share yet: they ask again.
    pub(super) fn share_anew(&mut self, pool: usize, who: Vec<(ClientTag, u64)>) {
        who.into_iter().for_each(|(client, serial)| self.share(client, serial, pool));
    }
}
