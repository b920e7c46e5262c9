//! The body of a long answer that is made while it is sent: whoever reads slowly, or goes, makes nobody write what is not read. Refuses to
//! know what the pieces say.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use hyper::body::{Body, Bytes, Frame};

/// Pieces, one after another, each made when all before it are on their way.
pub struct Pieces<I> {
    pieces: I,
    /// It has just given one.
    rests: bool,
}

impl<I> Pieces<I> {
    /// None is made yet.
    pub fn new(pieces: I) -> Self {
        Self { pieces, rests: false }
    }
}

impl<I: Iterator<Item = Vec<u8>> + Unpin> Body for Pieces<I> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        // One thread answers everybody: others have their turn in between.
        if std::mem::take(&mut self.rests) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.rests = true;
        Poll::Ready(self.pieces.next().map(|piece| Ok(Frame::data(piece.into()))))
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

    use super::*;

    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn each_piece_is_made_when_it_is_asked_for_and_others_have_their_turn_between_two() {
        let (made, woken) = (AtomicU32::new(0), Arc::new(Woken(AtomicU32::new(0))));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let pieces = [b"a".to_vec(), b"b".to_vec()].into_iter().inspect(|_| _ = made.fetch_add(1, Relaxed));
        let mut body = Pieces::new(pieces);
        let mut poll = || match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(frame) => frame.map(|frame| frame.unwrap().into_data().unwrap().to_vec()),
            Poll::Pending => Some(b"...".to_vec()),
        };
        for (made_then, woken_then, given) in [(1, 0, "a"), (1, 1, "..."), (2, 1, "b"), (2, 2, "...")] {
            assert_eq!(poll().as_deref(), Some(given.as_bytes()));
            assert_eq!((made.load(Relaxed), woken.0.load(Relaxed)), (made_then, woken_then));
        }
        assert_eq!(poll(), None);
    }
}
