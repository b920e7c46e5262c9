//! Transport to real sockets of this machine.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use super::*;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

fn tcp(host: &str, port: u16) -> Arc<Address> {
    Arc::new(Address::Tcp { host: host.to_owned(), port })
}

fn transport() -> Transport {
    Transport::new(Instant::now()).unwrap()
}

/// A port where each connection is given to `serve`, one after the other.
fn serve(serve: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().for_each(|socket| serve(socket.unwrap())));
    port
}

/// Sends back what it receives, `length` bytes at a time.
fn echo(mut socket: TcpStream, length: usize) {
    thread::spawn(move || {
        let mut bytes = vec![0; length];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
    });
}

fn next(transport: &mut Transport) -> Event {
    let late = transport.now() + LONG;
    loop {
        if let Some(event) = transport.next() {
            return event;
        }
        assert!(transport.now() < late, "nothing happens");
        transport.wait(Some(late)).unwrap();
    }
}

#[test]
fn what_is_sent_comes_back_whole() {
    let length = 3_000_000;
    let port = serve(move |socket| echo(socket, length));
    let mut transport = transport();
    transport.open(7, &tcp("127.0.0.1", port));
    assert!(matches!(next(&mut transport), Event::Connected { key: 7 }));
    let sent: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
    transport.send(7, &sent);
    let mut received = Vec::new();
    while received.len() < length {
        let Event::Received { key: 7, bytes } = next(&mut transport) else { panic!("bytes were expected") };
        received.extend_from_slice(&bytes);
        transport.give_back(bytes);
    }
    assert!(received == sent);
    transport.close(7);
    assert!(!transport.is_open(7));
}

#[test]
fn a_name_is_resolved_and_its_addresses_are_tried_in_turn() {
    // Of "localhost" there is often an IPv6 address too, where no socket listens.
    let port = serve(|socket| echo(socket, 1));
    let mut transport = transport();
    transport.open(0, &tcp("localhost", port));
    assert!(matches!(next(&mut transport), Event::Resolved { key: 0, .. }));
    assert!(matches!(next(&mut transport), Event::Connected { key: 0 }));
}

#[test]
fn an_address_that_does_not_answer_gives_way_to_the_next() {
    // A queue that is full: further connects are not answered.
    let full = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = full.local_addr().unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let _queue: Vec<_> = (0..2).map(|_| TcpStream::connect_timeout(&silent, Duration::from_millis(50))).collect();
    let port = serve(|socket| echo(socket, 1));
    let mut transport = transport();
    let key = 3;
    transport.open(key, &tcp("127.0.0.1", silent.port()));
    // As if it were a name with two addresses.
    transport.close(key);
    let line = Slot { serial: 99, address: tcp("two", 0), conn: None, addresses: VecDeque::new() };
    transport.slots[key as usize] = Some(line);
    let began = transport.now();
    transport.try_addresses(SlotId { key, serial: 99 }, [silent, SocketAddr::from(([127, 0, 0, 1], port))].into());
    assert!(matches!(next(&mut transport), Event::Connected { key: 3 }));
    let took = transport.now() - began;
    assert!(took >= ADDRESS_TIMEOUT && took < ADDRESS_TIMEOUT * 2, "{took:?}");
}

#[test]
fn the_timeout_of_an_address_that_has_failed_does_not_end_the_attempt_after_it() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut transport = transport();
    let id = SlotId { key: 0, serial: 99 };
    transport.slots.push(Some(Slot { serial: 99, address: tcp("three", 0), conn: None, addresses: VecDeque::new() }));
    transport.try_addresses(id, [address; 3].into());
    transport.next_address(id, &io::ErrorKind::ConnectionRefused.into());
    for untried in [1, 0] {
        transport.address_timeouts[0].at = transport.now();
        transport.try_next_addresses();
        assert_eq!(transport.slot(id).addresses.len(), untried);
    }
}

#[test]
fn a_port_where_nobody_listens_is_refused_and_the_key_is_free_again() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let mut transport = transport();
    for _ in 0..2 {
        transport.open(1, &tcp("127.0.0.1", port));
        let Event::Failed { key: 1, error } = next(&mut transport) else { panic!("no socket listens there") };
        assert_eq!(error.fault, TransportFault::Refused);
        assert!(error.message.contains(&format!("127.0.0.1:{port}")), "{error}");
    }
    transport.open(1, &Arc::new(Address::Unix("/nowhere/at/all".into())));
    assert!(matches!(next(&mut transport), Event::Failed { key: 1, error } if error.fault == TransportFault::Refused));
}

#[test]
fn a_name_that_there_is_not_fails_after_the_time_it_took() {
    let mut transport = transport();
    transport.open(1, &tcp("no-such-host.invalid", 1));
    assert!(matches!(next(&mut transport), Event::Resolved { key: 1, .. }));
    let Event::Failed { key: 1, error } = next(&mut transport) else { panic!("there is no such host") };
    assert_eq!(error.fault, TransportFault::Resolve);
    assert!(error.message.contains("no-such-host.invalid"));
}

#[test]
fn nothing_is_told_of_a_connection_that_was_closed() {
    let port = serve(|socket| echo(socket, 1));
    let mut transport = transport();
    transport.open(1, &tcp("localhost", port));
    transport.close(1);
    transport.open(1, &tcp("127.0.0.1", port));
    let mut connected = 0;
    let late = transport.now() + Duration::from_millis(300);
    while transport.now() < late {
        transport.wait(Some(late)).unwrap();
        while let Some(event) = transport.next() {
            assert!(matches!(event, Event::Connected { key: 1 }), "{event:?}");
            connected += 1;
        }
    }
    assert_eq!(connected, 1);
}

#[test]
fn an_end_and_a_break_are_told_apart() {
    let port = serve(|mut socket| {
        let mut first = [0];
        socket.read_exact(&mut first).unwrap();
        match first[0] {
            b'e' => socket.shutdown(Shutdown::Both).unwrap(),
            _ => rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).unwrap(),
        }
    });
    let mut transport = transport();
    for (word, ends) in [(b"e", true), (b"b", false)] {
        transport.open(0, &tcp("127.0.0.1", port));
        assert!(matches!(next(&mut transport), Event::Connected { key: 0 }));
        transport.send(0, word);
        match next(&mut transport) {
            Event::Ended { key: 0 } => assert!(ends),
            Event::Failed { key: 0, error } => assert!(!ends && error.fault == TransportFault::Reset, "{error}"),
            event => panic!("{event:?}"),
        }
        assert!(!transport.is_open(0));
    }
}

#[test]
fn a_wait_ends_at_its_time_and_never_before() {
    let mut transport = transport();
    let mut late = Vec::new();
    for i in 0..200 {
        let until = transport.now() + Duration::from_micros(100 + 37 * i);
        while transport.now() < until {
            transport.wait(Some(until)).unwrap();
        }
        late.push(transport.now() - until);
    }
    late.sort();
    // On a machine that has other work too, not every wait can be punctual.
    assert!(late[late.len() / 2] < Duration::from_millis(1), "half of them are later than {:?}", late[late.len() / 2]);
}

#[test]
fn an_alarm_that_was_set_early_does_not_end_later_waits_for_good() {
    let mut transport = transport();
    let near = transport.now() + Duration::from_millis(5);
    transport.wait(Some(near)).unwrap();
    let far = near + Duration::from_millis(60);
    let mut waits = 0;
    while transport.now() < far {
        transport.wait(Some(far)).unwrap();
        waits += 1;
    }
    assert!(waits < 10, "it sleeps");
}

#[test]
fn hundreds_of_connections_are_carried_at_once() {
    const CONNECTIONS: u32 = 400;
    // The queue of a listener of the standard library has 128 places.
    const MAX_CONNECTING: u32 = 100;
    let port = serve(|socket| echo(socket, 4));
    let mut transport = transport();
    let address = tcp("127.0.0.1", port);
    (0..MAX_CONNECTING).for_each(|key| transport.open(key, &address));
    let mut further = MAX_CONNECTING..CONNECTIONS;
    let mut rounds = vec![0; CONNECTIONS as usize];
    while rounds.iter().any(|round| *round < 5) {
        match next(&mut transport) {
            Event::Connected { key } => {
                transport.send(key, &key.to_be_bytes());
                if let Some(key) = further.next() {
                    transport.open(key, &address);
                }
            }
            Event::Received { key, bytes } => {
                assert_eq!(*bytes, key.to_be_bytes());
                transport.give_back(bytes);
                rounds[key as usize] += 1;
                if rounds[key as usize] < 5 {
                    transport.send(key, &key.to_be_bytes());
                }
            }
            event => panic!("{event:?}"),
        }
    }
}
