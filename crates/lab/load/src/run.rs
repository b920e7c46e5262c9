//! One run from the beginning to the end: looks at the target first, puts the relay with faults in between, lets the
//! target carry out what the engine orders, and writes down where and with what. Decides nothing about when operations
//! begin.

pub mod machine;
pub mod processors;

use std::{
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use pool::Time;
use upstream::{Address, UpstreamUrl};

use self::processors::Meter;
use crate::{
    engine::Engine,
    plan::{MongoTarget, Plan, PostgresTarget, RedisTarget, Target},
    relay::Relay,
    target::{self, RunContext, TargetError},
};
use report::result::BenchResult;

/// Addresses of a name that the relay tries.
const MAX_ADDRESSES: usize = 8;
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no result. Holds no secret.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The plan makes no sense.
    #[error("{0}")]
    Plan(String),
    /// The target cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
}

/// Runs a plan. `stop`: end early, with what there is. `watch` is called at least ten times a second.
///
/// # Errors
/// If the plan makes no sense or the target cannot be used; most of that is found before any load begins.
pub fn run(plan: &Plan, stop: &AtomicBool, watch: &mut dyn FnMut(&Engine, Time)) -> Result<BenchResult, RunError> {
    plan.check().map_err(RunError::Plan)?;
    let server = target::check(&plan.target)?;
    let relay = match plan.faults.as_slice() {
        [] => None,
        faults => Some(
            Relay::start(address(&plan.target)?, faults, plan.seed)
                .map_err(|error| TargetError::machine(format!("the relay with faults cannot be started: {error}")))?,
        ),
    };
    let started = machine::seconds_since_1970();
    let origin = Instant::now();
    let mut engine = Engine::new(plan, Time(0));
    let mut processors = Meter::default();
    let mut relay_knows = false;
    let mut watch = |engine: &Engine, now: Time| {
        if let (Some(relay), Some(from), false) = (&relay, engine.measured_from(), relay_knows) {
            relay.start_windows(origin + Duration::from_nanos(from.0));
            relay_knows = true;
        }
        processors.look(engine.is_measuring());
        watch(engine, now);
    };
    let context = RunContext { origin, stop, via: relay.as_ref().map(Relay::address), watch: &mut watch };
    target::run(&plan.target, plan, &mut engine, context)?;
    if let Some(failure) = engine.failure() {
        return Err(target::start_error(failure, None).into());
    }
    let now = Time(u64::try_from(origin.elapsed().as_nanos()).expect("584 years fit"));
    let mut result = engine.result(now);
    if let Some(lost) = relay.as_ref().map(|relay| relay.counts().failed).filter(|lost| *lost > 0) {
        result
            .warnings
            .push(format!("{lost} connections ended because the relay with the faults could not reach the target."));
    }
    result.total.generator_cpu_s = processors.cores().map(|cores| cores * result.total.duration_s);
    result.warnings.extend(processors.warning());
    result.about.started = started;
    result.about.target = shown(plan.target.url());
    if server.is_pooled && plan.poolhouse.is_none() {
        result.warnings.push(target::POOLER_WARNING.to_owned());
    }
    result.about.server = Some(server.name);
    result.about.machine = machine::describe();
    Ok(result)
}

/// Where a relay would have to lead to.
fn address(target: &Target) -> Result<SocketAddr, TargetError> {
    let (host, port) = match target {
        Target::Postgres(PostgresTarget { url, .. })
        | Target::Redis(RedisTarget { url, .. })
        | Target::MongoDb(MongoTarget { url, .. }) => {
            let url = UpstreamUrl::parse(url.reveal()).map_err(TargetError::configuration)?;
            match url.hosts.first() {
                Some(Address::Tcp { host, port }) => (host.clone(), *port),
                Some(Address::Unix(_)) | None => {
                    return Err(TargetError::configuration(
                        "faults on the way need a way over TCP: write a host and a port in the URL, not a Unix socket",
                    ));
                }
            }
        }
        Target::Http(http) => http_place(http.url.reveal())
            .ok_or_else(|| TargetError::configuration("this URL has no host: write http://host:port/path"))?,
    };
    let found: Vec<_> = (host.as_str(), port)
        .to_socket_addrs()
        .map_err(|error| TargetError::target(format!("the address of {host} cannot be found: {error}")))?
        .take(MAX_ADDRESSES)
        .collect();
    // A name may have several addresses (`localhost`), of which only some have a listener.
    let answers = |address: &&SocketAddr| TcpStream::connect_timeout(address, ADDRESS_TIMEOUT).is_ok();
    let first = found.iter().find(answers).or(found.first()).copied();
    first.ok_or_else(|| TargetError::target(format!("{host} has no address")))
}

/// Host and port of an HTTP URL.
fn http_place(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    let default = if scheme == "https" { 443 } else { 80 };
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (place, default),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// A URL without its password (of HTTP without its login: the user's name may be a token), and without what stands
/// behind `?` and `#`, where there may be another.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "(no URL)".to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if matches!(scheme, "http" | "https") {
        return match authority.rsplit_once('@') {
            Some((_, place)) => format!("{scheme}://***@{place}{path}"),
            None => format!("{scheme}://{rest}"),
        };
    }
    // A password with a `/` in it makes no URL, and is not shown nevertheless.
    let Some((login, place)) = rest.rsplit_once('@') else { return format!("{scheme}://{rest}") };
    let user = login.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_any_secret() {
        assert_eq!(shown("postgres://app:hunter2@db:5432/shop?password=hunter2"), "postgres://app@db:5432/shop");
        assert_eq!(shown("postgres://app:hun@ter2@db/shop"), "postgres://app@db/shop");
        assert_eq!(shown("http://127.0.0.1:8080/api?token=hunter2"), "http://127.0.0.1:8080/api");
        assert_eq!(shown("postgres://app:hun/ter2@db/shop"), "postgres://app@db/shop");
        assert_eq!(shown("http://hunter2@svc:8080/api"), "http://***@svc:8080/api");
        assert_eq!(shown("https://app:hunter2@svc?token=x"), "https://***@svc");
        assert_eq!(shown("http://svc:8080/@scope/pkg"), "http://svc:8080/@scope/pkg");
        assert_eq!(shown("hunter2"), "(no URL)");
    }

    #[test]
    fn the_place_of_an_http_url_is_found() {
        let place = |url| http_place(url).map(|(host, port)| format!("{host} {port}"));
        assert_eq!(place("http://a/b").as_deref(), Some("a 80"));
        assert_eq!(place("https://u:p@a:8443/b?c@d").as_deref(), Some("a 8443"));
        assert_eq!(place("http://[::1]:8080").as_deref(), Some("::1 8080"));
        assert_eq!(place("http://[::1]").as_deref(), Some("::1 80"));
        assert_eq!(place("http://:80"), None);
        assert_eq!(place("http://a:port"), None);
    }
}
