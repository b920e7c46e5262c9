//! HTTP/2 (RFC 9113): bytes in, complete requests out; answers in, bytes out. Bodies of answers wait here for the
//! client's flow control window, so that the amount of unread bytes is known.
//!
//! The h2 crate handles the frames, on an in-memory socket ([`wire`]). It is polled after every event, so its wakers
//! are not used.

mod sending;
mod upload;
mod wire;

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::server::{self, Connection, Handshake, SendResponse};
use http::request::Parts;

use self::{
    sending::{Sending, begin},
    upload::{Purpose, Upload},
    wire::Wire,
};
use crate::{
    Answer, Denied, Door, End, Method, Request, Service, Stream, Target,
    access::{self, AnswerOptions, Rules},
    head::{Head, MAX_HEAD},
    memory_budget::MemoryShare,
    request::AdmittedRequest,
};

/// The connection preface (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Maximum number of concurrent streams of a connection.
const MAX_STREAMS: u32 = 100;

/// Maximum number of unanswered requests. A client may cancel requests and send others, so the number of streams does
/// not bound them.
const MAX_UNANSWERED_REQUESTS: usize = 1000;

/// The initial flow control window, in bytes: how much of bodies a client may send before any of it is read.
const INITIAL_WINDOW_SIZE: u32 = 1024 * 1024;

/// Bytes of unread answers from which on the client has to read before more of its requests are carried out.
const MAX_UNREAD_ANSWER_BYTES: usize = 1024 * 1024;

pub(crate) struct Http2<C> {
    service: &'static Service,
    state: State,
    wire: Wire,
    uploads: Vec<Upload<C>>,
    /// Complete or refused requests that have not been handed over.
    arrived: VecDeque<CompleteRequest<C>>,
    /// Unanswered requests.
    unanswered: BTreeMap<Stream, (SendResponse<Bytes>, AnswerOptions)>,
    sendings: Vec<Sending>,
    /// Bytes of answers and events in `sendings`.
    unsent: usize,
    /// How many bytes of bodies the current flush may still write, and whether it has reached its limit.
    allowed: usize,
    withheld: bool,
    /// Bytes of incomplete request bodies.
    uploading: usize,
    /// Streams of events that have ended.
    ended: Vec<Stream>,
    max_request: usize,
    /// The connection ends once all requests have been answered.
    closing: bool,
    /// Input is ignored from now on.
    over: bool,
    end: Option<End>,
}

enum State {
    Greeting(Box<Handshake<Wire, Bytes>>),
    Open(Box<Connection<Wire, Bytes>>),
    Over,
}

/// A complete request, or why it is refused.
struct CompleteRequest<C> {
    request: Result<(Purpose<C>, Vec<u8>), Denied>,
    options: AnswerOptions,
    respond: SendResponse<Bytes>,
}

impl<C> Http2<C> {
    /// A connection whose request bodies have at most `max_request` bytes. Its output follows the bytes `before`.
    pub(crate) fn new(service: &'static Service, max_request: usize, before: Vec<u8>) -> Self {
        let wire = Wire::default();
        wire.begin(before);
        let greeting = server::Builder::new()
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD as u32)
            .initial_window_size(INITIAL_WINDOW_SIZE)
            .initial_connection_window_size(INITIAL_WINDOW_SIZE)
            .handshake(wire.clone());
        Self {
            service,
            state: State::Greeting(Box::new(greeting)),
            wire,
            uploads: Vec::new(),
            arrived: VecDeque::new(),
            unanswered: BTreeMap::new(),
            sendings: Vec::new(),
            unsent: 0,
            allowed: 0,
            withheld: false,
            uploading: 0,
            ended: Vec::new(),
            max_request,
            closing: false,
            over: false,
            end: None,
        }
    }

    /// See [`Connection::read`](crate::Connection::read). It consumes all of the bytes.
    pub(crate) fn read<D: Door<Caller = C>>(
        &mut self,
        bytes: &[u8],
        held: usize,
        refusal: Option<&Denied>,
        share: &mut MemoryShare,
        door: &mut D,
    ) -> Option<Request<'static, C>> {
        if !bytes.is_empty() && !self.over {
            let rules = access::rules(door);
            if let Ok(rules) = &rules {
                share.set_max_request(rules.max_request);
                // A reload may have changed it.
                self.max_request = rules.max_request;
            }
            self.take(bytes, share.limit().saturating_sub(held), refusal, &rules, door);
            self.closing |= refusal.is_some() && !self.arrived.is_empty();
        }
        while let Some(arrived) = self.arrived.pop_front() {
            if let Some(request) = self.arrive(arrived, door) {
                return Some(request);
            }
        }
        if self.unanswered.len() > MAX_UNANSWERED_REQUESTS {
            self.over(End::Fault("requests are given up faster than they can be carried out".to_owned()));
        }
        None
    }

    /// Feeds input to the h2 crate. `available` is the memory for all that is held here, earlier input included.
    /// Requests without memory for their bodies are refused, and requests that their heads rule out are refused without
    /// their bodies.
    fn take<D: Door<Caller = C>>(
        &mut self,
        bytes: &[u8],
        available: usize,
        refusal: Option<&Denied>,
        rules: &Result<Arc<Rules>, Denied>,
        door: &mut D,
    ) {
        self.wire.put(bytes);
        let mut context = Context::from_waker(Waker::noop());
        if let State::Greeting(greeting) = &mut self.state {
            match Pin::new(&mut **greeting).poll(&mut context) {
                Poll::Pending => return,
                Poll::Ready(Err(error)) => return self.fail(&error),
                Poll::Ready(Ok(connection)) => self.state = State::Open(Box::new(connection)),
            }
        }
        while let State::Open(connection) = &mut self.state {
            match connection.poll_accept(&mut context) {
                Poll::Pending => break,
                Poll::Ready(None) => {
                    self.state = State::Over;
                    return self.over(End::Fault("the client ended the connection".to_owned()));
                }
                Poll::Ready(Some(Err(error))) => return self.fail(&error),
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let (parts, stream) = request.into_parts();
                    match self.admit(&parts, refusal, rules, door) {
                        Ok((what, options)) => self.uploads.push(Upload::new(what, options, stream, respond)),
                        Err(denied) => {
                            let options = AnswerOptions::default();
                            self.arrived.push_back(CompleteRequest { request: Err(denied), options, respond });
                        }
                    }
                }
            }
        }
        self.receive(available, &mut context);
        // Sends window updates for what was received.
        self.write_frames();
    }

    fn fail(&mut self, error: &h2::Error) {
        self.state = State::Over;
        self.over(End::Fault(format!("HTTP/2: {error}")));
    }

    fn over(&mut self, end: End) {
        if !std::mem::replace(&mut self.over, true) {
            self.end = Some(end);
        }
    }

    /// Checks a head.
    ///
    /// # Errors
    ///
    /// The request is refused, whatever its body is.
    fn admit<D: Door<Caller = C>>(
        &mut self,
        parts: &Parts,
        refusal: Option<&Denied>,
        rules: &Result<Arc<Rules>, Denied>,
        door: &mut D,
    ) -> Result<(Purpose<C>, AnswerOptions), Denied> {
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut head = Head::new(parts.method.as_str(), target)?;
        let fields = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        head.read_fields(fields, self.service.fields)?;
        if let Some(denied) = refusal {
            return Err(denied.clone());
        }
        let rules = rules.as_ref().map_err(Denied::clone)?;
        if self.closing {
            return Err(access::unauthorized("a wrong token came before this request"));
        }
        let options = AnswerOptions::new(&head, rules);
        if head.method == Method::Options {
            return Ok((Purpose::Permission, options));
        }
        let target = Target::read(&head.target, self.service.query_token);
        let caller = door.recognise(access::token(&head, &target, rules)?);
        self.closing |= caller.is_none();
        let caller = caller.ok_or_else(access::unknown)?;
        let Head { method, fields, .. } = head;
        Ok((Purpose::Request(AdmittedRequest { method, target, fields, caller }), options))
    }

    /// Reads the bodies that have come. Requests that become complete at the same time keep their order.
    fn receive(&mut self, available: usize, context: &mut Context<'_>) {
        let mut at = 0;
        // A complete request counts as held until it is handed over.
        let mut available = available.saturating_sub(self.holds());
        while let Some(upload) = self.uploads.get_mut(at) {
            let request = match upload.receive(self.max_request, &mut available, context) {
                Poll::Pending => {
                    at += 1;
                    continue;
                }
                Poll::Ready(outcome) => outcome,
            };
            let Upload { what, options, body, respond, .. } = self.uploads.remove(at);
            match request {
                None => {}
                Some(Ok(())) => self.arrived.push_back(CompleteRequest { request: Ok((what, body)), options, respond }),
                Some(Err(denied)) => {
                    let options = AnswerOptions::default();
                    self.arrived.push_back(CompleteRequest { request: Err(denied), options, respond });
                }
            }
        }
        self.uploading = self.uploads.iter().map(|upload| upload.body.len()).sum();
    }

    /// Hands over a complete request, or answers it.
    fn arrive<D: Door<Caller = C>>(
        &mut self,
        arrived: CompleteRequest<C>,
        door: &mut D,
    ) -> Option<Request<'static, C>> {
        let CompleteRequest { request, options, respond } = arrived;
        let answer = match request {
            Err(denied) => Answer::denied(self.service, &denied),
            Ok((Purpose::Permission, _)) => Answer::permission(&options),
            Ok((Purpose::Request(asked), body)) => match door.enter(&asked.caller) {
                Err(denied) => Answer::denied(self.service, &denied),
                Ok(()) => {
                    let stream = Stream(respond.stream_id().as_u32());
                    self.unanswered.insert(stream, (respond, options));
                    return Some(asked.with_body(stream, Cow::Owned(body)));
                }
            },
        };
        self.respond(respond, answer, &options);
        None
    }

    /// The memory that it holds: incomplete request bodies, and bodies of answers until their last byte is written.
    pub(crate) fn holds(&self) -> usize {
        self.uploading + self.sendings.iter().map(Sending::holds).sum::<usize>()
    }

    /// See [`Connection::is_behind`](crate::Connection::is_behind).
    pub(crate) fn is_behind(&self) -> bool {
        self.unsent > MAX_UNREAD_ANSWER_BYTES
    }

    /// Writes all that can be written. Bodies are limited by `allowed` and by flow control.
    fn write_all(&mut self) {
        self.write_frames();
        while matches!(self.state, State::Open(_)) && self.feed(&mut Context::from_waker(Waker::noop())) {
            self.write_frames();
        }
    }

    /// Writes all except bodies.
    fn write_frames(&mut self) {
        if let State::Open(connection) = &mut self.state {
            // All input has been read, so this can return no request.
            let _ = connection.poll_closed(&mut Context::from_waker(Waker::noop()));
        }
    }

    /// Hands over what the limits allow. True if that was anything.
    fn feed(&mut self, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        self.withheld = false;
        self.sendings.retain_mut(|sending| {
            let before = sending.waiting;
            let goes_on = sending.feed(&mut self.allowed, &mut self.withheld, context);
            let left = if goes_on { sending.waiting } else { 0 };
            moved |= left < before;
            self.unsent -= before - left;
            if !goes_on {
                self.ended.extend(sending.events);
            }
            goes_on
        });
        if moved && self.withheld && !self.sendings.is_empty() {
            // The next flush begins with another stream.
            self.sendings.rotate_left(1);
        }
        moved
    }

    fn respond(&mut self, respond: SendResponse<Bytes>, mut answer: Answer, options: &AnswerOptions) {
        let body = answer.body.take().unwrap_or_default();
        let length = (answer.status != 204).then_some(body.len());
        let ends = body.is_empty() || options.head_only;
        let stream = begin(respond, &answer, options, self.service, length, ends);
        let Some(stream) = stream.filter(|_| !ends) else { return };
        self.unsent += body.len();
        self.sendings.push(Sending::whole(stream, body));
    }

    /// See [`Connection::answer`](crate::Connection::answer).
    pub(crate) fn answer(&mut self, stream: Stream, answer: Answer) {
        if let Some((respond, options)) = self.unanswered.remove(&stream) {
            self.respond(respond, answer, &options);
        }
    }

    /// See [`Connection::open_events`](crate::Connection::open_events).
    pub(crate) fn open_events(&mut self, stream: Stream) -> bool {
        let Some((respond, options)) = self.unanswered.remove(&stream) else { return false };
        let begun = begin(respond, &Answer::events(), &options, self.service, None, false);
        let opened = begun.is_some();
        self.sendings.extend(begun.map(|begun| Sending::events(begun, stream)));
        opened
    }

    /// See [`Connection::send_events`](crate::Connection::send_events).
    pub(crate) fn send_events(
        &mut self,
        streams: impl IntoIterator<Item = Stream>,
        events: &[u8],
        mut available: usize,
    ) {
        // The events are copied once, for the first stream for which there is memory.
        let mut copy = None;
        for stream in streams {
            let Some(sending) = self.sendings.iter_mut().find(|sending| sending.events == Some(stream)) else {
                continue;
            };
            let fits = events.len() <= available && sending.fits(events.len());
            if fits {
                sending.add(copy.get_or_insert_with(|| Bytes::copy_from_slice(events)));
                self.unsent += events.len();
                available -= events.len();
            } else {
                self.end_events(stream);
            }
        }
    }

    /// See [`Connection::end_events`](crate::Connection::end_events).
    pub(crate) fn end_events(&mut self, stream: Stream) {
        let Some(at) = self.sendings.iter().position(|sending| sending.events == Some(stream)) else { return };
        let sending = self.sendings.swap_remove(at);
        self.unsent -= sending.waiting;
        sending.reset();
        self.ended.push(stream);
    }

    /// See [`Connection::ended`](crate::Connection::ended).
    pub(crate) fn ended(&mut self) -> Vec<Stream> {
        std::mem::take(&mut self.ended)
    }

    /// See [`Connection::close`](crate::Connection::close).
    pub(crate) fn close(&mut self, answer: &Answer) {
        for (_, (respond, options)) in std::mem::take(&mut self.unanswered) {
            self.respond(respond, answer.clone(), &options);
        }
        if !self.over {
            self.allowed = usize::MAX;
            self.send_go_away();
            self.over(End::Done);
        }
    }

    /// Tells the client that no further request is accepted, after its answers. (The graceful way, two GOAWAY frames
    /// with a PING between, does not work with Python's h2, which ends the connection at the first.)
    fn send_go_away(&mut self) {
        self.write_all();
        if let State::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(h2::Reason::NO_ERROR);
        }
        self.write_all();
    }

    /// See [`Connection::flush`](crate::Connection::flush).
    pub(crate) fn flush(&mut self, to: &mut Vec<u8>, most: usize) {
        self.allowed = most;
        self.write_all();
        if self.closing && self.unanswered.is_empty() && self.unflushed() == 0 && !self.over {
            self.send_go_away();
            self.over(End::Done);
        }
        self.wire.drain(to);
    }

    /// See [`Connection::has_more`](crate::Connection::has_more).
    pub(crate) fn has_more(&self) -> bool {
        self.withheld && matches!(self.state, State::Open(_)) && !self.over
    }

    /// See [`Connection::unflushed`](crate::Connection::unflushed).
    pub(crate) fn unflushed(&self) -> usize {
        self.sendings.iter().filter(|sending| sending.events.is_none()).map(|sending| sending.waiting).sum()
    }

    /// See [`Connection::end`](crate::Connection::end).
    pub(crate) fn end(&mut self) -> Option<End> {
        self.end.take()
    }
}

#[cfg(test)]
mod tests;
