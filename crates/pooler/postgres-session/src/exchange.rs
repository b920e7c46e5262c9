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
    sql::reset::Tag,
    wire::message::{IDLE, back},
};

/// Most requests without an answer on one server.
pub(crate) const MAX_OUTSTANDING: usize = 1 << 20;

/// Entries of the queue whose memory is kept when the server is given back.
const KEPT_CAPACITY: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Item {
    /// A run of extended-protocol messages, and how many are unanswered. It stays, at zero, until a Sync follows.
    Extended(u32),
    /// A Parse or Close whose answer is not simply passed on.
    Noted(Note),
    /// A Query or FunctionCall.
    Query,
    /// A Query that may begin a COPY IN.
    CopyQuery,
    /// An Execute that may begin one; nothing is behind it until it is known whether it does.
    CopyExecute,
    Sync,
}

impl Item {
    /// It is a message of the extended protocol, or several, and needs a Sync.
    fn is_extended(self) -> bool {
        matches!(self, Self::Extended(_) | Self::Noted(_) | Self::CopyExecute)
    }

    /// It is answered by a ReadyForQuery.
    fn ends(self) -> bool {
        !self.is_extended()
    }
}

/// What is to be known of a Parse, Close, Describe or Execute when it is answered. The number is that of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// A Parse or Close of ours about the unnamed statement.
    Hidden,
    /// A Parse of the client's of the unnamed statement.
    Unnamed,
    OwnParse(u32),
    OwnClose(u32),
    /// A Parse of the client's.
    Parse(u32),
    /// A Parse of the client's that the server need not see: it was sent something that is answered by CloseComplete.
    KnownParse,
    /// A DEALLOCATE of what the server need not forget: it was sent something that is answered by CloseComplete.
    Deallocated {
        all: bool,
    },
    /// A Parse of the client's under a name that is taken: the server will refuse it.
    Taken,
    /// A Close of the client's of a statement that the server keeps.
    Close,
    /// A Parse, Bind or Close of ours, of a statement that no client has.
    Swallowed,
    /// A Describe of the client's whose answer is looked at.
    Described,
    Probe,
    /// The same of the unnamed statement, and which of the client's that is.
    DescribedUnnamed(u32),
    ProbeUnnamed,
    /// An Execute of ours that fails, since a statement is not what the client was told.
    Stale,
    /// An Execute of a statement that the server has in another form.
    Amended(Tag),
}

/// The requests outstanding on one server.
#[derive(Debug)]
pub(crate) struct Exchange {
    queue: VecDeque<Item>,
    /// The status of the last ReadyForQuery.
    status: u8,
    copying: Copying,
    /// The queue ends with this many messages of the extended protocol that no Flush has followed: PostgreSQL may keep
    /// back their answers.
    unflushed: u32,
    /// The server discards everything until a Sync that has not been forwarded yet.
    skipping: bool,
    /// Something was answered that a held-back message may wait for, besides ReadyForQuery.
    moved: bool,
    /// What was noted of requests that will never be answered, oldest first.
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
            moved: false,
            discarded: Vec::new(),
        }
    }

    /// What was noted of requests that the server has discarded since that was taken last, oldest first.
    pub(crate) fn discarded(&self) -> &[Note] {
        &self.discarded
    }

    pub(crate) fn take_discarded(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.discarded)
    }

    /// The status of the last ReadyForQuery.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// The open transaction has failed by what was not asked for its client.
    pub(crate) fn transaction_failed(&mut self) {
        self.status = b'E';
    }

    /// Nothing is owed by either side. The transaction may be open all the same: see [`Exchange::status`].
    pub(crate) fn is_settled(&self) -> bool {
        self.queue.is_empty() && !self.skipping
    }

    /// Answers are awaited, and what is forwarded next begins something new.
    pub(crate) fn is_between(&self) -> bool {
        !self.skipping && self.queue.back().is_some_and(|item| item.ends())
    }

    /// Takes whether something was answered since the last time that a message held back may wait for: an error, or the
    /// beginning or end of a COPY. ReadyForQuery does not count.
    #[inline]
    pub(crate) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// The server discards what is forwarded, up to a Sync.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// One pipeline of `count` messages is all that is under way, outside a transaction, and none of it is answered.
    pub(crate) fn is_only_pipeline(&self, count: u32) -> bool {
        let mut left = count;
        let behind = self.queue.iter().skip_while(|item| match item {
            Item::Extended(some) => left.checked_sub(*some).map(|rest| left = rest).is_some(),
            Item::Noted(Note::Described) => left.checked_sub(1).map(|rest| left = rest).is_some(),
            _ => false,
        });
        self.status == IDLE && behind.eq(&[Item::Sync]) && left == 0
    }

    /// The server is at work for its client.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.queue.front(), None | Some(Item::Extended(0))) || self.queue.len() > 1
    }

    /// Whether the server says nothing until more comes. `partly` says that a part of the last message is still to
    /// come.
    pub(crate) fn awaits_client(&self, partly: bool) -> bool {
        match self.copying {
            Copying::Taking { broken, .. } => return !broken,
            Copying::Possible { asked: true } => return false,
            Copying::Possible { asked: false } | Copying::No => {}
        }
        let Some(last) = self.queue.back() else { return true };
        if last.ends() {
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

    /// What is being answered is a message of the extended protocol.
    pub(crate) fn is_extended(&self) -> bool {
        self.queue.front().is_some_and(|item| item.is_extended())
    }

    /// Whether the pipeline under way is the only one: then the transaction cannot have failed in one before it.
    pub(crate) fn is_first_pipeline(&self) -> bool {
        self.status != b'E' && self.queue.iter().all(|item| item.is_extended())
    }

    /// Nothing is under way behind what is being answered: a Query, or messages up to a Sync.
    pub(crate) fn is_last(&self) -> bool {
        self.queue.iter().skip_while(|item| item.is_extended()).count() <= 1
    }

    /// No more may be forwarded.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_OUTSTANDING
    }

    /// The client is done: keep little memory.
    pub(crate) fn shrink(&mut self) {
        if self.queue.capacity() > KEPT_CAPACITY {
            self.queue.shrink_to(KEPT_CAPACITY);
        }
    }

    /// A Query or FunctionCall is forwarded.
    #[inline]
    pub(crate) fn query(&mut self) {
        self.unflushed = 0;
        if !self.skipping {
            self.queue.push_back(Item::Query);
        }
    }

    #[inline]
    pub(crate) fn sync(&mut self) {
        (self.skipping, self.unflushed) = (false, 0);
        self.queue.push_back(Item::Sync);
    }

    #[inline]
    pub(crate) fn flush(&mut self) {
        self.unflushed = 0;
    }

    /// A Parse, Bind, Describe, Execute or Close is forwarded.
    #[inline]
    pub(crate) fn extended(&mut self) {
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

    /// A Parse or Close is forwarded whose answer matters.
    pub(crate) fn noted(&mut self, note: Note) {
        assert!(!self.skipping, "what the server discards is not noted");
        self.unflushed = self.unflushed.saturating_add(1);
        self.queue.push_back(Item::Noted(note));
    }

    /// The server sent a message of this type that is neither ReadyForQuery nor asynchronous. Returns what was noted of
    /// the request that it answers.
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
            | back::COMMAND_COMPLETE => self.complete(),
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

    /// The server sent an ErrorResponse. Returns how many Syncs it must be sent now that were kept back in a COPY.
    pub(crate) fn failed(&mut self) -> u32 {
        self.advance();
        self.moved = true;
        if self.is_extended() {
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
        if pending { 0 } else { self.copy_over() }
    }

    /// The server sent a ReadyForQuery. False if nothing was asked that it could answer.
    #[inline]
    pub(crate) fn ready(&mut self, status: u8) -> bool {
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
            // The server has answered less than was asked, but it says that it is ready.
            Some(_) if self.unanswered().is_some() => {
                let end = self.unanswered().expect("just seen");
                self.discard(0..=end);
            }
            _ => return false,
        }
        self.advance();
        true
    }

    /// Where the Query or Sync is that ends the run of extended-protocol messages at the front.
    fn unanswered(&self) -> Option<usize> {
        self.queue.iter().position(|item| item.ends())
    }

    /// Nothing of what is under way will be answered.
    pub(crate) fn abandon(&mut self) {
        if !self.queue.is_empty() {
            self.discard(0..=self.queue.len() - 1);
        }
        (self.skipping, self.copying) = (false, Copying::No);
    }

    /// Drops requests that the server has discarded.
    fn discard(&mut self, range: std::ops::RangeInclusive<usize>) {
        let noted = |item| if let Item::Noted(note) = item { Some(note) } else { None };
        self.discarded.extend(self.queue.drain(range).filter_map(noted));
    }

    /// One extended-protocol message is answered.
    #[inline]
    fn complete(&mut self) -> Option<Note> {
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
                    self.copy_over();
                }
                _ => {}
            },
        }
        None
    }

    /// Drops from the front what will not be answered any more.
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
