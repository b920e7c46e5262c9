//! A driver under a protocol of lines, its clients, and an upstream that the test plays itself.

#![allow(dead_code, reason = "each test file uses some of it")]

pub mod lines;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use driver::{Address, Driver, DriverConfig, Handle, ListenerSpec, PoolSpec, PoolTimeouts, Timeouts, Upstreams};
use pool::{GateConfig, PoolConfig};
use seam::{PoolId, Protocol};

pub const POOL: PoolId = PoolId(0);

/// An upstream whose connections are served one thread each, with their numbers; and how many there have been.
pub fn upstream(serve: fn(TcpStream, u32)) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&connections);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let number = counter.fetch_add(1, SeqCst);
            thread::spawn(move || serve(stream.unwrap(), number));
        }
    });
    (address, connections)
}

/// Where the upstream is, and the rules of the pool.
pub struct Spec(pub SocketAddr, pub PoolConfig);

impl Upstreams for Spec {
    fn spec(&self, _: PoolId) -> Option<PoolSpec> {
        Some(PoolSpec {
            protocol: "lines",
            database: "lines".into(),
            ordered_as: None,
            user: "me".into(),
            hosts: Address::Tcp { host: self.0.ip().to_string(), port: self.0.port() }.into(),
            config: self.1.clone(),
            tls: None,
            caps: vec![("all".into(), 0)],
            timeouts: PoolTimeouts::default(),
            sizes: Some((1, 50)),
            forget_after: None,
            cancel_timeout: Duration::from_secs(5),
            fast_close: false,
            revision: 0,
            hidden: false,
            client_rank: driver::ClientRank::default(),
        })
    }

    fn at_start(&self) -> Vec<PoolId> {
        Vec::new()
    }
}

/// A driver that runs until this is dropped.
pub struct Harness {
    driver: Option<Driver>,
    pub handle: Handle,
    pub address: SocketAddr,
    pub upstream_connections: Arc<AtomicU32>,
}

impl Harness {
    /// `rules`: how many workers, the pool's, the gate's and the clients' time-outs.
    pub fn of<P: Protocol>(
        protocol: P,
        serve: fn(TcpStream, u32),
        (workers, config, gate, timeouts): (usize, PoolConfig, GateConfig, Timeouts),
    ) -> Self {
        let (upstream, upstream_connections) = upstream(serve);
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listener = listener(socket, gate, timeouts);
        let of_driver = DriverConfig { workers, ..DriverConfig::default() };
        let driver =
            Driver::start(of_driver, Arc::new(protocol), Arc::new(Spec(upstream, config)), vec![listener]).unwrap();
        Self { handle: driver.handle(), driver: Some(driver), address, upstream_connections }
    }

    pub fn client(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Client(BufReader::new(stream))
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.handle.stop();
        let ended_well = self.driver.take().unwrap().join();
        if !thread::panicking() {
            assert!(ended_well, "a worker panicked");
        }
    }
}

pub fn listener(socket: TcpListener, gate: GateConfig, timeouts: Timeouts) -> ListenerSpec {
    let name = socket.local_addr().unwrap().to_string();
    ListenerSpec {
        name,
        protocol: "lines",
        sockets: vec![socket.into()],
        tcp: true,
        gate,
        timeouts,
        tls: None,
        proxies: Vec::new(),
    }
}

/// A gate that admits all clients of a test.
pub fn roomy() -> GateConfig {
    GateConfig { soft_limit: 10_000, hard_limit: 10_000, evict_min_idle: Duration::ZERO }
}

/// Says lines, and hears lines.
pub struct Client(pub BufReader<TcpStream>);

impl Client {
    pub fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// Everything until its connection ends.
    pub fn last_words(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.0.read_to_end(&mut rest);
        String::from_utf8(rest).unwrap()
    }
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "never came true: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
