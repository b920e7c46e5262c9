//! The side that takes over: asks the process that serves the same configuration for its sockets.

use std::{os::fd::OwnedFd, sync::Arc};

use super::{
    limits::Limits,
    predecessors::{Predecessor, TAKEN_OVER_FROM, is_end, pid},
    *,
};

/// What came from the process before.
pub struct Inherited {
    before: Predecessor,
    listeners: Vec<(String, OwnedFd)>,
    admin: Option<(String, OwnedFd)>,
}

/// Asks the process that serves this configuration for its sockets; `None` if there is none, or only such as close the
/// connection: those that are ending, and those that cannot give them, whose logs say why.
///
/// # Errors
/// When there is one, and it gives them in no way that is understood.
pub fn take_over(config: &Config) -> io::Result<Option<Inherited>> {
    let Some(meeting) = Meeting::of(config) else { return Ok(None) };
    for stream in meeting.find() {
        if let Some(inherited) = ask(stream?)? {
            return Ok(Some(inherited));
        }
    }
    Ok(None)
}

/// `None`: the other process is ending. One that was started since may wait beside it.
fn ask(stream: UnixStream) -> io::Result<Option<Inherited>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let sockets = match say(&stream, &Ask { take_over: VERSION }).and_then(|()| receive_sockets(&stream)) {
        Err(error) if is_end(&error) => return Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            let (pid, waited) = (pid(&stream), PATIENCE.as_secs());
            return Err(io::Error::other(format!("process {pid} has not answered for {waited} s: is it stopped?")));
        }
        received => received?,
    };
    let mut lines = Lines::of(&stream)?;
    let Answer { listeners, admin, held, own, process } = lines.next()?;
    if sockets.len() != listeners.len() + usize::from(admin.is_some()) {
        return Err(io::Error::other("not all sockets arrived"));
    }
    let mut sockets = sockets.into_iter();
    let listeners: Vec<_> = listeners.into_iter().zip(&mut sockets).collect();
    let admin = admin.zip(sockets.next());
    let word = Word { held, own, process, ..Word::default() };
    let before = Predecessor { number: TAKEN_OVER_FROM, stream, lines, word };
    Ok(Some(Inherited { before, listeners, admin }))
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

    /// The process that this one takes over from.
    pub fn before(&self) -> &Predecessor {
        &self.before
    }

    /// Clients are served here from now on: the process before lets go, and keeps what it holds until it has ended.
    /// Returns what it knew of the sizes of its pools.
    ///
    /// # Errors
    /// When it cannot be told. Both now may have the sockets, so this process goes on all the same.
    pub fn serving(self, limits: &Arc<Limits>) -> io::Result<Vec<Kept>> {
        let mut before = self.before;
        let first = say(&before.stream, &Serving { serving: true }).and_then(|()| before.lines.next());
        let tuned = first.and_then(|mut word: Word| {
            let (left, tuned) = (word.left, std::mem::take(&mut word.tuned));
            limits.hold(before.number, word);
            if left { Ok(tuned) } else { Err(io::Error::other("the process before does not let go")) }
        });
        if tuned.is_ok() {
            tracing::info!("took over; the process before lets its clients finish");
        }
        before.keep_to(limits).and(tuned)
    }
}
