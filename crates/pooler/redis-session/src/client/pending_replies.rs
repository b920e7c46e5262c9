//! The replies that a client waits for, and whether its input waits for them.

/// Pending replies of a client beyond which no more of its commands are read. Clients send whole pipelines before they
/// read, so these are many.
const MAX_PENDING: u32 = 100_000_000;

/// The same for a client that shares a server. It is read from again when half of the replies have come.
const MAX_SHARED_PENDING: u32 = 1024;

#[derive(Default, Debug)]
pub(super) struct PendingReplies {
    /// Commands that were sent and have no whole reply.
    count: u32,
    /// Input was left unread, because replies have to come first.
    input_waits: bool,
    /// A reply was forwarded in part.
    mid_reply: bool,
}

impl PendingReplies {
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= MAX_PENDING
    }

    pub(super) fn is_full_for_shared_server(&self) -> bool {
        self.count >= MAX_SHARED_PENDING
    }

    pub(super) fn add(&mut self) {
        self.count += 1;
    }

    /// A reply has come whole.
    pub(super) fn take(&mut self) {
        self.count = self.count.checked_sub(1).expect("a reply was pending");
    }

    pub(super) fn forget(&mut self) {
        self.count = 0;
    }

    pub(super) fn hold_input(&mut self) {
        self.input_waits = true;
    }

    /// Leaves input unread if replies are pending. Returns whether some are.
    pub(super) fn hold_input_if_any(&mut self) -> bool {
        self.input_waits |= self.count > 0;
        self.count > 0
    }

    /// Whether input that was left unread is to be read, now that a reply has come.
    pub(super) fn resume_input(&mut self) -> bool {
        let resumes = self.input_waits && (self.count == 0 || self.count == MAX_SHARED_PENDING / 2);
        self.input_waits &= !resumes;
        resumes
    }

    /// Input is read whatever was pending.
    pub(super) fn release_input(&mut self) {
        self.input_waits = false;
    }

    pub(super) fn is_mid_reply(&self) -> bool {
        self.mid_reply
    }

    pub(super) fn set_mid_reply(&mut self, mid_reply: bool) {
        self.mid_reply = mid_reply;
    }
}
