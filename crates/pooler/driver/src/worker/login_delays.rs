//! Logins from addresses that guess passwords: clients wait for their turn, and answers to failures are delayed for a
//! while.

use std::collections::VecDeque;

use pool::Time;
use seam::{CloseReason, Protocol, Refusal};

use super::{ClientWork, Worker, timeout_queues::Queue};
use crate::{
    client_state::State,
    mailbox::ClientKey,
    reactor::{Data, Reactor},
    throttle::{self, Comer},
};

/// Bytes of a delayed answer to a failed login.
const MAX_DELAYED_ANSWER: usize = 4096;

#[derive(Default)]
pub(super) struct LoginDelays {
    answers: VecDeque<DelayedAnswer>,
    /// Clients that wait for their turn to log in.
    turns: Vec<ClientKey>,
}

impl LoginDelays {
    /// The next answer that is to be given now.
    fn take_due(&mut self, now: Time) -> Option<DelayedAnswer> {
        let is_due = self.answers.front().is_some_and(|delayed| delayed.until <= now);
        if is_due { self.answers.pop_front() } else { None }
    }
}

/// The answer to a failed login, which is delayed for a while.
struct DelayedAnswer {
    client: ClientKey,
    until: Time,
    bytes: Vec<u8>,
}

/// What a client's login waits for, if passwords are guessed from its address.
#[derive(Default)]
pub(super) struct LoginDelay {
    turn: LoginTurn,
    /// The answer to the client's failed login is delayed.
    answer_delayed: bool,
}

impl LoginDelay {
    pub(super) fn awaits_turn(&self) -> bool {
        self.turn == LoginTurn::Awaited
    }

    pub(super) fn is_answer_delayed(&self) -> bool {
        self.answer_delayed
    }
}

/// Whether a client may go on with its login.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum LoginTurn {
    /// The client may go on, unless the throttle is asked again and says otherwise.
    #[default]
    Free,
    /// The client's input waits until it is the client's turn.
    Awaited,
    /// The client has waited for too long, and its input is handed on, so that it can be told so.
    Waived,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    // ---- turns ----

    /// Asks the throttle for the client's turn to log in. True if the client has to wait; then it is queued.
    pub(super) fn queue_for_login_turn(&mut self, slot: usize) -> bool {
        if self.clients[slot].state != State::Login || self.process.throttle.has_no_failures() {
            return false;
        }
        let address = self.client_ip(slot);
        let client = &mut self.clients[slot];
        // A client that is only told that there is no room proves nothing.
        let goes = !client.places.is_admitted() && client.log.login.is_none();
        if client.login.turn == LoginTurn::Waived || goes {
            return false;
        }
        let comer = Comer { address, user: client.log.login_user() };
        if self.process.throttle.try_take_turn(comer, &mut client.login_ticket, self.now) {
            client.login.turn = LoginTurn::Free;
            return false;
        }
        if client.login.turn == LoginTurn::Free {
            client.login.turn = LoginTurn::Awaited;
            let key = self.client_key(slot);
            self.login_delays.turns.push(key);
        }
        true
    }

    /// Hands on the input of clients whose turn it is.
    pub(super) fn resume_turns(&mut self) {
        for client in std::mem::take(&mut self.login_delays.turns) {
            let slot = client.slot as usize;
            if self.client_is(client) && self.clients[slot].login.turn == LoginTurn::Awaited {
                self.clients[slot].login.turn = LoginTurn::Free;
                // The client is queued again if it still has to wait.
                self.feed(slot);
            }
        }
    }

    /// The client's login is over, well or not: others may have its turn.
    pub(super) fn end_turn(&mut self, slot: usize) {
        if let Some(ticket) = self.clients[slot].login_ticket.take() {
            self.process.throttle.end_turn(*ticket);
        }
    }

    /// The client's turn did not come within the time for a login. Its session tells it so when the client can
    /// understand that.
    pub(super) fn give_up_turn(&mut self, slot: usize) {
        self.end_turn(slot);
        let client = &mut self.clients[slot];
        client.login.turn = LoginTurn::Waived;
        let listener = usize::from(client.listener);
        self.queues.leave(client.listener, &mut client.queued);
        self.queues.join(client.listener, &mut client.queued, Queue::Login, slot, self.now);
        self.process.listeners[listener].count_throttled();
        let told = self.send_refusal(slot, Refusal::Throttled { retry_after: throttle::FAILURE_DELAY });
        if told && !self.clients[slot].life.is_closing() {
            self.push_close(slot, CloseReason::Done);
        } else {
            self.push_feed(slot);
        }
    }

    // ---- answers ----

    pub(super) fn on_auth_failed(&mut self, slot: usize) {
        self.push_client_work(slot, ClientWork::LoginFailed);
        let address = self.client_ip(slot);
        let ticket = self.clients[slot].login_ticket.take().map(|ticket| *ticket);
        let comer = Comer { address, user: self.clients[slot].log.login_user() };
        if !self.process.throttle.note_failure(comer, ticket, self.now) {
            return;
        }
        self.clients[slot].login.answer_delayed = true;
        let (client, until) = (self.client_key(slot), self.now + throttle::FAILURE_DELAY);
        self.login_delays.answers.push_back(DelayedAnswer { client, until, bytes: Vec::new() });
    }

    pub(super) fn delay_answer(&mut self, slot: usize, data: &Data<'_>) {
        let bytes = data.bytes();
        let client = self.client_key(slot);
        if let Some(delayed) = self.login_delays.answers.iter_mut().rev().find(|delayed| delayed.client == client)
            && delayed.bytes.len() + bytes.len() <= MAX_DELAYED_ANSWER
        {
            delayed.bytes.extend_from_slice(bytes);
        }
    }

    /// Sends the delayed answers whose time has come.
    pub(super) fn answer_delayed(&mut self) {
        while let Some(delayed) = self.login_delays.take_due(self.now) {
            if !self.client_is(delayed.client) {
                continue;
            }
            let slot = delayed.client.slot as usize;
            self.clients[slot].login.answer_delayed = false;
            let _ = self.reactor.send(self.clients[slot].conn, Data::Bytes(&delayed.bytes));
            if self.clients[slot].life.is_closing() {
                self.linger_or_remove(slot);
            }
        }
    }
}
