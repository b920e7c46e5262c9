//! The process's limit of file descriptors: raised as far as it goes, because each connection takes one, and shared
//! out: clients and servers leave some to the admin address, to files and to the log.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Descriptors that connections of clients and servers leave to everything else, at most.
const MAX_RESERVED: u64 = 64;
/// If there are few descriptors, connections leave one in this many to everything else.
const RESERVED_DIVISOR: u64 = 8;

/// Raises the soft limit of this process to the hard one. Returns what is in force, `None` if unlimited.
pub fn raise_descriptor_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Whether there are descriptors for one more connection. The kernel gives the lowest number that is free, so a high
/// one tells that nearly all are in use; only then it is asked before each connection.
pub(crate) struct Descriptors {
    /// Lower numbers are for connections.
    most: u64,
    scarce: bool,
}

impl Descriptors {
    /// Under the limit that is in force.
    pub(crate) fn new() -> Self {
        Self::within(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
    }

    fn within(limit: u64) -> Self {
        Self { most: limit - MAX_RESERVED.min(limit / RESERVED_DIVISOR), scarce: false }
    }

    /// Whether there is one for a connection. `any` is any descriptor that is open.
    #[inline]
    pub(crate) fn permit(&mut self, any: impl AsFd) -> io::Result<()> {
        if self.scarce { self.ask(any) } else { Ok(()) }
    }

    #[cold]
    fn ask(&mut self, any: impl AsFd) -> io::Result<()> {
        let next = fcntl_dupfd_cloexec(any, 0)?;
        self.note(&next);
        if self.scarce { Err(Errno::MFILE.into()) } else { Ok(()) }
    }

    /// A connection has this one.
    #[inline]
    pub(crate) fn note(&mut self, given: &impl AsFd) {
        self.scarce = given.as_fd().as_raw_fd() as u64 >= self.most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_some_descriptors_to_others() {
        assert_eq!(Descriptors::within(80).most, 70);
        assert_eq!(Descriptors::within(100_000).most, 100_000 - MAX_RESERVED);
        let stdin = std::io::stdin();
        let mut none = Descriptors { most: 0, scarce: false };
        assert!(none.permit(&stdin).is_ok(), "the kernel is not asked as long as none is scarce");
        none.note(&stdin);
        assert_eq!(none.permit(&stdin).unwrap_err().raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        let mut many = Descriptors { most: u64::MAX, scarce: true };
        assert!(many.permit(&stdin).is_ok() && !many.scarce);
    }
}
