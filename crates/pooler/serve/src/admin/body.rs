//! The body of a long answer that is made while it is sent, so that nothing is written for a client that reads slowly
//! or disconnects. Knows nothing of what the pieces say.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use hyper::body::{Body, Bytes, Frame};
use tokio::{sync::OwnedSemaphorePermit, task::AbortHandle, time::sleep};

/// A piece ends after the entry with which it reaches this many bytes.
pub const PIECE: usize = 64 * 1024;

/// Bounds the time for all pieces together. A client that reads nothing at all is disconnected earlier, by
/// [`connections`](super::connections).
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// The error of a body that the client did not read in time: it is cut off.
#[derive(Debug, thiserror::Error)]
#[error("a long answer was not read in time")]
pub struct TooSlow;

/// Pieces, one after another, each made when all before it are on their way.
pub struct Pieces<I> {
    /// `None` when their time is over. A task sees to that, because the next piece is not asked for before a slow
    /// reader has read the last one.
    left: Arc<Mutex<Option<Left<I>>>>,
    ends: AbortHandle,
    /// Whether the next poll yields to other connections before it makes a piece.
    yields_next: bool,
}

struct Left<I> {
    pieces: I,
    /// Another answer may have the permit when this one has been read or given up.
    _permit: OwnedSemaphorePermit,
}

impl<I: Send + 'static> Pieces<I> {
    /// A body of these pieces, none of which is made yet. The time of [`BODY_TIMEOUT`] begins now. Needs a runtime.
    pub fn new(pieces: I, permit: OwnedSemaphorePermit) -> Self {
        Self::within(pieces, permit, BODY_TIMEOUT)
    }

    fn within(pieces: I, permit: OwnedSemaphorePermit, time: Duration) -> Self {
        let left = Arc::new(Mutex::new(Some(Left { pieces, _permit: permit })));
        let late = Arc::clone(&left);
        let task = tokio::spawn(async move {
            sleep(time).await;
            give_up(&late);
        });
        Self { left, ends: task.abort_handle(), yields_next: false }
    }
}

fn give_up<I>(left: &Mutex<Option<Left<I>>>) {
    let left = left.lock().unwrap_or_else(PoisonError::into_inner).take();
    drop(left);
}

impl<I> Drop for Pieces<I> {
    fn drop(&mut self) {
        self.ends.abort();
        give_up(&self.left);
    }
}

impl<I: Iterator<Item = Vec<u8>> + Unpin> Body for Pieces<I> {
    type Data = Bytes;
    type Error = TooSlow;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TooSlow>>> {
        if !std::mem::take(&mut self.yields_next) {
            let piece = match &mut *self.left.lock().unwrap_or_else(PoisonError::into_inner) {
                Some(left) => left.pieces.next(),
                None => return Poll::Ready(Some(Err(TooSlow))),
            };
            // There is nothing to send of an empty one, but it took its time.
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                self.yields_next = true;
                return Poll::Ready(piece.map(|piece| Ok(Frame::data(piece.into()))));
            }
        }
        // One thread answers all connections: others have their turn in between.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering::Relaxed},
        },
        task::{Wake, Waker},
    };

    use tokio::sync::Semaphore;

    use super::*;

    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn permit(permits: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        Arc::clone(permits).try_acquire_owned().unwrap()
    }

    /// What the body gives: a piece, a yield as `...`, the end as an empty text, or an error.
    fn poll(body: &mut Pieces<impl Iterator<Item = Vec<u8>> + Unpin>, waker: &Waker) -> String {
        match Pin::new(body).poll_frame(&mut Context::from_waker(waker)) {
            Poll::Ready(Some(Ok(frame))) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
            Poll::Ready(Some(Err(error))) => error.to_string(),
            Poll::Ready(None) => String::new(),
            Poll::Pending => "...".to_owned(),
        }
    }

    #[tokio::test]
    async fn each_piece_is_made_when_it_is_asked_for_and_others_have_their_turn_between_two() {
        let made = Arc::new(AtomicU32::new(0));
        let (woken, permits) = (Arc::new(Woken(AtomicU32::new(0))), Arc::new(Semaphore::new(1)));
        let waker = Waker::from(Arc::clone(&woken));
        let pieces = ["a", "b", "", "", "c"].into_iter().map(|text| text.as_bytes().to_vec());
        let making = Arc::clone(&made);
        let mut body = Pieces::new(pieces.inspect(move |_| _ = making.fetch_add(1, Relaxed)), permit(&permits));
        let expected = [
            (1, 0, "a"),
            (1, 1, "..."),
            (2, 1, "b"),
            (2, 2, "..."),
            (3, 3, "..."),
            (4, 4, "..."),
            (5, 4, "c"),
            (5, 5, "..."),
            (5, 5, ""),
        ];
        for (made_then, woken_then, given) in expected {
            assert_eq!(poll(&mut body, &waker), given);
            assert_eq!((made.load(Relaxed), woken.0.load(Relaxed)), (made_then, woken_then));
        }
    }

    #[tokio::test]
    async fn a_body_has_a_permit_until_its_end_and_ends_when_it_was_not_read_in_time() {
        let permits = Arc::new(Semaphore::new(1));
        let endless = || std::iter::repeat(b"a".to_vec());
        let mut body = Pieces::new(endless(), permit(&permits));
        assert_eq!((&*poll(&mut body, Waker::noop()), permits.available_permits()), ("a", 0));
        drop(body);
        assert_eq!(permits.available_permits(), 1, "who asked is gone");
        let mut body = Pieces::within(endless(), permit(&permits), Duration::from_millis(5));
        assert_eq!(poll(&mut body, Waker::noop()), "a");
        // No piece is asked for meanwhile.
        let _again = permits.acquire().await.unwrap();
        assert_eq!(
            ["...", "a long answer was not read in time"].map(|_| poll(&mut body, Waker::noop())),
            ["...", "a long answer was not read in time"]
        );
    }
}
