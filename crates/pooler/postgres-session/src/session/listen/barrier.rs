//! Clients that listen and have ended a transaction: they go on when their hub has answered a question asked after
//! that. PostgreSQL sends a session what was committed before it says ReadyForQuery, so what comes behind that answer
//! was committed later.
//!
//! One question is under way at a time, for all clients that wait when it is asked, on all workers.

use seam::ClientTag;

/// Milliseconds that a client waits at most for its notifications. Then it goes on without them, and no client waits
/// for that server until it has answered.
const MAX_NOTIFICATION_WAIT_MS: u64 = 500;

/// Clients that wait for a hub.
#[derive(Default)]
pub(crate) struct NotificationBarrier {
    /// Clients whose question is under way.
    asked: Group,
    /// Clients that came after that question.
    next: Group,
    /// The hub has not answered in time, and not since.
    late: bool,
}

#[derive(Default)]
struct Group {
    clients: Vec<(u64, ClientTag)>,
    since_ms: u64,
}

impl NotificationBarrier {
    /// A client is to wait. False if it need not.
    pub(crate) fn wait(&mut self, key: u64, tag: ClientTag, now_ms: u64) -> bool {
        if self.late {
            return false;
        }
        if self.next.clients.is_empty() {
            self.next.since_ms = now_ms;
        }
        self.next.clients.push((key, tag));
        true
    }

    /// The hub can be asked now: the clients that wait so far belong to that question. True if there are any.
    pub(crate) fn begin_question(&mut self) -> bool {
        self.late = false;
        if self.asked.clients.is_empty() {
            std::mem::swap(&mut self.asked, &mut self.next);
        }
        !self.asked.clients.is_empty()
    }

    /// The hub has answered: returns the clients that may go on.
    pub(crate) fn end_question(&mut self) -> Vec<(u64, ClientTag)> {
        self.late = false;
        std::mem::take(&mut self.asked.clients)
    }

    /// Takes out the clients that may go on because time is up.
    pub(crate) fn take_overdue(&mut self, now_ms: u64) -> Vec<(u64, ClientTag)> {
        let due = |group: &Group| {
            !group.clients.is_empty() && now_ms.saturating_sub(group.since_ms) >= MAX_NOTIFICATION_WAIT_MS
        };
        if !due(&self.asked) && !due(&self.next) {
            return Vec::new();
        }
        self.late = true;
        let mut all = std::mem::take(&mut self.asked.clients);
        all.append(&mut self.next.clients);
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.asked.clients.is_empty() && self.next.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: (u64, ClientTag) = (1, ClientTag(1));
    const B: (u64, ClientTag) = (2, ClientTag(2));

    #[test]
    fn a_client_that_comes_while_a_question_is_under_way_waits_for_the_next() {
        let mut waiting = NotificationBarrier::default();
        assert!(waiting.wait(A.0, A.1, 0) && waiting.begin_question());
        assert!(waiting.wait(B.0, B.1, 0));
        assert_eq!(waiting.end_question(), [A]);
        assert!(waiting.begin_question());
        assert_eq!(waiting.end_question(), [B]);
        assert!(!waiting.begin_question() && waiting.is_empty());
    }

    #[test]
    fn no_client_waits_too_long_or_again_for_a_late_server() {
        let mut waiting = NotificationBarrier::default();
        assert!(waiting.wait(A.0, A.1, 10) && waiting.begin_question() && waiting.wait(B.0, B.1, 300));
        assert_eq!(waiting.take_overdue(10 + MAX_NOTIFICATION_WAIT_MS - 1), []);
        assert_eq!(waiting.take_overdue(10 + MAX_NOTIFICATION_WAIT_MS), [A, B]);
        assert!(!waiting.wait(A.0, A.1, 700), "it is late");
        assert_eq!(waiting.end_question(), []);
        assert!(waiting.wait(A.0, A.1, 800));
    }
}
