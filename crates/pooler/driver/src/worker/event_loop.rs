//! The loop of a worker, in parts: a worker with a thread of its own runs through all of them; the caller of a
//! [`SteppedWorkers`](crate::SteppedWorkers) calls each when it likes.

use std::{io, time::Duration};

use seam::Protocol;

use super::{Worker, calls::Source};
use crate::reactor::Reactor;

/// The longest a worker sleeps; time-outs are this exact.
pub(crate) const TICK: Duration = Duration::from_millis(20);
/// Messages handled before the reactor gets its turn.
const MAX_MAIL: usize = 256;

/// For how long a worker may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    /// Nothing is left to be done.
    pub(crate) permitted: bool,
    pub(crate) at_most: Option<Duration>,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Works on a thread of its own until told to stop, or drained.
    pub(crate) fn run(mut self) -> io::Result<()> {
        self.sharing.prepare_thread();
        while let Some(sleep) = self.get_ready() {
            self.wait(sleep)?;
            while self.handle_next() {}
            self.handle_mail();
        }
        Ok(())
    }

    /// Begins a turn: does what time has made due, and says how long there may be a wait now. `None`: the worker has
    /// ended.
    ///
    /// A turn goes on with [`wait`](Self::wait), with [`handle_next`](Self::handle_next) until there is nothing left,
    /// and ends with [`handle_mail`](Self::handle_mail).
    pub(crate) fn get_ready(&mut self) -> Option<Sleep> {
        self.now = self.process.clock.now();
        if self.has_stopped() {
            self.publish();
            return None;
        }
        if self.now >= self.next_tick {
            self.on_tick();
            self.handle_tick();
            self.settle();
            self.flush();
            // A little early, so that the timer's next tick is not just missed.
            self.next_tick = self.now + TICK / 4 * 3;
        }
        if self.server_deadlines.next_soiled().is_some() {
            self.clean_soiled();
            self.settle();
            self.flush();
        }
        if !self.flushed_clients.is_empty() {
            self.notify_flushed_clients();
            self.flush();
        }
        self.publish();
        if self.has_drained() {
            return None;
        }
        self.sharing.pause(self.now);
        let permitted = self.mail.is_empty()
            && self.flushed_clients.is_empty()
            && self.shared.mailboxes[usize::from(self.number)].announce_sleep();
        let at_most = self.server_deadlines.next_soiled().map(|due| due.since(self.now));
        Some(Sleep { permitted, at_most })
    }

    /// Waits until something happens.
    pub(crate) fn wait(&mut self, sleep: Sleep) -> io::Result<()> {
        self.reactor.wait(sleep.permitted, sleep.at_most)?;
        self.shared.mailboxes[usize::from(self.number)].end_sleep();
        Ok(())
    }

    /// Handles one completion; false if there was none.
    pub(crate) fn handle_next(&mut self) -> bool {
        let Some(completion) = self.reactor.next() else { return false };
        self.now = self.process.clock.now();
        self.handle_completion(completion);
        self.settle();
        true
    }

    /// Ends a turn with what others have written.
    pub(crate) fn handle_mail(&mut self) {
        self.flush();
        self.now = self.process.clock.now();
        self.shared.mailboxes[usize::from(self.number)].take(&mut self.mail);
        for _ in 0..MAX_MAIL {
            let Some(message) = self.mail.pop_front() else { break };
            self.handle_message(message);
            self.settle();
        }
        self.flush();
        self.settle();
    }

    /// Tells sessions that all has left that was sent. What they send then has its turn beside what others do.
    fn notify_flushed_clients(&mut self) {
        for client in std::mem::take(&mut self.flushed_clients) {
            let slot = client.slot as usize;
            if self.client_is(client) && !self.clients[slot].life.is_closing() {
                self.call_client(slot, Source::NONE, |protocol, tag, session, out| {
                    protocol.client_flushed(tag, session, out);
                });
                self.settle();
            }
        }
    }
}
