//! COPY FROM STDIN on the way to a server. While a server takes data it swallows a Sync without an answer, and any
//! other request ends its connection; as soon as the COPY has failed, both mean something again. A client that sends a
//! request while neither is known cannot tell which answers will come. So nothing is sent behind a request that may
//! begin a COPY until the server says whether it does, and a Sync within the data is not sent at all, unless the COPY
//! fails before more data comes.

use super::{Exchange, Item};
use crate::wire::front;

/// Whether the server takes COPY data, as far as is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copying {
    /// No request under way may begin a COPY.
    No,
    /// The last request may begin one.
    Possible {
        /// A Flush was sent, so that the server says whether the COPY begins.
        asked: bool,
    },
    Taking {
        /// Syncs after the last data that were not forwarded.
        syncs: u32,
        /// A CopyFail was sent because of a request that has no place in a COPY.
        broken: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Forward,
    /// The server would ignore it, so it is not forwarded.
    Drop,
    /// The message waits for an answer of the server.
    Wait,
    /// The message waits, and the server is sent a Flush.
    Ask,
    /// The message waits, and the server is sent a CopyFail: it has no place in a COPY.
    Break,
}

impl Exchange {
    #[inline]
    pub(crate) fn admit(&mut self, kind: u8) -> Admission {
        let of_copy = matches!(kind, front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL);
        match &mut self.copying {
            // PostgreSQL ignores what is left of a COPY that failed, but a time-out that is due when it reads that
            // makes it answer with a ReadyForQuery that belongs to no request.
            Copying::No => {
                if of_copy {
                    Admission::Drop
                } else {
                    Admission::Forward
                }
            }
            Copying::Possible { .. } if kind == front::FLUSH => Admission::Forward,
            // A Query is answered without a Flush.
            Copying::Possible { asked } if !*asked && self.queue.back() == Some(&Item::CopyExecute) => {
                *asked = true;
                Admission::Ask
            }
            Copying::Possible { .. } => Admission::Wait,
            Copying::Taking { .. } if of_copy => Admission::Forward,
            Copying::Taking { syncs, .. } if kind == front::SYNC => {
                *syncs += 1;
                Admission::Drop
            }
            Copying::Taking { .. } if kind == front::FLUSH => Admission::Drop,
            Copying::Taking { broken, .. } if !*broken => {
                *broken = true;
                Admission::Break
            }
            Copying::Taking { .. } => Admission::Wait,
        }
    }

    /// A Query is forwarded that may begin one COPY or several.
    pub(crate) fn enter_copy_query(&mut self) {
        if !self.skipping {
            self.unflushed = 0;
            self.queue.push_back(Item::CopyQuery);
            self.copying = Copying::Possible { asked: false };
        }
    }

    pub(crate) fn enter_copy_execute(&mut self) {
        if !self.skipping {
            self.unflushed = self.unflushed.saturating_add(1);
            self.queue.push_back(Item::CopyExecute);
            self.copying = Copying::Possible { asked: false };
        }
    }

    #[inline]
    pub(crate) fn enter_copy_data(&mut self) {
        if let Copying::Taking { syncs, .. } = &mut self.copying {
            *syncs = 0;
        }
    }

    pub(crate) fn enter_copy_end(&mut self) {
        self.copying = match self.queue.back_mut() {
            // It may go on with another COPY.
            Some(Item::CopyQuery) => Copying::Possible { asked: false },
            Some(item) if *item == Item::CopyExecute => {
                *item = Item::Extended(1);
                Copying::No
            }
            _ => Copying::No,
        };
    }

    /// The server says that it takes data. False if no request could have caused that, or if more was sent meanwhile.
    pub(crate) fn enter_copy_in(&mut self) -> bool {
        self.advance();
        if self.queue.len() != 1 || matches!(self.queue[0], Item::Extended(0 | 2..)) {
            return false;
        }
        self.copying = Copying::Taking { syncs: 0, broken: false };
        self.progressed = true;
        true
    }

    /// The request that might begin a COPY has been answered. Returns the number of Syncs that were kept back.
    pub(super) fn end_copying(&mut self) -> u32 {
        let was = std::mem::replace(&mut self.copying, Copying::No);
        self.progressed |= was != Copying::No;
        if let Copying::Taking { syncs, .. } = was { syncs } else { 0 }
    }
}
