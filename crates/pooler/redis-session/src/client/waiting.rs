//! A client waits for a server for a blocking command, at most for the command's own time-out. Then it gets the reply
//! of that time-out.

use seam::{Effect, LeaseFailure, Outbox};

use super::{Client, Lease};
use crate::{
    Redis,
    blocking_waits::{WaitOutcome, block_timeout},
};

/// Redis's reply to a command that CLIENT UNBLOCK with ERROR ends.
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";

impl Redis {
    /// The client may have requested a server for this blocking command.
    pub(super) fn begin_waiting(&self, client: &Client, arguments: &[&[u8]]) {
        if client.lease.is_requested()
            && let Some(time) = block_timeout(arguments)
        {
            self.blocking_waits.begin(client.id, time);
        }
    }

    /// The request for a server has failed. Returns false if the client is to be told so. Otherwise it waits for
    /// another server, or gets the reply of its command's time-out.
    pub(crate) fn continue_wait(&self, client: &mut Client, why: &LeaseFailure, out: &mut Outbox) -> bool {
        if *why == LeaseFailure::Forgotten && client.lease.is_requested_for_command() {
            // Another pool serves the client now. Its command is read again, and requests a server of that pool.
            (client.lease, client.route) = (Lease::None, None);
            client.remind(out);
            return true;
        }
        if !client.waits_for_long_term_lease() {
            return false;
        }
        match self.blocking_waits.on_request_failed(client.id, why) {
            WaitOutcome::Fails => {
                self.blocking_waits.end(client.id);
                return false;
            }
            WaitOutcome::IsOver => {
                self.blocking_waits.end(client.id);
                client.on_lease_failed("", out);
            }
            // The command is read again, and requests a server.
            WaitOutcome::GoesOn => {
                client.lease = Lease::None;
                client.remind(out);
            }
        }
        true
    }
}

impl Redis {
    /// CLIENT UNBLOCK of another client ends this client's wait for a server.
    pub(super) fn unblock_waiting(&self, client: &mut Client, is_error: bool, out: &mut Outbox) {
        self.blocking_waits.end(client.id);
        out.push(Effect::Withdraw { client: client.tag });
        client.on_lease_failed(if is_error { UNBLOCKED } else { "" }, out);
        out.push(Effect::Wake { client: client.tag });
    }
}

impl Client {
    fn waits_for_long_term_lease(&self) -> bool {
        matches!(&self.lease, Lease::Requested(request) if request.is_for_long_term_command())
    }

    pub(super) fn waits_to_block(&self) -> bool {
        matches!(&self.lease, Lease::Requested(request) if request.is_for_blocking_command())
    }
}
