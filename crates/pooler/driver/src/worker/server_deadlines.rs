//! Servers that something is to be done about after a while: soiled ones, and ones that are kept only for an answer.

use std::{collections::VecDeque, time::Duration};

use pool::{ServerId, Time};
use seam::PoolId;

/// How long a server may be idle with something left in it.
const MAX_SOILED_TIME: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(super) struct ServerDeadlines {
    /// Servers that were given back soiled, and when they are to be cleaned.
    soiled: VecDeque<(Time, PoolId, ServerId)>,
    answers_due: Vec<AnswerDue>,
}

/// A server that is kept only for an answer.
#[derive(Clone, Copy)]
pub(super) struct AnswerDue {
    pub(super) server: usize,
    pub(super) id: ServerId,
    pub(super) since: Time,
}

impl ServerDeadlines {
    /// Has a server that was given back soiled cleaned after [`MAX_SOILED_TIME`], if it is idle then.
    pub(super) fn add_soiled(&mut self, pool: PoolId, server: ServerId, now: Time) {
        self.soiled.push_back((now + MAX_SOILED_TIME, pool, server));
    }

    /// When the next soiled server is to be cleaned.
    #[inline]
    pub(super) fn next_soiled(&self) -> Option<Time> {
        self.soiled.front().map(|(due, ..)| *due)
    }

    /// The next soiled server that is to be cleaned now.
    pub(super) fn take_soiled(&mut self, now: Time) -> Option<(PoolId, ServerId)> {
        let is_due = self.next_soiled().is_some_and(|due| due <= now);
        let (_, pool, server) = if is_due { self.soiled.pop_front()? } else { return None };
        Some((pool, server))
    }

    pub(super) fn add_answer(&mut self, answer: AnswerDue) {
        self.answers_due.push(answer);
    }

    pub(super) fn take_answers(&mut self) -> Vec<AnswerDue> {
        std::mem::take(&mut self.answers_due)
    }
}
