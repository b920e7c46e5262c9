//! Handover to another process of the same configuration: the successor gets the listening sockets, so that no
//! connection is lost, and the present clients finish here. Moves no client.
//!
//! The successor gets the sockets, not their addresses. With SO_REUSEPORT the connections that wait in the old socket's
//! queue would be reset when that closes, and two processes started by mistake would share the clients.
//!
//! The two meet at a Unix socket in the abstract namespace ([`meeting`]); both must run as the same user. The successor
//! sends a line of JSON, and the predecessor answers with a line and the sockets. Then the predecessor reports, several
//! times a second, how many servers it holds under each limit; the successor uses the rest.
//!
//! ```text
//! new                                old
//!  {"take_over":1}          -->
//!                           <--      {"listeners":[..],"admin":"..","held":{..},"own":{..},"process":7} and sockets
//!  {"serving":true}         -->
//!                           <--      {"left":true,"tuned":[..],..}  accepts no client any more, nor tunes any pool
//!                           <--      {"held":{..},"own":{..},"process":7}  until its last client has gone
//! ```
//!
//! A predecessor may have predecessors of its own, and may end before them. So each process has a second socket, at
//! which it reports the same to every connection once it no longer listens. A new process looks for all such sockets,
//! also if it takes over from none; the number of a process tells which reports at both sockets are the same. A process
//! that drains without a successor keeps its first socket to the end, and closes each connection: the new process then
//! tries the next process that waits.

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

use crate::{config::Config, tuning::HandedOverSize};

mod limits;
mod meeting;
mod predecessor;
mod predecessors;
mod reporting;
mod successor;

pub use limits::LimitShares;
pub use predecessor::{Sockets, SuccessorListener};
pub use predecessors::Predecessors;
pub use successor::{Inherited, take_over};

use meeting::{Meeting, is_ours};

/// The version of the handover's messages.
const VERSION: u32 = 1;
/// How long either process waits for the other's next message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);
/// Sockets that are passed at once; the kernel's limit is 253.
const MAX_SOCKETS: usize = 250;
const MAX_LINE_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
struct Ask {
    take_over: u32,
}

/// The predecessor's answer. The sockets come with it, the admin address's last.
#[derive(Serialize, Deserialize)]
struct Answer {
    /// Addresses as configured, in the order of the sockets.
    listeners: Vec<String>,
    admin: Option<String>,
    /// The listeners whose sockets systemd has opened. The files of these are systemd's.
    #[serde(default)]
    activated: Vec<String>,
    held: HashMap<String, u32>,
    #[serde(default)]
    own: HashMap<String, u32>,
    #[serde(default)]
    process: u64,
}

/// The successor's message that it serves clients.
#[derive(Serialize, Deserialize)]
struct Serving {
    serving: bool,
}

/// The predecessor's report of what it holds.
#[derive(Clone, Serialize, Deserialize, Default)]
struct Report {
    /// Whether the sender has stopped listening.
    #[serde(default)]
    left: bool,
    /// Servers under each limit, of the sender and its predecessors.
    #[serde(default)]
    held: HashMap<String, u32>,
    /// Servers under each limit, of the sender alone.
    #[serde(default)]
    own: HashMap<String, u32>,
    /// A random number of the process, so that its reports at both sockets count once. Zero: the process is of a
    /// version without this number.
    #[serde(default)]
    process: u64,
    /// The tuned sizes of its pools, once it has stopped listening.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tuned: Vec<HandedOverSize>,
}

/// Reads a stream line by line.
struct Lines(BufReader<UnixStream>);

impl Lines {
    fn of(stream: &UnixStream) -> io::Result<Self> {
        Ok(Self(BufReader::new(stream.try_clone()?)))
    }

    /// # Errors
    /// `UnexpectedEof` at the end of the stream, `Other` for a line that is not understood.
    fn next<T: for<'d> Deserialize<'d>>(&mut self) -> io::Result<T> {
        let mut line = String::new();
        (&mut self.0).take(MAX_LINE_BYTES).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        serde_json::from_str(&line).map_err(|_| io::Error::other("the other process said something unexpected"))
    }
}

fn send_line(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Sends sockets with a byte of their own, which separates them from the lines.
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

/// Receives what [`send_sockets`] sent. No later byte may have been read before.
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
        send_line(&here, &Report { left: true, ..Report::default() }).unwrap();
        let received = receive_sockets(&there).unwrap();
        for (sent, got) in listeners.iter().zip(received) {
            assert_eq!(TcpListener::from(got).local_addr().unwrap(), sent.local_addr().unwrap());
        }
        assert!(Lines::of(&there).unwrap().next::<Report>().unwrap().left);
    }
}
