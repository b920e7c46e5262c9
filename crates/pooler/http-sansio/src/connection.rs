//! A client's connection in HTTP/1.1 or HTTP/2. The client's first bytes decide which.

use std::sync::Arc;

use crate::{
    Answer, Denied, Door, End, InputEvent, MemoryBudget, Service, Stream,
    http1::{Http1, Step},
    http2::Http2,
    memory_budget::MemoryShare,
};

pub struct Connection<C> {
    service: &'static Service,
    /// The answer to the next request, if the connection is refused.
    refusal: Option<Box<Denied>>,
    share: MemoryShare,
    version: Version<C>,
}

enum Version<C> {
    One(Http1<C>),
    Two(Box<Http2<C>>),
}

impl<C> Connection<C> {
    /// A new connection, which shares the `budget` with others.
    pub fn new(service: &'static Service, budget: Arc<MemoryBudget>) -> Self {
        Self { service, refusal: None, share: MemoryShare::new(budget), version: Version::One(Http1::default()) }
    }

    /// Handles input: `bytes` are all that have come and were not consumed. Returns how many are consumed, and an
    /// event. Call it with the rest, even if that is empty, until it returns no event. `held` is the memory that the
    /// owner holds for unanswered requests of this connection, in bytes.
    pub fn read<'b, D: Door<Caller = C>>(
        &mut self,
        bytes: &'b [u8],
        held: usize,
        door: &mut D,
    ) -> (usize, Option<InputEvent<'b, C>>) {
        let mut at = 0;
        if let Version::One(one) = &mut self.version {
            let (used, step) = one.read(bytes, self.service, &mut self.refusal, &mut self.share, door);
            match step {
                Step::On | Step::Wait => return (used, None),
                Step::Tell(event) => return (used, Some(event)),
                Step::Http2 => {
                    let mut before = Vec::new();
                    one.flush(&mut before, usize::MAX);
                    let most = door.rules().map_or(0, |rules| rules.max_request);
                    self.version = Version::Two(Box::new(Http2::new(self.service, most, before)));
                    at = used;
                }
            }
        }
        let Version::Two(two) = &mut self.version else { unreachable!("it has just become HTTP/2") };
        let request = two.read(&bytes[at..], held, self.refusal.as_deref(), &mut self.share, door);
        (bytes.len(), request.map(InputEvent::Request))
    }

    /// Answers a request. The answer is dropped if the client has cancelled the request.
    pub fn answer(&mut self, stream: Stream, answer: Answer) {
        match &mut self.version {
            Version::One(one) => one.answer(stream, answer, self.service),
            Version::Two(two) => two.answer(stream, answer),
        }
    }

    /// Answers a request with a refusal. The connection stays open.
    pub fn deny(&mut self, stream: Stream, denied: &Denied) {
        self.answer(stream, Answer::denied(self.service, denied));
    }

    /// Answers a request with a stream of events, which lasts until one side ends it. Returns false if the client has
    /// cancelled the request.
    pub fn open_events(&mut self, stream: Stream) -> bool {
        match &mut self.version {
            Version::One(one) => one.open_events(stream, self.service),
            Version::Two(two) => two.open_events(stream),
        }
    }

    /// Sends events, as an [`EventWriter`](crate::EventWriter) writes them, on these streams. A stream that its client
    /// reads too slowly is ended, as is one for which there is no memory.
    pub fn send_events(&mut self, streams: impl IntoIterator<Item = Stream>, events: &[u8]) {
        let available = self.share.limit().saturating_sub(self.holds());
        match &mut self.version {
            Version::One(one) => one.send_events(streams, events, available),
            Version::Two(two) => two.send_events(streams, events, available),
        }
    }

    /// Ends a stream of events. In HTTP/1.1 this ends the connection.
    pub fn end_events(&mut self, stream: Stream) {
        match &mut self.version {
            Version::One(one) => one.end_events(stream),
            Version::Two(two) => two.end_events(stream),
        }
    }

    /// Refuses the next request, and ends the connection with that answer.
    pub fn refuse(&mut self, denied: Denied) {
        self.refusal = Some(Box::new(denied));
    }

    /// Ends the connection, with this answer to unanswered requests. An idle connection ends without an answer: HTTP
    /// clients reconnect.
    pub fn close(&mut self, denied: &Denied) {
        let answer = Answer::denied(self.service, denied);
        match &mut self.version {
            Version::One(one) => one.close(answer, self.service),
            Version::Two(two) => two.close(&answer),
        }
    }

    /// Ends the connection because of an error of the client. In HTTP/1.1 the answer is sent even without a request.
    pub fn fail(&mut self, denied: &Denied) {
        match &mut self.version {
            Version::One(one) => one.fail(denied, self.service),
            Version::Two(two) => two.close(&Answer::denied(self.service, denied)),
        }
    }

    /// Appends bytes to be sent to the client, with at most `most` bytes of bodies of answers (HTTP/2), or of answers
    /// and events (HTTP/1.1). The rest waits for the next call.
    pub fn flush(&mut self, to: &mut Vec<u8>, most: usize) {
        match &mut self.version {
            Version::One(one) => one.flush(to, most),
            Version::Two(two) => two.flush(to, most),
        }
    }

    /// Whether bytes wait for the next [`Connection::flush`].
    pub fn has_more(&self) -> bool {
        match &self.version {
            Version::One(one) => one.has_more(),
            Version::Two(two) => two.has_more(),
        }
    }

    /// Bytes of answers that have not been flushed, because of the limit of [`Connection::flush`], or of the client's
    /// flow control window (HTTP/2). In HTTP/1.1 events count, too; in HTTP/2 they do not.
    pub fn unflushed(&self) -> usize {
        match &self.version {
            Version::One(one) => one.unflushed(),
            Version::Two(two) => two.unflushed(),
        }
    }

    /// Streams of events that have ended since the last call.
    pub fn ended(&mut self) -> Vec<Stream> {
        match &mut self.version {
            Version::One(_) => Vec::new(),
            Version::Two(two) => two.ended(),
        }
    }

    /// How the connection has ended, once, after everything before was flushed (HTTP/1.1).
    pub fn end(&mut self) -> Option<End> {
        match &mut self.version {
            Version::One(one) => one.end(),
            Version::Two(two) => two.end(),
        }
    }

    /// Whether the connection can have several requests at a time (HTTP/2).
    pub fn has_streams(&self) -> bool {
        matches!(self.version, Version::Two(_))
    }

    /// Whether the client has to read answers before more of its requests are carried out.
    pub fn is_behind(&self) -> bool {
        match &self.version {
            Version::One(one) => one.has_more(),
            Version::Two(two) => two.is_behind(),
        }
    }

    /// Counts `held` bytes for requests, besides what the connection holds itself, if the memory allows them. False if
    /// it does not.
    pub fn try_hold(&mut self, held: usize) -> bool {
        let all = self.holds() + held;
        let permitted = all <= self.share.limit();
        if permitted {
            self.share.hold(all);
        }
        permitted
    }

    /// Counts the memory that the owner holds for requests, `held` bytes. Call it whenever that may have changed.
    pub fn count(&mut self, held: usize) {
        self.share.hold(self.holds() + held);
    }

    fn holds(&self) -> usize {
        match &self.version {
            Version::One(one) => one.holds(),
            Version::Two(two) => two.holds(),
        }
    }
}

#[cfg(test)]
mod tests;
