//! The body of a request in HTTP/2 while it arrives.

use std::task::{Context, Poll};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};

use crate::{Denied, access::AnswerOptions, body::MAX_DISCARDED_BODY, request::AdmittedRequest};

pub(super) struct Upload<C> {
    pub what: Purpose<C>,
    pub options: AnswerOptions,
    pub body: Vec<u8>,
    /// The number of bytes that have come, discarded ones included.
    length: u64,
    /// Why the request is refused, once its body is complete.
    denied: Option<Denied>,
    stream: RecvStream,
    pub respond: SendResponse<Bytes>,
}

pub(super) enum Purpose<C> {
    /// A preflight request (CORS).
    Permission,
    Request(AdmittedRequest<C>),
}

impl<C> Upload<C> {
    pub(super) fn new(
        what: Purpose<C>,
        options: AnswerOptions,
        stream: RecvStream,
        respond: SendResponse<Bytes>,
    ) -> Self {
        Self { what, options, body: Vec::new(), length: 0, denied: None, stream, respond }
    }

    /// Reads what has come. `None` if the client has cancelled the request. `most` is the maximum size of a body;
    /// memory is taken from `available`.
    pub(super) fn receive(
        &mut self,
        most: usize,
        available: &mut usize,
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
                    if matches!(self.what, Purpose::Permission) {
                        // The body of a preflight request is discarded.
                        match self.length > MAX_DISCARDED_BODY {
                            true => return Poll::Ready(Some(Err(Denied::too_large(most)))),
                            false => continue,
                        }
                    }
                    if self.denied.is_none() && self.length > most as u64 {
                        self.denied = Some(Denied::too_large(most));
                    } else if self.denied.is_none() && data.len() > *available {
                        self.denied = Some(Denied::crowded());
                    }
                    if self.denied.is_none() {
                        *available -= data.len();
                        self.body.extend_from_slice(&data);
                        continue;
                    }
                    // Many clients read an answer only after they have sent the whole body, so the rest is discarded up
                    // to a limit.
                    *available += self.body.len();
                    self.body = Vec::new();
                    if let Some(denied) = self.denied.take_if(|_| self.length > most as u64 + MAX_DISCARDED_BODY) {
                        return Poll::Ready(Some(Err(denied)));
                    }
                }
            }
        }
    }
}
