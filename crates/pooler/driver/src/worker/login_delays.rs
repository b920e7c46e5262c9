//! Logins from addresses that guess passwords: clients wait for their turn, and answers to failures are kept back for a
//! while.

use std::collections::VecDeque;

use pool::Time;
use seam::{CloseReason, Protocol, Refusal};

use super::{Work, Worker, timeout_queues::Queue};
use crate::{
    client_state::State,
    mailbox::Admission,
    reactor::{Data, Reactor},
    throttle,
};

/// Bytes of a kept-back answer to a failed login.
const MAX_DELAYED_ANSWER: usize = 4096;

/// The logins of a worker that are delayed.
#[derive(Default)]
pub(super) struct LoginDelays {
    answers: VecDeque<DelayedAnswer>,
    /// Clients that wait for their turn to log in, by slot and serial number.
    turns: Vec<(u32, u32)>,
}

impl LoginDelays {
    /// The next answer that is to be given now.
    fn take_due(&mut self, now: Time) -> Option<DelayedAnswer> {
        let is_due = self.answers.front().is_some_and(|delayed| delayed.until <= now);
        if is_due { self.answers.pop_front() } else { None }
    }
}

/// The answer to a failed login, which is kept back for a while.
struct DelayedAnswer {
    client: u32,
    serial: u32,
    until: Time,
    bytes: Vec<u8>,
}

/// Where a client stands that logs in from an address that fails too often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LoginTurn {
    /// It may go on, unless it is asked about again.
    Free,
    /// Its input is held back until it is its turn.
    Awaited,
    /// The client has waited for too long, and its input is handed on, so that it can be told so.
    Waived,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    // ---- turns ----

    /// Whether the client must wait for its turn to log in.
    pub(super) fn awaits_turn(&mut self, slot: usize) -> bool {
        if self.clients[slot].state != State::Login || self.process.throttle.is_quiet() {
            return false;
        }
        let address = self.client_ip(slot);
        let client = &mut self.clients[slot];
        if client.turn == LoginTurn::Waived || client.admission != Admission::Admitted {
            return false;
        }
        if self.process.throttle.try_take_turn(address, &mut client.login_ticket, self.now) {
            client.turn = LoginTurn::Free;
            return false;
        }
        if client.turn == LoginTurn::Free {
            client.turn = LoginTurn::Awaited;
            self.login_delays.turns.push((slot as u32, client.serial));
        }
        true
    }

    /// Hands on the input of clients whose turn it is.
    pub(super) fn resume_turns(&mut self) {
        for (client, serial) in std::mem::take(&mut self.login_delays.turns) {
            if self.client_is(client, serial) && self.clients[client as usize].turn == LoginTurn::Awaited {
                self.clients[client as usize].turn = LoginTurn::Free;
                // It is queued again if it still has to wait.
                self.feed(client as usize);
            }
        }
    }

    /// The client's login is over, well or not: others may have its turn.
    pub(super) fn end_turn(&mut self, slot: usize) {
        if let Some(ticket) = self.clients[slot].login_ticket.take() {
            self.process.throttle.left(*ticket);
        }
    }

    /// The client's turn did not come within the time for a login. Its session tells it so when the client can
    /// understand that.
    pub(super) fn give_up_turn(&mut self, slot: usize) {
        self.end_turn(slot);
        let client = &mut self.clients[slot];
        client.turn = LoginTurn::Waived;
        let listener = usize::from(client.listener);
        if let Some(entry) = client.queued.take() {
            self.queues.leave(client.listener, entry);
        }
        client.queued = Some(self.queues.join(client.listener, Queue::Login, slot, self.now));
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
        self.work.push_back(Work::LoginFailed { client: slot as u32, serial: self.clients[slot].serial });
        let address = self.client_ip(slot);
        let ticket = self.clients[slot].login_ticket.take().map(|ticket| *ticket);
        if !self.process.throttle.failed(address, ticket, self.now) {
            return;
        }
        let client = &mut self.clients[slot];
        client.muted = true;
        let (serial, until) = (client.serial, self.now + throttle::FAILURE_DELAY);
        self.login_delays.answers.push_back(DelayedAnswer { client: slot as u32, serial, until, bytes: Vec::new() });
    }

    pub(super) fn delay_answer(&mut self, slot: usize, data: &Data<'_>) {
        let bytes = data.bytes();
        let serial = self.clients[slot].serial;
        if let Some(delayed) =
            self.login_delays.answers.iter_mut().rev().find(|d| d.client as usize == slot && d.serial == serial)
            && delayed.bytes.len() + bytes.len() <= MAX_DELAYED_ANSWER
        {
            delayed.bytes.extend_from_slice(bytes);
        }
    }

    /// Gives the kept-back answers whose time has come.
    pub(super) fn answer_delayed(&mut self) {
        while let Some(delayed) = self.login_delays.take_due(self.now) {
            if !self.client_is(delayed.client, delayed.serial) {
                continue;
            }
            let slot = delayed.client as usize;
            self.clients[slot].muted = false;
            let _ = self.reactor.send(self.clients[slot].conn, Data::Bytes(&delayed.bytes));
            if self.clients[slot].life.is_closing() {
                self.linger_or_remove(slot);
            }
        }
    }
}
