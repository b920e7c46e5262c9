//! HTTP/1.1 (RFC 9112): one request after the other, each with a head and a body.

use std::{borrow::Cow, collections::VecDeque};

use crate::{
    Answer, Denied, Door, End, InputEvent, Method, Service, Stream, Target,
    access::{self, AnswerOptions},
    body::{Body, MAX_DISCARDED_BODY},
    events::MAX_UNREAD_EVENT_BYTES,
    head::{self, Framing, Head, MAX_HEAD},
    http2::PREFACE,
    memory_budget::MemoryShare,
    request::AdmittedRequest,
};

/// Maximum size of a piece that events are joined into, in bytes, so that few pieces wait.
const MAX_EVENT_PIECE: usize = 64 * 1024;

pub(crate) struct Http1<C> {
    stage: Stage<C>,
    /// Bytes to be sent. No piece is empty.
    pieces: VecDeque<Vec<u8>>,
    /// The number of flushed bytes of the first piece.
    flushed: usize,
    /// The number of the latest request.
    stream: Stream,
    end: Option<End>,
}

#[derive(Default)]
enum Stage<C> {
    /// The head of a request comes next.
    #[default]
    Head,
    /// A body is arriving.
    Body(Box<Upload<C>>),
    /// A request waits for its answer.
    Unanswered(AnswerOptions),
    /// A stream of events, until the connection ends.
    Events,
    /// The request was refused early: this many bytes of its body are discarded before the connection ends. Closing a
    /// socket with unread input resets the connection, which may destroy the answer.
    Discard(u64),
    Over,
}

struct Upload<C> {
    asked: AdmittedRequest<C>,
    options: AnswerOptions,
    body: Body,
}

/// The result of handling some input.
pub(crate) enum Step<'b, C> {
    On,
    /// More input is needed, or the answer to a request.
    Wait,
    Tell(InputEvent<'b, C>),
    /// The client switches to HTTP/2.
    Http2,
}

impl<C> Default for Http1<C> {
    fn default() -> Self {
        Self { stage: Stage::Head, pieces: VecDeque::new(), flushed: 0, stream: Stream(0), end: None }
    }
}

impl<C> Http1<C> {
    /// See [`Connection::read`](crate::Connection::read).
    pub(crate) fn read<'b, D: Door<Caller = C>>(
        &mut self,
        bytes: &'b [u8],
        service: &'static Service,
        refusal: &mut Option<Box<Denied>>,
        share: &mut MemoryShare,
        door: &mut D,
    ) -> (usize, Step<'b, C>) {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (used, step) = match std::mem::take(&mut self.stage) {
                // The client has to read pending answers first.
                Stage::Head if self.has_more() => (0, Step::Wait),
                Stage::Head if PREFACE.starts_with(&rest[..rest.len().min(PREFACE.len())]) => {
                    (0, if rest.len() < PREFACE.len() { Step::Wait } else { Step::Http2 })
                }
                Stage::Head => match self.begin(rest, service, refusal, share, door) {
                    Ok(read) => read,
                    Err((options, denied)) => {
                        self.fail_as(options, &denied, service);
                        (0, Step::On)
                    }
                },
                Stage::Body(upload) => self.upload(upload, rest, share, service),
                Stage::Discard(left) => {
                    let left = left.saturating_sub(rest.len() as u64);
                    self.stage = if left == 0 { self.over(End::Done) } else { Stage::Discard(left) };
                    (rest.len(), Step::On)
                }
                stage @ Stage::Unanswered(_) => {
                    self.stage = stage;
                    (0, Step::Wait)
                }
                stage @ (Stage::Events | Stage::Over) => {
                    self.stage = stage;
                    (rest.len(), Step::On)
                }
            };
            at += used;
            if !matches!(step, Step::On) {
                return (at, step);
            }
        }
        (at, Step::Wait)
    }

    /// Handles the beginning of a request.
    ///
    /// # Errors
    ///
    /// The request is refused and the connection ends, because the end of the request is unknown or its rest is
    /// unwanted.
    #[allow(clippy::type_complexity)]
    fn begin<'b, D: Door<Caller = C>>(
        &mut self,
        bytes: &'b [u8],
        service: &'static Service,
        refusal: &mut Option<Box<Denied>>,
        share: &mut MemoryShare,
        door: &mut D,
    ) -> Result<(usize, Step<'b, C>), (AnswerOptions, Denied)> {
        let plainly = |denied| (AnswerOptions::default(), denied);
        let head = match head::read(bytes, service.fields).map_err(plainly)? {
            Some(head) => head,
            // The owner's buffer is at least twice as large.
            None if bytes.len() < MAX_HEAD => return Ok((0, Step::Wait)),
            None => return Err(plainly(Denied::new(431, "the head has no end"))),
        };
        if let Some(denied) = refusal.take() {
            return Err(plainly(*denied));
        }
        let rules = access::rules(door).map_err(plainly)?;
        let options = AnswerOptions::new(&head, &rules);
        if head.method == Method::Options {
            self.permit(options, head.framing, service);
            return Ok((head.length, Step::On));
        }
        let with_options = |denied| (options.clone(), denied);
        let target = Target::read(&head.target, service.query_token);
        let token = access::token(&head, &target, &rules).map_err(with_options)?;
        let caller = door.recognise(token).ok_or_else(|| with_options(access::unknown()))?;
        door.enter(&caller).map_err(with_options)?;
        share.set_max_request(rules.max_request);
        let fits = !matches!(head.framing, Framing::Length(length) if length > share.limit() as u64);
        let body = Body::new(head.framing, rules.max_request);
        let mut body = match body.and_then(|body| if fits { Ok(body) } else { Err(Denied::crowded()) }) {
            Ok(body) => body,
            Err(denied) => {
                self.deny_and_discard(options, &denied, head.framing, service);
                return Ok((head.length, Step::On));
            }
        };
        let Head { length, method, framing, expects, fields, .. } = head;
        let asked = AdmittedRequest { method, target, fields, caller };
        let behind = &bytes[length..];
        match framing {
            Framing::Length(size) if behind.len() as u64 >= size => {
                let body = &behind[..size as usize];
                let event = self.hand_over(asked, options, Cow::Borrowed(body));
                Ok((length + body.len(), Step::Tell(event)))
            }
            _ => {
                if expects {
                    self.pieces.push_back(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
                }
                body.bytes.reserve(behind.len());
                self.stage = Stage::Body(Box::new(Upload { asked, options, body }));
                Ok((length, Step::Tell(InputEvent::Uploading)))
            }
        }
    }

    /// Handles a piece of a body.
    fn upload<'b>(
        &mut self,
        mut upload: Box<Upload<C>>,
        bytes: &[u8],
        share: &MemoryShare,
        service: &Service,
    ) -> (usize, Step<'b, C>) {
        match upload.body.take(bytes) {
            Err(denied) if denied.status == 413 => {
                self.deny_and_discard(upload.options, &denied, Framing::Chunked, service);
                (0, Step::On)
            }
            Ok(used) if upload.body.bytes.len() > share.limit() => {
                self.deny_and_discard(upload.options, &Denied::crowded(), upload.body.rest(), service);
                (used, Step::On)
            }
            Err(denied) => {
                self.fail_as(upload.options, &denied, service);
                (0, Step::On)
            }
            Ok(used) if upload.body.is_whole() => {
                let Upload { asked, options, body } = *upload;
                (used, Step::Tell(self.hand_over(asked, options, Cow::Owned(body.bytes))))
            }
            Ok(used) => {
                self.stage = Stage::Body(upload);
                (used, if used > 0 { Step::On } else { Step::Wait })
            }
        }
    }

    /// The request is complete.
    fn hand_over<'b>(
        &mut self,
        asked: AdmittedRequest<C>,
        options: AnswerOptions,
        body: Cow<'b, [u8]>,
    ) -> InputEvent<'b, C> {
        self.stage = Stage::Unanswered(options);
        self.stream = Stream(self.stream.0.wrapping_add(1));
        InputEvent::Request(asked.with_body(self.stream, body))
    }

    /// Answers a preflight request. Its body is discarded.
    fn permit(&mut self, options: AnswerOptions, framing: Framing, service: &Service) {
        let bare = framing == Framing::Length(0);
        let options = if bare { options } else { options.last() };
        self.write(Answer::permission(&options), &options, service);
        if !bare {
            self.discard_rest(framing);
        }
    }

    /// Discards the rest of a request that was answered early.
    fn discard_rest(&mut self, framing: Framing) {
        self.stage = match framing {
            Framing::Length(0) => self.over(End::Done),
            Framing::Length(length) => Stage::Discard(length.min(MAX_DISCARDED_BODY)),
            Framing::Chunked => Stage::Discard(MAX_DISCARDED_BODY),
        };
    }

    /// Refuses a request. The connection ends after the rest of it has come.
    fn deny_and_discard(&mut self, options: AnswerOptions, denied: &Denied, framing: Framing, service: &Service) {
        self.write(Answer::denied(service, denied), &options.last(), service);
        self.discard_rest(framing);
    }

    fn write(&mut self, answer: Answer, options: &AnswerOptions, service: &Service) {
        let (head, body) = answer.http1(service, options);
        self.pieces.push_back(head);
        self.push(body);
    }

    fn push(&mut self, piece: Vec<u8>) {
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    fn over(&mut self, end: End) -> Stage<C> {
        self.end = Some(end);
        Stage::Over
    }

    /// Answers with a refusal, and ends the connection.
    fn fail_as(&mut self, options: AnswerOptions, denied: &Denied, service: &Service) {
        self.write(Answer::denied(service, denied), &options.last(), service);
        self.stage = self.over(fault(denied));
    }

    /// The options of the unanswered request, if it is this one. The next request may come then.
    fn take_unanswered(&mut self, stream: Stream) -> Option<AnswerOptions> {
        match std::mem::take(&mut self.stage) {
            Stage::Unanswered(options) if stream == self.stream => Some(options),
            stage => {
                self.stage = stage;
                None
            }
        }
    }

    /// See [`Connection::answer`](crate::Connection::answer).
    pub(crate) fn answer(&mut self, stream: Stream, answer: Answer, service: &Service) {
        let Some(options) = self.take_unanswered(stream) else { return };
        self.write(answer, &options, service);
        if !options.keep_alive {
            self.stage = self.over(End::Done);
        }
    }

    /// See [`Connection::open_events`](crate::Connection::open_events).
    pub(crate) fn open_events(&mut self, stream: Stream, service: &Service) -> bool {
        let Some(options) = self.take_unanswered(stream) else { return false };
        self.write(Answer::events(), &options.last(), service);
        self.stage = Stage::Events;
        true
    }

    /// See [`Connection::send_events`](crate::Connection::send_events).
    pub(crate) fn send_events(&mut self, streams: impl IntoIterator<Item = Stream>, events: &[u8], available: usize) {
        if !(matches!(self.stage, Stage::Events) && streams.into_iter().any(|stream| stream == self.stream)) {
            return;
        }
        let waiting = self.unflushed() + events.len();
        if waiting <= MAX_UNREAD_EVENT_BYTES && events.len() <= available {
            return match self.pieces.back_mut() {
                Some(last) if last.len() + events.len() <= MAX_EVENT_PIECE => last.extend_from_slice(events),
                _ => self.push(events.to_vec()),
            };
        }
        (self.pieces, self.flushed) = (VecDeque::new(), 0);
        let message = format!("the client does not read: {waiting} bytes of events wait for it, and no more are kept");
        self.stage = self.over(End::Fault(message));
    }

    /// See [`Connection::end_events`](crate::Connection::end_events).
    pub(crate) fn end_events(&mut self, stream: Stream) {
        if matches!(self.stage, Stage::Events) && stream == self.stream {
            self.stage = self.over(End::Done);
        }
    }

    /// See [`Connection::close`](crate::Connection::close).
    pub(crate) fn close(&mut self, answer: Answer, service: &Service) {
        if let Some(options) = self.take_unanswered(self.stream) {
            self.write(answer, &options.last(), service);
        }
        if !matches!(self.stage, Stage::Over) {
            self.stage = self.over(End::Done);
        }
    }

    /// See [`Connection::fail`](crate::Connection::fail).
    pub(crate) fn fail(&mut self, denied: &Denied, service: &Service) {
        match self.take_unanswered(self.stream) {
            None if matches!(self.stage, Stage::Over) => {}
            // An answer has been given or has begun, so no refusal can follow it.
            None if matches!(self.stage, Stage::Events | Stage::Discard(_)) => self.stage = self.over(fault(denied)),
            options => self.fail_as(options.unwrap_or_default(), denied, service),
        }
    }

    /// See [`Connection::flush`](crate::Connection::flush).
    pub(crate) fn flush(&mut self, to: &mut Vec<u8>, most: usize) {
        let mut left = most;
        while let Some(piece) = self.pieces.front()
            && left > 0
        {
            let end = piece.len().min(self.flushed.saturating_add(left));
            to.extend_from_slice(&piece[self.flushed..end]);
            left -= end - self.flushed;
            self.flushed = end;
            if end == piece.len() {
                self.pieces.pop_front();
                self.flushed = 0;
            }
        }
    }

    /// See [`Connection::has_more`](crate::Connection::has_more).
    pub(crate) fn has_more(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// The memory that it holds: the body that is arriving, and answers until their last byte is flushed.
    pub(crate) fn holds(&self) -> usize {
        let body = if let Stage::Body(upload) = &self.stage { upload.body.bytes.len() } else { 0 };
        body + self.unflushed()
    }

    /// See [`Connection::unflushed`](crate::Connection::unflushed).
    pub(crate) fn unflushed(&self) -> usize {
        self.pieces.iter().map(Vec::len).sum()
    }

    /// See [`Connection::end`](crate::Connection::end).
    pub(crate) fn end(&mut self) -> Option<End> {
        self.end.take_if(|_| self.pieces.is_empty())
    }
}

fn fault(denied: &Denied) -> End {
    End::Fault(format!("HTTP {}: {}", denied.status, denied.error))
}
