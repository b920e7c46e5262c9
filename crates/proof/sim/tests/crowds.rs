//! Crowds at the limits of clients, in virtual time: who goes when, and who gets in. And a client whose place another
//! has got, and who logs in before it hears of that: which of both is first only chance tells on threads.

use std::time::Duration;

use driver::Timeouts;
use pool::GateConfig;
use seam::{
    ClientTag, CloseReason, Effect, Input, LeaseFailure, Origin, Outbox, Peer, PoolId, Protocol, Refusal, ServerTag,
    Sessions, Standing,
};
use sim::{
    network::EndId,
    stage::{POOL, Stage},
};

/// The first that a client says logs it in. Whatever it says is said back.
struct Echo;

impl Protocol for Echo {
    type Client = bool;
    type Server = ();

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) -> bool {
        false
    }

    fn server_start(&self, _: ServerTag, _: PoolId, _: &mut Outbox) {}

    fn client_input(
        &self,
        me: ClientTag,
        logged_in: &mut bool,
        _: &mut dyn Sessions<ServerTag, ()>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        if !std::mem::replace(logged_in, true) {
            out.push(Effect::LoggedIn { client: me, pool: POOL, user: "".into() });
        }
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        out.span(Peer::Client(me), 0..input.bytes.len());
        input.bytes.len()
    }

    fn server_input(
        &self,
        _: ServerTag,
        (): &mut (),
        _: &mut dyn Sessions<ClientTag, bool>,
        input: Input<'_>,
        _: &mut Outbox,
    ) -> usize {
        input.bytes.len()
    }

    fn granted(&self, _: ClientTag, _: &mut bool, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn lease_failed(&self, _: ClientTag, _: &mut bool, _: LeaseFailure, _: usize, _: &mut Outbox) {}

    fn client_gone(&self, _: ClientTag, _: &mut bool, _: &mut dyn Sessions<ServerTag, ()>, _: &mut Outbox) {}

    fn server_gone(&self, _: ServerTag, (): &mut (), _: &mut dyn Sessions<ClientTag, bool>, _: &mut Outbox) {}

    fn refuse(&self, me: ClientTag, _: &mut bool, _: Refusal, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend(b"go"));
        out.push(Effect::Close { peer: Peer::Client(me), reason: CloseReason::Done });
    }

    fn reset(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn check(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}
}

/// Clients that the gate of a stage lets in.
const PLACES: usize = 100;

fn gave_way(stage: &Stage<Echo>) -> u64 {
    let counts = stage.clients().evictions;
    counts.iter().find(|(reason, _)| *reason == "not_logged_in").expect("it is counted").1
}

#[test]
fn who_logs_in_before_it_hears_that_another_has_its_place_goes_where_there_is_no_other() {
    let mut stage = Stage::with_workers(2, Echo, 64 * 1024);
    let silent: Vec<_> = (0..PLACES).map(|_| stage.client()).collect();
    stage.wait(Duration::from_millis(2_100));
    let first = stage.client();
    stage.says(first, b"in");
    assert_eq!((stage.got(first), stage.got(silent[0]), gave_way(&stage)), (b"in".to_vec(), b"go".to_vec(), 1));
    // The second lives on the second worker.
    let mut second = None;
    stage.while_halted(1, |stage| {
        let client = stage.client();
        stage.says(client, b"in");
        assert_eq!(stage.got(client), b"in", "it has a place");
        stage.says(silent[1], b"me");
        second = Some(client);
    });
    let second = second.expect("it came");
    assert_eq!((stage.got(silent[1]), stage.is_over(silent[1]), gave_way(&stage)), (b"go".to_vec(), true, 2));
    // When one has left there is room for one.
    stage.leaves(second);
    let mut come = || {
        let client = stage.client();
        stage.says(client, b"in");
        (stage.got(client), gave_way(&stage))
    };
    assert_eq!([come(), come()], [(b"in".to_vec(), 2), (b"in".to_vec(), 3)]);
    // Each place is given back once.
    assert_eq!(stage.got(silent[2]), b"go");
    stage.leaves(first);
    silent[3..].iter().for_each(|end| stage.leaves(*end));
    assert_eq!(stage.clients().login, 0);
}

const SOON: Duration = Duration::from_millis(40);
const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);

/// A stage with these limits, where newcomers are refused at once.
fn limited(soft_limit: u32, hard_limit: u32, workers: usize) -> Stage<Echo> {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: EVICT_MIN_IDLE };
    Stage::with_gate(gate, Timeouts::default(), workers, Echo, 64 * 1024)
}

const NEWCOMER_WAIT: Duration = Duration::from_secs(6);

/// The same where they wait, with as many clients as there may be, which have logged in.
fn full(soft_limit: u32, hard_limit: u32, workers: usize) -> (Stage<Echo>, Vec<EndId>) {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: EVICT_MIN_IDLE };
    let timeouts = Timeouts { newcomer_wait: Some(NEWCOMER_WAIT), ..Timeouts::default() };
    let mut stage = Stage::with_gate(gate, timeouts, workers, Echo, 64 * 1024);
    let clients = (0..hard_limit).map(|_| come(&mut stage).expect("there is a place")).collect();
    (stage, clients)
}

/// A client comes and says who it is, whether or not there is a place.
fn knock(stage: &mut Stage<Echo>) -> EndId {
    let client = stage.client();
    stage.says(client, b"in");
    client
}

/// What each of these has heard.
fn heard(stage: &mut Stage<Echo>, clients: &[EndId]) -> Vec<String> {
    clients.iter().map(|client| String::from_utf8(stage.got(*client)).expect("letters")).collect()
}

/// A client comes and logs in. `None`: there was no place for it.
fn come(stage: &mut Stage<Echo>) -> Option<EndId> {
    let client = stage.client();
    stage.says(client, b"in");
    (stage.got(client) == b"in").then_some(client)
}

fn evicted(stage: &Stage<Echo>) -> u64 {
    let counts = stage.clients().evictions;
    counts.iter().find(|(reason, _)| *reason == "soft_limit").expect("it is counted").1
}

#[test]
fn a_listener_that_is_full_of_idle_clients_opens_again_when_they_may_go() {
    for workers in [1, 2, 3] {
        let mut stage = limited(40, 50, workers);
        let mut one_after_another = |_| {
            stage.wait(Duration::from_millis(1));
            come(&mut stage).expect("there is a place")
        };
        let first: Vec<_> = (0..50).map(&mut one_after_another).collect();
        assert_eq!(come(&mut stage), None);
        stage.wait(EVICT_MIN_IDLE - SOON * 3);
        assert_eq!((come(&mut stage), evicted(&stage)), (None, 0));
        stage.wait(SOON * 4);
        assert_eq!((stage.clients().idle, evicted(&stage)), (40, 10), "no more go than there are above the limit");
        assert!(
            first.iter().enumerate().all(|(number, end)| stage.is_over(*end) == (number < 10)),
            "the longest idle go"
        );
        for newcomer in 0..20 {
            assert!(come(&mut stage).is_some(), "newcomer {newcomer}");
            stage.wait(SOON);
        }
        assert_eq!((stage.clients().idle, evicted(&stage)), (40, 30));
    }
}

#[test]
fn the_longest_idle_of_all_workers_go_a_few_at_a_time() {
    let mut stage = limited(200, 500, 2);
    let mut clients: Vec<_> = (0..500).map(|_| come(&mut stage).expect("there is a place")).collect();
    // The ones of the second worker have been idle for longer.
    let again = |stage: &mut Stage<Echo>, of: usize| {
        stage.wait(Duration::from_secs(1));
        clients.iter().skip(of).step_by(2).for_each(|client| stage.says(*client, b"again"));
    };
    again(&mut stage, 1);
    again(&mut stage, 0);
    stage.wait(EVICT_MIN_IDLE + SOON * 10);
    assert_eq!((stage.clients().idle, evicted(&stage)), (200, 300));
    let gone = clients.iter().skip(1).step_by(2).filter(|end| stage.is_over(**end)).count();
    assert_eq!(gone, 250, "all that were idle longest");
    clients.clear();
}

#[test]
fn who_is_idle_for_less_stays_while_others_are_idle_for_long_enough() {
    let mut stage = limited(2, 9, 2);
    let clients: Vec<_> = (0..4).map(|_| come(&mut stage).expect("there is a place")).collect();
    for _ in 0..5 {
        stage.wait(Duration::from_secs(2));
        clients[..2].iter().for_each(|client| stage.says(*client, b"again"));
    }
    assert_eq!(clients.iter().map(|end| stage.is_over(*end)).collect::<Vec<_>>(), [false, false, true, true]);
    stage.wait(EVICT_MIN_IDLE * 4);
    assert_eq!((stage.clients().idle, evicted(&stage)), (2, 2));
}

#[test]
fn strangers_send_no_more_clients_away_than_there_are_places_between_the_limits() {
    let mut stage = limited(20, 25, 2);
    let clients: Vec<_> = (0..20).map(|_| come(&mut stage).expect("there is a place")).collect();
    stage.wait(EVICT_MIN_IDLE * 2);
    for _ in 0..10 {
        (0..5).for_each(|_| _ = stage.client());
        stage.wait(SOON);
    }
    assert_eq!((evicted(&stage), stage.clients().idle), (5, 15));
    assert_eq!(clients.iter().filter(|end| stage.is_over(**end)).count(), 5);
}

#[test]
fn newcomers_wait_until_clients_may_go() {
    for workers in [1, 2, 3] {
        let (mut stage, _) = full(40, 50, workers);
        stage.wait(Duration::from_secs(1));
        let newcomers: Vec<_> = (0..12).map(|_| knock(&mut stage)).collect();
        stage.wait(EVICT_MIN_IDLE - Duration::from_secs(1) - SOON);
        assert_eq!(heard(&mut stage, &newcomers), [""; 12]);
        stage.wait(SOON * 5);
        assert_eq!(heard(&mut stage, &newcomers), ["in"; 12]);
        assert_eq!((stage.clients().idle, evicted(&stage), stage.clients().rejections[0].1), (40, 22, 0));
    }
}

#[test]
fn a_newcomer_that_waits_too_long_is_refused_and_one_for_whom_there_is_a_place_is_not() {
    let (mut stage, clients) = full(2, 2, 2);
    let newcomers = [knock(&mut stage), knock(&mut stage)];
    stage.wait(EVICT_MIN_IDLE);
    stage.leaves(clients[0]);
    stage.wait(SOON);
    assert_eq!(heard(&mut stage, &newcomers), ["in", ""]);
    stage.wait(NEWCOMER_WAIT - EVICT_MIN_IDLE);
    assert_eq!((stage.got(newcomers[1]), stage.is_over(newcomers[1])), (b"go".to_vec(), true));
    assert_eq!((stage.clients().idle, stage.clients().rejections[0].1), (2, 1));
}

#[test]
fn places_go_to_newcomers_in_the_order_in_which_they_came_and_to_none_that_has_gone() {
    let (mut stage, clients) = full(2, 2, 2);
    let newcomers: Vec<_> = (0..3).map(|_| knock(&mut stage)).collect();
    stage.leaves(newcomers[0]);
    stage.leaves(clients[0]);
    // There is a place now, but others came before.
    let late = knock(&mut stage);
    assert_eq!(stage.got(late), b"");
    stage.wait(SOON * 2);
    assert_eq!(heard(&mut stage, &[newcomers[1], newcomers[2], late]), ["in", "", ""]);
    stage.leaves(clients[1]);
    stage.leaves(newcomers[1]);
    stage.wait(SOON * 2);
    assert_eq!(heard(&mut stage, &[newcomers[2], late]), ["in", "in"]);
}

#[test]
fn newcomers_that_have_gone_keep_no_place_from_those_behind_them() {
    let (mut stage, clients) = full(2, 2, 2);
    let gone: Vec<_> = (0..50).map(|_| knock(&mut stage)).collect();
    let waits = knock(&mut stage);
    gone.iter().for_each(|end| stage.leaves(*end));
    stage.leaves(clients[0]);
    stage.wait(SOON);
    assert_eq!(stage.got(waits), b"in");
}

#[test]
fn no_more_than_256_newcomers_wait() {
    let (mut stage, _) = full(2, 2, 1);
    let newcomers: Vec<_> = (0..300).map(|_| knock(&mut stage)).collect();
    let told = heard(&mut stage, &newcomers).iter().filter(|heard| *heard == "go").count();
    assert_eq!(told, 300 - 256);
    stage.wait(NEWCOMER_WAIT + SOON);
    let told = heard(&mut stage, &newcomers).iter().filter(|heard| *heard == "go").count();
    assert_eq!((told, stage.clients().rejections[0].1), (256, 300));
}

#[test]
fn newcomers_wait_where_another_process_listens_and_are_told_where_poolhouse_ends() {
    for drain in [false, true] {
        let (mut stage, clients) = full(2, 2, 2);
        let newcomers = [knock(&mut stage), knock(&mut stage)];
        stage.end(drain);
        assert_eq!(heard(&mut stage, &newcomers), if drain { ["go"; 2] } else { [""; 2] });
        stage.leaves(clients[0]);
        stage.leaves(clients[1]);
        if !drain {
            assert!(!stage.has_ended(), "two wait for a place");
            stage.wait(SOON);
            assert_eq!(heard(&mut stage, &newcomers), ["in"; 2]);
            newcomers.iter().for_each(|end| stage.leaves(*end));
        }
        stage.wait(SOON);
        assert!(stage.has_ended());
    }
}

/// A flood of 1,000 in one second, and 20 a second after it for ten seconds. How many are refused in the first seven
/// seconds, and after that.
fn flood(soft_limit: u32, hard_limit: u32) -> (u64, u64) {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: EVICT_MIN_IDLE };
    let timeouts = Timeouts { newcomer_wait: Some(NEWCOMER_WAIT), ..Timeouts::default() };
    let mut stage = Stage::with_gate(gate, timeouts, 2, Echo, 64 * 1024);
    let refused = |stage: &Stage<Echo>| stage.clients().rejections[0].1;
    for _ in 0..1000 {
        knock(&mut stage);
        stage.wait(Duration::from_millis(1));
    }
    let mut at_first = 0;
    for number in 0..200 {
        if number == 120 {
            at_first = refused(&stage);
        }
        knock(&mut stage);
        stage.wait(Duration::from_millis(50));
    }
    stage.wait(NEWCOMER_WAIT);
    (at_first, refused(&stage) - at_first)
}

#[test]
fn a_flood_is_refused_only_while_none_may_go() {
    assert_eq!(flood(800, 1000), (0, 0));
    let (at_first, after) = flood(160, 200);
    // 200 had places, and 200 that waited got these; of the others none could be served before those may go, too.
    assert!((600..=744).contains(&at_first), "{at_first}");
    assert_eq!(after, 0);
}
