//! The body of a request of HTTP/2 on its way.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};

use crate::{Denied, access::AnswerOptions, body::MAX_DROPPED, request::Asked};

pub(super) struct Upload<C> {
    pub what: What<C>,
    pub options: AnswerOptions,
    pub body: Vec<u8>,
    /// Bytes of the body that have come, those that were dropped included.
    length: u64,
    /// Why it is not carried out, once all of it has come.
    denied: Option<Denied>,
    stream: RecvStream,
    pub respond: SendResponse<Bytes>,
}

pub(super) enum What<C> {
    /// Whether a browser may let its pages ask.
    Permission,
    Request(Asked<C>),
}

impl<C> Upload<C> {
    pub(super) fn new(what: What<C>, options: AnswerOptions, stream: RecvStream, respond: SendResponse<Bytes>) -> Self {
        Self { what, options, body: Vec::new(), length: 0, denied: None, stream, respond }
    }

    /// Takes what has come; `None`: the client has given it up. `most` is the largest body; what is held comes out of
    /// the `room`.
    pub(super) fn receive(
        &mut self,
        most: usize,
        room: &mut usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(), Denied>>> {
        loop {
            match self.stream.poll_data(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Some(self.denied.take().map_or(Ok(()), Err))),
                Poll::Ready(Some(Err(_))) => return Poll::Ready(None),
                Poll::Ready(Some(Ok(data))) => {
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    self.length += data.len() as u64;
                    if matches!(self.what, What::Permission) {
                        // Nothing is asked of its body, which anybody may send.
                        match self.length > MAX_DROPPED {
                            true => return Poll::Ready(Some(Err(Denied::too_large(most)))),
                            false => continue,
                        }
                    }
                    if self.denied.is_none() && self.length > most as u64 {
                        self.denied = Some(Denied::too_large(most));
                    } else if self.denied.is_none() && data.len() > *room {
                        self.denied = Some(Denied::crowded());
                    }
                    if self.denied.is_none() {
                        *room -= data.len();
                        self.body.extend_from_slice(&data);
                        continue;
                    }
                    // Clients listen to the answer when they have sent all; for ever that does not go on.
                    *room += self.body.len();
                    self.body = Vec::new();
                    if let Some(denied) = self.denied.take_if(|_| self.length > most as u64 + MAX_DROPPED) {
                        return Poll::Ready(Some(Err(denied)));
                    }
                }
            }
        }
    }
}
