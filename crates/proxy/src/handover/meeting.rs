//! Where two processes of one configuration meet: at a Unix socket in the abstract namespace, named after the user and the first listener.
//!
//! Every user of the machine may bind such a name. So a process whose name is taken adds something that cannot be guessed, and one that
//! looks for it tries all names that begin so, and speaks to none that is another user's.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
};

use crate::config::{Config, Endpoint};

/// Bytes of a name without what cannot be guessed; the kernel takes 107 with it.
const MAX_PLAIN: usize = 100;
/// Names that are tried by a process that looks for another: a stranger can bind as many as it may have descriptors.
const MAX_TRIED: usize = 65_536;
/// Hexadecimal digits of what cannot be guessed.
const MADE_UP_DIGITS: usize = 6;
/// How often a process makes up another name.
const MAX_MADE_UP: u32 = 4;

/// Where processes of a configuration meet.
pub(super) struct Meeting {
    plain: String,
}

impl Meeting {
    /// `None` if the configuration has no fixed address.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let listen = &config.listeners.first()?.listen;
        if matches!(listen, Endpoint::Tcp(address) if address.port() == 0) {
            return None;
        }
        Some(Self::named(format!("poolhouse.{}.{listen}", rustix::process::getuid().as_raw())))
    }

    /// The end of a path tells more than its beginning.
    fn named(mut name: String) -> Self {
        let mut cut = name.len().saturating_sub(MAX_PLAIN);
        while !name.is_char_boundary(cut) {
            cut += 1;
        }
        Self { plain: name.split_off(cut) }
    }

    /// Waits there from now on.
    pub(super) fn bind(&self) -> io::Result<UnixListener> {
        let mut bound = bind(&self.plain);
        for _ in 0..MAX_MADE_UP {
            if !matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
                return bound;
            }
            let number = RandomState::new().build_hasher().finish();
            let made_up = number & ((1 << (4 * MADE_UP_DIGITS)) - 1);
            let beside = format!("{}.{made_up:0MADE_UP_DIGITS$x}", self.plain);
            // The process before, or another user of this machine.
            let reason = "another process waits where those of this configuration meet, so this one waits beside it";
            tracing::info!(name = self.plain, beside, "{reason}");
            bound = bind(&beside);
        }
        bound
    }

    /// A connection to a process of this user that waits there; `None` if there is none.
    pub(super) fn find(&self) -> io::Result<Option<UnixStream>> {
        let listed = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let others = self.listed(&listed).take(MAX_TRIED);
        for name in std::iter::once(self.plain.as_str()).chain(others) {
            let Some(stream) = try_connect(name)? else { continue };
            if is_ours(&stream)? {
                return Ok(Some(stream));
            }
        }
        Ok(None)
    }

    /// The names in the kernel's list of Unix sockets that are this one's, with what was made up behind them. What else begins so may
    /// belong to another configuration, as /run/pool.sock beside /run/pool.
    fn listed<'a>(&'a self, list: &'a str) -> impl Iterator<Item = &'a str> {
        let name = |line: &'a str| line.split_once(" @").map(|(_, name)| name);
        let is_made_up = |rest: &str| rest.len() == MADE_UP_DIGITS && rest.bytes().all(|b| b.is_ascii_hexdigit());
        let behind = |name: &'a str| name.strip_prefix(&self.plain)?.strip_prefix('.');
        list.lines().filter_map(name).filter(move |name| behind(name).is_some_and(is_made_up))
    }
}

fn bind(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// A connection to a process that waits under this name and takes it at once.
fn try_connect(name: &str) -> io::Result<Option<UnixStream>> {
    let Ok(address) = SocketAddrUnix::new_abstract_name(name.as_bytes()) else { return Ok(None) };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::PROTOTYPE) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(Some(stream))
}

/// Whether the other side belongs to the same user.
pub(super) fn is_ours(stream: &UnixStream) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid == rustix::process::getuid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meeting(what: &str) -> Meeting {
        Meeting::named(format!("poolhouse.test.{}.{what}", std::process::id()))
    }

    #[test]
    fn a_process_is_found_though_another_has_taken_the_name() {
        let meeting = meeting("taken");
        let squatter = bind(&meeting.plain).unwrap();
        let ours = meeting.bind().unwrap();
        // The plain name is tried first. Here its owner is the same user, so it goes.
        drop(squatter);
        let found = meeting.find().unwrap().expect("it is found under the other name");
        ours.set_nonblocking(true).unwrap();
        ours.accept().expect("it has been connected to");
        drop((found, ours));
        assert!(meeting.find().unwrap().is_none());
    }

    #[test]
    fn a_name_that_is_free_is_taken_as_it_is() {
        let meeting = meeting("free");
        let ours = meeting.bind().unwrap();
        assert!(bind(&meeting.plain).is_err());
        drop(ours);
    }

    #[test]
    fn only_names_with_what_is_made_up_behind_a_dot_are_of_this_meeting() {
        let meeting = Meeting { plain: "poolhouse.7.127.0.0.1:643".into() };
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0: 00000002 00000000 00010000 0001 01 11 @poolhouse.7.127.0.0.1:6432\n\
                    0: 00000002 00000000 00010000 0001 01 12 @poolhouse.7.127.0.0.1:643.12ab34\n\
                    0: 00000002 00000000 00010000 0001 01 15 @poolhouse.7.127.0.0.1:643.socket\n\
                    0: 00000002 00000000 00010000 0001 01 16 @poolhouse.7.127.0.0.1:643.12ab34.12ab34\n\
                    0: 00000002 00000000 00010000 0001 01 13 /run/x @poolhouse\n\
                    0: 00000002 00000000 00010000 0001 01 14\n";
        assert_eq!(meeting.listed(list).collect::<Vec<_>>(), ["poolhouse.7.127.0.0.1:643.12ab34"]);
        assert_eq!(Meeting::named("\u{e4}".repeat(80)).plain.len(), MAX_PLAIN);
    }
}
