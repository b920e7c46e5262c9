//! The two kinds of connections that the virtual driver holds, with all bytes under way in either direction. They move
//! bytes in random pieces; what the bytes mean is not known here.

use std::collections::{BTreeSet, VecDeque};

use pool::{ServerId, Ticket, Time};
use protocol::{ClientTag, LeaseKind, Peer, ServerTag, Standing, Verdict};

use super::{app::App, upstream::Upstream};
use crate::random::Rng;

/// A lease that a client has asked for and not got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asking {
    /// Of which pool.
    pub pool: usize,
    /// How.
    pub kind: LeaseKind,
    /// Under which number the pool knows it (exclusive only).
    pub waiter: u64,
    /// Its place in the queue; `None` when the answer is on its way already, or for a shared lease.
    pub ticket: Option<Ticket>,
    /// Since when.
    pub since: Time,
}

/// Who stands behind a waiter of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asker {
    /// A client, by tag and serial.
    Client(ClientTag, u64),
    /// Those who share, of a worker and a pool.
    Mux(u8, usize),
}

impl Asker {
    /// Where it waits.
    pub fn worker(self) -> u8 {
        match self {
            Self::Client(tag, _) => tag.worker(),
            Self::Mux(worker, _) => worker,
        }
    }
}

/// The states a client is counted in, which decide who is sent away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is being closed.
    Closing,
    /// It has not logged in.
    Login,
    /// It waits for a server.
    Waiting,
    /// It has nothing in progress, and may be sent away.
    Idle,
    /// It has something in progress.
    Busy,
}

/// A client's connection.
pub struct ClientConn<S> {
    /// The session; `None` when it has gone and only bytes for the application are left.
    pub session: Option<S>,
    /// Unique in the schedule, unlike the tag.
    pub serial: u64,
    /// Received, not consumed.
    pub input: Vec<u8>,
    /// To be sent.
    pub output: VecDeque<u8>,
    /// What it waits for.
    pub asking: Vec<Asking>,
    /// The servers that it holds for itself.
    pub holds: BTreeSet<ServerTag>,
    /// Where its session says that it stands.
    pub standing: Standing,
    /// What it is counted as.
    pub state: State,
    /// Its number as a waiter, until an answer to it may cross a withdrawal.
    pub waiter: u64,
    /// The pool it logged in to.
    pub pool: usize,
    /// The application is no more.
    pub dead: bool,
    /// It gets no more input.
    pub closing: bool,
    /// Its input waits until this peer has taken what is due to it.
    pub blocked: Option<Peer>,
    /// A step is on the agenda.
    pub stirred: bool,
    /// The application.
    pub app: App,
}

/// What a server is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Its start-up runs.
    Starting,
    /// In the pool.
    Idle,
    /// Lent to one client.
    Lent(ClientTag),
    /// Shared by the clients of a worker.
    Shared,
    /// A reset or a check runs.
    Cleaning,
    /// Given back, but a side connection still concerns it.
    Withheld(Verdict),
}

/// A server's connection.
pub struct ServerConn<S> {
    /// The session.
    pub session: Option<S>,
    /// Unique in the schedule, unlike the tag.
    pub serial: u64,
    /// Its name in the pool.
    pub id: ServerId,
    /// Its pool.
    pub pool: usize,
    /// What it is doing.
    pub usage: Use,
    /// Received, not consumed.
    pub input: Vec<u8>,
    /// How much has ever been consumed.
    pub consumed: u64,
    /// To be sent.
    pub output: VecDeque<u8>,
    /// Side connections that concern it.
    pub sides: u32,
    /// A side connection got lost and may still arrive: it must not be lent again.
    pub tainted: bool,
    /// Its end has been seen, and is dealt with presently.
    pub ending: bool,
    /// The database has ended it; its worker does not know yet.
    pub broken: bool,
    /// Its client keeps it beyond its transaction.
    pub pinned: bool,
    /// The database at the other end does nothing until then.
    pub frozen_until: Time,
    /// Its input waits until this peer has taken what is due to it.
    pub blocked: Option<Peer>,
    /// A step is on the agenda.
    pub stirred: bool,
    /// Who used it last, by serial.
    pub user: u64,
    /// The database at the other end.
    pub upstream: Upstream,
}

/// How bytes are cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The most bytes that move at a time.
    pub most: u64,
    /// The most input that a connection holds.
    pub input: usize,
    /// With more output than this a connection blocks whoever feeds it.
    pub output: usize,
}

impl Cut {
    fn piece(&self, available: usize, rng: &mut Rng) -> usize {
        if available == 0 { 0 } else { rng.within(1..=self.most).min(available as u64) as usize }
    }

    /// Moves a random piece from one place to the end of another; returns its length.
    pub fn receive(&self, from: &mut VecDeque<u8>, to: &mut Vec<u8>, rng: &mut Rng) -> usize {
        let room = self.input.saturating_sub(to.len());
        let n = self.piece(from.len().min(room), rng);
        to.extend(from.drain(..n));
        n
    }

    /// Takes a random piece.
    pub fn take(&self, from: &mut VecDeque<u8>, rng: &mut Rng) -> Vec<u8> {
        let n = self.piece(from.len(), rng);
        from.drain(..n).collect()
    }
}

impl<S> ClientConn<S> {
    /// What it is to be counted as.
    pub fn state(&self) -> State {
        match (self.closing, self.standing) {
            (true, _) => State::Closing,
            (_, Standing::Login) => State::Login,
            _ if !self.asking.is_empty() => State::Waiting,
            (_, Standing::Idle) => State::Idle,
            _ => State::Busy,
        }
    }

    /// Something can move.
    pub fn can_step(&self, cut: &Cut) -> bool {
        let input = !self.closing && !self.app.written.is_empty() && self.input.len() < cut.input;
        input || !self.output.is_empty() || self.session.is_none()
    }
}

impl<S> ServerConn<S> {
    /// Something can move.
    pub fn can_step(&self, cut: &Cut) -> bool {
        let input = !self.upstream.sent.is_empty() && self.input.len() < cut.input;
        input || !self.output.is_empty() || self.upstream.has_work()
    }

    /// It may be given to a client.
    pub fn check_lendable(&self) {
        assert_eq!(self.usage, Use::Idle, "a server is lent that is not idle");
        assert!(!self.tainted, "a server is lent that a lost cancel request may still hit");
        self.check_untouched("grant");
    }

    /// It owes nobody anything: no byte is under way in either direction, and the database has nothing to do.
    pub fn is_quiet(&self) -> bool {
        self.input.is_empty() && self.output.is_empty() && self.upstream.is_quiet()
    }

    /// Nothing of a client is left in it.
    pub fn check_untouched(&self, when: &str) {
        self.upstream.check_untouched(self.consumed, self.output.len(), when);
    }
}
