//! HTTP/2 (RFC 9113) on a connection that somebody else reads and writes: bytes in, whole requests out; answers in, bytes out.
//! Bodies of answers wait here until the client makes room for them, so that it is known how much of them it has not read.
//!
//! The frames are the crate h2's, which believes to be on a socket: what it reads was put there before, and what it writes is
//! taken away after. It is asked whenever something has happened, so nobody has to wake it.

use std::{
    collections::VecDeque,
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    server::{self, Connection, Handshake, SendResponse},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    Denied, MAX_DROPPED,
    answer::Answer,
    head::{Head, MAX_HEAD},
};

/// What a client that speaks HTTP/2 begins with.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Requests of a connection at a time.
const MAX_STREAMS: u32 = 100;

/// Bytes of bodies that a client may send before any of them is looked at.
const WINDOW: u32 = 1024 * 1024;

/// Bytes of a stream without end that may wait for the client.
const MAX_BEHIND: usize = 32 * 1024 * 1024;

/// A connection.
pub(crate) struct H2 {
    state: State,
    wire: Wire,
    uploads: Vec<Upload>,
    sendings: Vec<Sending>,
    /// Bytes that wait in them.
    unread: usize,
    /// Bytes of bodies that have not come whole.
    uploading: usize,
    /// The next stream without end gets this key.
    next_key: u64,
    /// Keys of such streams that the client has ended.
    ended: Vec<u64>,
    /// Largest body.
    max_request: usize,
}

enum State {
    Greeting(Box<Handshake<Wire, Bytes>>),
    Open(Box<Connection<Wire, Bytes>>),
    Over,
}

/// A request on its way.
struct Upload {
    head: Head,
    body: Vec<u8>,
    /// Bytes of the body that have come, those that were dropped included.
    length: u64,
    /// Why it is not carried out, once all of it has come.
    denied: Option<Denied>,
    stream: RecvStream,
    respond: Respond,
}

/// A body on its way.
struct Sending {
    stream: SendStream<Bytes>,
    /// None of them is empty.
    pieces: VecDeque<Bytes>,
    /// Their bytes.
    waiting: usize,
    /// By which more is added. `None`: these are all.
    key: Option<u64>,
}

/// A request that has come.
pub(crate) struct Arrived {
    /// What is asked, or why it cannot be.
    pub request: Result<(Head, Vec<u8>), Denied>,
    /// Where its answer goes.
    pub respond: Respond,
}

/// Where an answer goes.
pub(crate) struct Respond(SendResponse<Bytes>);

impl H2 {
    pub(crate) fn new(max_request: usize) -> Self {
        let wire = Wire::default();
        let greeting = server::Builder::new()
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD as u32)
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .handshake(wire.clone());
        Self {
            state: State::Greeting(Box::new(greeting)),
            wire,
            uploads: Vec::new(),
            sendings: Vec::new(),
            unread: 0,
            uploading: 0,
            next_key: 0,
            ended: Vec::new(),
            max_request,
        }
    }

    /// Takes bytes of the client. Requests that are whole with them are appended; so are those whose heads `admit` refuses, without
    /// their bodies, and those for whose bodies there is no room: `room` is for all that is held here, what has come before included.
    ///
    /// # Errors
    /// The client broke the protocol, or says goodbye; what is written then is the last.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        room: usize,
        admit: &dyn Fn(&Head) -> Result<(), Denied>,
        arrived: &mut Vec<Arrived>,
    ) -> Result<(), String> {
        self.wire.put(bytes);
        let mut context = Context::from_waker(Waker::noop());
        if let State::Greeting(greeting) = &mut self.state {
            match Pin::new(&mut **greeting).poll(&mut context) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return self.fail(&error),
                Poll::Ready(Ok(connection)) => self.state = State::Open(Box::new(connection)),
            }
        }
        while let State::Open(connection) = &mut self.state {
            match connection.poll_accept(&mut context) {
                Poll::Pending => break,
                Poll::Ready(None) => {
                    self.state = State::Over;
                    return Err("the client ended the connection".to_owned());
                }
                Poll::Ready(Some(Err(error))) => return self.fail(&error),
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let (parts, stream) = request.into_parts();
                    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
                    let head = Head::new(parts.method.as_str(), target).and_then(|mut head| {
                        let fields = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
                        head.fields(fields)?;
                        admit(&head).map(|()| head)
                    });
                    let respond = Respond(respond);
                    match head {
                        Ok(head) => {
                            self.uploads.push(Upload {
                                head,
                                body: Vec::new(),
                                length: 0,
                                denied: None,
                                stream,
                                respond,
                            });
                        }
                        Err(denied) => arrived.push(Arrived { request: Err(denied), respond }),
                    }
                }
            }
        }
        self.receive(room, arrived, &mut context);
        // What was received makes room for more, which the client is told.
        self.turn();
        Ok(())
    }

    fn fail(&mut self, error: &h2::Error) -> Result<(), String> {
        self.state = State::Over;
        Err(format!("HTTP/2: {error}"))
    }

    /// Takes what has come of bodies. Requests that are whole at the same time stay in their order.
    fn receive(&mut self, room: usize, arrived: &mut Vec<Arrived>, context: &mut Context<'_>) {
        let mut at = 0;
        // What has come whole is held, too, until somebody has taken it.
        let mut room = room.saturating_sub(self.holds());
        while let Some(upload) = self.uploads.get_mut(at) {
            let outcome = upload.receive(self.max_request, &mut room, context);
            match outcome {
                Poll::Pending => at += 1,
                Poll::Ready(None) => drop(self.uploads.remove(at)),
                Poll::Ready(Some(Ok(()))) => {
                    let Upload { head, body, respond, .. } = self.uploads.remove(at);
                    arrived.push(Arrived { request: Ok((head, body)), respond });
                }
                Poll::Ready(Some(Err(denied))) => {
                    let Upload { respond, .. } = self.uploads.remove(at);
                    arrived.push(Arrived { request: Err(denied), respond });
                }
            }
        }
        self.uploading = self.uploads.iter().map(|upload| upload.body.len()).sum();
    }

    /// Bytes of bodies that it holds, of requests that have not come whole and of answers that the client has not read.
    pub(crate) fn holds(&self) -> usize {
        self.uploading + self.unread
    }

    /// Lets it write what it has to write, as far as the client has room.
    pub(crate) fn turn(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let State::Open(connection) = &mut self.state {
            // A request cannot come of this: all that has arrived was read.
            let _ = connection.poll_closed(&mut context);
            if !self.feed(&mut context) {
                break;
            }
        }
    }

    /// Hands over what there is room for. True if that was anything.
    fn feed(&mut self, context: &mut Context<'_>) -> bool {
        let mut moved = false;
        self.sendings.retain_mut(|sending| {
            let before = sending.waiting;
            let goes_on = sending.feed(context);
            let left = if goes_on { sending.waiting } else { 0 };
            moved |= left < before;
            self.unread -= before - left;
            if !goes_on {
                self.ended.extend(sending.key);
            }
            goes_on
        });
        moved
    }

    /// Answers. Where the client has given the request up, nobody hears it.
    pub(crate) fn answer(&mut self, respond: Respond, answer: Answer) {
        let body = answer.body.as_ref().map_or(0, Vec::len);
        let length = (answer.status != 204).then_some(body);
        let ends = body == 0 || answer.manner.head_only;
        let Some(stream) = respond.begin(&answer, length, ends).filter(|_| !ends) else { return };
        let body = Bytes::from(answer.body.unwrap_or_default());
        self.unread += body.len();
        self.sendings.push(Sending { stream, waiting: body.len(), pieces: VecDeque::from([body]), key: None });
    }

    /// Begins an answer that goes on until one side ends it. Returns the key by which more is said; `None`: the client has gone.
    pub(crate) fn open(&mut self, respond: Respond, head: &Answer) -> Option<u64> {
        let stream = respond.begin(head, None, false)?;
        let key = self.next_key;
        self.next_key += 1;
        self.sendings.push(Sending { stream, waiting: 0, pieces: VecDeque::new(), key: Some(key) });
        Some(key)
    }

    /// Goes on with it. A stream of which too much is unread is ended.
    pub(crate) fn say(&mut self, key: u64, bytes: Bytes) {
        let Some(at) = self.sendings.iter().position(|sending| sending.key == Some(key)) else { return };
        let sending = &mut self.sendings[at];
        if sending.waiting + bytes.len() > MAX_BEHIND {
            return self.reset(key);
        }
        sending.waiting += bytes.len();
        self.unread += bytes.len();
        sending.pieces.push_back(bytes);
    }

    /// Ends it in the middle.
    pub(crate) fn reset(&mut self, key: u64) {
        let Some(at) = self.sendings.iter().position(|sending| sending.key == Some(key)) else { return };
        let mut sending = self.sendings.swap_remove(at);
        self.unread -= sending.waiting;
        sending.stream.send_reset(Reason::CANCEL);
        self.ended.push(key);
    }

    /// Keys of streams that have ended since this was asked last.
    pub(crate) fn ended(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.ended)
    }

    /// Bytes of bodies that wait until the client has room for them.
    pub(crate) fn unread(&self) -> usize {
        self.unread
    }

    /// The client is told to ask nothing more here, behind what it has been answered. (The graceful way, GOAWAY twice with a PING
    /// between, is more than Python's h2 takes: to it the connection is over with the first.)
    pub(crate) fn say_goodbye(&mut self) {
        self.turn();
        if let State::Open(connection) = &mut self.state {
            connection.abrupt_shutdown(h2::Reason::NO_ERROR);
        }
        self.turn();
    }

    /// Appends what is to be sent.
    pub(crate) fn drain(&self, to: &mut Vec<u8>) {
        to.append(&mut self.wire.lock().out);
    }
}

impl Upload {
    /// `None`: the client has given it up. It takes what it holds from the `room`.
    fn receive(
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
                    if self.denied.is_none() && self.length > most as u64 {
                        self.denied = Some(super::body::too_large(most));
                    } else if self.denied.is_none() && data.len() > *room {
                        self.denied = Some(crowded());
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

/// Why a request is not carried out beside so many others.
pub(crate) fn crowded() -> Denied {
    let mut denied = Denied::new(503, "ERR requests of this connection hold too much together: send fewer at a time");
    denied.retry_after = Some(1);
    denied
}

impl Sending {
    /// Hands over what there is room for. False if that was the last, or if nobody wants it any more.
    fn feed(&mut self, context: &mut Context<'_>) -> bool {
        while let Some(piece) = self.pieces.front_mut() {
            self.stream.reserve_capacity(piece.len());
            let room = self.stream.capacity().min(piece.len());
            if room == 0 {
                break;
            }
            let part = piece.split_to(room);
            self.waiting -= room;
            if piece.is_empty() {
                self.pieces.pop_front();
            }
            let last = self.key.is_none() && self.pieces.is_empty();
            if self.stream.send_data(part, last).is_err() || last {
                return false;
            }
        }
        self.stream.poll_reset(context).is_pending()
    }
}

impl Respond {
    /// Sends the head. `None`: the client has given the request up.
    fn begin(mut self, answer: &Answer, length: Option<usize>, ends: bool) -> Option<SendStream<Bytes>> {
        let mut response = http::Response::builder().status(answer.status);
        for (name, value) in &answer.fields {
            response = response.header(*name, value);
        }
        if let Some(length) = length {
            response = response.header("content-length", length);
        }
        self.0.send_response(response.body(()).ok()?, ends).ok()
    }
}

/// What stands for a socket.
#[derive(Clone, Default)]
struct Wire(Arc<Mutex<Ends>>);

#[derive(Default)]
struct Ends {
    input: Vec<u8>,
    /// So much of the input was read.
    read: usize,
    out: Vec<u8>,
}

impl Wire {
    fn lock(&self) -> std::sync::MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, bytes: &[u8]) {
        let mut ends = self.lock();
        let read = std::mem::take(&mut ends.read);
        ends.input.drain(..read);
        ends.input.extend_from_slice(bytes);
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.lock();
        let length = to.remaining().min(ends.input.len() - ends.read);
        if length == 0 {
            return Poll::Pending;
        }
        let begin = ends.read;
        to.put_slice(&ends.input[begin..begin + length]);
        ends.read += length;
        if ends.read == ends.input.len() {
            (ends.input, ends.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
