//! Clients that do not log in, from several addresses: they lose their places if there is no room.

mod harness;

use std::{
    io::{BufReader, Write},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use driver::Timeouts;
use harness::{Client, Harness, eventually, lines::Lines};
use pool::{GateConfig, PoolConfig};
use seam::LeaseKind;
use socket2::{Domain, Socket, Type};

/// No server is ever ready.
const LINES: Lines = Lines { kind: LeaseKind::Exclusive, starts: false };

/// A driver with this many places. Above `soft_limit` idle clients are evicted.
fn harness(soft_limit: u32, hard_limit: u32, login: Duration) -> Harness {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: Duration::ZERO };
    let timeouts = Timeouts { login: Some(login), ..Timeouts::default() };
    Harness::of(LINES, |_, _| (), (2, PoolConfig::default(), gate, timeouts))
}

const LONG: Duration = Duration::from_secs(60);

/// A client that comes from this address of the machine.
fn from(harness: &Harness, last: u8) -> Client {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, last], 0)).into()).unwrap();
    socket.connect(&harness.address.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    Client(BufReader::new(stream))
}

/// `count` clients that come from this address, one after the other, and send nothing.
fn silent(harness: &Harness, last: u8, count: usize) -> Vec<Client> {
    let before = logging_in(harness);
    let come = |number: usize| {
        let client = from(harness, last);
        eventually("it is there", || logging_in(harness) == before + number as u64 + 1);
        client
    };
    (0..count).map(come).collect()
}

fn logging_in(harness: &Harness) -> u64 {
    harness.handle.snapshot().listeners[0].login
}

fn displaced_left(harness: &Harness) -> u64 {
    let snapshot = harness.handle.snapshot();
    let counts = &snapshot.listeners[0].evictions;
    counts.iter().find(|(reason, _)| *reason == "not_logged_in").unwrap().1
}

#[test]
fn a_displaced_client_that_does_not_read_is_gone_at_once() {
    let harness = harness(2, 2, LONG);
    let mut silent_clients = silent(&harness, 2, 2);
    let stream = silent_clients[0].0.get_mut();
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let line = format!("echo {}\n", "x".repeat(8_000));
    while stream.write_all(line.as_bytes()).is_ok() {}
    let began = Instant::now();
    assert_eq!(from(&harness, 1).ask("in"), "in");
    let here = || harness.handle.snapshot().workers.iter().map(|worker| worker.clients).sum::<u64>();
    eventually("only the other silent_client is there", || here() == 1);
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_client_whose_login_waits_for_a_server_keeps_its_place() {
    let silent_upstream = |stream: TcpStream, _| {
        thread::sleep(LONG);
        drop(stream);
    };
    let gate = GateConfig { soft_limit: 2, hard_limit: 2, evict_min_idle: Duration::ZERO };
    let config = PoolConfig { connect_timeout: LONG, max_wait_time: Some(LONG), ..PoolConfig::default() };
    let harness = Harness::of(LINES, silent_upstream, (2, config, gate, Timeouts::default()));
    let mut waiting = from(&harness, 1);
    assert_eq!(waiting.ask("wait"), "wait");
    let mut silent_one = silent(&harness, 1, 1).remove(0);
    thread::sleep(Duration::from_millis(2_100));
    let mut client = from(&harness, 2);
    assert_eq!(client.ask("in"), "in");
    assert_eq!(silent_one.last_words(), "refused Displaced\n", "the one that waits came before");
    assert_eq!(from(&harness, 3).hear(), "refused TooManyClients { limit: 2, setting: \"hard_limit\" }");
    assert_eq!(displaced_left(&harness), 1);
}

#[test]
fn each_address_has_a_share_of_the_monitors() {
    let harness = harness(8, 8, Duration::from_millis(500));
    let mut silent_clients: Vec<Client> = (0..4).map(|_| from(&harness, 2)).collect();
    assert!(silent_clients.iter_mut().all(|silent_client| silent_client.ask("look") == "look"));
    let mut one_more = from(&harness, 2);
    assert_eq!(one_more.ask("look"), "look");
    assert_eq!(one_more.last_words(), "refused LoginTimeout\n", "half of the places are for clients that log in");
    let mut client = from(&harness, 1);
    assert_eq!(client.ask("look"), "look");
    assert_eq!(silent_clients[0].last_words(), "refused LoginTimeout\n");
    thread::sleep(Duration::from_millis(900));
    assert_eq!(client.ask("look"), "look");
    assert!(silent_clients[1..].iter_mut().all(|silent_client| silent_client.ask("look") == "look"));
    assert_eq!(displaced_left(&harness), 0, "there was room");
}
