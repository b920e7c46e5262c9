//! A client's connection: where its request is, and what it is told.

use std::time::Duration;

use seam::{Blame, ClientTag, CloseReason, Effect, Encryption, Input, Outbox, Peer, ServerTag, Standing, Verdict};

use crate::{
    access::Access,
    bson::{Malformed, Writer},
    connection_resources::ConnectionResources,
    destination::Destination,
    errors::{Code, Failure},
    held::HeldRequest,
    request::Request,
    streams::Waiting,
    wait::Wait,
    wire,
};

/// A TLS handshake begins with these and the minor version, 1 to 4. As the length of a message that would be more than
/// 65,536 bytes, and a client begins with a greeting.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 3];

pub struct Client {
    /// Distinguishes what is posted to it from what was meant for an earlier client of the same tag.
    pub(crate) key: u64,
    /// Its `connectionId`, as it is told.
    pub(crate) number: i32,
    encryption: Encryption,
    /// Its connection ends: what it still sends is dropped.
    pub(crate) closing: bool,
    pub(crate) access: Access,
    pub(crate) state: State,
    pub(crate) request: Request,
    pub(crate) destination: Destination,
    pub(crate) wait: Wait,
    pub(crate) held: HeldRequest,
    /// Present while its request has a server for itself, to wait for what other clients write.
    pub(crate) stream: Option<Waiting>,
    /// What ends with its connection, if its driver believes in a load balancer.
    pub(crate) resources: Option<Box<ConnectionResources>>,
}

/// Bytes that the session of an idle client takes, at most.
const MAX_CLIENT_SIZE: usize = 320;
const _: () = assert!(size_of::<Client>() <= MAX_CLIENT_SIZE);

/// Where the request under way is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// There is none.
    Idle,
    /// It waits until a host is known that can serve it.
    Parked {
        until: Duration,
    },
    /// It waits for a server of this host; no longer than until then, if it has waited before, for a host or at another
    /// one.
    Queued {
        host: u32,
        until: Option<Duration>,
    },
    /// So many bytes of it are not yet with its server.
    Sending {
        server: ServerTag,
        left: usize,
    },
    Awaiting(ServerTag),
    /// It has been answered already: what is still to come of it is dropped.
    Dropping {
        left: usize,
    },
}

impl Client {
    pub(crate) fn new(key: u64, number: i32, encryption: Encryption, access: Access) -> Self {
        Self {
            key,
            number,
            encryption,
            closing: false,
            access,
            state: State::Idle,
            request: Request::unreadable(0),
            destination: Destination::default(),
            wait: Wait::default(),
            held: HeldRequest::default(),
            stream: None,
            resources: None,
        }
    }

    /// TLS shows in the first bytes: how much of the input is dealt with by that alone, if it is.
    pub(crate) fn first_bytes(&mut self, me: ClientTag, input: Input<'_>, out: &mut Outbox) -> Option<usize> {
        if self.encryption == Encryption::Off {
            return None;
        }
        let Some([kind @ .., minor]) = input.bytes.first_chunk::<3>() else {
            out.need = 3;
            return Some(0);
        };
        match (std::mem::take(&mut self.encryption), *kind == TLS_HANDSHAKE && (1..=4).contains(minor)) {
            (_, true) => {
                out.push(Effect::StartTls { peer: Peer::Client(me) });
                Some(0)
            }
            (Encryption::Off | Encryption::Allow, false) => None,
            (Encryption::Require, false) => {
                self.access.refuse_at_once("clients have to use TLS here");
                None
            }
        }
    }

    /// Answers its request, if that wants an answer.
    pub(crate) fn answer(&self, me: ClientTag, out: &mut Outbox, write: impl FnOnce(&mut Writer<'_>)) {
        if self.request.wants_answer() {
            out.insert(Peer::Client(me), |to| wire::answer(to, self.request.answers(), write));
        }
    }

    pub(crate) fn tell_failure(&self, me: ClientTag, failure: &Failure, out: &mut Outbox) {
        let request = &self.request;
        if request.wants_answer() {
            out.insert(Peer::Client(me), |to| failure.append(to, request.answers(), request.error_label()));
        }
    }

    /// Its request is over, or was never sent anywhere: the next one begins its wait anew, and goes its own way.
    pub(crate) fn forget_route(&mut self) {
        self.wait = Wait::default();
        self.destination = Destination::default();
    }

    /// What is still to come of a request that is dealt with is dropped.
    pub(crate) fn drop_rest(&mut self, left: usize) {
        self.state = if left == 0 { State::Idle } else { State::Dropping { left } };
    }

    /// Closes it, because it does not keep to the protocol.
    pub(crate) fn fail_malformed(&mut self, me: ClientTag, error: Malformed, out: &mut Outbox) {
        let failure = Failure::new(Code::FailedToParse, format!("Poolhouse: {error}"));
        self.tell_failure(me, &failure, out);
        self.close(me, CloseReason::Error(Blame::Client, error.to_string()), out);
    }

    pub(crate) fn close(&mut self, me: ClientTag, reason: CloseReason, out: &mut Outbox) {
        self.closing = true;
        out.push(Effect::Close { peer: Peer::Client(me), reason });
    }

    /// The answer has come to its end.
    pub(crate) fn on_answered(&mut self, me: ClientTag, out: &mut Outbox) -> Verdict {
        let verdict = match self.state {
            State::Sending { left, .. } => {
                self.state = State::Dropping { left };
                Verdict::Discard
            }
            _ => {
                self.state = State::Idle;
                Verdict::Clean
            }
        };
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        out.push(Effect::Wake { client: me });
        verdict
    }

    /// Tells it why its request ends: `first` is what another host has said of it before, if one has.
    pub(crate) fn tell_first(&self, me: ClientTag, first: Option<Vec<u8>>, failure: &Failure, out: &mut Outbox) {
        match first.filter(|_| self.request.wants_answer()) {
            Some(mut error) => out.insert(Peer::Client(me), |to| to.append(&mut error)),
            None => self.tell_failure(me, failure, out),
        }
    }

    /// Its server is gone. `begun`: a part of the answer is with the client already. `first`: what another host has
    /// said before.
    pub(crate) fn on_server_lost(&mut self, me: ClientTag, begun: bool, first: Option<Vec<u8>>, out: &mut Outbox) {
        if begun {
            self.state = State::Idle;
            let text = "the server was lost in the middle of an answer".to_owned();
            return self.close(me, CloseReason::Error(Blame::Server, text), out);
        }
        let left = match self.state {
            State::Sending { left, .. } => left,
            _ => 0,
        };
        self.tell_first(me, first, &Failure::of_lost_server(), out);
        self.drop_rest(left);
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        out.push(Effect::Wake { client: me });
    }
}
