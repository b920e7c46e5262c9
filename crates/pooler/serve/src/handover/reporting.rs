//! Reports to successors what this process holds, once it no longer serves new clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use super::{limits::LimitShares, *};

/// Time between two reports, and after an error before the next connection is accepted.
pub(super) const REPORT_INTERVAL: Duration = Duration::from_millis(200);
const MAX_SUCCESSORS: usize = 256;

#[derive(Clone)]
pub(super) struct Reporter {
    pub limits: Arc<LimitShares>,
    /// Whether this process accepts clients.
    is_serving: Arc<dyn Fn() -> bool + Send + Sync>,
    successors: Arc<AtomicUsize>,
}

impl Reporter {
    pub(super) fn new(limits: Arc<LimitShares>, is_serving: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { limits, is_serving: Arc::new(is_serving), successors: Arc::default() }
    }

    /// Takes back what was left to a successor that did not take over. Once this process accepts no more clients,
    /// another successor may already rely on its share, so nothing is taken back then.
    pub(super) fn take_back(&self) {
        if (self.is_serving)() {
            self.limits.take_back();
        }
    }

    /// Reports to each process that connects, on a thread each.
    pub(super) fn serve(&self, listener: &UnixListener) {
        for stream in listener.incoming() {
            if let Err(error) = stream.and_then(|stream| self.welcome(stream)) {
                tracing::warn!(%error, "another process wanted to know what is held here and was not told");
                std::thread::sleep(REPORT_INTERVAL);
            }
        }
    }

    fn welcome(&self, stream: UnixStream) -> io::Result<()> {
        // A stream that ends without a report says that this process serves clients. A process that takes over gets its
        // reports on its own stream.
        if (self.is_serving)() || !is_ours(&stream)? {
            return Ok(());
        }
        stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        if self.successors.load(SeqCst) >= MAX_SUCCESSORS {
            return Err(io::Error::other(format!("{MAX_SUCCESSORS} others are told already")));
        }
        let reporter = self.clone();
        std::thread::Builder::new().name("handover".into()).spawn(move || reporter.report_to(&stream, Vec::new()))?;
        Ok(())
    }

    /// Reports to one successor until one of the two processes ends. The first report has the tuned sizes of pools.
    pub(super) fn report_to(&self, stream: &UnixStream, mut tuned: Vec<HandedOverSize>) {
        self.successors.fetch_add(1, SeqCst);
        loop {
            let report = Report { left: true, tuned: std::mem::take(&mut tuned), ..self.limits.share() };
            if let Err(error) = send_line(stream, &report) {
                // The successor's share stays free: another one may come, and what this process holds may only shrink.
                match self.successors.fetch_sub(1, SeqCst) {
                    1 => tracing::warn!(%error, "the process that took over is gone"),
                    _ => tracing::info!("a process after this one has ended"),
                }
                return;
            }
            std::thread::sleep(REPORT_INTERVAL);
        }
    }
}
