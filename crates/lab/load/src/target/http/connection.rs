//! One connection to an HTTP service, as a task of the runtime: connected phase by phase, then one request after the
//! other until it is dropped. It reports each step.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::mpsc,
};
use tokio_rustls::{TlsConnector, rustls::pki_types::ServerName};

use crate::record::{ErrorKind, Phases};

/// A request ready to be sent.
pub(super) type HttpRequest = Request<Full<Bytes>>;

/// Where connections go.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) host: String,
    pub(super) port: u16,
    /// Instead of the host's own address.
    pub(super) via: Option<SocketAddr>,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// A step of a connection.
#[derive(Debug)]
pub(super) enum Report {
    Connected(Phases),
    /// The connection could not be made.
    Failed {
        kind: ErrorKind,
        permanent: bool,
    },
    /// The request is answered.
    Answered {
        status: u16,
        reusable: bool,
    },
    /// The connection is lost, idle or in the middle of a request.
    Lost(ErrorKind),
}

/// Opens a connection and sends requests over it until the channel of requests is closed.
pub(super) async fn run(to: Destination, mut requests: mpsc::Receiver<HttpRequest>, report: impl Fn(Report)) {
    let mut phases = Phases::default();
    let failed =
        |error: &io::Error, otherwise| report(Report::Failed { kind: kind_of(error, otherwise), permanent: false });
    let stream = match connect(&to, &mut phases).await {
        Ok(stream) => stream,
        Err((error, otherwise)) => return failed(&error, otherwise),
    };
    match &to.tls {
        None => serve(stream, phases, &mut requests, &report).await,
        Some((connector, name)) => {
            let began = Instant::now();
            match connector.connect(name.clone(), stream).await {
                Ok(stream) => {
                    phases.tls = Some(began.elapsed());
                    serve(stream, phases, &mut requests, &report).await;
                }
                // A certificate that is not believed will not be believed the next time.
                Err(error) => {
                    let permanent = error.kind() == io::ErrorKind::InvalidData;
                    report(Report::Failed { kind: kind_of(&error, "tls failed"), permanent });
                }
            }
        }
    }
}

/// Connects to the first address that accepts. The word with an error is its kind if `kind_of` knows no better one.
async fn connect(to: &Destination, phases: &mut Phases) -> Result<TcpStream, (io::Error, &'static str)> {
    let addresses: Vec<SocketAddr> = match (to.via, to.host.parse()) {
        (Some(via), _) => vec![via],
        (None, Ok(ip)) => vec![SocketAddr::new(ip, to.port)],
        (None, Err(_)) => {
            let began = Instant::now();
            let found = tokio::net::lookup_host((to.host.as_str(), to.port)).await;
            let found = found.map_err(|error| (error, "resolve failed"))?.collect();
            phases.dns = Some(began.elapsed());
            found
        }
    };
    let mut last = (io::Error::other("the name has no address"), "resolve failed");
    for address in addresses {
        let began = Instant::now();
        match TcpStream::connect(address).await {
            Ok(stream) => {
                phases.tcp = Some(began.elapsed());
                // Only latency suffers where it cannot be set.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = (error, "connect failed"),
        }
    }
    Err(last)
}

async fn serve<S>(stream: S, phases: Phases, requests: &mut mpsc::Receiver<HttpRequest>, report: &impl Fn(Report))
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = match http1::handshake(TokioIo::new(stream)).await {
        Ok(both) => both,
        Err(error) => return report(Report::Lost(hyper_kind(&error))),
    };
    let mut connection = Box::pin(connection);
    report(Report::Connected(phases));
    loop {
        let request = tokio::select! {
            biased;
            ended = &mut connection => {
                let kind = ended.map_or_else(|error| hyper_kind(&error), |()| ErrorKind("connection closed".into()));
                return report(Report::Lost(kind));
            }
            request = requests.recv() => match request {
                Some(request) => request,
                None => return,
            },
        };
        let mut exchanged = Box::pin(exchange(&mut sender, request));
        let answer = tokio::select! {
            answer = &mut exchanged => answer,
            _ = &mut connection => {
                // The connection may have ended right behind the answer, which has arrived then.
                drop(connection);
                return report(match exchanged.await {
                    Ok((status, _)) => Report::Answered { status, reusable: false },
                    Err(error) => Report::Lost(hyper_kind(&error)),
                });
            }
        };
        drop(exchanged);
        match answer {
            Ok((status, reusable)) => {
                report(Report::Answered { status, reusable });
                if !reusable {
                    return;
                }
            }
            Err(error) => return report(Report::Lost(hyper_kind(&error))),
        }
    }
}

/// Sends a request and reads the whole answer: its status, and whether the connection takes another.
async fn exchange(sender: &mut http1::SendRequest<Full<Bytes>>, request: HttpRequest) -> hyper::Result<(u16, bool)> {
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok((status, sender.ready().await.is_ok()))
}

/// Connects once and asks with HEAD who answers; a service that does not like that is still there.
pub(super) async fn probe(
    to: Destination,
    request: HttpRequest,
    timeout: Duration,
) -> Result<Option<String>, (ErrorKind, String)> {
    let mut phases = Phases::default();
    let stream = connect(&to, &mut phases)
        .await
        .map_err(|(error, otherwise)| (kind_of(&error, otherwise), error.to_string()))?;
    let server = match &to.tls {
        None => tokio::time::timeout(timeout, server_of(stream, request)).await,
        Some((connector, name)) => {
            let stream = connector.connect(name.clone(), stream).await;
            let stream = stream.map_err(|error| (kind_of(&error, "tls failed"), error.to_string()))?;
            tokio::time::timeout(timeout, server_of(stream, request)).await
        }
    };
    Ok(server.ok().flatten())
}

/// What the service calls itself.
async fn server_of<S: AsyncRead + AsyncWrite + Unpin>(stream: S, request: HttpRequest) -> Option<String> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    let response = tokio::select! {
        response = sender.send_request(request) => response.ok()?,
        _ = connection => return None,
    };
    Some(response.headers().get(hyper::header::SERVER)?.to_str().ok()?.to_owned())
}

fn kind_of(error: &io::Error, otherwise: &'static str) -> ErrorKind {
    use io::ErrorKind::*;
    ErrorKind(
        match error.kind() {
            ConnectionRefused => "connect refused",
            ConnectionReset | BrokenPipe => "connection reset",
            UnexpectedEof => "connection closed",
            TimedOut => "connect timeout",
            HostUnreachable | NetworkUnreachable => "unreachable",
            AddrNotAvailable => "out of descriptors or ports",
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => "out of descriptors or ports",
            _ => otherwise,
        }
        .into(),
    )
}

/// "Too many open files", in the process and in the system.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

fn hyper_kind(error: &hyper::Error) -> ErrorKind {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            return kind_of(io, "connection closed");
        }
        source = cause.source();
    }
    let word = if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "connection closed"
    } else {
        "protocol violation"
    };
    ErrorKind(word.into())
}
