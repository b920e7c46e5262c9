//! The state of a server that is made for one client, and closed when that client leaves: what it has reported at its
//! start, and what it is doing. It knows no connection.

use seam::Standing;

use crate::{
    sql::Pairs,
    wire::{IDLE, back, front},
};

pub(crate) struct Dedicated {
    /// What the server has reported of itself before its client had it.
    parameters: Pairs,
    /// Requests that a ReadyForQuery will answer.
    pending: u32,
    /// The server streams: a replication connection has begun to copy in both directions.
    streams: bool,
}

impl Dedicated {
    pub(crate) fn new(parameters: Pairs) -> Self {
        Self { parameters, pending: 0, streams: false }
    }

    pub(crate) fn parameters(&self) -> &Pairs {
        &self.parameters
    }

    /// Whether a cancel request could end something.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending > 0
    }

    /// Whether the server streams, which no request ends before the client or the database wants it.
    pub(crate) fn streams(&self) -> bool {
        self.streams
    }

    /// The client has sent a message of this type. Returns what the client is doing now, if that changes.
    pub(crate) fn note_sent(&mut self, kind: u8) -> Option<Standing> {
        match kind {
            front::QUERY | front::FUNCTION_CALL | front::SYNC => self.pending = self.pending.saturating_add(1),
            _ => {}
        }
        (!self.streams).then_some(Standing::Active)
    }

    /// The server has sent a message of this type that tells nothing but its type.
    pub(crate) fn note_received(&mut self, kind: u8) -> Option<Standing> {
        let begins = kind == back::COPY_BOTH_RESPONSE;
        self.streams |= begins;
        begins.then_some(Standing::Subscribed)
    }

    /// The server has sent a ReadyForQuery with this status.
    pub(crate) fn note_ready(&mut self, status: u8) -> Option<Standing> {
        self.streams = false;
        self.pending = self.pending.saturating_sub(1);
        (self.pending == 0).then_some(if status == IDLE { Standing::Idle } else { Standing::InTransaction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_idle_once_all_its_requests_are_answered() {
        let mut dedicated = Dedicated::new(Pairs::default());
        assert_eq!(dedicated.note_sent(front::QUERY), Some(Standing::Active));
        assert_eq!(dedicated.note_sent(front::PARSE), Some(Standing::Active));
        assert_eq!(dedicated.note_sent(front::SYNC), Some(Standing::Active));
        assert_eq!(dedicated.note_ready(b'T'), None);
        assert_eq!(dedicated.note_ready(b'T'), Some(Standing::InTransaction));
        assert!(!dedicated.is_busy());
        dedicated.note_sent(front::QUERY);
        assert_eq!(dedicated.note_ready(IDLE), Some(Standing::Idle));
    }

    #[test]
    fn a_stream_lasts_until_the_server_is_ready_again() {
        let mut dedicated = Dedicated::new(Pairs::default());
        dedicated.note_sent(front::QUERY);
        assert_eq!(dedicated.note_received(back::COPY_BOTH_RESPONSE), Some(Standing::Subscribed));
        assert_eq!(dedicated.note_received(back::COPY_DATA), None);
        assert_eq!(dedicated.note_sent(front::COPY_DATA), None);
        assert!(dedicated.streams() && dedicated.is_busy());
        assert_eq!(dedicated.note_ready(IDLE), Some(Standing::Idle));
        assert!(!dedicated.streams());
    }
}
