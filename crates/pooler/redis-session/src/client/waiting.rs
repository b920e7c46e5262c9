//! A client waits for a server for a command that blocks: as long as the command would, and then it gets the answer to
//! that.

use seam::{ClientTag, Effect, LeaseFailure, Outbox};

use super::{Client, Lease};
use crate::{
    Redis,
    patience::{Outcome, own_time},
};

/// What CLIENT UNBLOCK with ERROR has Redis say to a client that blocks.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

impl Redis {
    /// The client has asked for a server for this command, which blocks.
    pub(super) fn begin_waiting(&self, client: &Client, arguments: &[&[u8]]) {
        if client.lease.is_requested()
            && let Some(time) = own_time(arguments)
        {
            self.patience.begin(client.id, time);
        }
    }

    /// There was no server in time. Whether the client waits for another one, or has waited for as long as its command
    /// would.
    pub(crate) fn goes_on_waiting(
        &self,
        me: ClientTag,
        client: &mut Client,
        why: &LeaseFailure,
        out: &mut Outbox,
    ) -> bool {
        if *why == LeaseFailure::Forgotten && client.lease.is_requested_for_command() {
            // There is another pool for it by now. Its command is read anew, and asks for a server of that.
            (client.lease, client.home) = (Lease::None, None);
            client.remind(me, out);
            return true;
        }
        if !client.waits_to_keep() {
            return false;
        }
        match self.patience.failed(client.id, why) {
            Outcome::Fails => {
                self.patience.end(client.id);
                return false;
            }
            Outcome::IsOver => {
                self.patience.end(client.id);
                client.on_lease_failed(me, "", out);
            }
            // Its command is read anew, and asks for a server.
            Outcome::GoesOn => {
                client.lease = Lease::None;
                client.remind(me, out);
            }
        }
        true
    }
}

impl Redis {
    /// Another client lets this one go on, which waits for a server to block on: it gets what its command would answer
    /// then.
    pub(super) fn let_go(&self, me: ClientTag, client: &mut Client, is_error: bool, out: &mut Outbox) {
        self.patience.end(client.id);
        out.push(Effect::Withdraw { client: me });
        client.on_lease_failed(me, if is_error { UNBLOCKED } else { "" }, out);
        out.push(Effect::Wake { client: me });
    }
}

impl Client {
    /// Whether it waits for a server that it may keep for long.
    fn waits_to_keep(&self) -> bool {
        matches!(&self.lease, Lease::Requested(request) if request.is_for_lasting_command())
    }

    /// Whether that is for a command that waits for other clients.
    pub(super) fn waits_to_block(&self) -> bool {
        matches!(&self.lease, Lease::Requested(request) if request.is_for_blocking_command())
    }
}
