//! The replies that a server has to send, in order, and how far the first of them has come. It knows whose they are,
//! and nothing of what they say but where they end.

use std::collections::VecDeque;

use super::{Recipient, ReplyKind};
use crate::resp::ReplyScanner;

/// Longest reply of [`ReplyKind::SubscriberCount`] that is changed, in bytes. The driver holds more than that.
const MAX_COUNTED_REPLY: usize = 32 * 1024;

/// A reply that begins so says that the server is a replica now, and no longer the master. Replicas and scripts say the
/// first one, too. So the driver limits how often it replaces servers for this reason.
const DEMOTED: [&[u8]; 2] = [b"-READONLY ", b"-UNBLOCKED force "];

#[derive(Default)]
pub(super) struct ReplyQueue {
    runs: VecDeque<ReplyRun>,
    /// Where in the first reply the server's bytes are.
    scanner: ReplyScanner,
    /// The bytes are a push message (RESP3), not a reply.
    in_push: bool,
    /// The first reply says that nothing has changed: it is an error, or `QUEUED`.
    refused: bool,
}

/// Successive replies of one kind to one client.
#[derive(Clone, Copy, Debug)]
struct ReplyRun {
    /// `None`: Poolhouse has sent the commands for itself.
    recipient: Option<Recipient>,
    kind: ReplyKind,
    count: u32,
}

/// A reply, or a part of one.
pub(crate) struct ReplyPart {
    /// The client that it is for. `None`: no client.
    pub recipient: Option<Recipient>,
    pub kind: ReplyKind,
    /// Whether the reply begins with it.
    pub begins: bool,
    /// Its length in bytes.
    pub taken: usize,
    /// Whether the reply ends with it.
    pub over: bool,
}

/// What the beginning of a reply says of the server.
#[derive(Default)]
pub(super) struct Signs {
    /// The server is no longer the master.
    pub(super) demoted: bool,
    /// Redis found a protocol error, and closes the connection, unless the reply is a script's.
    pub(super) protocol_error: bool,
}

impl ReplyQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How much memory the queue takes, in runs of replies of one kind.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// A command is sent, whose reply is of this kind.
    pub(super) fn push(&mut self, recipient: Option<Recipient>, kind: ReplyKind) {
        match self.runs.back_mut() {
            Some(last) if last.kind == kind && last.recipient == recipient => last.count += 1,
            _ => self.runs.push_back(ReplyRun { recipient, kind, count: 1 }),
        }
    }

    /// Reads the first reply, or a part of it; `None` if more of it has to come. [`end_reply`](Self::end_reply) is to
    /// be called behind its end.
    pub(super) fn read(&mut self, bytes: &[u8], signs: &mut Signs) -> Result<Option<ReplyPart>, String> {
        let begins = self.scanner.is_between();
        if begins {
            // Clients that share a server cannot have asked for push messages.
            self.in_push = bytes[0] == b'>';
        }
        if self.in_push {
            let end = self.scanner.advance(bytes).map_err(|error| error.to_string())?;
            let push = ReplyPart { recipient: None, kind: ReplyKind::Plain, begins, taken: end.taken, over: false };
            return Ok((end.taken > 0).then_some(push));
        }
        let Some(&ReplyRun { recipient, kind, .. }) = self.runs.front() else {
            // The log does not get the bytes: they may be a client's data.
            let (first, length) = (bytes[0].escape_ascii(), bytes.len());
            return Err(format!("the server said something unasked: {length} bytes that begin with `{first}`"));
        };
        let mut scanner = self.scanner;
        let end = scanner.advance(bytes).map_err(|error| error.to_string())?;
        // A reply that is to be changed has to be there whole, if it is not too long for that.
        let is_counted = matches!(kind, ReplyKind::SubscriberCount(_));
        let awaited = is_counted && begins && !end.over && bytes.len() < MAX_COUNTED_REPLY;
        if end.taken == 0 || awaited {
            return Ok(None);
        }
        self.scanner = scanner;
        if begins {
            // The scanner takes a line only whole, so what the reply says is there.
            self.refused = match bytes[0] {
                b'-' => !bytes.starts_with(b"-EXECABORT"),
                _ => bytes.starts_with(b"+QUEUED"),
            };
            signs.demoted = DEMOTED.iter().any(|words| bytes.starts_with(words));
            signs.protocol_error = kind != ReplyKind::Script && bytes.starts_with(b"-ERR Protocol error");
        }
        Ok(Some(ReplyPart { recipient, kind, begins, taken: end.taken, over: end.over }))
    }

    pub(super) fn end_reply(&mut self) {
        let run = self.runs.front_mut().expect("a reply is pending");
        run.count -= 1;
        if run.count == 0 {
            self.runs.pop_front();
        }
    }

    /// Whether the first reply says that nothing has changed.
    pub(super) fn has_refused(&self) -> bool {
        self.refused
    }
}
