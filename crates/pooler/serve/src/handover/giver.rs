//! The side that is left: waits for a successor, gives it the sockets and tells it what is still held here.

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
    limits::Limits,
    telling::{PACE, Teller},
    *,
};
use crate::tuning::Tuning;

/// Waits for a successor on a thread of its own.
pub struct Giver {
    /// The sockets that listen, until they are given away or closed.
    sockets: Arc<Mutex<Option<Sockets>>>,
    pub left: Arc<Notify>,
    has_left: Arc<AtomicBool>,
    has_given: Arc<AtomicBool>,
}

/// Copies of the sockets that listen here.
pub struct Sockets {
    pub listeners: Vec<(String, OwnedFd)>,
    pub admin: Option<(String, OwnedFd)>,
}

impl Giver {
    /// Begins to wait, if the configuration has a place to meet at. Without one, or if none can be had there, no
    /// process can take over from here, which is logged and harms nothing else.
    pub fn wait(config: &Config, handle: Handle, limits: Arc<Limits>, tuning: Arc<Tuning>, sockets: Sockets) -> Self {
        let giver = Self {
            sockets: Arc::new(Mutex::new(Some(sockets))),
            left: Arc::new(Notify::new()),
            has_left: Arc::default(),
            has_given: Arc::default(),
        };
        let sockets = Arc::clone(&giver.sockets);
        let teller = Teller::new(limits, move || locked(&sockets).is_some());
        let give = Give {
            handle,
            teller: teller.clone(),
            tuning,
            sockets: Arc::clone(&giver.sockets),
            left: Arc::clone(&giver.left),
            has_left: Arc::clone(&giver.has_left),
            has_given: Arc::clone(&giver.has_given),
        };
        let Some(meeting) = Meeting::of(config) else { return giver };
        let at = |listener: io::Result<UnixListener>, work: Box<dyn FnOnce(UnixListener) + Send>| {
            let listener = listener?;
            std::thread::Builder::new().name("handover".into()).spawn(move || work(listener))
        };
        // First of all the place that stays when another has taken over, and that the other looks for.
        if let Err(error) = at(meeting.bind_teller(), Box::new(move |listener| teller.serve(&listener))) {
            tracing::warn!(%error, "limits will not hold together with a process that follows this one");
        }
        if let Err(error) = at(meeting.bind(), Box::new(move |listener| give.serve(listener))) {
            tracing::warn!(%error, "no other process will be able to take over from this one");
        }
        giver
    }

    /// Whether a successor serves.
    pub fn has_left(&self) -> bool {
        self.has_left.load(SeqCst)
    }

    /// Whether a successor has the sockets, though it may not serve yet; their files are then its own.
    pub fn has_given(&self) -> bool {
        self.has_given.load(SeqCst)
    }

    /// Nobody is to take over any more, and nothing is to go on listening on account of it.
    pub fn close(&self) {
        *locked(&self.sockets) = None;
    }
}

fn locked(sockets: &Mutex<Option<Sockets>>) -> MutexGuard<'_, Option<Sockets>> {
    sockets.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Give {
    handle: Handle,
    teller: Teller,
    tuning: Arc<Tuning>,
    sockets: Arc<Mutex<Option<Sockets>>>,
    left: Arc<Notify>,
    has_left: Arc<AtomicBool>,
    has_given: Arc<AtomicBool>,
}

impl Give {
    /// One at a time, until one has taken over.
    fn serve(self, listener: UnixListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Mostly for want of descriptors.
                std::thread::sleep(PACE);
                continue;
            };
            match self.give(&stream) {
                Ok(()) => {
                    // The successor will wait here for its own.
                    drop(listener);
                    // Once what is known of the sizes of pools: from now on nothing is tuned here.
                    return self.teller.tell(&stream, self.tuning.known());
                }
                Err(error) => {
                    self.teller.take_back();
                    tracing::warn!(%error, "another process wanted to take over and did not");
                }
            }
        }
    }

    fn give(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if !is_ours(stream)? {
            let error = "the other process belongs to another user";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        let mut lines = Lines::of(stream)?;
        let Ask { take_over } = lines.next()?;
        if take_over != VERSION {
            return Err(io::Error::other("it speaks another version"));
        }
        {
            let sockets = locked(&self.sockets);
            let Some(Sockets { listeners, admin }) = &*sockets else {
                return Err(io::Error::other("this process is already ending"));
            };
            let copies: io::Result<Vec<OwnedFd>> =
                listeners.iter().chain(admin).map(|(_, fd)| fd.try_clone()).collect();
            let copies = copies?;
            self.has_given.store(true, SeqCst);
            send_sockets(stream, &copies)?;
            let listeners = listeners.iter().map(|(name, _)| name.clone()).collect();
            let admin = admin.as_ref().map(|(name, _)| name.clone());
            let Word { held, own, process, .. } = self.teller.limits.begin_to_share();
            say(stream, &Answer { listeners, admin, held, own, process })?;
        }
        tracing::info!("another process takes over");
        let Serving { .. } = lines.next()?;
        self.has_left.store(true, SeqCst);
        *locked(&self.sockets) = None;
        self.handle.leave();
        self.left.notify_one();
        Ok(())
    }
}
