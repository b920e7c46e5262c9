//! What a server has for an unnamed statement, and which client's statement that is.
//!
//! An error may skip a request behind it in its pipeline, and then the statement is the former one. Where that matters,
//! the former statement is remembered until the answers have come ([`Doubt`]).

use std::{collections::VecDeque, sync::Arc};

use seam::ClientTag;

use crate::session::{kept_parses::KeptParse, our_statements::Likeness};

/// Most bytes of Parses of one pipeline that are remembered in case what replaces them is skipped, but for those that
/// are counted elsewhere.
const MAX_DOUBTED_BYTES: usize = 256 * 1024;

/// A version of the unnamed statement of a client: servers that it used before may have older ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    client: ClientTag,
    secret: u64,
    version: u32,
}

impl Owner {
    #[inline]
    pub(crate) fn new(client: ClientTag, secret: u64, version: u32) -> Self {
        Self { client, secret, version }
    }
}

/// What a server has for an unnamed statement.
#[derive(Default)]
pub(crate) struct ServerUnnamed {
    /// The client whose statement it is, once all forwarded requests are done; `None` if any client's, or one of ours.
    /// For a client without a statement the server has none, either.
    pub(crate) owner: Option<Owner>,
    /// Noted requests about it without an answer, but for those of the doubt.
    pending: u32,
    doubt: Option<Box<Doubt>>,
    /// Whether it is what the client was told.
    pub(crate) likeness: Likeness,
    /// The answered part of its description.
    pub(crate) parameters: Option<Box<[u8]>>,
}

/// Requests of one pipeline that may be skipped, and the statement before them.
pub(crate) struct Doubt {
    /// Noted requests that come before these.
    earlier: u32,
    /// The server has the client's statement, as far as these are answered.
    at_hand: bool,
    /// The Sync of the pipeline was forwarded: what follows may find the one statement or the other.
    ended: bool,
    /// One of them was skipped, and with it all behind it.
    skipped: bool,
    asked: VecDeque<Asked>,
    /// Bytes of the texts in `asked`.
    bytes: usize,
}

enum Asked {
    /// A request by Poolhouse after which the server has the client's statement.
    Restore,
    /// The client's request to replace or destroy its statement, with the former Parse if it was kept.
    Replace(Option<Arc<KeptParse>>),
}

impl ServerUnnamed {
    pub(crate) fn begin_lease(&mut self) {
        (self.pending, self.doubt) = (0, None);
        if std::mem::take(&mut self.likeness) != Likeness::Same {
            // It has to be compared with what the client was told.
            self.owner = None;
        }
    }

    #[inline]
    pub(crate) fn end_pipeline(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.ended = true;
        }
    }

    /// Which statement the client has depends on answers to an earlier pipeline.
    pub(crate) fn is_undecided(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.ended)
    }

    /// Requests that may be skipped are under way.
    #[inline]
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// The client's request to replace or destroy its statement, which will not be skipped, is about to be noted.
    pub(crate) fn note_certain_request(&mut self) {
        self.pending += 1;
    }

    /// The next request is certain to be carried out: earlier doubts no longer matter.
    pub(crate) fn supersede(&mut self) {
        if let Some(doubt) = self.doubt.take() {
            self.pending = doubt.earlier + doubt.asked.len() as u32;
        }
    }

    /// The request noted next may be skipped.
    pub(crate) fn doubt(&mut self, at_hand: bool) -> &mut Doubt {
        let earlier = if self.doubt.is_none() { std::mem::take(&mut self.pending) } else { 0 };
        let new = || Doubt { earlier, at_hand, ended: false, skipped: false, asked: VecDeque::new(), bytes: 0 };
        self.doubt.get_or_insert_with(|| Box::new(new()))
    }

    /// A noted request was answered, or (not `done`) failed or was skipped because of an error before it; `reached`:
    /// perhaps it failed. `holder`: the holder's statement, and its Parse.
    pub(crate) fn settle(&mut self, done: bool, reached: bool, holder: Option<(Owner, &mut Option<Arc<KeptParse>>)>) {
        let Some(doubt) = &mut self.doubt else {
            self.pending -= 1;
            if let Some((_, parse)) = holder
                && !done
                && self.pending == 0
            {
                *parse = None;
            }
            return;
        };
        if doubt.earlier > 0 {
            doubt.earlier -= 1;
            if let Some(Asked::Replace(before)) = doubt.asked.front_mut()
                && !done
                && doubt.earlier == 0
            {
                *before = None;
            }
            return;
        }
        let asked = doubt.asked.pop_front().expect("only what was asked is settled");
        let Some((owner, parse)) = holder else { return };
        doubt.at_hand |= done;
        if let Asked::Replace(before) = asked
            && !done
            && !doubt.skipped
        {
            doubt.skipped = true;
            // Before a Parse that has something to replace stands a message that is answered if the Parse is read.
            let failed = reached && before.is_some();
            doubt.at_hand |= failed;
            *parse = before.filter(|_| !failed);
        }
        if doubt.asked.is_empty() {
            self.owner = doubt.at_hand.then_some(owner);
            self.doubt = None;
        }
    }
}

impl Doubt {
    pub(crate) fn replace(&mut self, before: Option<Arc<KeptParse>>) {
        let before = before.filter(|parse| self.bytes + parse.uncounted() <= MAX_DOUBTED_BYTES);
        self.bytes += before.as_ref().map_or(0, |parse| parse.uncounted());
        self.asked.push_back(Asked::Replace(before));
    }

    /// Poolhouse gives the server the client's statement.
    pub(crate) fn restore(&mut self) {
        self.asked.push_back(Asked::Restore);
    }
}
