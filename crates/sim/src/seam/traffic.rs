//! Bytes between the virtual driver's connections: who may write to whom, who holds back whom, what can move. It hands no
//! session anything.

use std::{collections::BTreeMap, ops::Bound};

use protocol::{ClientTag, Peer, Protocol, ServerTag};

use super::{
    connection::{ClientConn, ServerConn, Use},
    driver::{Call, Driver, Event},
};

type Clients<P> = BTreeMap<ClientTag, ClientConn<<P as Protocol>::Client>>;
type Servers<P> = BTreeMap<ServerTag, ServerConn<<P as Protocol>::Server>>;

impl<P: Protocol> Driver<P> {
    pub(super) fn send(&mut self, to: Peer, bytes: &[u8], source: Peer) {
        let full = match to {
            Peer::Client(tag) => {
                let conn = self.clients.get_mut(&tag).filter(|c| c.session.is_some());
                let conn = conn.unwrap_or_else(|| panic!("{source:?} speaks to {tag:?}, who has gone"));
                if conn.dead || conn.closing && source != Peer::Client(tag) {
                    return;
                }
                conn.output.extend(bytes);
                conn.output.len() > self.plan.cut.output
            }
            Peer::Server(tag) => {
                let conn = self.servers.get_mut(&tag);
                let conn = conn.unwrap_or_else(|| panic!("{source:?} speaks to {tag:?}, who has gone"));
                if let Peer::Client(client) = source {
                    let mut shared = self.muxes.values().filter(|mux| mux.server == Some(tag));
                    let right = conn.usage == Use::Lent(client) || shared.any(|mux| mux.members.contains(&client));
                    assert!(right, "{client:?} writes to {tag:?}, which it does not hold: {:?}", conn.usage);
                    assert!(conn.sides == 0, "{client:?} writes to {tag:?}, for which a cancel request is under way");
                }
                conn.output.extend(bytes);
                conn.output.len() > self.plan.cut.output
            }
        };
        if full && to != source {
            let blocked = match source {
                Peer::Client(tag) => self.clients.get_mut(&tag).map(|c| &mut c.blocked),
                Peer::Server(tag) => self.servers.get_mut(&tag).map(|s| &mut s.blocked),
            };
            if let Some(blocked) = blocked {
                *blocked = Some(to);
            }
        }
    }

    /// Lets bytes move where they can, and blocked input where it can again.
    pub fn stir(&mut self) {
        let cut = self.plan.cut;
        let drained = |clients: &Clients<P>, servers: &Servers<P>, peer| match peer {
            Peer::Client(tag) => clients.get(&tag).is_none_or(|c| c.output.len() <= cut.output / 2),
            Peer::Server(tag) => servers.get(&tag).is_none_or(|s| s.output.len() <= cut.output / 2),
        };
        let mut at = Bound::Unbounded;
        while let Some((&tag, conn)) = self.clients.range((at, Bound::Unbounded)).next() {
            let open = conn.blocked.is_some_and(|peer| drained(&self.clients, &self.servers, peer));
            let step = !conn.stirred && conn.can_step(&cut);
            let conn = self.clients.get_mut(&tag).expect("just seen");
            let event = Event::Client(tag, conn.serial);
            conn.stirred |= step;
            if open {
                conn.blocked = None;
                self.call(tag.worker(), Call::ClientInput(tag));
            }
            if step {
                let after = self.soon();
                self.agenda.after(after, event);
            }
            at = Bound::Excluded(tag);
        }
        let mut at = Bound::Unbounded;
        while let Some((&tag, conn)) = self.servers.range((at, Bound::Unbounded)).next() {
            let open = conn.blocked.is_some_and(|peer| drained(&self.clients, &self.servers, peer));
            let step = !conn.stirred && conn.can_step(&cut);
            let conn = self.servers.get_mut(&tag).expect("just seen");
            let event = Event::Server(tag, conn.serial);
            conn.stirred |= step;
            if open {
                conn.blocked = None;
                self.call(tag.worker(), Call::ServerInput(tag));
            }
            if step {
                let after = self.soon();
                self.agenda.after(after, event);
            }
            at = Bound::Excluded(tag);
        }
    }
}
