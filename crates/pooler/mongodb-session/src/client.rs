//! A client's connection: who it is, where its request is, and what it is told.

use std::{sync::Arc, time::Duration};

use seam::{Blame, ClientTag, CloseReason, Effect, Encryption, Input, Outbox, Peer, ServerTag, Standing, Verdict};

use crate::{
    bson::{Malformed, Writer},
    chores::Belongings,
    command::Transaction,
    errors::{self, Code, Failure},
    login::Exchange,
    routes::{Goal, Named},
    selection::Wanted,
    streams::Waiting,
    wire::{self, Answers, Header, MORE_TO_COME, Op, Relayed},
};

/// A TLS handshake begins with these and the minor version, 1 to 4. As the length of a message that would be more than
/// 65,536 bytes, and a client begins with a greeting.
const TLS_HANDSHAKE: [u8; 2] = [0x16, 3];

pub struct Client {
    /// Tells what is posted to it from what was meant for another.
    pub(crate) key: u64,
    /// What it is told as its `connectionId`.
    pub(crate) number: i32,
    pub(crate) encryption: Encryption,
    /// It has to log in before it may ask for anything.
    pub(crate) stranger: bool,
    /// It counts towards a pool.
    pub(crate) counted: bool,
    /// It has been told that the connection ends.
    pub(crate) closing: bool,
    /// Why it is turned away, when it has asked for something.
    pub(crate) refused: Option<Refused>,
    /// It has only said `hello`.
    pub(crate) greeter: bool,
    /// It had, and has said a part of something.
    pub(crate) was_greeter: bool,
    /// Since when its request waits, for a host or for a server.
    pub(crate) since: Option<Duration>,
    /// Milliseconds of that for which it has waited for servers of hosts that were there.
    pub(crate) waited: u32,
    /// What its request wants of a host.
    pub(crate) wanted: Option<Arc<Wanted>>,
    /// Others may wait for the rest of its request.
    pub(crate) stalls: bool,
    pub(crate) user: Arc<str>,
    pub(crate) login: Option<Box<Exchange>>,
    pub(crate) state: State,
    pub(crate) request: Request,
    /// The cursors that it is about.
    pub(crate) cursors: Vec<Named>,
    /// What ends with it, if its driver believes in a load balancer.
    pub(crate) belongings: Option<Box<Belongings>>,
    /// It counts among those that wait for what others may write.
    pub(crate) waiting: Option<Waiting>,
    /// The hosts that are asked next for a cursor that nobody remembers.
    pub(crate) others: Vec<usize>,
    /// Its request goes to all hosts, and so much is answered.
    pub(crate) gathered: Option<Box<Gathered>>,
    /// The beginning of a request whose body is far behind; all of one that may have to be sent to another host.
    pub(crate) held: Vec<u8>,
}

/// What hosts have answered to a command that goes to all of them.
#[derive(Default, Debug)]
pub(crate) struct Gathered {
    /// The first answer that is an error, as a message.
    pub(crate) error: Option<Vec<u8>>,
}

/// When a client that is turned away hears of it.
#[derive(Debug)]
pub(crate) enum Refused {
    /// As the answer to the first thing that it says.
    AtOnce(Box<Failure>),
    /// As the answer to its first command behind `hello`: a driver that is refused a `hello` takes the server for gone,
    /// and closes all the connections that it has.
    BehindHello(Box<Failure>),
    /// The same behind its login, which a driver takes for a part of the handshake.
    BehindLogin(Box<Failure>),
}

impl Refused {
    pub(crate) fn why(&self) -> &Failure {
        match self {
            Self::AtOnce(why) | Self::BehindHello(why) | Self::BehindLogin(why) => why,
        }
    }
}

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

/// What has to be known of a request once its body has been read.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub(crate) header: Header,
    pub(crate) flags: u32,
    pub(crate) transaction: Transaction,
    pub(crate) commits: bool,
    /// It is a write that the server knows from its repetition.
    pub(crate) repeatable: bool,
    /// It opens a change stream, or it is about the next batch of a cursor, which may be one.
    pub(crate) follows: bool,
    pub(crate) goal: Goal,
    /// The session and the number of the transaction that it is about.
    pub(crate) of: Option<([u8; 16], i64)>,
    /// The host of the server that it was sent to.
    pub(crate) host: Option<usize>,
    /// A part of its answer is with the client.
    pub(crate) begun: bool,
    /// The answer is an error.
    pub(crate) failed: bool,
    /// The answer tells that its transaction is over, if it was to end that.
    pub(crate) over: bool,
    /// It asks whom it speaks with.
    pub(crate) greets: bool,
    /// The cursor that it opens is one whose batches are waited for.
    pub(crate) opens_stream: bool,
    /// It waits for what others may write.
    pub(crate) waits: bool,
    /// It has as many answers as there are.
    pub(crate) exhausts: bool,
    pub(crate) body_at: usize,
}

impl Request {
    /// The transaction that it begins, and the host that it was sent to, which has it also when its session begins
    /// another elsewhere.
    pub(crate) fn begins(&self) -> Option<([u8; 16], i64, usize)> {
        let (session, number) = self.of.filter(|_| self.transaction == Transaction::Begins)?;
        Some((session, number, self.host?))
    }

    pub(crate) fn new(header: Header, flags: u32) -> Self {
        let (transaction, goal) = (Transaction::None, Goal::Writable);
        let (repeatable, follows, of, host, begun, failed, body_at) = (false, false, None, None, false, false, 0);
        let (greets, opens_stream, waits, exhausts, commits, over) = (false, false, false, false, false, false);
        Self {
            header,
            flags,
            transaction,
            commits,
            repeatable,
            follows,
            goal,
            of,
            host,
            begun,
            failed,
            over,
            greets,
            opens_stream,
            waits,
            exhausts,
            body_at,
        }
    }

    pub(crate) fn answers(&self) -> Answers {
        Answers { id: self.header.id, old: self.header.op == Op::Query }
    }

    pub(crate) fn relayed(&self) -> Relayed {
        Relayed { length: self.header.length, flags: self.flags }
    }

    pub(crate) fn wants_answer(&self) -> bool {
        self.flags & MORE_TO_COME == 0
    }
}

impl Client {
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
                let failure = Failure::new(Code::Unauthorized, "Poolhouse: clients have to use TLS here");
                self.refused = Some(Refused::AtOnce(Box::new(failure)));
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

    pub(crate) fn tell_failure(&mut self, me: ClientTag, failure: &Failure, out: &mut Outbox) {
        let (request, label) = (self.request, self.label());
        if request.wants_answer() {
            out.insert(Peer::Client(me), |to| failure.append(to, request.answers(), label));
        }
    }

    /// A request is over, or was never sent anywhere: the next one begins its wait anew, and goes its own way.
    pub(crate) fn forget_wait(&mut self) {
        self.since = None;
        self.waited = 0;
        self.wanted = None;
        self.gathered = None;
        self.others = Vec::new();
        self.cursors = Vec::new();
    }

    /// What is still to come of a request that is dealt with is dropped.
    pub(crate) fn drop_rest(&mut self, left: usize) {
        self.state = if left == 0 { State::Idle } else { State::Dropping { left } };
    }

    pub(crate) fn fail_malformed(&mut self, me: ClientTag, error: Malformed, all: usize, out: &mut Outbox) -> usize {
        let failure = Failure::new(Code::FailedToParse, format!("Poolhouse: {error}"));
        self.tell_failure(me, &failure, out);
        self.close(me, CloseReason::Error(Blame::Client, error.to_string()), out);
        all
    }

    pub(crate) fn close(&mut self, me: ClientTag, reason: CloseReason, out: &mut Outbox) {
        self.closing = true;
        out.push(Effect::Close { peer: Peer::Client(me), reason });
    }

    /// The label of an error that its request ends with, if trying again is worthwhile.
    pub(crate) fn label(&self) -> Option<&'static str> {
        errors::label(self.request.transaction, self.request.repeatable, self.request.follows)
    }

    /// Whose it is, and the cursor that its request goes on with.
    pub(crate) fn reads_on(&self) -> (&Arc<str>, Option<Named>) {
        let named = self.cursors.first().copied();
        (&self.user, named)
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
    pub(crate) fn tell_first(&mut self, me: ClientTag, first: Option<Vec<u8>>, failure: &Failure, out: &mut Outbox) {
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
