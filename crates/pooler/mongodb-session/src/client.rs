//! A client's connection: the state of its request, and what the client is sent.

use std::time::Duration;

use seam::{Blame, ClientTag, CloseReason, Effect, Encryption, Input, Outbox, Peer, ServerTag, Standing, Verdict};

use crate::{
    access::Access,
    bson::{Malformed, Writer},
    connection_resources::ConnectionResources,
    destination::Destination,
    errors::Failure,
    held_request::HeldRequest,
    request::Request,
    stream_slots::StreamSlot,
    wait::Wait,
    wire,
};

/// The first bytes of a TLS handshake; the minor version, 1 to 4, follows. As the length of a message they would mean
/// more than 65,536 bytes, and a client's first message is shorter.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 3];

pub struct Client {
    pub(crate) tag: ClientTag,
    /// Distinguishes posts to this client from posts to an earlier client of the same tag.
    pub(crate) key: u64,
    /// Its `connectionId`.
    pub(crate) number: i32,
    encryption: Encryption,
    /// Its connection ends: further input is discarded.
    pub(crate) closing: bool,
    pub(crate) access: Access,
    pub(crate) state: State,
    pub(crate) request: Request,
    pub(crate) destination: Destination,
    pub(crate) wait: Wait,
    pub(crate) held: HeldRequest,
    /// Held while its request keeps a server and waits for other clients' writes.
    pub(crate) stream: Option<StreamSlot>,
    /// What ends with its connection. Only with `loadBalanced=true`.
    pub(crate) resources: Option<Box<ConnectionResources>>,
}

const MAX_CLIENT_SIZE: usize = 320;
const _: () = assert!(size_of::<Client>() <= MAX_CLIENT_SIZE);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Idle,
    WaitingForHost {
        until: Duration,
    },
    /// It waits for a server of this host. `until` is set if it has waited before, for a host or at another one.
    WaitingForServer {
        host: u32,
        until: Option<Duration>,
    },
    /// `left` bytes have not been sent to the server.
    Sending {
        server: ServerTag,
        left: usize,
    },
    AwaitingReply(ServerTag),
    /// It has been answered already; `left` bytes of it are still to be discarded.
    DiscardingRest {
        left: usize,
    },
}

impl Client {
    pub(crate) fn new(tag: ClientTag, key: u64, number: i32, encryption: Encryption, access: Access) -> Self {
        Self {
            tag,
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

    /// Checks whether the client begins a TLS handshake. Returns how many bytes are consumed if that settles what to do
    /// with the input.
    pub(crate) fn read_first_bytes(&mut self, input: Input<'_>, out: &mut Outbox) -> Option<usize> {
        if self.encryption == Encryption::Off {
            return None;
        }
        let Some([kind @ .., minor]) = input.bytes.first_chunk::<3>() else {
            out.need = 3;
            return Some(0);
        };
        match (std::mem::take(&mut self.encryption), *kind == TLS_HANDSHAKE && (1..=4).contains(minor)) {
            (_, true) => {
                out.push(Effect::StartTls { peer: Peer::Client(self.tag) });
                Some(0)
            }
            (Encryption::Off | Encryption::Allow, false) => None,
            (Encryption::Require, false) => {
                self.access.refuse_at_once("clients have to use TLS here");
                None
            }
        }
    }

    /// Answers the current request, unless it is unacknowledged.
    pub(crate) fn answer(&self, out: &mut Outbox, write: impl FnOnce(&mut Writer<'_>)) {
        if self.request.wants_answer() {
            out.insert(Peer::Client(self.tag), |to| wire::answer(to, self.request.answers(), write));
        }
    }

    pub(crate) fn send_failure(&self, failure: &Failure, out: &mut Outbox) {
        let request = &self.request;
        if request.wants_answer() {
            out.insert(Peer::Client(self.tag), |to| failure.append(to, request.answers(), request.error_label()));
        }
    }

    pub(crate) fn forget_route(&mut self) {
        self.wait = Wait::default();
        self.destination = Destination::default();
    }

    /// Discards the `left` bytes that are still to come of a request that has been answered.
    pub(crate) fn discard_rest(&mut self, left: usize) {
        self.state = if left == 0 { State::Idle } else { State::DiscardingRest { left } };
    }

    pub(crate) fn fail_malformed(&mut self, error: Malformed, out: &mut Outbox) {
        self.send_failure(&error.into(), out);
        self.close(CloseReason::Error(Blame::Client, error.to_string()), out);
    }

    pub(crate) fn close(&mut self, reason: CloseReason, out: &mut Outbox) {
        self.closing = true;
        out.push(Effect::Close { peer: Peer::Client(self.tag), reason });
    }

    pub(crate) fn on_answered(&mut self, out: &mut Outbox) -> Verdict {
        let verdict = match self.state {
            State::Sending { left, .. } => {
                self.state = State::DiscardingRest { left };
                // A checksum is left out: without it the server has the whole request.
                if left <= self.request.checksum_length() { Verdict::Clean } else { Verdict::Discard }
            }
            _ => {
                self.state = State::Idle;
                Verdict::Clean
            }
        };
        out.push(Effect::Standing { client: self.tag, standing: Standing::Idle });
        out.push(Effect::Wake { client: self.tag });
        verdict
    }

    /// Sends the error that ends the request: `first` if another host has answered with an error before, else
    /// `failure`.
    pub(crate) fn send_first_error(&self, first: Option<Vec<u8>>, failure: &Failure, out: &mut Outbox) {
        match first.filter(|_| self.request.wants_answer()) {
            Some(mut error) => out.insert(Peer::Client(self.tag), |to| to.append(&mut error)),
            None => self.send_failure(failure, out),
        }
    }

    /// The server's connection is lost. `begun`: the client has a part of the reply. `first`: an error of another host.
    pub(crate) fn on_server_lost(&mut self, begun: bool, first: Option<Vec<u8>>, out: &mut Outbox) {
        if begun {
            self.state = State::Idle;
            let text = "the server was lost in the middle of an answer".to_owned();
            return self.close(CloseReason::Error(Blame::Server, text), out);
        }
        let left = match self.state {
            State::Sending { left, .. } => left,
            _ => 0,
        };
        self.send_first_error(first, &Failure::server_lost(), out);
        self.discard_rest(left);
        out.push(Effect::Standing { client: self.tag, standing: Standing::Idle });
        out.push(Effect::Wake { client: self.tag });
    }
}
