//! The state of a monitor: the check of its host that is under way.

use std::time::Duration;

pub struct Monitor {
    key: u64,
    question: Question,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    None,
    /// `again`: the host is to be checked again, because the reply may be out of date.
    Sent {
        id: i32,
        at: Duration,
        again: bool,
    },
}

impl Monitor {
    pub fn new(key: u64) -> Self {
        Self { key, question: Question::None }
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    pub fn awaits(&self, id: i32) -> bool {
        matches!(self.question, Question::Sent { id: sent, .. } if sent == id)
    }

    /// The host has replied: when it was asked, and whether it is to be asked again.
    pub fn take_question(&mut self) -> Option<(Duration, bool)> {
        match std::mem::replace(&mut self.question, Question::None) {
            Question::Sent { at, again, .. } => Some((at, again)),
            Question::None => None,
        }
    }

    /// When the host was asked, while it has not replied.
    pub fn asked_at(&self) -> Option<Duration> {
        if let Question::Sent { at, .. } = self.question { Some(at) } else { None }
    }

    /// The reply that is due may be out of date.
    pub fn ask_again(&mut self) {
        if let Question::Sent { again, .. } = &mut self.question {
            *again = true;
        }
    }

    pub fn ask(&mut self, id: i32, at: Duration) {
        self.question = Question::Sent { id, at, again: false };
    }
}
