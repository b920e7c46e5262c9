//! How long applications go without service when the database's backends are killed under them.
//!
//! Refuses to know what stands between the applications and the database.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use settings::Secret;

use super::{
    cluster::{QUERY_TIMEOUT, connect},
    measure::Watch,
};

/// Applications that run a short query over and over.
pub const CLIENTS: usize = 50;
/// Quiet before the kill, and the longest wait after it.
const WARM_UP: Duration = Duration::from_millis(700);
const LIMIT: Duration = Duration::from_secs(10);
const QUERY: &str = "select pg_sleep(0.002)";

/// What the applications went through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Backends that were killed.
    pub killed: usize,
    /// Queries answered with an error, or lost with their connection.
    pub errors: usize,
    /// Applications that had to connect anew.
    pub reconnected: usize,
    /// From the kill until every application had a query answered again; `None` if some never did.
    pub time: Option<Duration>,
}

struct Client {
    errors: usize,
    reconnected: bool,
    served: Option<Instant>,
}

/// Runs the applications against `target`, kills all backends, and waits until all are served again.
pub fn measure(target: &Secret, watch: &mut Watch) -> anyhow::Result<Recovery> {
    let (start, killed) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| live(target, &killed))).collect();
        thread::sleep(WARM_UP.saturating_sub(start.elapsed()));
        let moment = Instant::now();
        let count = watch.terminate_backends();
        killed.store(true, Ordering::SeqCst);
        let clients: Vec<Client> =
            clients.into_iter().map(|client| client.join().expect("a client does not panic")).collect();
        let times: Option<Vec<Duration>> = clients.iter().map(|c| Some(c.served?.duration_since(moment))).collect();
        Ok(Recovery {
            killed: count?,
            errors: clients.iter().map(|client| client.errors).sum(),
            reconnected: clients.iter().filter(|client| client.reconnected).count(),
            time: times.and_then(|times| times.into_iter().max()),
        })
    })
}

/// One application: queries until it has been served after the kill, reconnecting whenever its session ends.
fn live(target: &Secret, killed: &AtomicBool) -> Client {
    let mut client = Client { errors: 0, reconnected: false, served: None };
    let mut session = connect(target).ok();
    let deadline = Instant::now() + WARM_UP + LIMIT;
    // A query that began before the kill says nothing about recovery, and a few more show that it lasts.
    let mut after = 0;
    while after < 5 && Instant::now() < deadline {
        let began_after = killed.load(Ordering::SeqCst);
        let Some(connected) = &mut session else {
            client.reconnected = true;
            session = connect(target).ok();
            if session.is_none() {
                thread::sleep(Duration::from_millis(2));
            }
            continue;
        };
        match connected.query(QUERY, QUERY_TIMEOUT) {
            Ok(_) if began_after => {
                client.served.get_or_insert_with(Instant::now);
                after += 1;
            }
            Ok(_) => {}
            Err(_) => {
                client.errors += 1;
                client.served = None;
                after = 0;
                if !connected.is_open() {
                    session = None;
                }
            }
        }
    }
    client
}
