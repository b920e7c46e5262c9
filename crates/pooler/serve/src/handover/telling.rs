//! Tells other processes what is held here, as soon as clients are served here no longer. Gives nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use super::{limits::Limits, *};

/// How often what is held is told, and how long nothing is accepted after an error.
pub(super) const PACE: Duration = Duration::from_millis(200);
/// Processes that are told at once.
const MAX_TOLD: usize = 256;

#[derive(Clone)]
pub(super) struct Teller {
    pub limits: Arc<Limits>,
    /// Whether clients are served here.
    is_serving: Arc<dyn Fn() -> bool + Send + Sync>,
    told: Arc<AtomicUsize>,
}

impl Teller {
    pub(super) fn new(limits: Arc<Limits>, is_serving: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { limits, is_serving: Arc::new(is_serving), told: Arc::default() }
    }

    /// No process follows after all. Where clients are served here no longer, one may have come to know what is held.
    pub(super) fn take_back(&self) {
        if (self.is_serving)() {
            self.limits.take_back();
        }
    }

    /// Tells all who come here, each on a thread of its own.
    pub(super) fn serve(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            if let Err(error) = stream.and_then(|stream| self.welcome(stream)) {
                tracing::warn!(%error, "another process wanted to know what is held here and was not told");
                std::thread::sleep(PACE);
            }
        }
    }

    fn welcome(&self, stream: UnixStream) -> io::Result<()> {
        // That the stream ends without a word says that clients are served here: who takes over is told on its own
        // stream.
        if (self.is_serving)() || !is_ours(&stream)? {
            return Ok(());
        }
        stream.set_write_timeout(Some(PATIENCE))?;
        if self.told.load(SeqCst) >= MAX_TOLD {
            return Err(io::Error::other(format!("{MAX_TOLD} others are told already")));
        }
        let teller = self.clone();
        std::thread::Builder::new().name("handover".into()).spawn(move || teller.tell(&stream, Vec::new()))?;
        Ok(())
    }

    /// Tells one what is held, until that one or this process ends; first of all what is known of the sizes of pools.
    pub(super) fn tell(&self, stream: &UnixStream, mut tuned: Vec<Kept>) {
        self.told.fetch_add(1, SeqCst);
        loop {
            let word = Word { left: true, tuned: std::mem::take(&mut tuned), ..self.limits.share() };
            if let Err(error) = say(stream, &word) {
                // What was left to it stays free: another one may come instead, and what is held here is to become less
                // only.
                match self.told.fetch_sub(1, SeqCst) {
                    1 => tracing::warn!(%error, "the process that took over is gone"),
                    _ => tracing::info!("a process after this one has ended"),
                }
                return;
            }
            std::thread::sleep(PACE);
        }
    }
}
