//! Crowds at the limits of clients, in virtual time: which clients are evicted, and which get in. And a client that
//! logs in before it learns that another client has its place: with threads, the order would be left to chance.

use std::time::Duration;

use driver::Timeouts;
use pool::GateConfig;
use sim::{crowd::LetterProtocol, network::EndId, rig::Rig};

/// What a client sends at first: a login, and a request, whose reply is [`REPLY`].
const LOGIN: &[u8] = b"0i";
const REPLY: &[u8] = b"i";

/// Number of clients that the gate of a rig admits.
const PLACES: usize = 100;

fn gave_way(rig: &Rig<LetterProtocol>) -> u64 {
    let counts = rig.client_counts().evictions;
    counts.iter().find(|(reason, _)| *reason == "not_logged_in").expect("it is counted").1
}

#[test]
fn a_client_that_logs_in_after_another_has_got_its_place_leaves_if_there_is_no_other_place() {
    let mut rig = Rig::with_workers(2, LetterProtocol, 64 * 1024);
    let silent: Vec<_> = (0..PLACES).map(|_| rig.connect_client()).collect();
    rig.wait(Duration::from_millis(2_100));
    let first = rig.connect_client();
    rig.send(first, LOGIN);
    assert_eq!(
        (rig.take_received(first), rig.take_received(silent[0]), gave_way(&rig)),
        (REPLY.to_vec(), b"C".to_vec(), 1)
    );
    // The second client belongs to the second worker.
    let mut second = None;
    rig.while_halted(1, |rig| {
        let client = rig.connect_client();
        rig.send(client, LOGIN);
        assert_eq!(rig.take_received(client), REPLY, "it has a place");
        rig.send(silent[1], LOGIN);
        second = Some(client);
    });
    let second = second.expect("it came");
    assert_eq!((rig.take_received(silent[1]), rig.is_closed(silent[1]), gave_way(&rig)), (b"C".to_vec(), true, 2));
    // When a client has left there is room for one.
    rig.close(second);
    let mut come = || {
        let client = rig.connect_client();
        rig.send(client, LOGIN);
        (rig.take_received(client), gave_way(&rig))
    };
    assert_eq!([come(), come()], [(REPLY.to_vec(), 2), (REPLY.to_vec(), 3)]);
    // Each place is released once.
    assert_eq!(rig.take_received(silent[2]), b"C");
    rig.close(first);
    silent[3..].iter().for_each(|end| rig.close(*end));
    assert_eq!(rig.client_counts().login, 0);
}

const SOON: Duration = Duration::from_millis(40);
const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);

/// A rig with these limits, where newcomers are refused at once.
fn limited(soft_limit: u32, hard_limit: u32, workers: usize) -> Rig<LetterProtocol> {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: EVICT_MIN_IDLE };
    Rig::with_gate(gate, Timeouts::default(), workers, LetterProtocol, 64 * 1024)
}

const NEWCOMER_WAIT: Duration = Duration::from_secs(6);

/// A rig with these limits, where newcomers wait, and with `hard_limit` clients that have logged in.
fn full(soft_limit: u32, hard_limit: u32, workers: usize) -> (Rig<LetterProtocol>, Vec<EndId>) {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: EVICT_MIN_IDLE };
    let timeouts = Timeouts { newcomer_wait: Some(NEWCOMER_WAIT), ..Timeouts::default() };
    let mut rig = Rig::with_gate(gate, timeouts, workers, LetterProtocol, 64 * 1024);
    let clients = (0..hard_limit).map(|_| come(&mut rig).expect("there is a place")).collect();
    (rig, clients)
}

/// Connects a client that logs in, whether or not there is a place.
fn knock(rig: &mut Rig<LetterProtocol>) -> EndId {
    let client = rig.connect_client();
    rig.send(client, LOGIN);
    client
}

fn heard(rig: &mut Rig<LetterProtocol>, clients: &[EndId]) -> Vec<String> {
    clients.iter().map(|client| String::from_utf8(rig.take_received(*client)).expect("letters")).collect()
}

/// Connects a client that logs in; `None` if there is no place for it.
fn come(rig: &mut Rig<LetterProtocol>) -> Option<EndId> {
    let client = rig.connect_client();
    rig.send(client, LOGIN);
    (rig.take_received(client) == REPLY).then_some(client)
}

fn evicted(rig: &Rig<LetterProtocol>) -> u64 {
    let counts = rig.client_counts().evictions;
    counts.iter().find(|(reason, _)| *reason == "soft_limit").expect("it is counted").1
}

#[test]
fn a_listener_that_is_full_of_idle_clients_opens_again_when_they_may_go() {
    for workers in [1, 2, 3] {
        let mut rig = limited(40, 50, workers);
        let mut one_after_another = |_| {
            rig.wait(Duration::from_millis(1));
            come(&mut rig).expect("there is a place")
        };
        let first: Vec<_> = (0..50).map(&mut one_after_another).collect();
        assert_eq!(come(&mut rig), None);
        rig.wait(EVICT_MIN_IDLE - SOON * 3);
        assert_eq!((come(&mut rig), evicted(&rig)), (None, 0));
        rig.wait(SOON * 4);
        assert_eq!((rig.client_counts().idle, evicted(&rig)), (40, 10), "no more go than there are above the limit");
        assert!(
            first.iter().enumerate().all(|(number, end)| rig.is_closed(*end) == (number < 10)),
            "the longest idle go"
        );
        for newcomer in 0..20 {
            assert!(come(&mut rig).is_some(), "newcomer {newcomer}");
            rig.wait(SOON);
        }
        assert_eq!((rig.client_counts().idle, evicted(&rig)), (40, 30));
    }
}

#[test]
fn the_longest_idle_of_all_workers_go_a_few_at_a_time() {
    let mut rig = limited(200, 500, 2);
    let mut clients: Vec<_> = (0..500).map(|_| come(&mut rig).expect("there is a place")).collect();
    // Clients of the second worker are idle for longer.
    let again = |rig: &mut Rig<LetterProtocol>, of: usize| {
        rig.wait(Duration::from_secs(1));
        clients.iter().skip(of).step_by(2).for_each(|client| rig.send(*client, REPLY));
    };
    again(&mut rig, 1);
    again(&mut rig, 0);
    rig.wait(EVICT_MIN_IDLE + SOON * 10);
    assert_eq!((rig.client_counts().idle, evicted(&rig)), (200, 300));
    let gone = clients.iter().skip(1).step_by(2).filter(|end| rig.is_closed(**end)).count();
    assert_eq!(gone, 250, "all that were idle longest");
    clients.clear();
}

#[test]
fn a_client_stays_while_others_have_been_idle_for_longer() {
    let mut rig = limited(2, 9, 2);
    let clients: Vec<_> = (0..4).map(|_| come(&mut rig).expect("there is a place")).collect();
    for _ in 0..5 {
        rig.wait(Duration::from_secs(2));
        clients[..2].iter().for_each(|client| rig.send(*client, REPLY));
    }
    assert_eq!(clients.iter().map(|end| rig.is_closed(*end)).collect::<Vec<_>>(), [false, false, true, true]);
    rig.wait(EVICT_MIN_IDLE * 4);
    assert_eq!((rig.client_counts().idle, evicted(&rig)), (2, 2));
}

#[test]
fn silent_clients_evict_no_more_clients_than_there_are_places_between_the_limits() {
    let mut rig = limited(20, 25, 2);
    let clients: Vec<_> = (0..20).map(|_| come(&mut rig).expect("there is a place")).collect();
    rig.wait(EVICT_MIN_IDLE * 2);
    for _ in 0..10 {
        (0..5).for_each(|_| _ = rig.connect_client());
        rig.wait(SOON);
    }
    assert_eq!((evicted(&rig), rig.client_counts().idle), (5, 15));
    assert_eq!(clients.iter().filter(|end| rig.is_closed(**end)).count(), 5);
}

#[test]
fn newcomers_wait_until_clients_may_go() {
    for workers in [1, 2, 3] {
        let (mut rig, _) = full(40, 50, workers);
        rig.wait(Duration::from_secs(1));
        let newcomers: Vec<_> = (0..12).map(|_| knock(&mut rig)).collect();
        rig.wait(EVICT_MIN_IDLE - Duration::from_secs(1) - SOON);
        assert_eq!(heard(&mut rig, &newcomers), [""; 12]);
        rig.wait(SOON * 5);
        assert_eq!(heard(&mut rig, &newcomers), ["i"; 12]);
        assert_eq!((rig.client_counts().idle, evicted(&rig), rig.client_counts().rejections[0].1), (40, 22, 0));
    }
}

#[test]
fn a_newcomer_that_gets_no_place_in_time_is_refused() {
    let (mut rig, clients) = full(2, 2, 2);
    let newcomers = [knock(&mut rig), knock(&mut rig)];
    rig.wait(EVICT_MIN_IDLE);
    rig.close(clients[0]);
    rig.wait(SOON);
    assert_eq!(heard(&mut rig, &newcomers), ["i", ""]);
    rig.wait(NEWCOMER_WAIT - EVICT_MIN_IDLE);
    assert_eq!((rig.take_received(newcomers[1]), rig.is_closed(newcomers[1])), (b"F".to_vec(), true));
    assert_eq!((rig.client_counts().idle, rig.client_counts().rejections[0].1), (2, 1));
}

#[test]
fn places_go_to_newcomers_in_the_order_in_which_they_came_and_to_none_that_has_gone() {
    let (mut rig, clients) = full(2, 2, 2);
    let newcomers: Vec<_> = (0..3).map(|_| knock(&mut rig)).collect();
    rig.close(newcomers[0]);
    rig.close(clients[0]);
    // There is a place, but two newcomers are first.
    let late = knock(&mut rig);
    assert_eq!(rig.take_received(late), b"");
    rig.wait(SOON * 2);
    assert_eq!(heard(&mut rig, &[newcomers[1], newcomers[2], late]), ["i", "", ""]);
    rig.close(clients[1]);
    rig.close(newcomers[1]);
    rig.wait(SOON * 2);
    assert_eq!(heard(&mut rig, &[newcomers[2], late]), ["i", "i"]);
}

#[test]
fn newcomers_that_have_left_keep_no_place_from_the_next() {
    let (mut rig, clients) = full(2, 2, 2);
    let gone: Vec<_> = (0..50).map(|_| knock(&mut rig)).collect();
    let waits = knock(&mut rig);
    gone.iter().for_each(|end| rig.close(*end));
    rig.close(clients[0]);
    rig.wait(SOON);
    assert_eq!(rig.take_received(waits), REPLY);
}

#[test]
fn no_more_than_256_newcomers_wait() {
    let (mut rig, _) = full(2, 2, 1);
    let newcomers: Vec<_> = (0..300).map(|_| knock(&mut rig)).collect();
    let rejected = heard(&mut rig, &newcomers).iter().filter(|heard| *heard == "F").count();
    assert_eq!(rejected, 300 - 256);
    rig.wait(NEWCOMER_WAIT + SOON);
    let rejected = heard(&mut rig, &newcomers).iter().filter(|heard| *heard == "F").count();
    assert_eq!((rejected, rig.client_counts().rejections[0].1), (256, 300));
}

#[test]
fn newcomers_wait_while_a_successor_listens_and_are_refused_by_a_drain() {
    for drain in [false, true] {
        let (mut rig, clients) = full(2, 2, 2);
        let newcomers = [knock(&mut rig), knock(&mut rig)];
        rig.stop(drain);
        assert_eq!(heard(&mut rig, &newcomers), if drain { ["?"; 2] } else { [""; 2] });
        rig.close(clients[0]);
        rig.close(clients[1]);
        if !drain {
            assert!(!rig.has_ended(), "two wait for a place");
            rig.wait(SOON);
            assert_eq!(heard(&mut rig, &newcomers), ["i"; 2]);
            newcomers.iter().for_each(|end| rig.close(*end));
        }
        rig.wait(SOON);
        assert!(rig.has_ended());
    }
}

/// Connects 1,000 clients in one second, then 20 a second for ten seconds. Returns the number of refused clients in the
/// first seven seconds, and after that.
fn flood(soft_limit: u32, hard_limit: u32) -> (u64, u64) {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: EVICT_MIN_IDLE };
    let timeouts = Timeouts { newcomer_wait: Some(NEWCOMER_WAIT), ..Timeouts::default() };
    let mut rig = Rig::with_gate(gate, timeouts, 2, LetterProtocol, 64 * 1024);
    let refused = |rig: &Rig<LetterProtocol>| rig.client_counts().rejections[0].1;
    for _ in 0..1000 {
        knock(&mut rig);
        rig.wait(Duration::from_millis(1));
    }
    let mut at_first = 0;
    for number in 0..200 {
        if number == 120 {
            at_first = refused(&rig);
        }
        knock(&mut rig);
        rig.wait(Duration::from_millis(50));
    }
    rig.wait(NEWCOMER_WAIT);
    (at_first, refused(&rig) - at_first)
}

#[test]
fn a_flood_is_refused_only_while_none_may_go() {
    assert_eq!(flood(800, 1000), (0, 0));
    let (at_first, after) = flood(160, 200);
    // 200 clients had places, and 200 that waited got them; no other could be served before these may be evicted.
    assert!((600..=744).contains(&at_first), "{at_first}");
    assert_eq!(after, 0);
}
