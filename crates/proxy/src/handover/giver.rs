//! The side that is left: waits for a successor, gives it the sockets and tells it what is still held here.

use std::{
    collections::HashMap,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use driver::{CapUsage, Handle};
use tokio::sync::Notify;

use super::*;

/// What is held under each limit, by name.
pub type Held = HashMap<String, u32>;

/// Waits for a successor on a thread of its own.
pub struct Giver {
    /// The sockets that listen, until they are given away or closed.
    sockets: Arc<Mutex<Option<Sockets>>>,
    /// A successor serves.
    pub left: Arc<Notify>,
    has_left: Arc<AtomicBool>,
    has_given: Arc<AtomicBool>,
}

/// Copies of the sockets that listen here.
pub struct Sockets {
    /// As configured.
    pub listeners: Vec<(String, OwnedFd)>,
    /// The admin address.
    pub admin: Option<(String, OwnedFd)>,
}

impl Giver {
    /// Begins to wait, if the configuration has a place to meet at. Without one, or if that is taken, nobody can take
    /// over from here, which is logged and harms nothing else.
    pub fn wait(config: &Config, handle: Handle, sockets: Sockets) -> Self {
        let giver = Self {
            sockets: Arc::new(Mutex::new(Some(sockets))),
            left: Arc::new(Notify::new()),
            has_left: Arc::default(),
            has_given: Arc::default(),
        };
        let give = Give {
            handle,
            sockets: Arc::clone(&giver.sockets),
            left: Arc::clone(&giver.left),
            has_left: Arc::clone(&giver.has_left),
            has_given: Arc::clone(&giver.has_given),
        };
        let Some(place) = meeting_point(config) else { return giver };
        let listener = match UnixListener::bind_addr(&place) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::warn!(%error, "no other process will be able to take over from this one");
                return giver;
            }
        };
        let work = std::thread::Builder::new().name("handover".into());
        if let Err(error) = work.spawn(move || give.serve(listener)) {
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
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

struct Give {
    handle: Handle,
    sockets: Arc<Mutex<Option<Sockets>>>,
    left: Arc<Notify>,
    has_left: Arc<AtomicBool>,
    has_given: Arc<AtomicBool>,
}

impl Give {
    /// One at a time, until one has taken over.
    fn serve(self, listener: UnixListener) {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            match self.give(&stream) {
                Ok(()) => {
                    // The successor will wait here for its own.
                    drop(listener);
                    return self.tell(&stream);
                }
                Err(error) => tracing::warn!(%error, "another process wanted to take over and did not"),
            }
        }
    }

    fn give(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        is_ours(stream)?;
        let mut lines = Lines::of(stream)?;
        let Ask { take_over } = lines.next()?;
        if take_over != VERSION {
            return Err(io::Error::other("it speaks another version"));
        }
        {
            let sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
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
            say(stream, &Answer { listeners, admin, held: self.shares().1 })?;
        }
        tracing::info!("another process takes over");
        let Serving { .. } = lines.next()?;
        self.has_left.store(true, SeqCst);
        *self.sockets.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.handle.leave();
        let (reserved, _) = self.shares();
        self.handle.reserve(reserved);
        self.left.notify_one();
        Ok(())
    }

    /// Tells the successor what is held, until nobody listens or this process ends.
    fn tell(&self, stream: &UnixStream) {
        let mut left = true;
        loop {
            let (reserved, held) = self.shares();
            self.handle.reserve(reserved);
            if let Err(error) = say(stream, &Word { left, held }) {
                tracing::warn!(%error, "the process that took over is gone");
                return self.handle.reserve(HashMap::new());
            }
            left = false;
            std::thread::sleep(PACE);
        }
    }

    /// What of each limit is left to the successor, and what is not.
    fn shares(&self) -> (Held, Held) {
        let clients: u64 = self.handle.pools(None).iter().map(|pool| pool.clients).sum();
        let (mut reserved, mut held) = (HashMap::new(), HashMap::new());
        for CapUsage { name, used, limit } in self.handle.caps() {
            if limit > 0 {
                let own = share(limit, clients);
                reserved.insert(name.clone(), limit.saturating_sub(own));
                held.insert(name, used.max(own));
            }
        }
        (reserved, held)
    }
}

/// What the old process keeps of a limit: half at most, and not more than it has clients. One at least, as long as it
/// has any.
fn share(limit: u32, clients: u64) -> u32 {
    if clients == 0 {
        return 0;
    }
    (limit / 2).min(u32::try_from(clients).unwrap_or(u32::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_process_keeps_half_at_most_and_no_more_than_it_has_clients() {
        assert_eq!([share(20, 1000), share(20, 3), share(20, 0), share(1, 5), share(3, 5)], [10, 3, 0, 1, 1]);
    }
}
