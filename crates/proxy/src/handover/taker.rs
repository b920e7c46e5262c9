//! The side that takes over: asks the process that serves the same configuration for its sockets, and keeps to what that one
//! leaves of the limits until it has gone.

use std::{os::fd::OwnedFd, sync::Arc};

use super::{
    limits::{Held, Limits},
    *,
};

/// What came from the process before.
pub struct Inherited {
    stream: UnixStream,
    lines: Lines,
    listeners: Vec<(String, OwnedFd)>,
    admin: Option<(String, OwnedFd)>,
    held: Held,
}

/// Asks the process that serves this configuration for its sockets; `None` if there is none.
///
/// # Errors
/// When there is one, and it does not give them.
pub fn take_over(config: &Config) -> io::Result<Option<Inherited>> {
    let Some(meeting) = Meeting::of(config) else { return Ok(None) };
    let Some(stream) = meeting.find()? else { return Ok(None) };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    say(&stream, &Ask { take_over: VERSION })?;
    let sockets = receive_sockets(&stream)?;
    let mut lines = Lines::of(&stream)?;
    let Answer { listeners, admin, held } = lines.next()?;
    if sockets.len() != listeners.len() + usize::from(admin.is_some()) {
        return Err(io::Error::other("not all sockets arrived"));
    }
    let mut sockets = sockets.into_iter();
    let listeners: Vec<_> = listeners.into_iter().zip(&mut sockets).collect();
    let admin = admin.zip(sockets.next());
    Ok(Some(Inherited { stream, lines, listeners, admin, held }))
}

impl Inherited {
    /// The socket of the listener that is configured under this address.
    pub fn listener(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.listeners.iter().position(|(other, _)| other == name)?;
        Some(self.listeners.swap_remove(at).1)
    }

    /// The socket of the admin address, if that is the same.
    pub fn admin(&mut self, name: &str) -> Option<OwnedFd> {
        self.admin.take_if(|(other, _)| other == name).map(|(_, socket)| socket)
    }

    /// Clients are served here from now on: the process before lets go. What that still holds is left to it until it
    /// has ended, which a thread watches. Returns what it knew of the sizes of its pools.
    ///
    /// # Errors
    /// When it has ended, or cannot be told. Both now may have the sockets, so this process goes on all the same.
    pub fn serving(mut self, limits: Arc<Limits>) -> io::Result<Vec<Kept>> {
        limits.leave_before(Some(self.held));
        say(&self.stream, &Serving { serving: true })?;
        let first: Word = self.lines.next()?;
        if !first.left {
            return Err(io::Error::other("the process before does not let go"));
        }
        limits.leave_before(Some(first.held));
        tracing::info!("took over; the process before lets its clients finish");
        let watch = move || {
            while let Ok(Word { held, .. }) = self.lines.next() {
                limits.leave_before(Some(held));
            }
            limits.leave_before(None);
            tracing::info!("the process before has ended: all limits are this one's own");
        };
        std::thread::Builder::new().name("handover".into()).spawn(watch)?;
        Ok(first.tuned)
    }
}
