//! Places for connections, and which of them gives way to a new one: that which has asked nothing for longest. Knows no
//! socket.

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

/// A connection that has asked nothing for less than this gives way to none: its question may be on its way.
const LEAST_IDLE: Duration = Duration::from_millis(250);
/// While a new connection waits for a place, so often it is looked for one that may give way.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub struct Seats {
    free: Arc<Semaphore>,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Default)]
struct Taken {
    seats: BTreeMap<u64, Weak<Seat>>,
    last: u64,
}

/// A connection's place, which is free again when this is dropped.
pub struct Seat {
    id: u64,
    now: Mutex<Now>,
    goes: Notify,
    taken: Arc<Mutex<Taken>>,
    _permit: OwnedSemaphorePermit,
}

/// What its connection does.
struct Now {
    /// Since when it has asked nothing; `None`: it is being answered.
    idle_since: Option<Instant>,
    has_asked: bool,
    gives_way: bool,
}

impl Now {
    /// It is about to end. One that was asked something at that moment ends behind the answer, and none waits for that.
    fn is_leaving(&self) -> bool {
        self.gives_way && self.idle_since.is_some()
    }
}

impl Seats {
    pub fn new(places: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(places)), taken: Arc::default() }
    }

    /// A place for a new connection, as soon as there is one.
    pub async fn take(&self) -> Arc<Seat> {
        loop {
            let free = Arc::clone(&self.free);
            if free.available_permits() == 0 {
                self.have_one_give_way(Instant::now());
            }
            if let Ok(permit) = timeout(LOOK_EVERY, free.acquire_owned()).await {
                return self.seat(permit.expect("it is never closed"));
            }
        }
    }

    fn seat(&self, permit: OwnedSemaphorePermit) -> Arc<Seat> {
        let mut taken = lock(&self.taken);
        taken.last += 1;
        let now = Now { idle_since: Some(Instant::now()), has_asked: false, gives_way: false };
        let seat = Arc::new(Seat {
            id: taken.last,
            now: Mutex::new(now),
            goes: Notify::new(),
            taken: Arc::clone(&self.taken),
            _permit: permit,
        });
        taken.seats.insert(seat.id, Arc::downgrade(&seat));
        seat
    }

    /// Unless one does already.
    fn have_one_give_way(&self, now: Instant) {
        let seats: Vec<Arc<Seat>> = lock(&self.taken).seats.values().filter_map(Weak::upgrade).collect();
        if seats.iter().any(|seat| lock(&seat.now).is_leaving()) {
            return;
        }
        let idle = seats.iter().filter_map(|seat| Some((lock(&seat.now).idle_since?, seat)));
        let longest = idle.min_by_key(|(since, _)| *since);
        if let Some((_, seat)) = longest.filter(|(since, _)| now.saturating_duration_since(*since) >= LEAST_IDLE) {
            lock(&seat.now).gives_way = true;
            seat.goes.notify_one();
        }
    }
}

impl Seat {
    /// Until another is to have its place.
    pub async fn gives_way(&self) {
        self.goes.notified().await;
    }

    /// Until it has asked nothing for this time at least, from now on.
    pub async fn has_been_answered_for(&self, time: Duration) {
        loop {
            sleep(time).await;
            if lock(&self.now).idle_since.is_some_and(|since| since.elapsed() >= time) {
                return;
            }
        }
    }

    /// It has asked something since it came.
    pub fn has_asked(&self) -> bool {
        lock(&self.now).has_asked
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.taken).seats.remove(&self.id);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a connection asks something, until its answer has been given.
pub async fn note(State(seat): State<Arc<Seat>>, request: Request, next: Next) -> Response {
    let question = Question::new(seat);
    next.run(request).await.map(|body| Body::new(Answer { body, _question: question }))
}

/// One that is being answered.
struct Question(Arc<Seat>);

impl Question {
    fn new(seat: Arc<Seat>) -> Self {
        let mut now = lock(&seat.now);
        (now.idle_since, now.has_asked) = (None, true);
        drop(now);
        Self(seat)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        lock(&self.0.now).idle_since = Some(Instant::now());
    }
}

/// The body of an answer, which ends the question.
struct Answer {
    body: Body,
    _question: Question,
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

    fn gives_way(seat: &Seat) -> bool {
        lock(&seat.now).gives_way
    }

    #[tokio::test]
    async fn who_has_asked_nothing_for_longest_gives_way_and_who_is_answered_does_not() {
        let seats = Seats::new(3);
        let (busy, idle, fresh) = (seats.take().await, seats.take().await, seats.take().await);
        let question = Question::new(Arc::clone(&busy));
        seats.have_one_give_way(Instant::now());
        assert!(![&busy, &idle, &fresh].into_iter().any(|seat| gives_way(seat)), "all have just come");
        drop(Question::new(Arc::clone(&fresh)));
        seats.have_one_give_way(Instant::now() + LEAST_IDLE);
        assert_eq!([&busy, &idle, &fresh].map(|seat| gives_way(seat)), [false, true, false]);
        idle.gives_way().await;
        seats.have_one_give_way(Instant::now() + LEAST_IDLE);
        assert!(!gives_way(&fresh), "one at a time");
        drop(idle);
        let another = seats.take().await;
        drop(question);
        seats.have_one_give_way(Instant::now() + LEAST_IDLE);
        assert_eq!([&busy, &another, &fresh].map(|seat| gives_way(seat)), [false, false, true]);
    }
}
