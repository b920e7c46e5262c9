//! The HTTP target against a small server.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Instant,
};

use arrivals::{Fault, Shape, Spacing, Stage};
use http_body_util::BodyExt;
use hyper::{Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use pool::PoolConfig;
use settings::Secret;
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivatePkcs8KeyDer},
};

use super::*;
use crate::{
    plan::{PoolUnderTest, Target},
    relay::Relay,
};
use report::result::BenchResult;

/// What the server has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: Mutex<Vec<(String, HeaderMap, String)>>,
}

struct Server {
    address: SocketAddr,
    seen: Arc<Seen>,
}

/// A service that does what the path says: `/close` ends the connection after the answer, `/503` answers that, `/slow`
/// takes 50 ms, `/break` ends the connection instead of answering.
fn server(tls: Option<TlsAcceptor>) -> Server {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    let shared = Arc::clone(&seen);
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.connections.fetch_add(1, Relaxed);
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                tokio::task::spawn_local(async move {
                    let service = service_fn(move |request| answer(Arc::clone(&shared), request));
                    match tls {
                        None => drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await),
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
                            }
                        }
                    }
                });
            }
        });
    });
    Server { address, seen }
}

async fn answer(seen: Arc<Seen>, request: Request<Incoming>) -> Result<Response<Full<hyper::body::Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    seen.requests.lock().unwrap().push((head.method.to_string(), head.headers, body));
    let mut response = Response::new(Full::from("x".repeat(10_000)));
    response.headers_mut().insert("server", HeaderValue::from_static("toy/1"));
    match head.uri.path() {
        "/close" => drop(response.headers_mut().insert("connection", HeaderValue::from_static("close"))),
        "/503" => *response.status_mut() = hyper::StatusCode::SERVICE_UNAVAILABLE,
        "/201" => *response.status_mut() = hyper::StatusCode::CREATED,
        "/slow" => tokio::time::sleep(Duration::from_millis(50)).await,
        "/break" => return Err(io::Error::other("broken")),
        _ => {}
    }
    Ok::<_, Infallible>(response).map_err(|never| match never {})
}

fn target(url: String) -> HttpTarget {
    HttpTarget { url: Secret::new(url), method: "GET".to_owned(), headers: Vec::new(), body: None, expect: Vec::new() }
}

fn plan(target: HttpTarget, shape: Shape, max_size: u32) -> Plan {
    let config = PoolConfig { max_size, max_connecting: max_size, ..PoolConfig::default() };
    let pool = PoolUnderTest { config, reuse: true, instances: 1, warm: false, goodbye: true, blind: false };
    Plan { timeout: Duration::from_secs(10), ..Plan::new("test".to_owned(), Target::Http(target), shape, pool) }
}

fn operations(clients: u32, operations: u64) -> Shape {
    let duration = Duration::from_secs(20);
    Shape::Closed { clients, think: Duration::ZERO, duration, operations: Some(operations) }
}

fn one_by_one(size: u32) -> Shape {
    Shape::Burst { size, at_once: 1, idle: Duration::from_millis(1), rounds: 1 }
}

/// Runs a plan as a whole; certificates come from `roots`.
fn measure(plan: &Plan, via: Option<SocketAddr>, roots: RootCertStore) -> BenchResult {
    let Target::Http(target) = &plan.target else { unreachable!("these tests ask HTTP") };
    let mut prepared = PreparedTarget::read(target, || Ok(roots)).unwrap();
    prepared.destination.via = via;
    let origin = Instant::now();
    let mut engine = Engine::new(plan, Time(0));
    let (stop, mut watched) = (AtomicBool::new(false), 0);
    let context = RunContext { origin, stop: &stop, via, watch: &mut |_, _| watched += 1 };
    carry_out(&prepared, plan.seed, &mut engine, context).unwrap();
    assert!(watched > 0);
    engine.result(Time(nanos(origin)))
}

fn nanos(origin: Instant) -> u64 {
    origin.elapsed().as_nanos() as u64
}

fn plainly(plan: &Plan) -> BenchResult {
    measure(plan, None, RootCertStore::empty())
}

#[test]
fn requests_are_counted_and_connections_used_again() {
    let server = server(None);
    let result = plainly(&plan(target(format!("http://{}/", server.address)), operations(4, 200), 4));
    assert_eq!((result.total.requests, result.total.errors.len()), (200, 0), "{:?}", result.total);
    assert_eq!(server.seen.requests.lock().unwrap().len(), 200);
    assert!(server.seen.connections.load(Relaxed) <= 4);
    assert!(result.total.connect_ms.tcp.is_some() && result.total.connect_ms.tls.is_none());
}

#[test]
fn a_request_has_method_headers_and_a_body_of_its_own() {
    let server = server(None);
    let mut target = target(format!("http://u:p%40ss@{}/201?x=1", server.address));
    target.method = "POST".to_owned();
    target.headers = vec![("X-Number".to_owned(), "n{{seq}}".to_owned()), ("User-Agent".to_owned(), "me".to_owned())];
    target.body = Some("{\"v\": {{random 5 6}}}".to_owned());
    target.expect = vec![201];
    let result = plainly(&plan(target, operations(1, 3), 1));
    assert_eq!((result.total.requests, result.total.errors.len()), (3, 0), "{:?}", result.total);
    let requests = server.seen.requests.lock().unwrap();
    let numbers: Vec<&str> = requests.iter().map(|(_, headers, _)| headers["x-number"].to_str().unwrap()).collect();
    assert_eq!(numbers, ["n1", "n2", "n3"]);
    let (method, headers, body) = &requests[0];
    assert!(method == "POST" && (body == "{\"v\": 5}" || body == "{\"v\": 6}"), "{method} {body}");
    assert_eq!(headers["user-agent"], "me");
    assert_eq!(headers["host"], server.address.to_string());
    assert_eq!(headers["authorization"], "Basic dTpwQHNz");
    assert_eq!(headers["content-length"], "8");
}

#[test]
fn a_request_that_goes_wrong_is_an_error_of_its_own_kind() {
    let server = server(None);
    for (path, expect, timeout_ms, error) in [
        ("503", &[][..], 10_000, "status 503"),
        ("", &[201], 10_000, "status 200"),
        ("break", &[], 10_000, "connection closed"),
        ("slow", &[], 20, "timeout"),
    ] {
        let target = HttpTarget { expect: expect.to_vec(), ..target(format!("http://{}/{path}", server.address)) };
        let plan = Plan { timeout: Duration::from_millis(timeout_ms), ..plan(target, one_by_one(5), 1) };
        let errors = plainly(&plan).total.errors;
        assert_eq!(errors.get(error), Some(&5), "{path}: {errors:?}");
    }
}

#[test]
fn a_service_that_closes_costs_a_connection_each_time() {
    let server = server(None);
    let result = plainly(&plan(target(format!("http://{}/close", server.address)), one_by_one(10), 1));
    assert_eq!((result.total.requests, result.total.errors.len()), (10, 0), "{:?}", result.total);
    assert_eq!(server.seen.connections.load(Relaxed), 10);
}

#[test]
fn an_open_load_through_the_relay_takes_as_long_as_the_way() {
    let server = server(None);
    let delay = Fault::Delay { delay: Duration::from_millis(5), jitter: Duration::ZERO };
    let relay = Relay::start(server.address, &[delay], 1).unwrap();
    let stage = Stage { duration: Duration::from_secs(1), from: 100.0, to: 100.0 };
    let shape = Shape::Open { stages: vec![stage], spacing: Spacing::Even, max_in_flight: 1000 };
    let plan = plan(target("http://service.invalid/".to_owned()), shape, 10);
    let result = measure(&plan, Some(relay.address()), RootCertStore::empty());
    assert!((99..=101).contains(&result.total.requests), "{:?}", result.total);
    let service = result.total.service_ms.unwrap();
    assert!(service.min >= 10.0 && service.p50 < 30.0, "{service:?}");
}

#[test]
fn tls_is_a_phase_and_an_unknown_certificate_is_refused() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let server = server(Some(TlsAcceptor::from(Arc::new(config))));
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let plan = plan(target(format!("https://localhost:{}/", server.address.port())), operations(1, 5), 1);
    let result = measure(&plan, Some(server.address), roots);
    assert_eq!((result.total.requests, result.total.errors.len()), (5, 0), "{:?}", result.total);
    assert!(result.total.connect_ms.tls.is_some());
    let result = measure(&plan, Some(server.address), RootCertStore::empty());
    assert_eq!(result.total.requests, 0, "{:?}", result.total);
}

#[test]
fn a_dead_or_wrong_target_is_a_clear_error_before_any_load() {
    let server = server(None);
    assert_eq!(check(&target(format!("http://{}/", server.address))).unwrap().name, "toy/1");
    assert_eq!(server.seen.requests.lock().unwrap()[0].0, "HEAD");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = check(&target(format!("http://u:hunter2@{free}/"))).unwrap_err().to_string();
    assert!(error.contains("connect refused") && error.contains(&free.to_string()) && !error.contains("hunter2"));
    let wrong = |change: &dyn Fn(&mut HttpTarget)| {
        let mut target = target("http://u:hunter2@127.0.0.1:1/".to_owned());
        change(&mut target);
        let error = check(&target).unwrap_err();
        assert_eq!(error.blame, crate::target::Blame::Configuration);
        assert!(!error.to_string().contains("hunter2"));
        error.to_string()
    };
    for (message, part) in [
        (wrong(&|t| t.url = Secret::new("ftp://u:hunter2@h/")), "http:// or https://"),
        (wrong(&|t| t.url = Secret::new("http://u:hunter2@h:hunter2/")), "port"),
        (wrong(&|t| t.method = "G T".to_owned()), "method"),
        (wrong(&|t| t.headers.push(("a b".to_owned(), "c".to_owned()))), "`a b`"),
        (wrong(&|t| t.headers.push(("a".to_owned(), "{{x}}".to_owned()))), "unknown field"),
        (wrong(&|t| t.body = Some("{{random 1}}".to_owned())), "the body"),
    ] {
        assert!(message.contains(part), "{message}");
    }
}
