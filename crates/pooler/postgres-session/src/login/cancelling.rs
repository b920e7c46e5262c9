//! Clients that connect in order to cancel what another client does. That one may be a client of another node: then the
//! request is handed on, and its client waits until a tick of a worker posts that it has been dealt with.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, Peer};

use crate::{
    CancelDealtWith, ForeignCancel,
    random::random,
    session::{Client, Phase, Postgres, client_login::Step},
    wire::{cancel_key, message::write_cancel},
};

impl Postgres {
    /// Passes a cancel request on to the client that it names. The connection that sent it is closed after that.
    pub(super) fn pass_on_cancel(&self, me: ClientTag, client: &mut Client, pid: u32, secret: u64, out: &mut Outbox) {
        match (cancel_key::node(self.node, pid), cancel_key::target(self.node, pid)) {
            (Some(node), Some(target)) if node == self.node => {
                client.phase = Phase::Closed;
                let (slot_bits, secret) = (cancel_key::slot_bits(self.node), cancel_key::original(secret));
                out.push(Effect::Cancel { asker: me, target, slot_bits, secret });
            }
            (Some(node), _) if node != self.node => self.hand_on_cancel(me, client, (node, pid, secret), out),
            _ => client.close(me, CloseReason::Done, out),
        }
    }

    fn hand_on_cancel(
        &self,
        me: ClientTag,
        client: &mut Client,
        (node, pid, secret): (u16, u32, u64),
        out: &mut Outbox,
    ) {
        let Some(secret) = cancel_key::handed_on(secret) else {
            let own = self.node;
            let text = format!(
                "a cancel request for node {node} has come to node {own}, and was handed on too often before: is the \
                 address of a [[peer]] that of another node, or has a node_id been given twice?"
            );
            return client.close(me, CloseReason::Error(Blame::Client, text), out);
        };
        let Phase::Login(login) = &mut client.phase else { unreachable!("the client is logging in") };
        let serial = u64::from_ne_bytes(random());
        login.step = Step::HandingOn { serial };
        let (mut bytes, mut request) = (Vec::new(), Vec::new());
        cancel_key::write_secret(&mut bytes, secret);
        write_cancel(&mut request, pid, &bytes);
        self.directory.hand_on_cancel(ForeignCancel { client: me, serial, node, request });
    }

    /// Posts to clients that their requests have been dealt with.
    pub(crate) fn post_handed_on(&self, out: &mut Outbox) {
        for CancelDealtWith { client, serial } in self.directory.handed_on_cancels() {
            let end = out.inserted.len();
            out.push(Effect::Post { to: Peer::Client(client), key: serial, bytes: end..end });
        }
    }

    /// Takes a post if it says that the client's request has been dealt with. False if it is another one.
    pub(crate) fn take_handed_on(&self, me: ClientTag, client: &mut Client, key: u64, out: &mut Outbox) -> bool {
        let Phase::Login(login) = &client.phase else { return false };
        let is_meant = matches!(login.step, Step::HandingOn { serial } if serial == key);
        if is_meant {
            client.close(me, CloseReason::Done, out);
        }
        is_meant
    }
}
