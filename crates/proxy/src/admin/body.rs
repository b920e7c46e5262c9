//! The body of a long answer that is made while it is sent: whoever reads slowly, or goes, makes nobody write what is not read. Refuses to
//! know what the pieces say.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::body::{Body, Bytes, Frame};
use tokio::sync::OwnedSemaphorePermit;

/// With so many bytes or more a piece ends; what is being written then is written to its end.
pub const PIECE: usize = 64 * 1024;

/// How long all pieces together may take. Whoever reads nothing at all is let go earlier, at the door.
const TIME: Duration = Duration::from_secs(120);

/// It was not read in time, and ends before its end.
#[derive(Debug, thiserror::Error)]
#[error("a long answer was not read within {} s", TIME.as_secs())]
pub struct TooSlow;

/// Pieces, one after another, each made when all before it are on their way.
pub struct Pieces<I> {
    pieces: I,
    /// It has just given one.
    rests: bool,
    until: Instant,
    /// Others may have it when this has been read, or given up.
    _place: OwnedSemaphorePermit,
}

impl<I> Pieces<I> {
    /// None is made yet. From now on it is to be read in time.
    pub fn new(pieces: I, place: OwnedSemaphorePermit) -> Self {
        Self { pieces, rests: false, until: Instant::now() + TIME, _place: place }
    }
}

impl<I: Iterator<Item = Vec<u8>> + Unpin> Body for Pieces<I> {
    type Data = Bytes;
    type Error = TooSlow;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, TooSlow>>> {
        if Instant::now() >= self.until {
            return Poll::Ready(Some(Err(TooSlow)));
        }
        if !std::mem::take(&mut self.rests) {
            let piece = self.pieces.next();
            // There is nothing to send of an empty one, but it took its time.
            if piece.as_ref().is_none_or(|piece| !piece.is_empty()) {
                self.rests = true;
                return Poll::Ready(piece.map(|piece| Ok(Frame::data(piece.into()))));
            }
        }
        // One thread answers everybody: others have their turn in between.
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

    fn place(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
        Arc::clone(places).try_acquire_owned().unwrap()
    }

    /// What it gives: a piece, a rest as `...`, the end as an empty text, or an error.
    fn poll(body: &mut Pieces<impl Iterator<Item = Vec<u8>> + Unpin>, waker: &Waker) -> String {
        match Pin::new(body).poll_frame(&mut Context::from_waker(waker)) {
            Poll::Ready(Some(Ok(frame))) => String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap(),
            Poll::Ready(Some(Err(error))) => error.to_string(),
            Poll::Ready(None) => String::new(),
            Poll::Pending => "...".to_owned(),
        }
    }

    #[test]
    fn each_piece_is_made_when_it_is_asked_for_and_others_have_their_turn_between_two() {
        let (made, woken, places) =
            (AtomicU32::new(0), Arc::new(Woken(AtomicU32::new(0))), Arc::new(Semaphore::new(1)));
        let waker = Waker::from(Arc::clone(&woken));
        let pieces = ["a", "b", "", "", "c"].into_iter().map(|text| text.as_bytes().to_vec());
        let mut body = Pieces::new(pieces.inspect(|_| _ = made.fetch_add(1, Relaxed)), place(&places));
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

    #[test]
    fn it_has_a_place_until_it_is_over_and_is_over_when_it_was_not_read_in_time() {
        let places = Arc::new(Semaphore::new(1));
        let mut body = Pieces::new(std::iter::repeat(b"a".to_vec()), place(&places));
        assert_eq!((&*poll(&mut body, Waker::noop()), places.available_permits()), ("a", 0));
        body.until = Instant::now();
        assert_eq!(poll(&mut body, Waker::noop()), "a long answer was not read within 120 s");
        drop(body);
        assert_eq!(places.available_permits(), 1);
    }
}
