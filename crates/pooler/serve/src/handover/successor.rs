//! The successor's side: asks the process that serves the same configuration for its sockets.

use std::{os::fd::OwnedFd, sync::Arc};

use super::{
    limits::LimitShares,
    predecessors::{Predecessor, TAKEN_OVER_FROM, is_end, pid},
    *,
};

/// What the predecessor has handed over.
pub struct Inherited {
    before: Predecessor,
    listeners: Vec<(String, OwnedFd)>,
    activated: Vec<String>,
    admin: Option<(String, OwnedFd)>,
}

/// Asks the process that serves this configuration for its sockets. `None` if there is no such process, or if each one
/// closes the connection: because it is ending, or because it cannot hand over, which its log explains.
///
/// # Errors
/// When a process answers, but not as this version expects, or not in time.
pub fn take_over(config: &Config) -> io::Result<Option<Inherited>> {
    let Some(meeting) = Meeting::of(config) else { return Ok(None) };
    for stream in meeting.find() {
        if let Some(inherited) = ask(stream?)? {
            return Ok(Some(inherited));
        }
    }
    Ok(None)
}

/// `None` if the other process is ending. A process that was started later may wait beside it.
fn ask(stream: UnixStream) -> io::Result<Option<Inherited>> {
    stream.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
    stream.set_write_timeout(Some(MESSAGE_TIMEOUT))?;
    let sockets = match send_line(&stream, &Ask { take_over: VERSION }).and_then(|()| receive_sockets(&stream)) {
        Err(error) if is_end(&error) => return Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            let (pid, waited) = (pid(&stream), MESSAGE_TIMEOUT.as_secs());
            return Err(io::Error::other(format!("process {pid} has not answered for {waited} s: is it stopped?")));
        }
        received => received?,
    };
    let mut lines = Lines::of(&stream)?;
    let Answer { listeners, admin, activated, held, own, process } = lines.next()?;
    if sockets.len() != listeners.len() + usize::from(admin.is_some()) {
        return Err(io::Error::other("not all sockets arrived"));
    }
    let mut sockets = sockets.into_iter();
    let listeners: Vec<_> = listeners.into_iter().zip(&mut sockets).collect();
    let admin = admin.zip(sockets.next());
    let report = Report { held, own, process, ..Report::default() };
    let before = Predecessor { number: TAKEN_OVER_FROM, stream, lines, report };
    Ok(Some(Inherited { before, listeners, activated, admin }))
}

impl Inherited {
    /// The socket of the listener with this configured address.
    pub fn listener(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.listeners.iter().position(|(other, _)| other == name)?;
        Some(self.listeners.swap_remove(at).1)
    }

    /// Whether systemd has opened the socket of this listener, and its file, if it has one, is systemd's.
    pub fn is_activated(&self, name: &str) -> bool {
        self.activated.iter().any(|other| other == name)
    }

    /// The socket of the admin address, if the predecessor's was the same.
    pub fn admin(&mut self, name: &str) -> Option<OwnedFd> {
        self.admin.take_if(|(other, _)| other == name).map(|(_, socket)| socket)
    }

    pub fn before(&self) -> &Predecessor {
        &self.before
    }

    /// Tells the predecessor that clients are served here from now on, and follows its reports until it has ended.
    /// Returns the tuned sizes of its pools.
    ///
    /// # Errors
    /// When the predecessor cannot be told. It may still listen, so this process serves all the same.
    pub fn serving(self, limits: &Arc<LimitShares>) -> io::Result<Vec<HandedOverSize>> {
        let mut before = self.before;
        let first = send_line(&before.stream, &Serving { serving: true }).and_then(|()| before.lines.next());
        let tuned = first.and_then(|mut report: Report| {
            let (left, tuned) = (report.left, std::mem::take(&mut report.tuned));
            limits.record_report(before.number, report);
            if left { Ok(tuned) } else { Err(io::Error::other("the process before does not let go")) }
        });
        if tuned.is_ok() {
            tracing::info!("took over; the process before lets its clients finish");
        }
        before.follow(limits).and(tuned)
    }
}
