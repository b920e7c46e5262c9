//! Handing over to another process of the same configuration: it gets the very sockets that listen here, so no client
//! that is about to come in is lost, and then this process lets those it has finish. Moves no client.
//!
//! It gets the sockets, not their addresses. With SO_REUSEPORT the connections that wait in the old socket's queue
//! would be reset when that closes, and two processes started by mistake would share the clients.
//!
//! They meet at a Unix socket in the abstract namespace ([`meeting`]); both must belong to the same user. One says what
//! it wants in a line of JSON, the other answers with a line and the sockets. From then on the old one tells, several
//! times a second, how many servers it holds under each limit; the new one keeps to the rest.
//!
//! ```text
//! new                                old
//!  {"take_over":1}          -->
//!                           <--      {"listeners":[..],"admin":"..","held":{..},"own":{..},"process":7} and the sockets
//!  {"serving":true}         -->
//!                           <--      {"left":true,"tuned":[..],..}  accepts no client any more, nor tunes any pool
//!                           <--      {"held":{..},"own":{..},"process":7}  until its last client has gone
//! ```
//!
//! The one before may have others before it, or may have ended before its own predecessor has. So each process has a
//! second place, where it tells the same, unasked, to all who come, as soon as it listens no longer. Each new process
//! looks for all such places, also if it takes over from none. By its number it knows what one process says at both
//! places. A process that drains without a successor stays at the first place to its end, and closes what comes: the
//! new process then tries the next one that waits.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{config::Config, tuning::Kept};

mod giver;
mod limits;
mod meeting;
mod predecessors;
mod taker;
mod telling;

pub use giver::{Giver, Sockets};
pub use limits::Limits;
pub use predecessors::Predecessors;
pub use taker::{Inherited, take_over};

use meeting::{Meeting, is_ours};

/// The version of what is said.
const VERSION: u32 = 1;
/// How long either waits for the other's next word.
const PATIENCE: Duration = Duration::from_secs(30);
/// Sockets that can be passed at once; the kernel takes 253.
const MAX_SOCKETS: usize = 250;
/// Bytes of a line.
const MAX_LINE: u64 = 4 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Ask {
    take_over: u32,
}

/// The old process answers; the sockets come along, the admin address's last.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// As configured, in the order of the sockets.
    listeners: Vec<String>,
    admin: Option<String>,
    held: HashMap<String, u32>,
    #[serde(default)]
    own: HashMap<String, u32>,
    #[serde(default)]
    process: u64,
}

/// The new process serves.
#[derive(Serialize, Deserialize)]
struct Serving {
    serving: bool,
}

/// The old process has let go, or tells what it holds.
#[derive(Clone, Serialize, Deserialize, Default)]
struct Word {
    #[serde(default)]
    left: bool,
    /// Of each limit, by it and those before it.
    #[serde(default)]
    held: HashMap<String, u32>,
    #[serde(default)]
    own: HashMap<String, u32>,
    /// A number that no other process has, so that what is said at both places is held once. Zero: it is older than
    /// this number.
    #[serde(default)]
    process: u64,
    /// What it knows of the sizes of its pools, when it has let go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tuned: Vec<Kept>,
}

/// The lines of a stream, one at a time.
struct Lines(BufReader<UnixStream>);

impl Lines {
    fn of(stream: &UnixStream) -> io::Result<Self> {
        Ok(Self(BufReader::new(stream.try_clone()?)))
    }

    /// The next line; an error at the end of the stream.
    fn next<T: for<'d> Deserialize<'d>>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        (&mut self.0).take(MAX_LINE).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&line).map_err(|_| io::Error::other("the other process said something unexpected"))
    }
}

fn say(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Sends sockets along with a byte of their own, which separates them from the lines.
fn send_sockets(stream: &UnixStream, sockets: &[OwnedFd]) -> io::Result<()> {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let borrowed: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&borrowed)) {
        return Err(io::Error::other(format!("more than {MAX_SOCKETS} listeners cannot be handed over")));
    }
    sendmsg(stream, &[io::IoSlice::new(b"\n")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives what [`send_sockets`] sent. Nothing must have been read ahead.
fn receive_sockets(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = vec![std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SOCKETS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let got = recvmsg(stream, &mut [io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes != 1 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut sockets = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            sockets.extend(received);
        }
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn sockets_arrive_as_they_were_sent() {
        let (here, there) = UnixStream::pair().unwrap();
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let sockets: Vec<OwnedFd> = listeners.iter().map(|l| l.try_clone().unwrap().into()).collect();
        send_sockets(&here, &sockets).unwrap();
        say(&here, &Word { left: true, ..Word::default() }).unwrap();
        let received = receive_sockets(&there).unwrap();
        for (sent, got) in listeners.iter().zip(received) {
            assert_eq!(TcpListener::from(got).local_addr().unwrap(), sent.local_addr().unwrap());
        }
        assert!(Lines::of(&there).unwrap().next::<Word>().unwrap().left);
    }
}
