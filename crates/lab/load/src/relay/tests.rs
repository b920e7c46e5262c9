//! The relay between real sockets.

use std::{
    io::{ErrorKind, Read, Write},
    thread,
};

use arrivals::Window;

use super::*;

/// How much later than planned something may come on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// A server that answers each byte with the same byte, on as many connections as come.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 65536];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn relay(faults: &[Fault]) -> Relay {
    let relay = Relay::start(echo(), faults, 1).unwrap();
    relay.start_windows(Instant::now());
    relay
}

fn client(relay: &Relay) -> TcpStream {
    let stream = TcpStream::connect(relay.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

fn round_trip(stream: &mut TcpStream) -> Duration {
    let began = Instant::now();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    began.elapsed()
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "it never came true");
        thread::sleep(ms(1));
    }
}

#[test]
fn without_faults_bytes_go_through_in_order_and_the_end_too() {
    let relay = relay(&[]);
    let mut stream = client(&relay);
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    let mut writer = stream.try_clone().unwrap();
    let copy = sent.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    assert_eq!(relay.counts(), RelayCounts { connections: 1, cut: 0, failed: 0 });
}

#[test]
fn a_delay_is_there_in_both_directions_and_precise() {
    let relay = relay(&[Fault::Delay { delay: ms(7), jitter: Duration::ZERO }]);
    let began = Instant::now();
    let mut stream = client(&relay);
    round_trip(&mut stream);
    let first = began.elapsed();
    assert!(first >= ms(28), "the first bytes also wait for the handshake's round trip: {first:?}");
    let mut trips: Vec<Duration> = (0..40).map(|_| round_trip(&mut stream)).collect();
    trips.sort();
    assert!(trips[0] >= ms(14), "{trips:?}");
    // The best of them shows what the relay can do; the others what the machine does.
    assert!(trips[0] < ms(15), "{trips:?}");
}

#[test]
fn a_stall_shifts_bytes_and_loses_none() {
    let window = Window { first: ms(50), length: ms(100), every: Some(ms(400)) };
    let relay = relay(&[Fault::Stall { delay: ms(150), window }]);
    let mut stream = client(&relay);
    let began = Instant::now();
    let mut slow = 0;
    let mut n = 0u8;
    while began.elapsed() < ms(900) {
        let at = Instant::now();
        stream.write_all(&[n]).unwrap();
        let mut answer = [0];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [n], "the order is kept");
        n = n.wrapping_add(1);
        let late = at.elapsed();
        if late >= ms(149) {
            slow += 1;
            assert!(late < ms(150) + SLACK, "{late:?}");
        }
        thread::sleep(ms(2));
    }
    // A client with one request at a time meets a stall of 150 ms once in each window of 100; a busy machine may add
    // its own.
    assert!(slow >= 2, "{slow}");
}

#[test]
fn in_a_silence_nothing_arrives_and_then_everything() {
    let window = Window { first: ms(1), length: ms(200), every: None };
    let relay = relay(&[Fault::BlackHole { window }]);
    let began = Instant::now();
    thread::sleep(ms(5));
    let mut streams: Vec<TcpStream> = (0..20).map(|_| client(&relay)).collect();
    for stream in &mut streams {
        round_trip(stream);
    }
    assert!(began.elapsed() >= ms(195), "{:?}", began.elapsed());
    assert!(began.elapsed() < ms(205) + SLACK, "{:?}", began.elapsed());
    round_trip(&mut streams[0]);
}

#[test]
fn a_connection_that_was_silent_is_forgotten_and_nobody_is_told() {
    let relay = relay(&[Fault::Forget { idle: ms(500) }]);
    let (mut silent, mut busy) = (client(&relay), client(&relay));
    for _ in 0..12 {
        round_trip(&mut busy);
        thread::sleep(ms(60));
    }
    silent.set_read_timeout(Some(ms(50))).unwrap();
    silent.write_all(b"x").unwrap();
    let error = silent.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    round_trip(&mut busy);
    round_trip(&mut client(&relay));
}

#[test]
fn a_cut_ends_all_connections_with_a_reset_and_lets_new_ones_in() {
    let window = Window { first: ms(20), length: ms(1), every: None };
    let relay = Relay::start(echo(), &[Fault::Cut { window }], 1).unwrap();
    let mut streams: Vec<TcpStream> = (0..50).map(|_| client(&relay)).collect();
    for stream in &mut streams {
        round_trip(stream);
    }
    relay.start_windows(Instant::now());
    wait_until(|| relay.counts().cut > 0);
    assert_eq!(relay.counts().cut, 50);
    for stream in &mut streams {
        let error = stream.read(&mut [0]).expect_err("a reset");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
    round_trip(&mut client(&relay));
}

#[test]
fn hundreds_of_connections_are_served_at_once() {
    let relay = relay(&[Fault::Delay { delay: ms(20), jitter: ms(5) }]);
    let mut streams: Vec<TcpStream> = (0..300).map(|_| client(&relay)).collect();
    for _ in 0..3 {
        for stream in &mut streams {
            stream.write_all(b"0123456789").unwrap();
        }
        for stream in &mut streams {
            let mut answer = [0; 10];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"0123456789");
        }
    }
    assert_eq!(relay.counts().connections, 300);
}

#[test]
fn a_receiver_that_does_not_read_holds_back_its_sender() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let relay = Relay::start(listener.local_addr().unwrap(), &[], 1).unwrap();
    let mut stream = TcpStream::connect(relay.address()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let block = [7; 65536];
    let mut sent = 0;
    let mut idle = 0;
    while idle < 50 {
        match stream.write(&block) {
            Ok(length) => (sent, idle) = (sent + length, 0),
            Err(_) => {
                idle += 1;
                thread::sleep(ms(2));
            }
        }
        assert!(sent < 64 << 20, "the relay takes everything");
    }
    assert!(sent > MAX_UNDER_WAY, "{sent}");
    drop(stream);
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), sent, "what was sent arrives after all");
}

#[test]
fn a_target_that_is_not_there_is_counted_and_its_client_sees_a_reset() {
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let relay = Relay::start(address, &[], 1).unwrap();
    let mut stream = TcpStream::connect(relay.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    assert!(stream.read(&mut [0]).is_err());
    wait_until(|| relay.counts().failed == 1);
}

#[test]
fn a_relay_that_is_dropped_lets_go_of_everything() {
    let relay = relay(&[Fault::Delay { delay: ms(500), jitter: Duration::ZERO }]);
    let mut stream = client(&relay);
    stream.write_all(b"x").unwrap();
    let address = relay.address();
    let began = Instant::now();
    drop(relay);
    assert!(began.elapsed() < ms(450), "{:?}", began.elapsed());
    assert!(TcpStream::connect(address).is_err());
}
