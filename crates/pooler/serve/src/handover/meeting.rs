//! The sockets at which processes of one configuration meet: Unix sockets in the abstract namespace, named after the
//! user and the first listener; and after the node, if several share its address.
//!
//! Every user of the machine may bind such a name. So a process whose name is taken appends a random suffix, and a
//! process that looks for it tries all names with this prefix, and talks only to processes of its own user.
//!
//! Each process has a second name, with a random suffix too, at which it reports what it holds. It keeps that name to
//! its end.

use std::{
    collections::{BTreeSet, hash_map::RandomState},
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

/// Length of a name without its suffix in bytes; the kernel's limit is 107 with it.
const MAX_PLAIN_BYTES: usize = 100;
/// Names that a process tries. Another user can bind as many as it may have descriptors.
const MAX_TRIED_NAMES: usize = 65_536;
/// Characters of a random suffix, after a dot: hexadecimal digits, or [`REPORTER_PREFIX`] and hexadecimal digits.
const SUFFIX_LENGTH: usize = 6;
/// First character of the suffix of a socket for reports; not a hexadecimal digit.
const REPORTER_PREFIX: char = 't';
/// Suffixes that a process tries for a free name.
const MAX_SUFFIXES: u32 = 4;

pub(super) struct Meeting {
    plain: String,
}

impl Meeting {
    /// `None` if the configuration has no fixed address.
    pub(super) fn of(config: &Config) -> Option<Self> {
        let first = config.listeners.first()?;
        let listen = &first.listen;
        if matches!(listen, Endpoint::Tcp(address) if address.port() == 0) {
            return None;
        }
        // Processes that share an address are told apart by their numbers: each has a successor of its own.
        let node = match config.serve.node_id {
            node if node > 0 && first.reuse_port => format!("#{node}"),
            _ => String::new(),
        };
        Some(Self::named(format!("poolhouse.{}.{listen}{node}", rustix::process::getuid().as_raw())))
    }

    /// Keeps the end of a name that is too long: the end of a path distinguishes more than its beginning.
    fn named(mut name: String) -> Self {
        let mut cut = name.len().saturating_sub(MAX_PLAIN_BYTES);
        while !name.is_char_boundary(cut) {
            cut += 1;
        }
        Self { plain: name.split_off(cut) }
    }

    /// Binds the first name at which successors look for this process.
    pub(super) fn bind(&self) -> io::Result<UnixListener> {
        let mut bound = bind(&self.plain);
        for _ in 0..MAX_SUFFIXES {
            if !matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
                return bound;
            }
            let beside = format!("{}.{}", self.plain, digits(SUFFIX_LENGTH));
            // The name belongs to a predecessor, or to another user.
            let reason = "another process waits where those of this configuration meet, so this one waits beside it";
            tracing::info!(name = self.plain, beside, "{reason}");
            bound = bind(&beside);
        }
        bound
    }

    /// Binds a name for reports.
    pub(super) fn bind_reporter(&self) -> io::Result<UnixListener> {
        let name = || format!("{}.{REPORTER_PREFIX}{}", self.plain, digits(SUFFIX_LENGTH - 1));
        let mut tries = (0..MAX_SUFFIXES).map(|_| bind(&name()));
        tries.find(Result::is_ok).unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
    }

    /// Connections to the sockets for reports of all processes of this user.
    pub(super) fn find_reporters(&self) -> Vec<UnixStream> {
        // The kernel lists a name once more for each connection to it.
        let listed = bound_names();
        let names: BTreeSet<_> =
            self.listed(&listed, |made_up| made_up.starts_with(REPORTER_PREFIX)).take(MAX_TRIED_NAMES).collect();
        let streams = names.into_iter().filter_map(|name| try_connect(name).ok().flatten());
        streams.filter(|stream| is_ours(stream).unwrap_or(false)).collect()
    }

    /// Connections to the processes of this user that wait for a successor, one after the other.
    pub(super) fn find(&self) -> impl Iterator<Item = io::Result<UnixStream>> {
        let listed = bound_names();
        let others = self.listed(&listed, |made_up| !made_up.starts_with(REPORTER_PREFIX)).take(MAX_TRIED_NAMES);
        let mut names = vec![self.plain.clone()];
        names.extend(others.map(str::to_owned));
        let ours = |name: String| match try_connect(&name)? {
            Some(stream) if is_ours(&stream)? => Ok(Some(stream)),
            _ => Ok(None),
        };
        names.into_iter().filter_map(move |name| ours(name).transpose())
    }

    /// The names in the kernel's list of Unix sockets that are this one with a random suffix. Other names with this
    /// prefix may belong to another configuration, as /run/pool.sock beside /run/pool.
    fn listed<'a>(&'a self, list: &'a str, is_meant: fn(&str) -> bool) -> impl Iterator<Item = &'a str> {
        let name = |line: &'a str| line.split_once(" @").map(|(_, name)| name);
        let is_made_up = move |rest: &str| {
            let digits = rest.strip_prefix(REPORTER_PREFIX).unwrap_or(rest);
            rest.len() == SUFFIX_LENGTH && digits.bytes().all(|b| b.is_ascii_hexdigit()) && is_meant(rest)
        };
        let behind = |name: &'a str| name.strip_prefix(&self.plain)?.strip_prefix('.');
        list.lines().filter_map(name).filter(move |name| behind(name).is_some_and(is_made_up))
    }
}

/// The kernel's list of Unix sockets.
fn bound_names() -> String {
    std::fs::read_to_string("/proc/self/net/unix").unwrap_or_default()
}

/// A random number that other users cannot guess.
pub(super) fn random_number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Random hexadecimal digits.
fn digits(count: usize) -> String {
    format!("{:016x}", random_number()).split_off(16 - count)
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
        let found = meeting.find().next().expect("it is found under the other name").unwrap();
        ours.set_nonblocking(true).unwrap();
        ours.accept().expect("it has been connected to");
        drop((found, ours));
        assert!(meeting.find().next().is_none());
    }

    #[test]
    fn a_process_that_reports_is_found_once_and_not_asked_for_its_sockets() {
        let meeting = meeting("tellers");
        let reporters = [meeting.bind_reporter().unwrap(), meeting.bind_reporter().unwrap()];
        let found = meeting.find_reporters();
        assert_eq!(found.len(), 2);
        let _accepted: Vec<_> = reporters.iter().map(|reporter| reporter.accept().unwrap()).collect();
        assert_eq!(meeting.find_reporters().len(), 2);
        assert!(meeting.find().next().is_none());
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
                    0: 00000002 00000000 00010000 0001 01 17 @poolhouse.7.127.0.0.1:643.t2ab34\n\
                    0: 00000002 00000000 00010000 0001 01 18 @poolhouse.7.127.0.0.1:643.t2ab3\n\
                    0: 00000002 00000000 00010000 0001 01 13 /run/x @poolhouse\n\
                    0: 00000002 00000000 00010000 0001 01 14\n";
        let listed = |is_meant| meeting.listed(list, is_meant).collect::<Vec<_>>();
        assert_eq!(listed(|made_up| !made_up.starts_with(REPORTER_PREFIX)), ["poolhouse.7.127.0.0.1:643.12ab34"]);
        assert_eq!(listed(|made_up| made_up.starts_with(REPORTER_PREFIX)), ["poolhouse.7.127.0.0.1:643.t2ab34"]);
        assert_eq!(Meeting::named("\u{e4}".repeat(80)).plain.len(), MAX_PLAIN_BYTES);
    }
}
