//! A request that may have to be repeated.

use std::sync::Arc;

use crate::{
    exchange::Exchange,
    session::{request::Arrived, statements::Statement},
    wire::{Failure, HEADER, IDLE, front},
};

/// Longest request that is kept until it is answered.
const MAX_REQUEST_BYTES: usize = 8 * 1024;

/// The last request of the holder, if it may be repeated.
#[derive(Default)]
pub(crate) struct RepeatableRequest {
    stage: Stage,
    statement: Option<Arc<Statement>>,
    /// The forwarded bytes. Their memory is kept for the next request.
    bytes: Vec<u8>,
    /// Messages before the Sync.
    count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Stage {
    #[default]
    Off,
    /// The Sync is still to come.
    Begun,
    Asked,
    /// The server said that the plan does not fit, and is not ready yet.
    Refused,
}

impl RepeatableRequest {
    /// A Bind is about to be forwarded, in these parts, and to be entered into the exchange.
    pub(crate) fn keep(
        kept: &mut Option<Box<Self>>,
        exchange: &Exchange,
        statement: &Arc<Statement>,
        parts: [&[u8]; 4],
    ) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        if length > MAX_REQUEST_BYTES || !exchange.is_settled() || exchange.status() != IDLE {
            return;
        }
        let replan = kept.get_or_insert_default();
        replan.bytes.clear();
        parts.iter().for_each(|part| replan.bytes.extend_from_slice(part));
        replan.count = 1;
        replan.stage = Stage::Begun;
        if !replan.statement.as_ref().is_some_and(|known| Arc::ptr_eq(known, statement)) {
            replan.statement = Some(statement.clone());
        }
    }

    /// The client's next messages belong to the kept request.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.stage != Stage::Off
    }

    /// The server has refused the request, which is not sent again yet.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.stage == Stage::Refused
    }

    /// Decides whether the request is to be repeated in place of passing this error on: it is kept for that, or
    /// dropped.
    pub(crate) fn decide_repeat(&mut self, exchange: &Exchange, error: &[u8]) -> bool {
        let repeat =
            self.stage == Stage::Asked && exchange.is_only_pipeline(self.count) && Failure::is_outdated_plan(error);
        self.stage = if repeat { Stage::Refused } else { Stage::Off };
        repeat
    }

    pub(crate) fn into_request(self) -> (Arc<Statement>, Vec<u8>, u32) {
        (self.statement.expect("a request was kept with its statement"), self.bytes, self.count)
    }

    pub(crate) fn follow(&mut self, message: &Arrived<'_>) {
        let bytes = &message.bytes[message.at..message.end().min(message.bytes.len())];
        let fits = message.is_whole() && self.bytes.len() + bytes.len() <= MAX_REQUEST_BYTES;
        let belongs = match message.header.kind {
            front::DESCRIBE => bytes.get(HEADER) == Some(&b'P'),
            front::EXECUTE | front::SYNC => true,
            _ => false,
        };
        if self.stage != Stage::Begun || !fits || !belongs {
            self.stage = Stage::Off;
            return;
        }
        self.bytes.extend_from_slice(bytes);
        if message.header.kind == front::SYNC {
            self.stage = Stage::Asked;
        } else {
            self.count += 1;
        }
    }
}
