//! What the kernel knows of a TCP connection and tells by no other way: the option TCP_INFO of tcp(7).

#![allow(unsafe_code)]

use std::{
    mem,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

/// Whether the peer's host leaves what was sent to it unacknowledged, and has acknowledged nothing for this long. The
/// host of a peer that reads nothing is not silent: it acknowledges the questions whether there is room again.
pub(crate) fn is_host_silent(socket: &OwnedFd, time: Duration) -> bool {
    // The pauses between these questions grow to many seconds, and the answer to one may be under way.
    tcp_info(socket).is_some_and(|info| {
        let is_unanswered = info.tcpi_retransmits > 0 || info.tcpi_probes > 1;
        is_unanswered && Duration::from_millis(info.tcpi_last_ack_recv.into()) >= time
    })
}

/// `None` for a Unix socket.
fn tcp_info(socket: &OwnedFd) -> Option<libc::tcp_info> {
    let mut length = mem::size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the structure is made of numbers only, for which zero bytes are valid, and the kernel writes at most
    // `length` bytes to it.
    let (status, info) = unsafe {
        let mut info: libc::tcp_info = mem::zeroed();
        let to = (&raw mut info).cast();
        (libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &raw mut length), info)
    };
    (status == 0).then_some(info)
}
