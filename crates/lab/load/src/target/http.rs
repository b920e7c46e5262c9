//! An HTTP/1.1 service as a target: carries out the engine's orders over hyper's connections, on a runtime of one
//! thread. Follows no redirect, keeps no cookie and retries nothing: what is measured is what was prepared. Decides
//! nothing about when.
//!
//! `connection` is one connection, `template` the fields of a request, `alarm` the timer.

mod alarm;
mod connection;
pub(crate) mod template;

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clients::client::wait_error;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Uri,
    header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, USER_AGENT},
};
use pool::Time;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, LocalSet},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};

use super::{RunContext, Server, TargetError, WATCH_INTERVAL};
use crate::{
    engine::{ConnId, Engine, Order, Outcome},
    plan::{HttpTarget, Plan},
    random::Random,
    record::ErrorKind,
};
use alarm::Alarm;
use connection::{Destination, HttpRequest, Report};
use template::{Template, TemplateInput};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection before any load: a dead target or a certificate that is not believed are clear errors. Returns what
/// the service calls itself, asked with HEAD.
///
/// # Errors
/// Why no load can be run against it.
pub fn check(target: &HttpTarget) -> Result<Server, TargetError> {
    let prepared = PreparedTarget::read(target, native_roots)?;
    let runtime = runtime()?;
    let mut head = prepared.request(&mut initial_template_input(0));
    *head.method_mut() = Method::HEAD;
    *head.body_mut() = Full::default();
    let probed = runtime.block_on(async {
        // First to connect, then to answer.
        tokio::time::timeout(
            CONNECT_TIMEOUT * 2,
            connection::probe(prepared.destination.clone(), head, CONNECT_TIMEOUT),
        )
        .await
    });
    match probed {
        Ok(Ok(server)) => Ok(Server { name: server.unwrap_or_else(|| "HTTP/1.1".to_owned()), is_pooled: false }),
        Ok(Err((kind, message))) => Err(TargetError::target(format!("{}: {} ({message})", prepared.place(), kind.0))),
        Err(_) => {
            let seconds = (CONNECT_TIMEOUT * 2).as_secs();
            Err(TargetError::target(format!("{} lets no connection in within {seconds} s", prepared.place())))
        }
    }
}

/// Carries out the engine's orders until it is done.
///
/// # Errors
/// Why the run cannot continue. Errors of single connections and operations are reported to the engine.
pub fn run(target: &HttpTarget, plan: &Plan, engine: &mut Engine, context: RunContext<'_>) -> Result<(), TargetError> {
    let mut prepared = PreparedTarget::read(target, native_roots)?;
    prepared.destination.via = context.via;
    carry_out(&prepared, plan.seed, engine, context)
}

fn carry_out(
    prepared: &PreparedTarget,
    seed: u64,
    engine: &mut Engine,
    context: RunContext<'_>,
) -> Result<(), TargetError> {
    let runtime = runtime()?;
    LocalSet::new().block_on(&runtime, async {
        let alarm = Alarm::new().map_err(|error| wait_error(&error))?;
        let (reports, inbox) = mpsc::unbounded_channel();
        let template_input = initial_template_input(seed);
        let mut run = Run { prepared, template_input, context, alarm, conns: HashMap::new(), serial: 0, reports };
        run.run(engine, inbox).await.map_err(|error| wait_error(&error))
    })
}

fn runtime() -> Result<tokio::runtime::Runtime, TargetError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| wait_error(&error))
}

/// A target with everything parsed that its requests need.
struct PreparedTarget {
    destination: Destination,
    method: Method,
    uri: Uri,
    fixed: HeaderMap,
    headers: Vec<(HeaderName, Template)>,
    body: Option<Template>,
    expect: Vec<u16>,
}

impl PreparedTarget {
    /// `roots` gives the certificates to be believed; it is only asked for `https://`.
    fn read(
        target: &HttpTarget,
        roots: impl FnOnce() -> Result<RootCertStore, TargetError>,
    ) -> Result<Self, TargetError> {
        let wrong = |message: &str| TargetError::configuration(message);
        // The parser's message might repeat a password.
        let uri: Uri = target.url.reveal().parse().map_err(|_| wrong("this is no URL: write http://host:port/path"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("unknown kind of URL: it must begin with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("the URL names no host"))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(wrong("the URL names no host"));
        }
        let (login, place) = authority.as_str().rsplit_once('@').unwrap_or(("", authority.as_str()));
        let port = match place.strip_prefix(authority.host()).unwrap_or_default() {
            "" | ":" => {
                if tls {
                    443
                } else {
                    80
                }
            }
            _ => authority.port_u16().ok_or_else(|| wrong("the URL's port is no number from 0 to 65535"))?,
        };
        let tls = match tls {
            false => None,
            true => {
                let name = ServerName::try_from(host.clone());
                let name = name.map_err(|_| wrong("the URL's host is no name that a certificate could have"))?;
                Some((connector(roots()?), name))
            }
        };
        let method = Method::from_bytes(target.method.as_bytes());
        let body = target.body.as_deref().map(Template::parse).transpose();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            fixed: fixed_headers(login, place)?,
            uri: path.parse().map_err(|_| wrong("the URL's path cannot be sent"))?,
            destination: Destination { host, port, via: None, tls },
            method: method.map_err(|_| wrong("the method is no word of HTTP"))?,
            headers: target.headers.iter().map(|(name, value)| header(name, value)).collect::<Result<_, _>>()?,
            body: body.map_err(|message| wrong(&format!("the body: {message}")))?,
            expect: target.expect.clone(),
        })
    }

    /// Host and port, for messages.
    fn place(&self) -> String {
        format!("{}:{}", self.destination.host, self.destination.port)
    }

    /// The next request.
    fn request(&self, template_input: &mut TemplateInput) -> HttpRequest {
        template_input.sequence += 1;
        template_input.now = SystemTime::now();
        let body = self.body.as_ref().map(|body| body.fill(template_input)).unwrap_or_default();
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.fixed);
        for (index, (name, value)) in self.headers.iter().enumerate() {
            let value = value.fill(template_input);
            // A template adds digits and letters only, and the rest was checked when the target was read.
            let value = HeaderValue::from_str(&value).expect("a header's value stays one when it is filled in");
            if self.headers[..index].iter().any(|(before, _)| before == name) {
                headers.append(name.clone(), value);
            } else {
                headers.insert(name.clone(), value);
            }
        }
        request
    }

    fn error_of(&self, status: u16) -> Option<ErrorKind> {
        let expected = match &self.expect[..] {
            [] => (200..400).contains(&status),
            listed => listed.contains(&status),
        };
        (!expected).then(|| ErrorKind(format!("status {status}").into()))
    }
}

/// What fields are filled in with before the first request.
fn initial_template_input(seed: u64) -> TemplateInput {
    TemplateInput { random: Random::new(seed, 0), sequence: 0, now: SystemTime::UNIX_EPOCH }
}

/// The headers that all requests have, unless the target sets its own.
fn fixed_headers(login: &str, place: &str) -> Result<HeaderMap, TargetError> {
    let wrong = |what: &str| TargetError::configuration(format!("the URL's {what} cannot be sent"));
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(place).map_err(|_| wrong("host"))?);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("poolhouse/", env!("CARGO_PKG_VERSION"))));
    if !login.is_empty() {
        let login = upstream::percent_decode(login).map_err(|_| wrong("user and password"))?;
        let value = format!("Basic {}", STANDARD.encode(login));
        let mut value = HeaderValue::from_str(&value).map_err(|_| wrong("user and password"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

fn header(name: &str, value: &str) -> Result<(HeaderName, Template), TargetError> {
    let wrong = |message: &str| TargetError::configuration(format!("the header `{}`: {message}", name.escape_debug()));
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong("this is no header's name"))?;
    let template = Template::parse(value).map_err(|message| wrong(&message))?;
    HeaderValue::from_str(value).map_err(|_| wrong("its value cannot be sent"))?;
    Ok((parsed, template))
}

fn connector(roots: RootCertStore) -> TlsConnector {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// The system's certificates; `SSL_CERT_FILE` names others.
fn native_roots() -> Result<RootCertStore, TargetError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    match added {
        0 => Err(TargetError::machine(
            "no certificate authorities are installed: install ca-certificates, or name a file with SSL_CERT_FILE",
        )),
        _ => Ok(roots),
    }
}

/// A run under way.
struct Run<'a, 's> {
    prepared: &'a PreparedTarget,
    template_input: TemplateInput,
    context: RunContext<'s>,
    alarm: Alarm,
    conns: HashMap<ConnId, Conn>,
    /// Counts connections: a number of the engine's is used again.
    serial: u64,
    /// At most one report of each connection is under way, apart from those of connections that are closed meanwhile.
    reports: mpsc::UnboundedSender<(ConnId, u64, Report)>,
}

struct Conn {
    serial: u64,
    requests: mpsc::Sender<HttpRequest>,
    task: AbortHandle,
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Run<'_, '_> {
    async fn run(
        &mut self,
        engine: &mut Engine,
        mut inbox: mpsc::UnboundedReceiver<(ConnId, u64, Report)>,
    ) -> io::Result<()> {
        let (mut next_watch, mut stopped, mut begun) = (self.context.now(), false, false);
        loop {
            let now = self.context.now();
            self.execute_orders(engine, now);
            if engine.is_done() {
                (self.context.watch)(engine, now);
                return Ok(());
            }
            // The relay must learn at once that the load begins.
            let begins = !begun && engine.measured_from().is_some();
            if now >= next_watch || begins {
                begun |= begins;
                (self.context.watch)(engine, now);
                next_watch = now + WATCH_INTERVAL;
                if self.context.is_stopped() && !stopped {
                    stopped = true;
                    engine.stop(now);
                    continue;
                }
            }
            let until = engine.deadline().map_or(next_watch, |deadline| deadline.min(next_watch));
            // Requests were made and sent meanwhile.
            let now = self.context.now();
            tokio::select! {
                biased;
                report = inbox.recv() => {
                    let (conn, serial, report) = report.expect("this side holds a sender too");
                    self.on_report(conn, serial, report, engine);
                }
                waited = self.alarm.wait(until, now) => waited?,
            }
        }
    }

    fn execute_orders(&mut self, engine: &mut Engine, now: Time) {
        while let Some(order) = engine.poll_order(now) {
            match order {
                Order::Connect(conn) => self.connect(conn),
                Order::Run { conn, .. } => {
                    let request = self.prepared.request(&mut self.template_input);
                    let connection = self.conns.get(&conn).expect("an operation runs on an open connection");
                    // A connection that has just ended takes none, and has reported that.
                    let _ = connection.requests.try_send(request);
                }
                Order::Close(conn) => {
                    self.conns.remove(&conn).expect("only what was opened is closed");
                    engine.closed(conn, now);
                }
            }
        }
    }

    fn connect(&mut self, conn: ConnId) {
        self.serial += 1;
        let (serial, reports) = (self.serial, self.reports.clone());
        let (requests, orders) = mpsc::channel(1);
        let report = move |report| {
            // The receiver lives as long as the run.
            let _ = reports.send((conn, serial, report));
        };
        let task =
            tokio::task::spawn_local(connection::run(self.prepared.destination.clone(), orders, report)).abort_handle();
        let before = self.conns.insert(conn, Conn { serial, requests, task });
        assert!(before.is_none(), "a number stands for one connection");
    }

    fn on_report(&mut self, conn: ConnId, serial: u64, report: Report, engine: &mut Engine) {
        if self.conns.get(&conn).is_none_or(|connection| connection.serial != serial) {
            return;
        }
        let now = self.context.now();
        match report {
            Report::Connected(phases) => engine.connected(conn, &phases, now),
            Report::Answered { status, reusable } => {
                engine.ended(conn, Outcome { error: self.prepared.error_of(status), reusable }, now);
            }
            Report::Failed { kind, permanent } => {
                self.conns.remove(&conn);
                engine.connect_failed(conn, kind, permanent, now);
            }
            Report::Lost(kind) => {
                self.conns.remove(&conn);
                engine.lost(conn, kind, now);
            }
        }
    }
}

#[cfg(test)]
mod tests;
