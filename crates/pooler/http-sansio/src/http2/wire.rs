//! An in-memory socket for the h2 crate.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A handle of the socket; clones share it.
#[derive(Clone, Default)]
pub(super) struct Wire(Arc<Mutex<Ends>>);

/// The bytes in both directions.
#[derive(Default)]
struct Ends {
    input: Vec<u8>,
    /// How many bytes of the input have been read.
    read: usize,
    out: Vec<u8>,
}

impl Wire {
    /// Sets the bytes that precede all output.
    pub(super) fn begin(&self, out: Vec<u8>) {
        self.lock().out = out;
    }

    /// Moves the output to `to`.
    pub(super) fn drain(&self, to: &mut Vec<u8>) {
        to.append(&mut self.lock().out);
    }

    fn lock(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds input of the client.
    pub(super) fn put(&self, bytes: &[u8]) {
        let mut ends = self.lock();
        let read = std::mem::take(&mut ends.read);
        ends.input.drain(..read);
        ends.input.extend_from_slice(bytes);
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.lock();
        let length = to.remaining().min(ends.input.len() - ends.read);
        if length == 0 {
            return Poll::Pending;
        }
        let begin = ends.read;
        to.put_slice(&ends.input[begin..begin + length]);
        ends.read += length;
        if ends.read == ends.input.len() {
            (ends.input, ends.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
