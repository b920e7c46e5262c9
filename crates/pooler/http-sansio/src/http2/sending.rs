//! The body of an answer in HTTP/2 while it is sent.

use std::{collections::VecDeque, task::Context};

use bytes::Bytes;
use h2::{Reason, SendStream, server::SendResponse};
use http::Response;

use crate::{Answer, Service, Stream, access::AnswerOptions, events::MAX_UNREAD_EVENT_BYTES};

pub(super) struct Sending {
    stream: SendStream<Bytes>,
    /// No piece is empty.
    pieces: VecDeque<Bytes>,
    /// The number of bytes in the pieces.
    pub waiting: usize,
    /// The size of the allocation behind the pieces, which is freed with the last of them.
    whole: usize,
    /// The stream of events; more may follow. `None` for a body that is complete.
    pub events: Option<Stream>,
}

impl Sending {
    pub(super) fn whole(stream: SendStream<Bytes>, body: Vec<u8>) -> Self {
        let length = body.len();
        Self { stream, waiting: length, whole: length, pieces: VecDeque::from([Bytes::from(body)]), events: None }
    }

    /// A stream of events, without any yet.
    pub(super) fn events(stream: SendStream<Bytes>, name: Stream) -> Self {
        Self { stream, waiting: 0, whole: 0, pieces: VecDeque::new(), events: Some(name) }
    }

    /// The memory that it holds, in bytes.
    pub(super) fn holds(&self) -> usize {
        self.waiting.max(self.whole)
    }

    /// Whether `length` more bytes may wait for the client.
    pub(super) fn fits(&self, length: usize) -> bool {
        self.waiting + length <= MAX_UNREAD_EVENT_BYTES
    }

    pub(super) fn add(&mut self, bytes: &Bytes) {
        if !bytes.is_empty() {
            self.waiting += bytes.len();
            self.pieces.push_back(bytes.clone());
        }
    }

    /// Cancels the stream.
    pub(super) fn reset(mut self) {
        self.stream.send_reset(Reason::CANCEL);
    }

    /// Hands over what the flow control window allows, up to `allowed`; sets `withheld` if that was the limit. False
    /// after the last piece, or if the client has cancelled the stream.
    pub(super) fn feed(&mut self, allowed: &mut usize, withheld: &mut bool, context: &mut Context<'_>) -> bool {
        while let Some(piece) = self.pieces.front_mut() {
            if *allowed == 0 {
                *withheld = true;
                break;
            }
            let wanted = piece.len().min(*allowed);
            self.stream.reserve_capacity(wanted);
            let available = self.stream.capacity().min(wanted);
            if available == 0 {
                break;
            }
            *allowed -= available;
            let part = piece.split_to(available);
            self.waiting -= available;
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

/// Sends the head of an answer. `None` if the client has cancelled the request.
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
