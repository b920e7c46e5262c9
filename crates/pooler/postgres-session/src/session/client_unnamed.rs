//! A client's unnamed prepared statement, with its Parse if that may be needed again.

use std::sync::Arc;

use crate::session::kept_parses::KeptParse;

#[derive(Default)]
pub(crate) struct ClientUnnamed {
    /// The Parse, if it may be needed again.
    parse: Option<Arc<KeptParse>>,
    /// Counts the client's unnamed statements.
    version: u32,
    /// More of a Parse that is kept is to come.
    is_incomplete: bool,
    /// No Sync has come since the Parse.
    is_new: bool,
    /// Executing the statement deallocates all prepared statements.
    deallocates_all: bool,
}

impl ClientUnnamed {
    #[inline]
    pub(crate) fn parse(&self) -> Option<&Arc<KeptParse>> {
        self.parse.as_ref()
    }

    pub(crate) fn parse_mut(&mut self) -> &mut Option<Arc<KeptParse>> {
        &mut self.parse
    }

    pub(crate) fn take_parse(&mut self) -> Option<Arc<KeptParse>> {
        self.parse.take()
    }

    pub(crate) fn keep(&mut self, parse: Arc<KeptParse>) {
        self.parse = Some(parse);
    }

    /// Keeps the beginning of a Parse that comes in parts.
    pub(crate) fn begin_long(&mut self, parse: Arc<KeptParse>) {
        (self.parse, self.is_incomplete) = (Some(parse), true);
    }

    /// A part of a message is forwarded; `more`: further parts follow.
    #[inline]
    pub(crate) fn append(&mut self, part: &[u8], more: bool) {
        if self.is_incomplete {
            self.parse.iter().for_each(|parse| parse.append(part));
            self.is_incomplete = more;
        }
    }

    /// A Bind follows a long Parse in the same pipeline: the Parse is not needed again.
    pub(crate) fn drop_if_bound_at_once(&mut self) {
        if self.is_new && self.parse.as_ref().is_some_and(|parse| parse.is_long()) {
            self.parse = None;
        }
    }

    /// A Parse is forwarded.
    pub(crate) fn note_parse(&mut self, deallocates_all: bool) {
        (self.deallocates_all, self.is_new) = (deallocates_all, true);
    }

    /// The statement deallocates one that the server knows by another name.
    pub(crate) fn note_deallocate(&mut self) {
        self.deallocates_all = false;
    }

    pub(crate) fn deallocates_all(&self) -> bool {
        self.deallocates_all
    }

    pub(crate) fn version(&self) -> u32 {
        self.version
    }

    /// The client's statement is gone, or is another: servers that have the former one do not have the client's.
    #[inline]
    pub(crate) fn invalidate(&mut self) {
        self.parse = None;
        self.version = self.version.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn end_pipeline(&mut self) {
        self.is_new = false;
    }
}
