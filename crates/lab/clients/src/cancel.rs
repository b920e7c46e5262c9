//! Cancel requests for operations that are given up: they took too long, or were under way when the run was over.
//! PostgreSQL goes on with a query whose client has left, which would disturb the next measurement. Each request goes
//! over a connection of its own, by a thread of its own, so that the load does not wait for it.

use std::{
    io::{Read, Write},
    net::{TcpStream, ToSocketAddrs},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use driver::Address;

/// Cancel requests under way at a time; further ones are not sent.
const MAX_UNDER_WAY: usize = 64;
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;
/// Bounds each step of a cancel request.
const STEP_TIMEOUT: Duration = Duration::from_secs(1);
/// Bounds the wait for cancel requests at the end of a run.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);
const FINISH_POLL: Duration = Duration::from_millis(2);

/// The cancel requests under way.
#[derive(Default)]
pub struct Cancels(Arc<AtomicUsize>);

impl Cancels {
    /// Sends the request that cancels what the server at this address does.
    pub(crate) fn send(&self, address: &Address, request: Vec<u8>) {
        if self.0.load(Relaxed) >= MAX_UNDER_WAY {
            return;
        }
        let (address, under_way) = (address.clone(), Arc::clone(&self.0));
        under_way.fetch_add(1, Relaxed);
        let count = under_way.clone();
        let started = thread::Builder::new().name("cancel".to_owned()).spawn(move || {
            // A server that cannot be reached runs no query either.
            let _ = deliver_and_wait(&address, &request);
            under_way.fetch_sub(1, Relaxed);
        });
        if started.is_err() {
            count.fetch_sub(1, Relaxed);
        }
    }

    /// Waits until all have arrived.
    pub fn finish(&self) {
        let deadline = Instant::now() + FINISH_TIMEOUT;
        while self.0.load(Relaxed) > 0 && Instant::now() < deadline {
            thread::sleep(FINISH_POLL);
        }
    }
}

/// Sends the request, and waits until the server closes the connection: it has passed the request on then.
fn deliver_and_wait(address: &Address, request: &[u8]) -> std::io::Result<()> {
    match address {
        Address::Tcp { host, port } => {
            // A name may have several addresses (`localhost`), of which only some have a listener.
            let addresses = (host.as_str(), *port).to_socket_addrs()?.take(MAX_ADDRESSES);
            let connect = |address| TcpStream::connect_timeout(&address, STEP_TIMEOUT).ok();
            let mut stream = addresses.into_iter().find_map(connect).ok_or(std::io::ErrorKind::NotConnected)?;
            stream.set_read_timeout(Some(STEP_TIMEOUT))?;
            stream.write_all(request)?;
            until_closed(&mut stream)
        }
        Address::Unix(path) => {
            let mut stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(STEP_TIMEOUT))?;
            stream.write_all(request)?;
            until_closed(&mut stream)
        }
    }
}

fn until_closed(stream: &mut impl Read) -> std::io::Result<()> {
    stream.read(&mut [0; 1]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_request_arrives_and_is_waited_for() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let cancels = Cancels::default();
        cancels.send(&address, vec![1, 2, 3]);
        let (mut peer, _) = listener.accept().unwrap();
        let mut got = [0; 3];
        peer.read_exact(&mut got).unwrap();
        assert_eq!((got, cancels.0.load(Relaxed)), ([1, 2, 3], 1));
        drop(peer);
        cancels.finish();
        assert_eq!(cancels.0.load(Relaxed), 0);
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_no_error() {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
        let cancels = Cancels::default();
        cancels.send(&Address::Tcp { host: "127.0.0.1".to_owned(), port }, vec![1]);
        cancels.send(&Address::Unix("/no/such/socket".into()), vec![1]);
        cancels.finish();
        assert_eq!(cancels.0.load(Relaxed), 0);
    }
}
