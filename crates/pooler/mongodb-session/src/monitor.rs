//! What a monitor has asked its host.

use std::time::Duration;

pub struct Monitor {
    key: u64,
    question: Question,
}

/// What the host has been asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    None,
    /// `again`: it is to be asked again, since its answer may have been true before something happened.
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

    /// The host has answered: when it was asked, and whether it is to be asked again.
    pub fn take_question(&mut self) -> Option<(Duration, bool)> {
        match std::mem::replace(&mut self.question, Question::None) {
            Question::Sent { at, again, .. } => Some((at, again)),
            Question::None => None,
        }
    }

    /// When the host was asked, if it has not answered.
    pub fn asked_at(&self) -> Option<Duration> {
        if let Question::Sent { at, .. } = self.question { Some(at) } else { None }
    }

    /// What the host is about to answer may no longer be true.
    pub fn ask_again(&mut self) {
        if let Question::Sent { again, .. } = &mut self.question {
            *again = true;
        }
    }

    pub fn ask(&mut self, id: i32, at: Duration) {
        self.question = Question::Sent { id, at, again: false };
    }
}
