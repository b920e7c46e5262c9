//! The body of an answer of HTTP/2 on its way.

use std::{collections::VecDeque, task::Context};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use http::Response;

use crate::{Answer, Service, Stream, access::AnswerOptions, events::MAX_BEHIND};

pub(super) struct Sending {
    stream: SendStream<Bytes>,
    /// None of them is empty.
    pieces: VecDeque<Bytes>,
    /// Their bytes.
    pub waiting: usize,
    /// Bytes of memory that they are in, where that goes only with the last of them.
    whole: usize,
    /// The stream whose events it is; more are added. `None`: these are all.
    pub events: Option<Stream>,
}

impl Sending {
    pub(super) fn whole(stream: SendStream<Bytes>, body: Vec<u8>) -> Self {
        let length = body.len();
        Self { stream, waiting: length, whole: length, pieces: VecDeque::from([Bytes::from(body)]), events: None }
    }

    /// Events, of which there are none yet.
    pub(super) fn events(stream: SendStream<Bytes>, name: Stream) -> Self {
        Self { stream, waiting: 0, whole: 0, pieces: VecDeque::new(), events: Some(name) }
    }

    /// Bytes of memory that it holds.
    pub(super) fn holds(&self) -> usize {
        self.waiting.max(self.whole)
    }

    /// Whether this number of bytes more may be unread.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.waiting + length <= MAX_BEHIND
    }

    pub(super) fn add(&mut self, bytes: &Bytes) {
        if !bytes.is_empty() {
            self.waiting += bytes.len();
            self.pieces.push_back(bytes.clone());
        }
    }

    /// Ends it in the middle.
    pub(super) fn reset(mut self) {
        self.stream.send_reset(Reason::CANCEL);
    }

    /// Hands over what there is room for, up to what is `allowed`; that is `withheld` what is not. False if that was
    /// the last, or if nobody wants it any more.
    pub(super) fn feed(&mut self, allowed: &mut usize, withheld: &mut bool, context: &mut Context<'_>) -> bool {
        while let Some(piece) = self.pieces.front_mut() {
            if *allowed == 0 {
                *withheld = true;
                break;
            }
            let wanted = piece.len().min(*allowed);
            self.stream.reserve_capacity(wanted);
            let room = self.stream.capacity().min(wanted);
            if room == 0 {
                break;
            }
            *allowed -= room;
            let part = piece.split_to(room);
            self.waiting -= room;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            let last = self.events.is_none() && self.pieces.is_empty();
            if self.stream.send_data(part, last).is_err() || last {
                return false;
            }
        }
        self.stream.poll_reset(context).is_pending()
    }
}

/// Sends the head of an answer. `None`: the client has given the request up.
pub(super) fn begin(
    mut respond: SendResponse<Bytes>,
    answer: &Answer,
    options: &AnswerOptions,
    service: &Service,
    length: Option<usize>,
    ends: bool,
) -> Option<SendStream<Bytes>> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.all_fields(service, options) {
        response = response.header(name, value);
    }
    if let Some(length) = length {
        response = response.header("content-length", length);
    }
    respond.send_response(response.body(()).ok()?, ends).ok()
}
