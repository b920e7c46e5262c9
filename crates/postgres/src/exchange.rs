//! What a server still owes: the order of the requests forwarded to it, and which of its answers settles which. A
//! server may be given back only when it is settled. It knows neither bytes nor clients.
//!
//! Rules of PostgreSQL that it follows:
//! - Query, FunctionCall and Sync are each answered by one ReadyForQuery. Parse, Bind, Describe, Execute and Close
//!   are answered by one message each, and need a Sync in the end.
//! - After an error in one of those, the server discards everything up to the next Sync, queries included.
//! - In COPY IN, the server swallows Sync without an answer until it reads CopyDone or CopyFail.
//! - After a failed COPY IN nobody can tell whether a Sync that was under way has been swallowed before the error or
//!   is answered after it. Such an answer is *doubtful*; a server with doubtful answers is reset before reuse.

use std::collections::VecDeque;

use protocol::Verdict;

use crate::{
    amend::Tag,
    message::{IDLE, back},
};

/// Most requests without an answer on one server.
pub(crate) const MAX_OUTSTANDING: usize = 1 << 20;

/// Entries of the queue whose memory is kept when the server is given back.
const KEPT_CAPACITY: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Item {
    /// A run of extended-protocol messages, so many of them unanswered. It stays, at zero, until a Sync follows.
    Extended(u32),
    /// A Parse or Close whose answer is not simply passed on.
    Noted(Note),
    /// A Query or FunctionCall.
    Query,
    /// A Sync.
    Sync,
    /// CopyDone or CopyFail.
    CopyEnd,
}

/// What is to be known of a Parse, Close or Execute when it is answered. The number is that of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// A Parse or Close of ours about the unnamed statement.
    Hidden,
    /// A Parse of the client's of the unnamed statement.
    Unnamed,
    /// A Parse of ours.
    HiddenParse(u32),
    /// A Close of ours.
    HiddenClose(u32),
    /// A Parse of the client's.
    Parse(u32),
    /// A Parse of the client's that the server need not see: it was sent something that is answered by CloseComplete.
    KnownParse,
    /// A Parse of the client's under a name that is taken: the server will refuse it.
    Taken,
    /// A Close of the client's of a statement that the server keeps.
    Close,
    /// A Parse, Bind or Close of ours, of a statement that is nobody's.
    Swallowed,
    /// An Execute of a statement that the server has in another form.
    Retold(Tag),
}

/// The requests outstanding on one server.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Oldest first.
    queue: VecDeque<Item>,
    /// The status of the last ReadyForQuery.
    status: u8,
    /// The server is in COPY IN.
    copying: bool,
    /// The server discards everything until a Sync that has not been forwarded yet.
    skipping: bool,
    /// Something was answered since the last ReadyForQuery.
    progress: bool,
    /// ReadyForQuerys that may or may not come.
    doubtful: u32,
    /// Whole answers may come that nobody waits for.
    lost: bool,
    /// What was noted of requests that will never be answered, oldest first.
    discarded: Vec<Note>,
}

impl Exchange {
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            status: IDLE,
            copying: false,
            skipping: false,
            progress: false,
            doubtful: 0,
            lost: false,
            discarded: Vec::new(),
        }
    }

    /// What was noted of requests that the server has discarded since that was taken last, oldest first.
    pub(crate) fn discarded(&self) -> &[Note] {
        &self.discarded
    }

    /// Takes that.
    pub(crate) fn take_discarded(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.discarded)
    }

    /// The status of the last ReadyForQuery.
    pub(crate) fn status(&self) -> u8 {
        self.status
    }

    /// Nothing is owed by either side. The transaction may be open all the same: see [`Exchange::status`].
    pub(crate) fn is_settled(&self) -> bool {
        self.queue.is_empty() && !self.skipping && !self.copying
    }

    /// A ReadyForQuery may come that belongs to nobody.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful > 0
    }

    /// How the server is given back, if it is settled and outside a transaction.
    pub(crate) fn verdict(&self) -> Verdict {
        match (self.lost, self.doubtful) {
            (true, _) => Verdict::Discard,
            (false, 0) => Verdict::Clean,
            (false, _) => Verdict::Reset,
        }
    }

    /// Answers are awaited, and what is forwarded next begins something new.
    pub(crate) fn is_between(&self) -> bool {
        // What follows the end of the COPY is not part of it.
        let copying = self.copying && !self.queue.contains(&Item::CopyEnd);
        !self.skipping && !copying && matches!(self.queue.back(), Some(Item::Query | Item::Sync))
    }

    /// The server discards what is forwarded, up to a Sync.
    pub(crate) fn is_skipping(&self) -> bool {
        self.skipping
    }

    /// One pipeline of so many messages is all that is under way, outside a transaction, and none of it is answered.
    pub(crate) fn is_only_pipeline(&self, count: u32) -> bool {
        self.status == IDLE && self.queue.iter().eq(&[Item::Extended(count), Item::Sync])
    }

    /// The server is at work for its client.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.queue.front(), None | Some(Item::Extended(0))) || self.queue.len() > 1
    }

    /// What is being answered is a message of the extended protocol.
    pub(crate) fn is_extended(&self) -> bool {
        matches!(self.queue.front(), Some(Item::Extended(_) | Item::Noted(_)))
    }

    /// Whether the pipeline under way is the only one: then the transaction cannot have failed in one before it.
    pub(crate) fn is_first_pipeline(&self) -> bool {
        self.status != b'E' && self.queue.iter().all(|item| matches!(item, Item::Extended(_) | Item::Noted(_)))
    }

    /// Nothing is under way behind what is being answered: a Query, or messages up to a Sync.
    pub(crate) fn is_last(&self) -> bool {
        self.queue.iter().skip_while(|item| !matches!(item, Item::Query | Item::Sync)).count() <= 1
    }

    /// No more may be forwarded.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_OUTSTANDING
    }

    /// Whether copy data may be meant for something: a COPY under way, or one that may begin.
    pub(crate) fn takes_copy(&self) -> bool {
        !self.queue.is_empty()
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
        if !self.skipping {
            self.queue.push_back(Item::Query);
        }
    }

    /// A Sync is forwarded.
    #[inline]
    pub(crate) fn sync(&mut self) {
        self.skipping = false;
        self.queue.push_back(Item::Sync);
    }

    /// A Parse, Bind, Describe, Execute or Close is forwarded.
    #[inline]
    pub(crate) fn extended(&mut self) {
        if self.skipping {
            return;
        }
        if let Some(Item::Extended(count)) = self.queue.back_mut() {
            *count += 1;
        } else {
            self.queue.push_back(Item::Extended(1));
        }
    }

    /// A Parse or Close is forwarded whose answer matters.
    pub(crate) fn noted(&mut self, note: Note) {
        assert!(!self.skipping, "what the server discards is not noted");
        self.queue.push_back(Item::Noted(note));
    }

    /// A CopyDone or CopyFail is forwarded.
    pub(crate) fn copy_end(&mut self) {
        if !self.queue.is_empty() && self.queue.back() != Some(&Item::CopyEnd) {
            self.queue.push_back(Item::CopyEnd);
        }
    }

    /// The server sent a message of this type that is neither ReadyForQuery nor asynchronous. Returns what was noted of
    /// the request that it answers.
    #[inline]
    pub(crate) fn answered(&mut self, kind: u8) -> Option<Note> {
        self.progress = true;
        match kind {
            back::PARSE_COMPLETE
            | back::BIND_COMPLETE
            | back::CLOSE_COMPLETE
            | back::NO_DATA
            | back::ROW_DESCRIPTION
            | back::PORTAL_SUSPENDED
            | back::EMPTY_QUERY_RESPONSE => return self.complete(),
            back::COMMAND_COMPLETE => {
                if self.copying {
                    // CopyDone was read, and so was everything before it.
                    self.copying = false;
                    self.swallow();
                }
                return self.complete();
            }
            back::COPY_IN_RESPONSE | back::COPY_BOTH_RESPONSE => {
                self.advance();
                self.copying = true;
            }
            back::ERROR_RESPONSE => self.failed(),
            _ => {}
        }
        None
    }

    /// The server sent a ReadyForQuery. False if nothing was asked that it could answer.
    #[inline]
    pub(crate) fn ready(&mut self, status: u8) -> bool {
        self.status = status;
        self.copying = false;
        let progress = std::mem::take(&mut self.progress);
        self.advance();
        match self.queue.front() {
            None | Some(Item::Extended(1..)) if self.doubtful > 0 => {
                self.doubtful -= 1;
                self.skipping = false;
            }
            Some(Item::Query) if self.doubtful > 0 && !progress => self.doubtful -= 1,
            Some(Item::Query | Item::Sync) => {
                self.queue.pop_front();
                self.advance();
            }
            // The server has answered less than was asked, but it says that it is ready.
            Some(Item::Extended(_) | Item::Noted(_)) if self.unanswered().is_some() => {
                let end = self.unanswered().expect("just seen");
                self.discard(0..=end);
                self.advance();
            }
            _ => return false,
        }
        true
    }

    /// Where the Query or Sync is that ends the run of extended-protocol messages at the front.
    fn unanswered(&self) -> Option<usize> {
        let end = self.queue.iter().position(|item| !matches!(item, Item::Extended(_) | Item::Noted(_)))?;
        matches!(self.queue[end], Item::Query | Item::Sync).then_some(end)
    }

    /// Nothing of what is under way will be answered.
    pub(crate) fn abandon(&mut self) {
        if !self.queue.is_empty() {
            self.discard(0..=self.queue.len() - 1);
        }
        (self.skipping, self.copying) = (false, false);
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
        match self.queue.front_mut() {
            Some(Item::Extended(count)) => *count = count.saturating_sub(1),
            Some(item) => {
                if let Item::Noted(note) = *item {
                    *item = Item::Extended(0);
                    return Some(note);
                }
            }
            None => {}
        }
        None
    }

    /// Drops from the front what will not be answered any more.
    #[inline]
    fn advance(&mut self) {
        loop {
            match (self.queue.front(), self.queue.get(1)) {
                (Some(Item::CopyEnd), _) if !self.copying => self.queue.pop_front(),
                // The run still wants a Sync.
                (Some(Item::Extended(0)), Some(Item::CopyEnd)) if !self.copying => self.queue.remove(1),
                (Some(Item::Extended(0)), Some(Item::Query | Item::Sync | Item::Extended(_) | Item::Noted(_))) => {
                    self.queue.pop_front()
                }
                _ => return,
            };
        }
    }

    /// Drops what the server has read during a COPY IN that succeeded: everything behind the command, up to the end
    /// of its data.
    fn swallow(&mut self) {
        if let Some(end) = self.queue.iter().position(|&item| item == Item::CopyEnd) {
            self.discard(1.min(end)..=end);
        }
    }

    fn failed(&mut self) {
        self.advance();
        if self.copying {
            // Only a Sync (and a Flush) is swallowed without consequences: anything else that is neither data nor its
            // end breaks the connection, so it has not been read yet if this error is an ordinary one.
            self.copying = false;
            while self.queue.get(1) == Some(&Item::Sync) {
                self.queue.remove(1);
                self.doubtful += 1;
            }
            if self.queue.get(1) == Some(&Item::CopyEnd) {
                self.queue.remove(1);
            }
        }
        if matches!(self.queue.front(), Some(Item::Extended(_) | Item::Noted(_))) {
            self.discard(0..=0);
            while let Some(Item::Extended(_) | Item::Noted(_) | Item::Query | Item::CopyEnd) = self.queue.front() {
                // If a doubtful Sync is answered after all, the discarding ended there, and this is answered, too.
                self.lost |= self.doubtful > 0 && self.queue.front() != Some(&Item::CopyEnd);
                self.discard(0..=0);
            }
            self.skipping = self.queue.is_empty();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a dialogue: what the client sends in upper-case words of one letter before `<`, what the server answers
    /// behind it. Client: Q S F P B D E C, c for CopyDone. Server: types as they are; Z comes with its status.
    fn play(dialogue: &str) -> Exchange {
        let mut exchange = Exchange::new();
        for part in dialogue.split_whitespace() {
            if let Some(requests) = part.strip_prefix('>') {
                for request in requests.bytes() {
                    match request {
                        b'Q' | b'F' => exchange.query(),
                        b'S' => exchange.sync(),
                        b'c' => exchange.copy_end(),
                        b'p' => exchange.noted(Note::HiddenParse(1)),
                        _ => exchange.extended(),
                    }
                }
            } else {
                let mut answers = part.bytes();
                while let Some(answer) = answers.next() {
                    match answer {
                        b'Z' => assert!(exchange.ready(answers.next().unwrap()), "{dialogue}: stray ReadyForQuery"),
                        _ => _ = exchange.answered(answer),
                    }
                }
            }
        }
        exchange
    }

    fn settled(dialogue: &str) {
        let exchange = play(dialogue);
        assert!(exchange.is_settled() && !exchange.is_doubtful(), "{dialogue}: {exchange:?}");
    }

    fn owing(dialogue: &str) {
        let exchange = play(dialogue);
        assert!(!exchange.is_settled(), "{dialogue}: {exchange:?}");
    }

    fn doubtful(dialogue: &str) {
        let exchange = play(dialogue);
        assert!(exchange.is_settled() && exchange.is_doubtful(), "{dialogue}: {exchange:?}");
    }

    #[test]
    fn every_request_is_settled_by_its_own_answer() {
        settled(">Q TDDCZI");
        settled(">Q TDCTDCZI");
        settled(">QQ CZI CZI");
        owing(">QQ CZI");
        settled(">PBDES 12TDCZI");
        settled(">PDS 1tnZI");
        settled(">F VZI");
        owing(">PBE 12C");
        owing(">PBE 12");
        settled(">PBE 12C >S ZI");
        settled(">PQ 1 CZI");
        settled(">SS ZI ZI");
    }

    #[test]
    fn an_error_in_a_pipeline_skips_to_the_next_sync() {
        settled(">PBESPBES 12E ZI 12CZI");
        owing(">PBESPBES 12E ZI");
        owing(">PBE 1E");
        settled(">PBE 1E >PBEQ >S ZI");
        // The query between the error and the Sync is discarded with the rest.
        settled(">PBQS E ZI");
        settled(">PBQS 12 CZI ZI");
        // Here the query itself fails: the Sync is answered, too.
        settled(">PBQS 12 EZI ZI");
        // A Sync that fails (a deferred constraint) skips nothing.
        settled(">PBESQ 12C EZI CZI");
    }

    #[test]
    fn a_copy_is_settled_by_the_answer_after_its_end() {
        settled(">Q G >c CZI");
        owing(">Q G >c C");
        owing(">Q G");
        settled(">Qc GCZI");
        settled(">QcQ GCZI CZI");
        settled(">Q G >c C G >c CZI");
        settled(">Q HddcCZI");
        settled(">Q GEZI");
        settled(">QcQ EZI CZI");
    }

    #[test]
    fn a_sync_during_copy_in_is_not_answered() {
        // As libpq does it: one Sync with the Execute, one after CopyDone.
        settled(">PBES 12G >cS CZI");
        owing(">PBES 12G >c C");
        owing(">PBES 12G >cS C");
        // A pipeline after the end of the copy.
        settled(">PBES 12G >cSPBES C ZI 12CZI");
    }

    #[test]
    fn a_sync_that_a_failed_copy_may_have_swallowed_is_doubtful() {
        // Swallowed: one answer for two Syncs.
        doubtful(">PBES 12G >cS E ZI");
        // Not swallowed, and seen before the second one was sent: certain again.
        settled(">PBES 12GE ZI");
        // Not swallowed, the second answer arrives later.
        settled(">PBES 12GE >S ZI ZI");
        // Seen while another pipeline is under way.
        settled(">PBES 12G >cSPBES E ZI ZI 12CZI");
        doubtful(">PBES 12G >cSPBES E ZI 12CZI");
        // The extra answer cannot be that of a query without any other answer.
        settled(">PBES 12G >cSQ E ZI ZI CZI");
        doubtful(">QS GE ZI");
        // A query that is sent instead of data is answered if the copy has failed before.
        settled(">QQ GE ZI CZI");
        assert_eq!(play(">PBESQS 12GE ZI").verdict(), Verdict::Discard);
        assert_eq!(play(">PBESP 12GE ZI").verdict(), Verdict::Discard);
    }

    #[test]
    fn a_failed_copy_without_a_sync_discards_until_one_comes() {
        owing(">PBE 12GE");
        owing(">PBE 12GE >c");
        settled(">PBE 12GE >cS ZI");
    }

    #[test]
    fn a_stray_answer_is_noticed() {
        assert!(!Exchange::new().ready(b'I'));
        assert!(!play(">PB 1").ready(b'I'));
        assert!(!play(">Q CZI").ready(b'I'));
        assert!(!play(">PBE E").ready(b'I'));
    }

    #[test]
    fn a_stray_copy_done_does_not_hide_an_unsynced_parse() {
        owing(">P 1 >c");
        settled(">P 1 >cS ZI");
    }

    #[test]
    fn what_was_noted_comes_back_with_its_own_answer() {
        let mut exchange = play(">PpBES");
        assert_eq!(exchange.answered(back::PARSE_COMPLETE), None);
        assert_eq!(exchange.answered(back::PARSE_COMPLETE), Some(Note::HiddenParse(1)));
        assert_eq!(exchange.answered(back::BIND_COMPLETE), None);
        settled(">PpBES 112CZI");
        settled(">p 1 >S ZI");
        owing(">p 1");
        settled(">pSpS 1ZI 1ZI");
    }

    #[test]
    fn what_an_error_discards_is_told() {
        let note = vec![Note::HiddenParse(1)];
        assert_eq!(play(">PpBES E ZI").take_discarded(), note);
        assert_eq!(play(">pBES E ZI").take_discarded(), note);
        assert_eq!(play(">pBESpBES E ZI 12CZI").take_discarded(), note);
        assert_eq!(play(">PpBES 112E ZI").take_discarded(), []);
        assert_eq!(play(">PBEpS 12GE ZI").take_discarded(), note);
        settled(">PpBES E ZI");
    }

    #[test]
    fn the_last_request_has_nothing_behind_it() {
        for last in [">Q", ">Q E", ">PBES", ">PBES 12", ">PBES 12C", ">PBES E", ">PBE E", ">QQ EZI"] {
            assert!(play(last).is_last(), "{last}");
        }
        for not_last in [">QQ E", ">PBESQ 12C", ">PBESP E", ">QP", ">SS"] {
            assert!(!play(not_last).is_last(), "{not_last}");
        }
    }

    #[test]
    fn running_means_that_an_answer_is_awaited() {
        assert!(play(">Q").is_running());
        assert!(play(">P").is_running());
        assert!(!play(">P 1").is_running());
        assert!(!play(">Q CZT").is_running());
        assert_eq!(play(">Q CZT").status(), b'T');
    }
}
