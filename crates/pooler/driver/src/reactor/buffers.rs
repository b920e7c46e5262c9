//! The ring of receive buffers of one worker. Few are ever in use: one that is being looked at, and
//! one for each connection whose peer does not read. Knows nothing of sockets.

use std::rc::Rc;

/// Free buffers kept for reuse; what comes back beyond that is given to the allocator.
const MAX_FREE: usize = 8;

#[derive(Debug)]
pub struct Buffer(Box<[u8]>);

impl std::ops::Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Hands out buffers and takes them back.
#[derive(Debug)]
pub struct Ring {
    size: usize,
    free: Vec<Rc<Buffer>>,
}

impl Ring {
    /// A ring whose buffers have `size` bytes each.
    ///
    /// # Panics
    /// If `size` is 0.
    pub fn new(size: usize) -> Self {
        assert!(size > 0);
        Self { size, free: Vec::with_capacity(MAX_FREE) }
    }

    /// Bytes of each buffer.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A buffer with no other reference.
    pub fn take(&mut self) -> Rc<Buffer> {
        self.free.pop().unwrap_or_else(|| Rc::new(Buffer(vec![0; self.size].into_boxed_slice())))
    }

    /// Takes back a reference; the buffer is reused when it was the last one.
    pub fn put(&mut self, buffer: Rc<Buffer>) {
        if self.free.len() < MAX_FREE && Rc::strong_count(&buffer) == 1 {
            self.free.push(buffer);
        }
    }
}

/// The bytes of a buffer that was just taken, to write into.
///
/// # Panics
/// If there is another reference to the buffer.
pub fn writable(buffer: &mut Rc<Buffer>) -> &mut [u8] {
    &mut Rc::get_mut(buffer).expect("a buffer from the ring has one owner").0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_in_use_elsewhere_is_not_handed_out_again() {
        let mut ring = Ring::new(16);
        let buffer = ring.take();
        let kept = Rc::clone(&buffer);
        ring.put(buffer);
        assert!(!Rc::ptr_eq(&ring.take(), &kept));
        ring.put(kept);
        assert_eq!(ring.free.len(), 1);
    }
}
