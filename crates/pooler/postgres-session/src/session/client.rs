//! The state of a client's connection, and what every client does whatever its requests are.

use std::num::NonZeroU8;

use seam::{Blame, ClientTag, CloseReason, Effect, LeaseKind, Origin, Outbox, Peer, PoolId, ServerTag, Standing};

use crate::{
    directory::PoolMode,
    session::{
        client_login::Login,
        client_settings::ClientSettings,
        client_unnamed::ClientUnnamed,
        copy::CopyCandidates,
        entrance::Entrance,
        listen::{Listening, OUTDATED, post},
        partial_message::PartialMessage,
        pins::Pin,
        preface::Ahead,
        server::Server,
        server_unnamed::Owner,
        statements::ClientStatements,
        wording::{ErrorText, Occasion, Wording},
    },
    wire::{Report, Severity, code, write_ready},
};

/// The state of one client's connection. Small, since tens of thousands are idle; the state of a login is in a box.
pub struct Client {
    pub(crate) phase: Phase,
    pub(crate) standing: Standing,
    pub(crate) pool: PoolId,
    pub(crate) mode: PoolMode,
    pub(crate) entrance: Entrance,
    /// Proves the right to cancel the work of this client.
    pub(crate) secret: u64,
    pub(crate) lease: Option<ServerTag>,
    /// The current message, which goes to the server or nowhere.
    pub(crate) partial: PartialMessage,
    /// The client has received a part of a message of its server: nothing can be inserted now.
    pub(crate) mid_message: bool,

    /// The status of a ReadyForQuery that is kept back from the client.
    pub(crate) withheld_ready: Option<NonZeroU8>,

    // Its requests.
    /// The rest of a request that was answered with an error instead of being forwarded.
    pub(crate) skip: Skip,
    /// A Query or FunctionCall, which needs no Sync, has asked for the lease.
    pub(crate) asked_alone: bool,
    /// The next request waits for the answers to earlier ones.
    pub(crate) awaits_answers: bool,
    /// Statements of the client that may be a COPY.
    pub(crate) copies: CopyCandidates,
    /// A server was lost before it received anything of the present request.
    pub(crate) retried: bool,
    /// The next server must be one that no client has had.
    pub(crate) wants_unused: bool,

    // Of `features::pins`.
    pub(crate) pin: Option<Pin>,

    // Of `features::settings`.
    /// Known from the end of its login on.
    pub(crate) settings: Option<ClientSettings>,

    // Of `features::listen`.
    /// The channels that a hub listens to for this client.
    pub(crate) listening: Option<Box<Listening>>,
    // Of `features::sequences`, and of listeners in session mode.
    pub(crate) habits: Habits,

    // Of `features::prepared`.
    pub(crate) named: Option<Box<ClientStatements>>,
    pub(crate) unnamed: ClientUnnamed,

    // Of `features::preface`.
    /// Input that was sent ahead of the outcome of a preface.
    pub(crate) ahead: Ahead,
    /// Consecutive servers that failed to take the settings of the client.
    pub(crate) tries: u8,
}

pub(crate) enum Phase {
    Login(Box<Login>),
    /// Requests are handled as they come.
    Ready,
    /// A request got no server, and its end has not come yet. The number counts the bytes, from the next one on, that
    /// the client sent before it was told.
    Refused(u32),
    Waiting,
    /// The client's server answers queries of Poolhouse, or is about to be lost: the client's requests wait.
    ServerAtWork,
    /// The client waits for a hub that is to listen for it.
    Subscribing,
    /// The client has a dedicated server: messages go both ways as they come.
    Dedicated,
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Skip {
    Nothing,
    Message,
    /// Everything up to a Sync.
    ToSync,
}

/// What the texts of a client have shown of it for good.
#[derive(Clone, Copy, Default)]
pub(crate) struct Habits {
    pub(crate) asks_last_values: bool,
    /// The client listens on the server that it holds.
    pub(crate) listens_alone: bool,
}

impl Client {
    pub(crate) fn new(origin: Origin, wording: Wording) -> Self {
        Self {
            entrance: Entrance::new(origin.listener, wording),
            phase: Phase::Login(Box::new(Login::new(origin))),
            lease: None,
            settings: None,
            withheld_ready: None,
            named: None,
            pin: None,
            awaits_answers: false,
            wants_unused: false,
            copies: CopyCandidates::default(),
            habits: Habits::default(),
            listening: None,
            unnamed: ClientUnnamed::default(),
            pool: PoolId(u32::MAX),
            secret: 0,
            partial: PartialMessage::default(),
            mid_message: false,
            skip: Skip::Nothing,
            retried: false,
            ahead: Ahead::default(),
            tries: 0,
            asked_alone: false,
            mode: PoolMode::Transaction,
            standing: Standing::Login,
        }
    }

    pub(crate) fn settings(&self) -> &ClientSettings {
        self.settings.as_ref().expect("a client that is logged in has settings")
    }

    pub(crate) fn settings_mut(&mut self) -> &mut ClientSettings {
        self.settings.as_mut().expect("a client that is logged in has settings")
    }

    /// Sends the ReadyForQuery that was kept back, if one was.
    pub(crate) fn tell_ready(&mut self, me: ClientTag, out: &mut Outbox) {
        if let Some(status) = self.withheld_ready.take() {
            out.insert(Peer::Client(me), |to| write_ready(to, status.get()));
        }
    }

    /// A part of a message has been forwarded, and the server waits for the rest.
    pub(crate) fn owes_server(&self) -> bool {
        self.partial.is_awaited()
    }

    #[inline]
    pub(crate) fn stand(&mut self, me: ClientTag, standing: Standing, out: &mut Outbox) {
        if self.standing != standing && !matches!(self.phase, Phase::Closed) {
            self.standing = standing;
            let waits = standing == Standing::Idle && self.is_notified();
            out.push(Effect::Standing { client: me, standing: if waits { Standing::Subscribed } else { standing } });
            if standing == Standing::Idle && self.listening.is_some() {
                self.tell_pending(me, out);
            }
        }
    }

    /// Notifications may come for the client while it is idle.
    fn is_notified(&self) -> bool {
        self.listening.is_some() || self.habits.listens_alone || self.pin == Some(Pin::Listen)
    }

    /// Tells the client why and closes its connection. The driver releases its server through `client_gone`.
    pub(crate) fn fail(&mut self, me: ClientTag, report: &Report<'_>, blame: Blame, out: &mut Outbox) {
        if !self.mid_message {
            out.insert(Peer::Client(me), |to| report.write(to));
        }
        self.close(me, CloseReason::Error(blame, report.message.to_owned()), out);
    }

    /// As [`fail`](Self::fail), in the words that clients expect on this occasion.
    pub(crate) fn fail_for(
        &mut self,
        me: ClientTag,
        occasion: Occasion<'_>,
        ours: ErrorText,
        blame: Blame,
        out: &mut Outbox,
    ) {
        let ErrorText { code, message, hint } = self.entrance.wording().choose(occasion, ours);
        let report = Report { severity: Severity::Fatal, code: &code, message: &message, hint: &hint };
        self.fail(me, &report, blame, out);
    }

    pub(crate) fn close(&mut self, me: ClientTag, reason: CloseReason, out: &mut Outbox) {
        self.phase = Phase::Closed;
        out.push(Effect::Close { peer: Peer::Client(me), reason });
    }

    /// Closes the connection of a client that broke the protocol.
    pub(crate) fn close_for_violation(
        &mut self,
        me: ClientTag,
        occasion: Occasion<'_>,
        message: &str,
        out: &mut Outbox,
    ) {
        let hint = "The client and Poolhouse no longer agree where a message begins.";
        let ours = ErrorText::new(code::PROTOCOL_VIOLATION, message, hint);
        self.fail_for(me, occasion, ours, Blame::Client, out);
    }

    /// Answers the request that waits for a server with an error; the client stays. Its input is handed over again, so
    /// that the request is skipped.
    pub(crate) fn decline(&mut self, me: ClientTag, report: &Report<'_>, out: &mut Outbox) {
        assert!(matches!(self.phase, Phase::Waiting), "only a waiting request is declined");
        out.insert(Peer::Client(me), |to| report.write(to));
        self.skip = if self.asked_alone { Skip::Message } else { Skip::ToSync };
        self.phase = Phase::Ready;
        out.push(Effect::Wake { client: me });
    }

    /// The request for a lease, once: the wish for an unused server ends with it.
    pub(crate) fn take_lease_request(&mut self, me: ClientTag) -> Effect {
        let unused = std::mem::take(&mut self.wants_unused);
        let kind = if unused { LeaseKind::Fresh } else { LeaseKind::Exclusive };
        Effect::Lease { client: me, pool: self.pool, kind }
    }

    /// Identifies the client's unnamed statement at a server.
    #[inline]
    pub(crate) fn unnamed_owner(&self, me: ClientTag) -> Owner {
        Owner::new(me, self.secret, self.unnamed.version())
    }

    /// Whether a hub listens to this channel for the client.
    pub(crate) fn listens_to(&self, channel: &[u8]) -> bool {
        self.listening.as_ref().is_some_and(|listening| listening.channels.iter().any(|name| **name == *channel))
    }

    /// The transaction of the client has ended: notifications that waited for that are sent.
    #[cold]
    pub(crate) fn tell_pending(&mut self, me: ClientTag, out: &mut Outbox) {
        if let Some(listening) = &mut self.listening {
            let pending = std::mem::take(&mut listening.pending);
            out.insert(Peer::Client(me), |to| to.extend_from_slice(&pending));
            if std::mem::take(&mut listening.outdated) {
                post(me, listening.key, &[OUTDATED], out);
            }
        }
    }
}

/// Whether the server waits for more from the client, though a request is under way.
pub(crate) fn awaits_client(client: &Client, server: &Server) -> bool {
    matches!(client.phase, Phase::Ready)
        && server.work.is_none()
        && client.withheld_ready.is_none()
        && server.partial.is_complete()
        && server.exchange.awaits_client(client.owes_server())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_small() {
        assert!(size_of::<Client>() <= 120, "{}", size_of::<Client>());
    }

    // A server's session stays small, too.
    const _: () = assert!(size_of::<Server>() <= 664);
}
