//! One connection to a database: a protocol from the client's side on a connection of the transport, with the times of
//! its phases. [`ProtocolConnection`] is what the protocols have in common.

use std::{io, time::Duration};

use driver::{Address, TlsConnector};
use pool::Time;
use seam::Secured;

use super::{
    Endpoint, ErrorKind, TargetError,
    cancel::Cancels,
    transport::{Event, Transport, TransportError, TransportFault},
};

/// What has become of a connection.
#[derive(Debug)]
pub enum Progress {
    Nothing,
    /// It has logged in and takes requests.
    Ready,
    /// The request is answered.
    Answered,
    /// It is closed.
    Closed(Disconnect),
}

/// Why a connection is closed.
#[derive(Debug)]
pub struct Disconnect {
    pub kind: ErrorKind,
    /// Another try fails, too, until something is changed.
    pub permanent: bool,
    /// For people.
    pub message: String,
}

/// How long the phases of making a connection took; `None`: there was no such phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Phases {
    pub dns: Option<Duration>,
    pub tcp: Option<Duration>,
    /// The TLS handshake, with the request for TLS.
    pub tls: Option<Duration>,
    /// From the start-up message until the server has accepted the account.
    pub auth: Option<Duration>,
    /// From the acceptance of the account until the connection is ready.
    pub ready: Option<Duration>,
}

impl Phases {
    /// The whole time of connecting; `None` if no phase was measured.
    pub fn sum(&self) -> Option<Duration> {
        [self.dns, self.tcp, self.tls, self.auth, self.ready].into_iter().flatten().reduce(|a, b| a + b)
    }
}

/// A phase of the login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginPhase {
    Auth,
    Ready,
}

/// The result of the input so far.
pub enum Step {
    /// All input is taken, and more is needed.
    More,
    /// TLS is to begin; then [`ClientProtocol::secured`].
    StartTls,
    /// A phase of the login is over.
    Passed(LoginPhase),
    /// The login is over, and with it a phase, unless the connection was ready at once.
    Ready(Option<LoginPhase>),
    /// The request is answered.
    Answered,
}

/// Why a protocol cannot use its connection any longer.
pub struct Failure {
    pub disconnect: Disconnect,
    /// The next attempt at the same host goes another way, so it is worth making at once.
    pub detour: bool,
}

/// How a connection says goodbye.
pub enum Goodbye {
    /// These bytes, perhaps none, are sent before the connection is closed.
    Send(Vec<u8>),
    /// The server still works on a request: these bytes cancel it, over a connection of their own.
    Cancel(Vec<u8>),
}

/// A protocol from the client's side: bytes in, bytes and steps out.
pub trait ClientProtocol: Sized {
    /// Where connections go, and how they log in.
    type Options;

    /// The hosts, which are tried in this order.
    fn hosts(options: &Self::Options) -> &[Endpoint];

    /// Makes TLS, if the login uses it.
    fn connector(options: &Self::Options) -> Option<&TlsConnector>;

    /// Begins on a connection that has just been opened. What is to be sent is appended to `out`.
    fn begin(options: &Self::Options, out: &mut Vec<u8>) -> Self;

    /// Takes input up to the next step. What is to be sent is appended to `out`.
    ///
    /// # Errors
    /// The login is refused, or the server breaks the protocol.
    fn take(&mut self, options: &Self::Options, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Step, Failure>;

    /// The handshake that [`Step::StartTls`] asked for is done.
    ///
    /// # Errors
    /// The login does not accept what the handshake has shown.
    fn secured(&mut self, options: &Self::Options, secured: Secured, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// That handshake has failed. `certificate`: one side does not accept the other's. Returns why the login ends.
    fn tls_failed(&mut self, _options: &Self::Options, certificate: bool, message: String) -> Failure {
        let kind = transport_kind(TransportFault::Tls { certificate });
        Failure { disconnect: Disconnect { kind, permanent: certificate, message }, detour: false }
    }

    /// Why the server closes the connection, if it has said so: the kind of the error, and its text.
    fn farewell(&self) -> Option<(ErrorKind, String)> {
        None
    }

    /// The farewell counts even if the connection then breaks.
    const FAREWELL_BEFORE_BREAK: bool = false;

    /// How to close a connection.
    fn goodbye(&mut self) -> Goodbye {
        Goodbye::Send(Vec::new())
    }
}

/// A connection in the protocol of a database.
pub struct ProtocolConnection<P> {
    key: u32,
    /// Index of the host that is tried.
    host: usize,
    stopwatch: Stopwatch,
    is_ready: bool,
    has_detoured: bool,
    /// `None` until the connection is open.
    protocol: Option<P>,
}

impl<P: ClientProtocol> ProtocolConnection<P> {
    /// Begins to connect under a free key of the transport.
    pub fn open(key: u32, transport: &mut Transport, options: &P::Options, now: Time) -> Self {
        transport.open(key, &P::hosts(options)[0].address);
        let stopwatch = Stopwatch::start(now);
        Self { key, host: 0, stopwatch, is_ready: false, has_detoured: false, protocol: None }
    }

    /// The times of the phases of connecting, of the attempt that succeeded.
    pub fn phases(&self) -> &Phases {
        &self.stopwatch.phases
    }

    /// The protocol's state, once the connection is open.
    pub fn protocol(&mut self) -> &mut P {
        self.protocol.as_mut().expect("the connection is open")
    }

    /// Closes the connection: says goodbye, or cancels what the server is still doing.
    pub fn close(mut self, transport: &mut Transport, options: &P::Options, cancels: &Cancels) {
        match self.protocol.as_mut().map(P::goodbye) {
            Some(Goodbye::Send(bytes)) => transport.send(self.key, &bytes),
            Some(Goodbye::Cancel(request)) if request.is_empty() => {}
            Some(Goodbye::Cancel(request)) => cancels.send(&self.endpoint(options).address, request),
            None => {}
        }
        transport.close(self.key);
    }

    /// Takes an event other than [`Event::Received`]. `out` is memory to write in.
    pub fn on_event(
        &mut self,
        event: Event,
        transport: &mut Transport,
        options: &P::Options,
        out: &mut Vec<u8>,
    ) -> Progress {
        out.clear();
        match event {
            Event::Resolved { took, .. } => {
                self.stopwatch.resolved(took, transport.now());
                Progress::Nothing
            }
            Event::Connected { .. } => {
                self.stopwatch.connected(&self.endpoint(options).address, transport.now());
                self.protocol = Some(P::begin(options, out));
                self.advance(&[], transport, options, out)
            }
            Event::Secured { secured, .. } => {
                self.stopwatch.phases.tls = Some(self.stopwatch.lap(transport.now()));
                match self.protocol().secured(options, *secured, out) {
                    Ok(()) => self.advance(&[], transport, options, out),
                    Err(fault) => self.on_fault(fault, transport, options),
                }
            }
            Event::Ended { .. } => {
                let (kind, message) = self.protocol.as_ref().and_then(P::farewell).unwrap_or_else(|| {
                    let message = format!("{} closed the connection", self.endpoint(options).address);
                    (ErrorKind(CLOSED_KIND.into()), message)
                });
                self.try_next_host(Disconnect { kind, permanent: false, message }, transport, options)
            }
            Event::Failed { error, .. } => self.on_failed(error, transport, options),
            Event::Received { .. } => unreachable!("bytes are given to `on_received`"),
        }
    }

    /// Takes bytes. `out` is memory to write in.
    pub fn on_received(
        &mut self,
        bytes: &[u8],
        transport: &mut Transport,
        options: &P::Options,
        out: &mut Vec<u8>,
    ) -> Progress {
        out.clear();
        self.advance(bytes, transport, options, out)
    }

    /// Whether the connection takes another request. A server that said goodbye behind its answer takes none.
    pub fn is_open(&self) -> bool {
        self.protocol.as_ref().is_none_or(|protocol| protocol.farewell().is_none())
    }

    /// Takes all steps that the input allows, and sends what they and the caller have written to `out`.
    fn advance(
        &mut self,
        mut bytes: &[u8],
        transport: &mut Transport,
        options: &P::Options,
        out: &mut Vec<u8>,
    ) -> Progress {
        let mut progress = Progress::Nothing;
        loop {
            match self.protocol().take(options, &mut bytes, out) {
                Ok(Step::More) => break,
                Ok(Step::StartTls) => {
                    transport.send(self.key, out);
                    let connector = P::connector(options).expect("a login that may use TLS has a connector");
                    transport.start_tls(self.key, connector, &self.endpoint(options).name, bytes);
                    return Progress::Nothing;
                }
                Ok(Step::Passed(phase)) => self.stopwatch.end(phase, transport.now()),
                Ok(Step::Ready(phase)) => {
                    if let Some(phase) = phase {
                        self.stopwatch.end(phase, transport.now());
                    }
                    self.is_ready = true;
                    progress = Progress::Ready;
                }
                Ok(Step::Answered) => progress = Progress::Answered,
                Err(fault) => return self.on_fault(fault, transport, options),
            }
        }
        transport.send(self.key, out);
        progress
    }

    fn on_fault(&mut self, fault: Failure, transport: &mut Transport, options: &P::Options) -> Progress {
        if transport.is_open(self.key) {
            transport.close(self.key);
        }
        if fault.detour && !self.has_detoured {
            self.has_detoured = true;
            return self.connect_again(transport, options);
        }
        self.try_next_host(fault.disconnect, transport, options)
    }

    fn on_failed(&mut self, error: TransportError, transport: &mut Transport, options: &P::Options) -> Progress {
        match (error.fault, &mut self.protocol) {
            (TransportFault::Tls { certificate }, Some(protocol)) if !self.is_ready => {
                let fault = protocol.tls_failed(options, certificate, error.message);
                self.on_fault(fault, transport, options)
            }
            (fault, protocol) => {
                let farewell = protocol.as_ref().filter(|_| P::FAREWELL_BEFORE_BREAK).and_then(P::farewell);
                let kind = farewell.map_or_else(|| transport_kind(fault), |(kind, _)| kind);
                let disconnect = Disconnect { kind, permanent: false, message: error.message };
                self.try_next_host(disconnect, transport, options)
            }
        }
    }

    /// Tries the next host, unless the connection was ready or there is no other host.
    fn try_next_host(&mut self, why: Disconnect, transport: &mut Transport, options: &P::Options) -> Progress {
        if self.is_ready || self.host + 1 == P::hosts(options).len() {
            return Progress::Closed(why);
        }
        self.host += 1;
        self.connect_again(transport, options)
    }

    fn connect_again(&mut self, transport: &mut Transport, options: &P::Options) -> Progress {
        self.stopwatch = Stopwatch::start(transport.now());
        self.protocol = None;
        transport.open(self.key, &self.endpoint(options).address);
        Progress::Nothing
    }

    fn endpoint<'o>(&self, options: &'o P::Options) -> &'o Endpoint {
        &P::hosts(options)[self.host]
    }
}

/// The kind of error by which a failure of the transport is counted.
fn transport_kind(fault: TransportFault) -> ErrorKind {
    let kind = match fault {
        TransportFault::Resolve => "resolve failed",
        TransportFault::Refused => "connect refused",
        TransportFault::Unreachable => "unreachable",
        TransportFault::TimedOut => "connect timeout",
        TransportFault::Reset => "connection reset",
        TransportFault::Exhausted => "out of descriptors or ports",
        TransportFault::Tls { .. } => "tls failed",
        TransportFault::Other => "network error",
    };
    ErrorKind(kind.into())
}

/// The kind of error for a connection that the peer ended without a word.
const CLOSED_KIND: &str = "connection closed";
/// The kind of error for a peer that breaks its protocol.
pub(crate) const VIOLATION_KIND: &str = "protocol violation";

/// The kernel refuses to wait for events.
pub fn wait_error(error: &io::Error) -> TargetError {
    TargetError::machine(format!("cannot wait for connections: {error}"))
}

/// Times the phases of connecting.
struct Stopwatch {
    /// When the present phase began.
    since: Time,
    phases: Phases,
}

impl Stopwatch {
    fn start(now: Time) -> Self {
        Self { since: now, phases: Phases::default() }
    }

    fn resolved(&mut self, took: Duration, now: Time) {
        self.phases.dns = Some(took);
        self.since = now;
    }

    /// Over a Unix socket there is no phase of TCP.
    fn connected(&mut self, address: &Address, now: Time) {
        let took = self.lap(now);
        self.phases.tcp = matches!(address, Address::Tcp { .. }).then_some(took);
    }

    fn end(&mut self, phase: LoginPhase, now: Time) {
        let took = Some(self.lap(now));
        match phase {
            LoginPhase::Auth => self.phases.auth = took,
            LoginPhase::Ready => self.phases.ready = took,
        }
    }

    /// Ends the present phase, and returns how long it took.
    fn lap(&mut self, now: Time) -> Duration {
        now - std::mem::replace(&mut self.since, now)
    }
}
