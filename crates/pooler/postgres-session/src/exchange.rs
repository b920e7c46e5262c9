//! What a server still owes: the order of the requests forwarded to it, and which of its answers settles which. A
//! server may be given back only when it is settled. It knows neither bytes nor clients.
//!
//! Rules of PostgreSQL that it follows:
//! - Query, FunctionCall and Sync are each answered by one ReadyForQuery. Parse, Bind, Describe, Execute and Close
//!   are answered by one message each, and need a Sync in the end.
//! - After an error in one of these, the server discards everything up to the next Sync, queries included.
//! - In COPY IN, it takes data and nothing else: see `copying`.

mod copying;

use std::collections::VecDeque;

pub(crate) use copying::Admission;
use copying::Copying;

use crate::{
    sql::Tag,
    wire::{IDLE, back},
};

/// Most unanswered requests on one server.
pub(crate) const MAX_OUTSTANDING: usize = 1 << 20;

/// Entries of the queue whose memory is kept when a lease ends.
const KEPT_CAPACITY: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Item {
    /// A run of extended-protocol messages and the number of unanswered ones. It stays, at zero, until a Sync follows.
    Extended(u32),
    /// A message whose answer is not simply passed on.
    Noted(Note),
    Query,
    /// A Query that may begin a COPY IN.
    CopyQuery,
    /// An Execute that may begin a COPY IN; nothing follows it until the server has said whether it does.
    CopyExecute,
    Sync,
}

impl Item {
    /// A message of the extended protocol, or a run of them, which needs a Sync.
    fn is_extended(self) -> bool {
        matches!(self, Self::Extended(_) | Self::Noted(_) | Self::CopyExecute)
    }

    /// A ReadyForQuery answers it.
    fn ends_request(self) -> bool {
        !self.is_extended()
    }
}

/// What must be known of a Parse, Close, Describe or Execute when it is answered. The number is that of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// A Parse or Close by Poolhouse about the unnamed statement.
    Hidden,
    /// The client's Parse of the unnamed statement.
    Unnamed,
    /// A Parse by Poolhouse of a statement of ours.
    OurParse(u32),
    /// A Close by Poolhouse of a statement of ours.
    OurClose(u32),
    /// The client's Parse of a named statement, forwarded under our name.
    Parse(u32),
    /// The client's Parse of a statement that the server already has: a Close that does nothing was sent in its place.
    KnownParse,
    /// A DEALLOCATE that the server need not carry out: a Close of an unknown portal was sent in its place.
    Deallocated { all: bool },
    /// The client's Parse under a name that is taken: the server will refuse it.
    Taken,
    /// The client's Close of a statement that the server keeps for others.
    Close,
    /// A Parse, Bind or Close by Poolhouse about no statement of a client.
    Swallowed,
    /// The client's Describe whose answer is looked at.
    Described,
    /// A Describe by Poolhouse of a named statement.
    Probe,
    /// The client's Describe of the unnamed statement, with that statement's version.
    DescribedUnnamed(u32),
    /// A Describe by Poolhouse of the unnamed statement.
    ProbeUnnamed,
    /// An Execute by Poolhouse that fails, because the statement is not what its client was told.
    Stale,
    /// An Execute of a statement that the server got in an amended form.
    Amended(Tag),
}

#[derive(Debug)]
pub(crate) struct Exchange {
    queue: VecDeque<Item>,
    status: u8,
    copying: Copying,
    /// Messages of the extended protocol at the end of the queue that no Flush has followed: PostgreSQL may keep back
    /// their answers.
    unflushed: u32,
    /// The server discards all messages until a Sync that has not been forwarded yet.
    skipping: bool,
    /// An answer other than ReadyForQuery has come that a held-back message may wait for.
    progressed: bool,
    /// Notes of requests that will never be answered, oldest first.
    discarded: Vec<Note>,
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            status: IDLE,
            copying: Copying::No,
            unflushed: 0,
            skipping: false,
            progressed: false,
            discarded: Vec::new(),
        }
    }

    /// Notes of requests that the server has discarded since they were taken last, oldest first.
    pub(crate) fn discarded(&self) -> &[Note] {
        &self.discarded
    }

    pub(crate) fn take_discarded(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.discarded)
    }

    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// A query of Poolhouse has failed within the open transaction, and the transaction with it.
    pub(crate) fn note_failed_transaction(&mut self) {
        self.status = b'E';
    }

    /// Neither side owes anything. A transaction may still be open: see [`Exchange::status`].
    pub(crate) fn is_settled(&self) -> bool {
        self.queue.is_empty() && !self.skipping
    }

    /// Answers are awaited, and the next message begins a new request.
    pub(crate) fn is_between_requests(&self) -> bool {
        !self.skipping && self.queue.back().is_some_and(|item| item.ends_request())
    }

    /// Whether an error came, or a COPY began or ended, since the last call: a held-back message may have waited for
    /// that. ReadyForQuery does not count.
    #[inline]
    pub(crate) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progressed)
    }

    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// The only messages under way are one pipeline of `count` messages, outside a transaction, and none is answered.
    pub(crate) fn is_only_pipeline(&self, count: u32) -> bool {
        let mut left = count;
        let behind = self.queue.iter().skip_while(|item| match item {
            Item::Extended(some) => left.checked_sub(*some).map(|rest| left = rest).is_some(),
            Item::Noted(Note::Described) => left.checked_sub(1).map(|rest| left = rest).is_some(),
            _ => false,
        });
        self.status == IDLE && behind.eq(&[Item::Sync]) && left == 0
    }

    /// The server is executing requests of its client.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.queue.front(), None | Some(Item::Extended(0))) || self.queue.len() > 1
    }

    /// Whether the server sends nothing until more comes. `partly`: a part of the last message is still to come.
    pub(crate) fn awaits_client(&self, partly: bool) -> bool {
        match self.copying {
            Copying::Taking { broken, .. } => return !broken,
            Copying::Possible { asked: true } => return false,
            Copying::Possible { asked: false } | Copying::No => {}
        }
        let Some(last) = self.queue.back() else { return true };
        if last.ends_request() {
            return partly && self.queue.len() == 1;
        }
        let mut unanswered = 0;
        for item in &self.queue {
            match item {
                Item::Extended(count) => unanswered += count,
                Item::Noted(_) | Item::CopyExecute => unanswered += 1,
                Item::Query | Item::CopyQuery | Item::Sync => return false,
            }
        }
        unanswered <= self.unflushed
    }

    /// The request that is being answered is of the extended protocol.
    pub(crate) fn answers_extended(&self) -> bool {
        self.queue.front().is_some_and(|item| item.is_extended())
    }

    /// The next message meets no failed transaction when it is carried out: none has failed yet, and no unanswered
    /// request ends with a ReadyForQuery, so a failure of one has the server skip the next message, too.
    pub(crate) fn next_meets_no_failure(&self) -> bool {
        self.status != b'E' && self.queue.iter().all(|item| item.is_extended())
    }

    /// Nothing follows the Query, or the messages up to a Sync, that is being answered.
    pub(crate) fn is_on_last_request(&self) -> bool {
        self.queue.iter().skip_while(|item| item.is_extended()).count() <= 1
    }

    /// No further request may be forwarded.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_OUTSTANDING
    }

    /// Frees memory at the end of a lease.
    pub(crate) fn shrink(&mut self) {
        if self.queue.capacity() > KEPT_CAPACITY {
            self.queue.shrink_to(KEPT_CAPACITY);
        }
    }

    #[inline]
    pub(crate) fn enter_query(&mut self) {
        self.unflushed = 0;
        if !self.skipping {
            self.queue.push_back(Item::Query);
        }
    }

    #[inline]
    pub(crate) fn enter_sync(&mut self) {
        (self.skipping, self.unflushed) = (false, 0);
        self.queue.push_back(Item::Sync);
    }

    #[inline]
    pub(crate) fn enter_flush(&mut self) {
        self.unflushed = 0;
    }

    /// A Parse, Bind, Describe, Execute or Close is forwarded.
    #[inline]
    pub(crate) fn enter_extended(&mut self) {
        if self.skipping {
            return;
        }
        self.unflushed = self.unflushed.saturating_add(1);
        if let Some(Item::Extended(count)) = self.queue.back_mut() {
            *count += 1;
        } else {
            self.queue.push_back(Item::Extended(1));
        }
    }

    /// A message is forwarded whose answer matters.
    pub(crate) fn note(&mut self, note: Note) {
        assert!(!self.skipping, "what the server discards is not noted");
        self.unflushed = self.unflushed.saturating_add(1);
        self.queue.push_back(Item::Noted(note));
    }

    /// The server sent a message of this type that is neither ReadyForQuery nor asynchronous. Returns the note of the
    /// request that it answers.
    #[inline]
    pub(crate) fn answered(&mut self, kind: u8) -> Option<Note> {
        match kind {
            back::PARSE_COMPLETE
            | back::BIND_COMPLETE
            | back::CLOSE_COMPLETE
            | back::NO_DATA
            | back::ROW_DESCRIPTION
            | back::PORTAL_SUSPENDED
            | back::EMPTY_QUERY_RESPONSE
            | back::COMMAND_COMPLETE => self.settle_front(),
            _ => None,
        }
    }

    /// The Describe that is being answered, if its answer is looked at.
    #[inline]
    pub(crate) fn describing(&mut self) -> Option<Note> {
        self.advance();
        match self.queue.front()? {
            Item::Noted(note @ (Note::Described | Note::Probe | Note::DescribedUnnamed(_) | Note::ProbeUnnamed)) => {
                Some(*note)
            }
            _ => None,
        }
    }

    /// The server sent an ErrorResponse. Returns the number of Syncs, kept back during a COPY, that must be sent now.
    pub(crate) fn enter_error(&mut self) -> u32 {
        self.advance();
        self.progressed = true;
        if self.answers_extended() {
            let end = self.queue.iter().position(|&item| item == Item::Sync).unwrap_or(self.queue.len());
            self.discard(0..=end - 1);
            self.skipping = self.queue.is_empty();
        }
        // A request that may begin a COPY is the last one. It is still to be answered if it is not at the front.
        let pending = match self.queue.back() {
            Some(Item::CopyQuery) => self.queue.len() > 1,
            Some(Item::CopyExecute) => true,
            _ => false,
        };
        if pending { 0 } else { self.end_copying() }
    }

    /// The server sent a ReadyForQuery. False if no request can be answered by it.
    #[inline]
    pub(crate) fn enter_ready(&mut self, status: u8) -> bool {
        self.status = status;
        self.advance();
        match self.queue.front() {
            Some(Item::Query | Item::Sync) => _ = self.queue.pop_front(),
            Some(Item::CopyQuery) => {
                self.queue.pop_front();
                if self.queue.is_empty() {
                    self.copying = Copying::No;
                }
            }
            Some(Item::Extended(_) | Item::Noted(_) | Item::CopyExecute) => {
                // The server has answered less than was asked, but it says that it is ready.
                let Some(end) = self.queue.iter().position(|item| item.ends_request()) else { return false };
                self.discard(0..=end);
            }
            None => return false,
        }
        self.advance();
        true
    }

    /// None of the requests under way will be answered.
    pub(crate) fn abandon(&mut self) {
        if !self.queue.is_empty() {
            self.discard(0..=self.queue.len() - 1);
        }
        (self.skipping, self.copying) = (false, Copying::No);
    }

    /// Removes requests that the server has discarded.
    fn discard(&mut self, range: std::ops::RangeInclusive<usize>) {
        let noted = |item| if let Item::Noted(note) = item { Some(note) } else { None };
        self.discarded.extend(self.queue.drain(range).filter_map(noted));
    }

    /// The request at the front is answered. Returns its note.
    #[inline]
    fn settle_front(&mut self) -> Option<Note> {
        self.advance();
        match self.queue.front_mut()? {
            Item::Extended(count) => *count = count.saturating_sub(1),
            item => match *item {
                Item::Noted(note) => {
                    *item = Item::Extended(0);
                    return Some(note);
                }
                Item::CopyExecute => {
                    *item = Item::Extended(0);
                    self.end_copying();
                }
                _ => {}
            },
        }
        None
    }

    /// Removes answered runs from the front.
    #[inline]
    fn advance(&mut self) {
        // The last run still wants a Sync.
        while self.queue.front() == Some(&Item::Extended(0)) && self.queue.len() > 1 {
            self.queue.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
