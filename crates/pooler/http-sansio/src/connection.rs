//! One client's connection, whatever version of HTTP it turns out to speak.

use std::sync::Arc;

use crate::{
    Answer, Denied, Door, End, Event, Room, Service, Stream,
    http1::{Http1, Step},
    http2::Http2,
    room::Share,
};

pub struct Connection<C> {
    service: &'static Service,
    /// What is told to whoever asks next.
    refusal: Option<Box<Denied>>,
    share: Share,
    version: Version<C>,
}

enum Version<C> {
    One(Http1<C>),
    Two(Box<Http2<C>>),
}

impl<C> Connection<C> {
    /// A connection of which no byte has come. It shares the `room` with others.
    pub fn new(service: &'static Service, room: Arc<Room>) -> Self {
        Self { service, refusal: None, share: Share::new(room), version: Version::One(Http1::default()) }
    }

    /// Reads on: `bytes` are all that have come and were not consumed. Returns how many are, and what comes of them. To
    /// be called with the others, even if there are none, until no event comes. `held` is what the owner holds in bytes
    /// for requests of this connection that it has not answered.
    pub fn read<'b, D: Door<Caller = C>>(
        &mut self,
        bytes: &'b [u8],
        held: usize,
        door: &mut D,
    ) -> (usize, Option<Event<'b, C>>) {
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
        (bytes.len(), request.map(Event::Request))
    }

    /// Answers a request. Where the client has given it up, nobody hears it.
    pub fn answer(&mut self, stream: Stream, answer: Answer) {
        match &mut self.version {
            Version::One(one) => one.answer(stream, answer, self.service),
            Version::Two(two) => two.answer(stream, answer),
        }
    }

    /// Answers a request that is not carried out. The connection goes on.
    pub fn deny(&mut self, stream: Stream, denied: &Denied) {
        self.answer(stream, Answer::denied(self.service, denied));
    }

    /// Begins to answer a request with events, which go on until one side ends the stream, or the connection. False:
    /// the client has given the request up.
    pub fn open(&mut self, stream: Stream) -> bool {
        match &mut self.version {
            Version::One(one) => one.open(stream, self.service),
            Version::Two(two) => two.open(stream),
        }
    }

    /// Says events, as an [`EventWriter`](crate::EventWriter) writes them, to whoever has opened one of these streams.
    /// A stream of which the client leaves too much unread is ended, as is one for whose events there is no room.
    pub fn say(&mut self, streams: impl IntoIterator<Item = Stream>, events: &[u8]) {
        let room = self.share.limit().saturating_sub(self.holds());
        match &mut self.version {
            Version::One(one) => one.say(streams, events, room),
            Version::Two(two) => two.say(streams, events, room),
        }
    }

    /// Ends a stream of events in the middle; in HTTP/1.1 that is the end of the connection.
    pub fn reset(&mut self, stream: Stream) {
        match &mut self.version {
            Version::One(one) => one.reset(stream),
            Version::Two(two) => two.reset(stream),
        }
    }

    /// Whoever asks next is refused, and the connection ends with that.
    pub fn refuse(&mut self, denied: Denied) {
        self.refusal = Some(Box::new(denied));
    }

    /// Ends the connection, and answers so what has been asked. Between requests its end says it all: clients of HTTP
    /// connect again.
    pub fn close(&mut self, denied: &Denied) {
        let answer = Answer::denied(self.service, denied);
        match &mut self.version {
            Version::One(one) => one.close(answer, self.service),
            Version::Two(two) => two.close(&answer),
        }
    }

    /// Ends the connection for what the client did. In HTTP/1.1 it is told even if it has asked nothing yet.
    pub fn fail(&mut self, denied: &Denied) {
        match &mut self.version {
            Version::One(one) => one.fail(denied, self.service),
            Version::Two(two) => two.close(&Answer::denied(self.service, denied)),
        }
    }

    /// Appends what the client is to be sent now. Of bodies of answers (HTTP/2), of answers and events (HTTP/1.1), it
    /// is no more than `most` bytes: the rest waits until this is called again.
    pub fn flush(&mut self, to: &mut Vec<u8>, most: usize) {
        match &mut self.version {
            Version::One(one) => one.flush(to, most),
            Version::Two(two) => two.flush(to, most),
        }
    }

    /// Whether there was more to be flushed than that.
    pub fn has_more(&self) -> bool {
        match &self.version {
            Version::One(one) => one.has_more(),
            Version::Two(two) => two.has_more(),
        }
    }

    /// Bytes of answers that have not been flushed: they were more than might be, or than the client has made room for
    /// (HTTP/2).
    pub fn unread(&self) -> usize {
        match &self.version {
            Version::One(one) => one.unread(),
            Version::Two(two) => two.unread(),
        }
    }

    /// Streams of events that have ended since this was asked last.
    pub fn ended(&mut self) -> Vec<Stream> {
        match &mut self.version {
            Version::One(_) => Vec::new(),
            Version::Two(two) => two.ended(),
        }
    }

    /// How the connection has ended, if it has, and all was flushed that was said before (HTTP/1.1). Told once.
    pub fn end(&mut self) -> Option<End> {
        match &mut self.version {
            Version::One(one) => one.end(),
            Version::Two(two) => two.end(),
        }
    }

    /// Whether several requests may be under way (HTTP/2).
    pub fn has_streams(&self) -> bool {
        matches!(self.version, Version::Two(_))
    }

    /// Whether the client has to read some of its answers before more of its requests are carried out.
    pub fn is_behind(&self) -> bool {
        match &self.version {
            Version::One(one) => one.has_more(),
            Version::Two(two) => two.is_behind(),
        }
    }

    /// Whether its owner may hold so many bytes for its requests, besides what the connection holds itself. If so, they
    /// are counted.
    pub fn may_hold(&mut self, held: usize) -> bool {
        let all = self.holds() + held;
        let permitted = all <= self.share.limit();
        if permitted {
            self.share.hold(all);
        }
        permitted
    }

    /// Counts what is held: `held` by the owner for its requests. To be called whenever that may have changed.
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
