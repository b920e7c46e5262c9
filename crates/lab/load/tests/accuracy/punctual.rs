//! A PostgreSQL for tests whose answers take exactly as long as they are to: one thread that never sleeps, so that
//! neither a timer nor a wake-up adds anything. Lets everybody in and answers each simple query with one row. Writes
//! down how long each answer took it.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::{ErrorKind, Read, Write},
    mem::MaybeUninit,
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::event::{Timespec, epoll};

/// The login's end: AuthenticationOk, a version, a key, ReadyForQuery.
const WELCOME: &[u8] =
    b"R\0\0\0\x08\0\0\0\0S\0\0\0\x18server_version\x0015.0\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I";
/// One column, one row, CommandComplete, ReadyForQuery.
const ANSWER: &[u8] =
    b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0D\0\0\0\x0b\0\x01\0\0\0\x011\
    C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I";
const LISTENER: u64 = u64::MAX;

/// A running server; it ends when dropped.
pub struct Punctual {
    pub port: u16,
    /// How long each answer took it, in milliseconds: from having read the query until the answer was written.
    pub taken: Arc<Mutex<Vec<f64>>>,
    over: Arc<AtomicBool>,
}

impl Punctual {
    /// The n-th query is answered `after(n)`.
    pub fn start(after: impl Fn(u64) -> Duration + Send + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (taken, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (books, ends) = (Arc::clone(&taken), Arc::clone(&over));
        thread::spawn(move || {
            // Recorded at the end, so that no thread waits for the lock.
            let taken = serve(&listener, &after, &ends);
            *books.lock().unwrap() = taken;
            ends.store(false, Relaxed);
        });
        Self { port, taken, over }
    }

    /// Ends it. Its books are complete then.
    pub fn stop(&self) {
        self.over.store(true, Relaxed);
        while self.over.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Peer {
    stream: TcpStream,
    welcomed: bool,
    /// When the query under way was read.
    asked: Instant,
}

fn serve(listener: &TcpListener, after: &impl Fn(u64) -> Duration, over: &AtomicBool) -> Vec<f64> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    listener.set_nonblocking(true).unwrap();
    epoll::add(&poll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN).unwrap();
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    let (mut taken, mut queries) = (Vec::with_capacity(1 << 20), 0);
    let mut events = [MaybeUninit::uninit(); 256];
    while !over.load(Relaxed) {
        while let Some(Reverse((at, index))) = due.peek().copied() {
            if at > Instant::now() {
                break;
            }
            due.pop();
            if let Some(peer) = &mut peers[index] {
                // A peer that has left is found out when it is read.
                let _ = peer.stream.write_all(ANSWER);
                taken.push(peer.asked.elapsed().as_secs_f64() * 1e3);
            }
        }
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (ready, _) = epoll::wait(&poll, &mut events, Some(&at_once)).unwrap();
        for event in ready.iter() {
            match event.data.u64() {
                LISTENER => {
                    while let Ok((stream, _)) = listener.accept() {
                        stream.set_nonblocking(true).unwrap();
                        stream.set_nodelay(true).unwrap();
                        let key = epoll::EventData::new_u64(peers.len() as u64);
                        epoll::add(&poll, &stream, key, epoll::EventFlags::IN).unwrap();
                        peers.push(Some(Peer { stream, welcomed: false, asked: Instant::now() }));
                    }
                }
                key => {
                    let index = key as usize;
                    let Some(peer) = &mut peers[index] else { continue };
                    match hear(peer) {
                        Heard::Query => {
                            due.push(Reverse((peer.asked + after(queries), index)));
                            queries += 1;
                        }
                        Heard::Nothing => {}
                        Heard::End => peers[index] = None,
                    }
                }
            }
        }
    }
    taken
}

enum Heard {
    Query,
    Nothing,
    End,
}

fn hear(peer: &mut Peer) -> Heard {
    let mut bytes = [0; 1024];
    match peer.stream.read(&mut bytes) {
        Ok(0) => Heard::End,
        Ok(_) if !peer.welcomed => {
            peer.welcomed = true;
            let _ = peer.stream.write_all(WELCOME);
            Heard::Nothing
        }
        Ok(_) if bytes[0] == b'Q' => {
            peer.asked = Instant::now();
            Heard::Query
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Heard::Nothing,
        Ok(_) | Err(_) => Heard::End,
    }
}
