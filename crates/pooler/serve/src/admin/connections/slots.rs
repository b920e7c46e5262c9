//! Slots of connections, and which connection is closed for a new one: the one that has sent no request for longest.
//! Knows no socket.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    body::Body,
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use tokio::{
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

/// A connection is not closed for another one within this time after its last answer: a request may be on its way.
const MIN_IDLE: Duration = Duration::from_millis(250);
/// The interval at which a waiting connection looks for one that may be closed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

pub struct Slots {
    free: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    slots: BTreeMap<u64, Weak<Slot>>,
    last: u64,
}

/// The slot of a connection. Dropping it frees the slot.
pub struct Slot {
    id: u64,
    connection: Mutex<Connection>,
    close_requested: Notify,
    taken: Arc<Mutex<Taken>>,
    _permit: OwnedSemaphorePermit,
}

/// The state of its connection.
struct Connection {
    /// Since when no request is being answered; `None` during an answer.
    idle_since: Option<Instant>,
    has_requested: bool,
    asked_to_close: bool,
}

impl Connection {
    /// Whether it closes soon. A connection with a request that arrived at that moment closes after the answer, which
    /// may take long.
    fn is_closing(&self) -> bool {
        self.asked_to_close && self.idle_since.is_some()
    }
}

impl Slots {
    pub fn new(places: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(places)), taken: Arc::default() }
    }

    /// Waits for a slot.
    pub async fn take(&self) -> Arc<Slot> {
        loop {
            let free = Arc::clone(&self.free);
            if free.available_permits() == 0 {
                self.ask_idlest_to_close(Instant::now());
            }
            if let Ok(permit) = timeout(POLL_INTERVAL, free.acquire_owned()).await {
                return self.add_slot(permit.expect("it is never closed"));
            }
        }
    }

    fn add_slot(&self, permit: OwnedSemaphorePermit) -> Arc<Slot> {
        let mut taken = lock(&self.taken);
        taken.last += 1;
        let connection = Connection { idle_since: Some(Instant::now()), has_requested: false, asked_to_close: false };
        let slot = Arc::new(Slot {
            id: taken.last,
            connection: Mutex::new(connection),
            close_requested: Notify::new(),
            taken: Arc::clone(&self.taken),
            _permit: permit,
        });
        taken.slots.insert(slot.id, Arc::downgrade(&slot));
        slot
    }

    /// Asks the connection that has been idle longest to close, unless one is closing.
    fn ask_idlest_to_close(&self, now: Instant) {
        let slots: Vec<Arc<Slot>> = lock(&self.taken).slots.values().filter_map(Weak::upgrade).collect();
        if slots.iter().any(|slot| lock(&slot.connection).is_closing()) {
            return;
        }
        let idle = slots.iter().filter_map(|slot| Some((lock(&slot.connection).idle_since?, slot)));
        let longest = idle.min_by_key(|(since, _)| *since);
        if let Some((_, slot)) = longest.filter(|(since, _)| now.saturating_duration_since(*since) >= MIN_IDLE) {
            lock(&slot.connection).asked_to_close = true;
            slot.close_requested.notify_one();
        }
    }
}

impl Slot {
    /// Waits until the slot is needed for another connection.
    pub async fn wait_until_asked_to_close(&self) {
        self.close_requested.notified().await;
    }

    /// Waits until no request has been answered for this time, from now on.
    pub async fn wait_until_idle_for(&self, time: Duration) {
        loop {
            sleep(time).await;
            if lock(&self.connection).idle_since.is_some_and(|since| since.elapsed() >= time) {
                return;
            }
        }
    }

    /// Whether it has sent any request.
    pub fn has_requested(&self) -> bool {
        lock(&self.connection).has_requested
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.taken).slots.remove(&self.id);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks the connection as busy until its answer has been sent.
pub async fn track_request(State(slot): State<Arc<Slot>>, request: Request, next: Next) -> Response {
    let pending = Pending::new(slot);
    next.run(request).await.map(|body| Body::new(Answer { body, _pending: pending }))
}

/// A request that is being answered.
struct Pending(Arc<Slot>);

impl Pending {
    fn new(slot: Arc<Slot>) -> Self {
        let mut connection = lock(&slot.connection);
        (connection.idle_since, connection.has_requested) = (None, true);
        drop(connection);
        Self(slot)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.0.connection).idle_since = Some(Instant::now());
    }
}

/// The body of an answer. Dropping it ends the request.
struct Answer {
    body: Body,
    _pending: Pending,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_to_close(slot: &Slot) -> bool {
        lock(&slot.connection).asked_to_close
    }

    #[tokio::test]
    async fn the_idlest_connection_is_asked_to_close_and_a_busy_one_is_not() {
        let slots = Slots::new(3);
        let (busy, idle, fresh) = (slots.take().await, slots.take().await, slots.take().await);
        let question = Pending::new(Arc::clone(&busy));
        slots.ask_idlest_to_close(Instant::now());
        assert!(![&busy, &idle, &fresh].into_iter().any(|slot| asked_to_close(slot)), "all have just come");
        drop(Pending::new(Arc::clone(&fresh)));
        slots.ask_idlest_to_close(Instant::now() + MIN_IDLE);
        assert_eq!([&busy, &idle, &fresh].map(|slot| asked_to_close(slot)), [false, true, false]);
        idle.wait_until_asked_to_close().await;
        slots.ask_idlest_to_close(Instant::now() + MIN_IDLE);
        assert!(!asked_to_close(&fresh), "one at a time");
        drop(idle);
        let another = slots.take().await;
        drop(question);
        slots.ask_idlest_to_close(Instant::now() + MIN_IDLE);
        assert_eq!([&busy, &another, &fresh].map(|slot| asked_to_close(slot)), [false, false, true]);
    }
}
