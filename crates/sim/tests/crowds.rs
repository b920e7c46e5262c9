//! Crowds at the limits of clients, in virtual time: who goes when, and who gets in. And a client whose place another has got, and who logs in
//! before it hears of that: which of both is first only chance tells on threads.

use std::time::Duration;

use driver::Timeouts;
use pool::GateConfig;
use protocol::{
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
            out.push(Effect::LoggedIn { client: me, pool: POOL });
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

    fn retire(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn cancel(&self, _: ClientTag, _: &mut bool, _: &mut dyn Sessions<ServerTag, ()>, _: u64, _: bool, _: &mut Outbox) {
    }
}

/// Clients that the gate of a stage lets in.
const PLACES: usize = 100;

fn gave_way(stage: &Stage<Echo>) -> u64 {
    let counts = stage.clients().evictions;
    counts.iter().find(|(reason, _)| *reason == "not_logged_in").expect("it is counted").1
}

#[test]
fn who_logs_in_before_it_hears_that_another_has_its_place_stays_and_counts() {
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
    assert_eq!((stage.got(silent[1]), stage.is_over(silent[1]), gave_way(&stage)), (b"me".to_vec(), false, 1));
    // There is one more than there may be: when two have left there is room for one.
    stage.leaves(silent[1]);
    stage.leaves(second);
    let mut come = || {
        let client = stage.client();
        stage.says(client, b"in");
        (stage.got(client), gave_way(&stage))
    };
    assert_eq!([come(), come()], [(b"in".to_vec(), 1), (b"in".to_vec(), 2)]);
    // Each place is given back once.
    assert_eq!(stage.got(silent[2]), b"go");
    stage.leaves(first);
    silent[3..].iter().for_each(|end| stage.leaves(*end));
    assert_eq!(stage.clients().login, 0);
}

const SOON: Duration = Duration::from_millis(40);
const EVICT_MIN_IDLE: Duration = Duration::from_secs(5);

/// A stage with these limits.
fn limited(soft_limit: u32, hard_limit: u32, workers: usize) -> Stage<Echo> {
    let gate = GateConfig { soft_limit, hard_limit, evict_min_idle: EVICT_MIN_IDLE };
    Stage::with_gate(gate, Timeouts::default(), workers, Echo, 64 * 1024)
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
