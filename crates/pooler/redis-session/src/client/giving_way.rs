//! A client that blocks, or holds its server for long, gives it back to other clients, because its pool has become too
//! small for all such clients.
//!
//! A side connection tells Redis to unblock the client (CLIENT UNBLOCK), so that Redis takes no element for a client
//! that has gone. The reply is that of the command's time-out. A command without a time-out never has that reply: its
//! client is closed instead, as when its server is lost, and connects again. So is a client that Redis does not unblock
//! in time, or that is pinned.

use seam::{Blame, CloseReason, Effect, Outbox, PoolId, ServerTag, Upgrade};

use super::{
    Client,
    lease::{GiveWay, Held},
};
use crate::{Redis, login, resp};

/// The reason in the log.
const GIVES_WAY: &str = "it kept its server for longest, there are fewer than before, and others wait for one";

impl Redis {
    /// Makes the client give its server back, which the driver has requested: Redis unblocks the client, or it is
    /// closed. Returns false, and does nothing, if the client will give the server back by itself, when a reply or the
    /// rest of a command has come.
    pub(crate) fn on_return_requested(
        &self,
        client: &mut Client,
        tag: ServerTag,
        pool: PoolId,
        out: &mut Outbox,
    ) -> bool {
        if client.replies.is_mid_reply() {
            // Redis has taken an element for the client, and the rest of it would be lost.
            return false;
        }
        match client.lease.held_mut().map(Held::give_way) {
            None | Some(GiveWay::ByItself) => return false,
            Some(GiveWay::Unblock(connection)) => self.unblock_by_side_connection(connection, tag, pool, out),
            Some(GiveWay::Close) => client.close_to_give_way(out),
        }
        true
    }

    fn unblock_by_side_connection(&self, connection: u32, tag: ServerTag, pool: PoolId, out: &mut Outbox) {
        let login = self.directory.server_login(pool);
        let start = out.inserted.len();
        login::write_auth(&login, &mut out.inserted);
        resp::command(&mut out.inserted, &[b"CLIENT", b"UNBLOCK", connection.to_string().as_bytes(), b"TIMEOUT"]);
        resp::command(&mut out.inserted, &[b"QUIT"]);
        let bytes = start..out.inserted.len();
        let upgrade = login.tls.then_some(Upgrade { ask: bytes.end..bytes.end, agreed: 0 });
        out.push(Effect::SideConnection { server: tag, bytes, upgrade });
    }
}

impl Client {
    /// Whether this whole reply to a command without a time-out says that the client was unblocked to give way.
    pub(crate) fn ends_by_giving_way(&self, reply: &[u8]) -> bool {
        self.lease.held().is_some_and(Held::was_unblocked_to_give_way)
            && self.http.is_none()
            && is_reply_of_time_out(reply)
    }

    /// Closes the client, because it gives its server back in no other way.
    pub(crate) fn close_to_give_way(&mut self, out: &mut Outbox) {
        self.close(CloseReason::Error(Blame::Exhausted, GIVES_WAY.to_owned()), out);
    }
}

/// Whether this is the reply of a blocking command's time-out: a null, or for WAIT and WAITAOF numbers of replicas.
fn is_reply_of_time_out(reply: &[u8]) -> bool {
    [&b"*-1\r"[..], b"$-1\r", b"_\r", b":", b"*2\r\n:"].iter().any(|begin| reply.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_of_a_time_out_differs_from_elements() {
        for reply in ["*-1\r\n", "$-1\r\n", "_\r\n", ":0\r\n", "*2\r\n:0\r\n:1\r\n"] {
            assert!(is_reply_of_time_out(reply.as_bytes()), "{reply:?}");
        }
        for reply in ["*2\r\n$1\r\na\r\n$1\r\n:\r\n", "$2\r\n:1\r\n", "*1\r\n*2\r\n", "-UNBLOCKED x\r\n", "*3\r\n"] {
            assert!(!is_reply_of_time_out(reply.as_bytes()), "{reply:?}");
        }
    }
}
