//! A client that blocks, or keeps its server, gives it back to others, because its pool has become too small for all
//! who keep one.
//!
//! Redis is told by a connection beside its own that the client is to go on (CLIENT UNBLOCK), so that no element is
//! taken for a client that has gone. The answer is that of the command's time-out. A command without one never has that
//! answer: its client sees its connection closed instead, as when its server is lost, and connects again. So does a
//! client of which Redis does not hear in time, or that keeps its server for other reasons.

use seam::{Blame, ClientTag, CloseReason, Effect, Outbox, PoolId, ServerTag, Upgrade};

use super::{
    Client,
    lease::{GiveWay, Held},
};
use crate::{Redis, login, resp};

/// Why such a client is disconnected.
const TOO_FEW: &str = "it kept its server for longest, there are fewer than before, and others wait for one";

impl Redis {
    /// The client is to give its server back. False if it will do so by itself, as soon as a reply has come, or the
    /// rest of a command.
    pub(crate) fn ask_to_give_way(
        &self,
        me: ClientTag,
        client: &mut Client,
        tag: ServerTag,
        pool: PoolId,
        out: &mut Outbox,
    ) -> bool {
        if client.replies.is_mid_reply() {
            // Redis has taken an element for it, of which the rest would be lost.
            return false;
        }
        match client.lease.held_mut().map(Held::give_way) {
            None | Some(GiveWay::ByItself) => return false,
            Some(GiveWay::Unblock(connection)) => self.unblock_beside(connection, tag, pool, out),
            Some(GiveWay::Close) => client.go_for_others(me, out),
        }
        true
    }

    /// Has Redis let the client go on that waits on this connection.
    fn unblock_beside(&self, connection: u32, tag: ServerTag, pool: PoolId, out: &mut Outbox) {
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
    /// Whether this whole reply to a command without a time-out came because the client is to give its server back.
    pub(crate) fn goes_at(&self, reply: &[u8]) -> bool {
        self.lease.held().is_some_and(Held::was_unblocked_to_give_way) && self.rest.is_none() && is_of_time_out(reply)
    }

    /// It has to go, since it gives its server back in no other way.
    pub(crate) fn go_for_others(&mut self, me: ClientTag, out: &mut Outbox) {
        self.close(me, CloseReason::Error(Blame::Exhausted, TOO_FEW.to_owned()), out);
    }
}

/// Whether this is what commands that wait answer when their time is over: a null, or for WAIT and WAITAOF numbers of
/// servers.
fn is_of_time_out(reply: &[u8]) -> bool {
    [&b"*-1\r"[..], b"$-1\r", b"_\r", b":", b"*2\r\n:"].iter().any(|begin| reply.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_time_out_is_told_from_what_was_waited_for() {
        for reply in ["*-1\r\n", "$-1\r\n", "_\r\n", ":0\r\n", "*2\r\n:0\r\n:1\r\n"] {
            assert!(is_of_time_out(reply.as_bytes()), "{reply:?}");
        }
        for reply in ["*2\r\n$1\r\na\r\n$1\r\n:\r\n", "$2\r\n:1\r\n", "*1\r\n*2\r\n", "-UNBLOCKED x\r\n", "*3\r\n"] {
            assert!(!is_of_time_out(reply.as_bytes()), "{reply:?}");
        }
    }
}
