//! The predecessor's side: waits for a successor, gives it the sockets, and reports what is still held here.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use driver::Handle;
use tokio::sync::Notify;

use super::{
    limits::LimitShares,
    reporting::{REPORT_INTERVAL, Reporter},
    *,
};
use crate::tuning::Tuning;

/// A handle to the thread that waits for a successor.
pub struct SuccessorListener(Arc<Handover>);

struct Handover {
    /// The listening sockets, until they are given away or closed.
    sockets: Mutex<Option<Sockets>>,
    left: Notify,
    has_left: AtomicBool,
    has_given: AtomicBool,
}

/// Duplicates of the listening sockets, by their configured addresses.
pub struct Sockets {
    pub listeners: Vec<(String, OwnedFd)>,
    /// The listeners whose sockets systemd has opened.
    pub activated: Vec<String>,
    pub admin: Option<(String, OwnedFd)>,
}

impl SuccessorListener {
    /// Starts to wait. If the configuration has no fixed address, or its name cannot be bound, no process can take over
    /// from this one; that is logged and has no other effect.
    pub fn wait(
        config: &Config,
        handle: Handle,
        limits: Arc<LimitShares>,
        tuning: Arc<Tuning>,
        sockets: Sockets,
    ) -> Self {
        let handover = Arc::new(Handover {
            sockets: Mutex::new(Some(sockets)),
            left: Notify::new(),
            has_left: AtomicBool::new(false),
            has_given: AtomicBool::new(false),
        });
        let listener = Self(Arc::clone(&handover));
        let seen = Arc::clone(&handover);
        let reporter = Reporter::new(limits, move || seen.sockets().is_some());
        let socket_giver = SocketGiver { handle, reporter: reporter.clone(), tuning, handover };
        let Some(meeting) = Meeting::of(config) else { return listener };
        let at = |listener: io::Result<UnixListener>, work: Box<dyn FnOnce(UnixListener) + Send>| {
            let listener = listener?;
            std::thread::Builder::new().name("handover".into()).spawn(move || work(listener))
        };
        // The socket for reports comes first: it stays after a handover, and successors look for it.
        if let Err(error) = at(meeting.bind_reporter(), Box::new(move |listener| reporter.serve(&listener))) {
            tracing::warn!(%error, "limits will not hold together with a process that follows this one");
        }
        if let Err(error) = at(meeting.bind(), Box::new(move |listener| socket_giver.serve(listener))) {
            tracing::warn!(%error, "no other process will be able to take over from this one");
        }
        listener
    }

    /// Waits until a successor serves clients.
    pub async fn wait_until_left(&self) {
        self.0.left.notified().await;
    }

    /// Whether a successor serves clients.
    pub fn has_left(&self) -> bool {
        self.0.has_left.load(SeqCst)
    }

    /// Whether a successor has the sockets; it may not serve yet. It then owns their files.
    pub fn has_given(&self) -> bool {
        self.0.has_given.load(SeqCst)
    }

    /// Closes the duplicates, so that no process can take over any more and no socket stays open because of them.
    pub fn close(&self) {
        *self.0.sockets() = None;
    }
}

impl Handover {
    fn sockets(&self) -> MutexGuard<'_, Option<Sockets>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that waits for a successor, and gives it the sockets.
struct SocketGiver {
    handle: Handle,
    reporter: Reporter,
    tuning: Arc<Tuning>,
    handover: Arc<Handover>,
}

impl SocketGiver {
    /// Serves one successor at a time, until one has taken over.
    fn serve(self, listener: UnixListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Mostly a lack of descriptors.
                std::thread::sleep(REPORT_INTERVAL);
                continue;
            };
            match self.give(&stream) {
                Ok(()) => {
                    // The successor binds this name for its own successor.
                    drop(listener);
                    // From now on no pool is tuned here.
                    return self.reporter.report_to(&stream, self.tuning.handed_over_sizes());
                }
                Err(error) => {
                    self.reporter.take_back();
                    tracing::warn!(%error, "another process wanted to take over and did not");
                }
            }
        }
    }

    fn give(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
        stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
        if !is_ours(stream)? {
            let error = "the other process belongs to another user";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        let mut lines = Lines::of(stream)?;
        let Ask { take_over } = lines.next()?;
        if take_over != VERSION {
            return Err(io::Error::other("it speaks another version"));
        }
        // If the successor has ended, the files of the sockets belong to this process again.
        let take_files_back = |error: &io::Error| {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            if matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) {
                self.handover.has_given.store(false, SeqCst);
            }
        };
        {
            let sockets = self.handover.sockets();
            let Some(Sockets { listeners, activated, admin }) = &*sockets else {
                return Err(io::Error::other("this process is already ending"));
            };
            let copies: io::Result<Vec<OwnedFd>> =
                listeners.iter().chain(admin).map(|(_, fd)| fd.try_clone()).collect();
            let copies = copies?;
            self.handover.has_given.store(true, SeqCst);
            send_sockets(stream, &copies).inspect_err(take_files_back)?;
            let listeners = listeners.iter().map(|(name, _)| name.clone()).collect();
            let admin = admin.as_ref().map(|(name, _)| name.clone());
            let Report { held, own, process, .. } = self.reporter.limits.begin_to_share();
            let answer = Answer { listeners, admin, activated: activated.clone(), held, own, process };
            send_line(stream, &answer).inspect_err(take_files_back)?;
        }
        tracing::info!("another process takes over");
        let Serving { .. } = lines.next().inspect_err(take_files_back)?;
        self.handover.has_left.store(true, SeqCst);
        *self.handover.sockets() = None;
        self.handle.leave();
        self.handover.left.notify_one();
        Ok(())
    }
}
