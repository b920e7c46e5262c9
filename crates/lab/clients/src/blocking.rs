//! A client that waits for the answer to each request, before a load or without one. It measures nothing, and knows no
//! request.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::{
    TargetError,
    cancel::Cancels,
    client::{ClientProtocol, Disconnect, Progress, ProtocolConnection},
    transport::{Event, Transport},
};
use pool::Time;

/// The only connection.
const KEY: u32 = 0;
/// How long a target may take to let one connection in.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Bounds how late `stop` is seen.
const STOP_POLL: Duration = Duration::from_millis(100);

pub struct BlockingClient<'a, P: ClientProtocol> {
    options: P::Options,
    /// The first host, for error messages.
    address: String,
    transport: Transport,
    /// `None`: the connection is closed.
    client: Option<ProtocolConnection<P>>,
    out: Vec<u8>,
    cancels: Cancels,
    awaits_answer: bool,
    /// When this is set, a request is given up.
    stop: Option<&'a AtomicBool>,
}

impl<'a, P: ClientProtocol> BlockingClient<'a, P> {
    /// Connects and logs in.
    ///
    /// # Errors
    /// Why that was not possible within `timeout`.
    pub fn connect(options: P::Options, timeout: Duration) -> Result<Self, TargetError> {
        let mut transport = Transport::new(Instant::now()).map_err(|error| TargetError::machine(error.to_string()))?;
        let now = transport.now();
        let mut this = Self {
            address: P::hosts(&options)[0].address.to_string(),
            client: Some(ProtocolConnection::open(KEY, &mut transport, &options, now)),
            options,
            transport,
            out: Vec::new(),
            cancels: Cancels::default(),
            awaits_answer: false,
            stop: None,
        };
        match this.wait(now + timeout)? {
            Progress::Ready => Ok(this),
            Progress::Closed(why) => Err(this.explain(&why)),
            Progress::Nothing => {
                let seconds = timeout.as_secs_f64();
                Err(TargetError::target(format!("{} does not answer within {seconds} s", this.address)))
            }
            Progress::Answered => unreachable!("no request was sent"),
        }
    }

    /// The same client, whose requests are given up when `stop` is set.
    pub fn with_stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// The state of the protocol; `None`: the connection is closed.
    pub fn protocol(&mut self) -> Option<&mut P> {
        self.client.as_mut().map(ProtocolConnection::protocol)
    }

    /// Whether the connection takes another request.
    pub fn is_open(&self) -> bool {
        !self.awaits_answer && self.client.as_ref().is_some_and(ProtocolConnection::is_open)
    }

    /// Sends the request that `write` appends, and waits for the answer, which the protocol then has. After an error
    /// the client is of no use.
    ///
    /// # Errors
    /// The connection is closed, or the server takes longer than `timeout`.
    pub fn request(
        &mut self,
        write: impl FnOnce(&mut P, &mut Vec<u8>),
        timeout: Duration,
    ) -> Result<&mut P, TargetError> {
        let Some(client) = self.client.as_mut().filter(|client| client.is_open()) else {
            return Err(TargetError::target(format!("{} has closed the connection", self.address)));
        };
        if self.awaits_answer {
            return Err(TargetError::target(format!("{} still owes an answer", self.address)));
        }
        self.out.clear();
        write(client.protocol(), &mut self.out);
        self.transport.send(KEY, &self.out);
        self.awaits_answer = true;
        let until = self.transport.now() + timeout;
        match self.wait(until)? {
            Progress::Answered => {}
            Progress::Closed(why) => return Err(self.explain(&why)),
            Progress::Ready | Progress::Nothing => {
                return Err(TargetError::target(format!("{} takes too long for an answer", self.address)));
            }
        }
        self.awaits_answer = false;
        Ok(self.client.as_mut().expect("the connection has answered").protocol())
    }

    /// Like [`Self::request`], but returns `None` if the server closes the connection at the request: some servers that
    /// stand for a database (twemproxy) close it at a command that they do not know, and the load sends others.
    ///
    /// # Errors
    /// The server takes longer than `timeout`.
    pub fn try_request(
        &mut self,
        write: impl FnOnce(&mut P, &mut Vec<u8>),
        timeout: Duration,
    ) -> Result<Option<&mut P>, TargetError> {
        match self.request(write, timeout).map(|_| ()) {
            Ok(()) => Ok(self.protocol()),
            Err(_) if self.client.is_none() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An error of the server at this address.
    pub fn error(&self, message: impl std::fmt::Display) -> TargetError {
        TargetError::target(format!("{}: {message}", self.address))
    }

    /// The progress of the connection or its request; [`Progress::Nothing`] at `until`. Events that came in the same
    /// batch as an earlier answer come first.
    fn wait(&mut self, until: Time) -> Result<Progress, TargetError> {
        loop {
            while let Some(event) = self.transport.next() {
                let Self { transport, client, options, out, .. } = self;
                let client = client.as_mut().expect("only an open connection has events");
                let progress = match event {
                    Event::Received { bytes, .. } => {
                        let progress = client.on_received(&bytes, transport, options, out);
                        transport.give_back(bytes);
                        progress
                    }
                    event => client.on_event(event, transport, options, out),
                };
                match progress {
                    Progress::Nothing => {}
                    Progress::Closed(why) => {
                        self.client = None;
                        return Ok(Progress::Closed(why));
                    }
                    progress => return Ok(progress),
                }
            }
            if self.transport.now() >= until {
                return Ok(Progress::Nothing);
            }
            let next = self.stop.map_or(until, |_| until.min(self.transport.now() + STOP_POLL));
            self.transport.wait(Some(next)).map_err(|error| TargetError::machine(error.to_string()))?;
            if self.stop.is_some_and(|stop| stop.load(Relaxed)) {
                return Err(TargetError::target("interrupted"));
            }
        }
    }

    fn explain(&self, why: &Disconnect) -> TargetError {
        match why.message.contains(&self.address) {
            true => TargetError::target(why.message.clone()),
            false => self.error(&why.message),
        }
    }
}

impl<P: ClientProtocol> Drop for BlockingClient<'_, P> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            client.close(&mut self.transport, &self.options, &self.cancels);
            self.cancels.finish();
        }
    }
}
