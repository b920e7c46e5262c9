//! Messages that arrive in small pieces, under a toy protocol whose messages begin with their length (4 bytes): its
//! session says how much it needs, and counts how much it is shown.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use driver::{Driver, DriverConfig, ListenerSpec, PoolSpec, Timeouts, Upstreams};
use pool::GateConfig;
use seam::{
    ClientTag, Effect, Input, LeaseFailure, Origin, Outbox, Peer, PoolId, Protocol, Refusal, ServerTag, Sessions,
    Standing,
};

/// Answers each message with its length.
#[derive(Default)]
struct Framed {
    calls: AtomicUsize,
    shown: AtomicUsize,
}

const HEADER: usize = 4;

impl Protocol for Framed {
    type Client = ();
    type Server = ();

    fn client_start(&self, me: ClientTag, _: Origin, out: &mut Outbox) {
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
    }

    fn server_start(&self, _: ServerTag, _: PoolId, _: &mut Outbox) {
        unreachable!("no client asks for a server");
    }

    fn client_input(
        &self,
        me: ClientTag,
        (): &mut (),
        _: &mut dyn Sessions<ServerTag, ()>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        self.calls.fetch_add(1, SeqCst);
        self.shown.fetch_add(input.bytes.len(), SeqCst);
        out.need = HEADER;
        let Some(header) = input.bytes.first_chunk::<HEADER>() else { return 0 };
        let total = HEADER + u32::from_be_bytes(*header) as usize;
        let message = input.bytes.get(HEADER..total);
        let all = if input.full { Some(input.bytes) } else { message };
        let Some(bytes) = all else {
            out.need = total;
            return 0;
        };
        let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
        out.insert(Peer::Client(me), |to| to.extend_from_slice(&(bytes.len() as u64 + (sum << 32)).to_be_bytes()));
        if message.is_some() { total } else { input.bytes.len() }
    }

    fn server_input(
        &self,
        _: ServerTag,
        (): &mut (),
        _: &mut dyn Sessions<ClientTag, ()>,
        _: Input<'_>,
        _: &mut Outbox,
    ) -> usize {
        unreachable!("there is no server");
    }

    fn granted(&self, _: ClientTag, (): &mut (), _: ServerTag, (): &mut (), _: &mut Outbox) {}
    fn lease_failed(&self, _: ClientTag, (): &mut (), _: LeaseFailure, _: usize, _: &mut Outbox) {}
    fn client_gone(&self, _: ClientTag, (): &mut (), _: &mut dyn Sessions<ServerTag, ()>, _: &mut Outbox) {}
    fn server_gone(&self, _: ServerTag, (): &mut (), _: &mut dyn Sessions<ClientTag, ()>, _: &mut Outbox) {}
    fn refuse(&self, _: ClientTag, (): &mut (), _: Refusal, _: &mut Outbox) {}
    fn reset(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}
    fn check(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}
}

struct Nowhere;

impl Upstreams for Nowhere {
    fn spec(&self, _: PoolId) -> Option<PoolSpec> {
        unreachable!("no client asks for a server");
    }

    fn at_start(&self) -> Vec<PoolId> {
        Vec::new()
    }
}

/// Runs a driver, and gives a connection to it.
fn with_client(protocol: &Arc<Framed>, use_it: impl FnOnce(TcpStream)) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let gate = GateConfig { soft_limit: 9, hard_limit: 9, evict_min_idle: Duration::ZERO };
    let (name, timeouts) = ("here".to_owned(), Timeouts::default());
    let listener =
        ListenerSpec { name, protocol: "lines", socket: socket.into(), tcp: true, gate, timeouts, tls: None };
    let config = DriverConfig { workers: 1, ..DriverConfig::default() };
    let driver = Driver::start(config, Arc::clone(protocol), Arc::new(Nowhere), vec![listener]).unwrap();
    let client = TcpStream::connect(address).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    use_it(client);
    driver.handle().stop();
    assert!(driver.join());
}

fn message(size: usize) -> Vec<u8> {
    let mut message = (size as u32).to_be_bytes().to_vec();
    message.extend((0..size).map(|n| (n % 251) as u8));
    message
}

fn answer(bytes: &[u8]) -> u64 {
    bytes.len() as u64 + (bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>() << 32)
}

fn hear(client: &mut TcpStream) -> u64 {
    let mut bytes = [0; 8];
    client.read_exact(&mut bytes).unwrap();
    u64::from_be_bytes(bytes)
}

#[test]
fn a_message_in_pieces_of_one_byte_is_shown_to_its_session_a_few_times_and_not_for_each_piece() {
    const SIZE: usize = 60_000;
    let protocol = Arc::new(Framed::default());
    with_client(&protocol, |mut client| {
        let message = message(SIZE);
        for byte in &message {
            client.write_all(&[*byte]).unwrap();
        }
        assert_eq!(hear(&mut client), answer(&message[HEADER..]));
    });
    let (calls, shown) = (protocol.calls.load(SeqCst), protocol.shown.load(SeqCst));
    assert!(calls <= 4, "{calls} calls");
    assert!(shown < 2 * SIZE, "{shown} bytes were shown for {SIZE}");
}

#[test]
fn pieces_that_hold_the_end_of_one_message_and_the_beginning_of_another_are_taken_in_order() {
    let protocol = Arc::new(Framed::default());
    with_client(&protocol, |mut client| {
        let sizes = [0, 1, 7, 5_000, 3, 40_000, 2];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|size| message(*size)).collect();
        for piece in messages.concat().chunks(997) {
            client.write_all(piece).unwrap();
        }
        for message in &messages {
            assert_eq!(hear(&mut client), answer(&message[HEADER..]));
        }
    });
}

#[test]
fn a_session_that_needs_more_than_can_be_held_is_shown_what_there_is() {
    let protocol = Arc::new(Framed::default());
    with_client(&protocol, |mut client| {
        let message = message(1 << 20);
        client.write_all(&message[..70_000]).unwrap();
        // All that was held was taken at once, with its header.
        assert!(hear(&mut client) & 0xffff_ffff >= 64 * 1024);
    });
}
