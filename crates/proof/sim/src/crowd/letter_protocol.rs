//! The protocol of a crowd: one letter is a request, and sets the state of its client. It needs no server.

use seam::{
    ClientTag, CloseReason, Effect, Input, LeaseFailure, Origin, Outbox, Peer, PoolId, Protocol, Refusal, ServerTag,
    Sessions, Standing,
};

use super::tenants::{USERS, user};

/// A client sends one letter at a time: `i` is a request that leaves it idle, `t` one that leaves it in a transaction,
/// `s` one that leaves it subscribed. Each is echoed. Before its first letter the client sends a digit, which logs it
/// in to a database as a user. A later digit logs it in anew, and is echoed, unless that database or user is full.
pub struct LetterProtocol;

impl Protocol for LetterProtocol {
    type Client = bool;
    type Server = ();

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) -> bool {
        false
    }

    fn server_start(&self, _: ServerTag, _: PoolId, _: &mut Outbox) {}

    fn client_input(
        &self,
        me: ClientTag,
        logged_in: &mut bool,
        _: &mut dyn Sessions<ServerTag, ()>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if input.bytes[0].is_ascii_digit() {
            let login = usize::from(input.bytes[0] - b'0');
            let pool = PoolId((login / USERS) as u32);
            out.push(Effect::LoggedIn { client: me, pool, user: user(login % USERS) });
            if !std::mem::replace(logged_in, true) {
                return 1;
            }
        }
        let standing = match input.bytes[0] {
            b't' => Standing::InTransaction,
            b's' => Standing::Subscribed,
            _ => Standing::Idle,
        };
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        out.push(Effect::Standing { client: me, standing });
        out.span(Peer::Client(me), 0..1);
        1
    }

    fn server_input(
        &self,
        _: ServerTag,
        (): &mut (),
        _: &mut dyn Sessions<ClientTag, bool>,
        input: Input<'_>,
        _: &mut Outbox,
    ) -> usize {
        input.bytes.len()
    }

    fn granted(&self, _: ClientTag, _: &mut bool, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn lease_failed(&self, _: ClientTag, _: &mut bool, _: LeaseFailure, _: usize, _: &mut Outbox) {}

    fn client_gone(&self, _: ClientTag, _: &mut bool, _: &mut dyn Sessions<ServerTag, ()>, _: &mut Outbox) {}

    fn server_gone(&self, _: ServerTag, (): &mut (), _: &mut dyn Sessions<ClientTag, bool>, _: &mut Outbox) {}

    fn refuse(&self, me: ClientTag, _: &mut bool, why: Refusal, out: &mut Outbox) {
        let letter = match why {
            Refusal::TooManyClients { .. } => b'F',
            Refusal::Full { .. } => b'T',
            Refusal::Evicted => b'E',
            Refusal::Displaced => b'C',
            Refusal::LoginTimeout => b'L',
            _ => b'?',
        };
        out.insert(Peer::Client(me), |bytes| bytes.push(letter));
        out.push(Effect::Close { peer: Peer::Client(me), reason: CloseReason::Done });
    }

    fn reset(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn check(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}
}
