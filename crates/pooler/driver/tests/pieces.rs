//! Messages that arrive in small pieces, under a toy protocol whose messages begin with their length (4 bytes): its
//! session says how much it needs, and counts how much it is shown.

mod harness;

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use driver::Timeouts;
use harness::{Harness, roomy};
use pool::PoolConfig;
use seam::{
    ClientTag, Effect, Input, LeaseFailure, Origin, Outbox, Peer, PoolId, Protocol, Refusal, ServerTag, Sessions,
    Standing,
};

/// Answers each message with its length and the sum of its bytes.
struct Framed(Arc<Counts>);

#[derive(Default)]
struct Counts {
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
        self.0.calls.fetch_add(1, SeqCst);
        self.0.shown.fetch_add(input.bytes.len(), SeqCst);
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

/// Runs a driver, and uses a connection to it.
fn with_client(use_it: impl FnOnce(&mut TcpStream)) -> Arc<Counts> {
    let counts = Arc::new(Counts::default());
    let rules = (1, PoolConfig::default(), roomy(), Timeouts::default());
    let harness = Harness::of(Framed(Arc::clone(&counts)), |_, _| (), rules);
    let mut client = harness.client();
    client.0.get_mut().set_nodelay(true).unwrap();
    use_it(client.0.get_mut());
    counts
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
    let counts = with_client(|client| {
        let message = message(SIZE);
        for byte in &message {
            client.write_all(&[*byte]).unwrap();
        }
        assert_eq!(hear(client), answer(&message[HEADER..]));
    });
    let (calls, shown) = (counts.calls.load(SeqCst), counts.shown.load(SeqCst));
    assert!(calls <= 4, "{calls} calls");
    assert!(shown < 2 * SIZE, "{shown} bytes were shown for {SIZE}");
}

#[test]
fn pieces_that_hold_the_end_of_one_message_and_the_beginning_of_another_are_taken_in_order() {
    with_client(|client| {
        let sizes = [0, 1, 7, 5_000, 3, 40_000, 2];
        let messages: Vec<Vec<u8>> = sizes.iter().map(|size| message(*size)).collect();
        for piece in messages.concat().chunks(997) {
            client.write_all(piece).unwrap();
        }
        for message in &messages {
            assert_eq!(hear(client), answer(&message[HEADER..]));
        }
    });
}

#[test]
fn a_session_that_needs_more_than_can_be_held_is_shown_what_there_is() {
    with_client(|client| {
        let message = message(1 << 20);
        client.write_all(&message[..70_000]).unwrap();
        // All that was held was taken at once, with its header.
        assert!(hear(client) & 0xffff_ffff >= 64 * 1024);
    });
}
