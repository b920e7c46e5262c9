//! A client whose place another has got, and who logs in before it hears of that: which of both is first only chance tells on threads.

use std::time::Duration;

use protocol::{
    ClientTag, Effect, Input, LeaseFailure, Origin, Outbox, Peer, PoolId, Protocol, Refusal, ServerTag, Sessions,
    Standing,
};
use sim::stage::{POOL, Stage};

/// Whatever a client says logs it in, and is said back.
struct Echo;

impl Protocol for Echo {
    type Client = ();
    type Server = ();

    fn client_start(&self, _: ClientTag, _: Origin, _: &mut Outbox) {}

    fn server_start(&self, _: ServerTag, _: PoolId, _: &mut Outbox) {}

    fn client_input(
        &self,
        me: ClientTag,
        (): &mut (),
        _: &mut dyn Sessions<ServerTag, ()>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        out.push(Effect::LoggedIn { client: me, pool: POOL });
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        out.span(Peer::Client(me), 0..input.bytes.len());
        input.bytes.len()
    }

    fn server_input(
        &self,
        _: ServerTag,
        (): &mut (),
        _: &mut dyn Sessions<ClientTag, ()>,
        input: Input<'_>,
        _: &mut Outbox,
    ) -> usize {
        input.bytes.len()
    }

    fn granted(&self, _: ClientTag, (): &mut (), _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn lease_failed(&self, _: ClientTag, (): &mut (), _: LeaseFailure, _: usize, _: &mut Outbox) {}

    fn client_gone(&self, _: ClientTag, (): &mut (), _: &mut dyn Sessions<ServerTag, ()>, _: &mut Outbox) {}

    fn server_gone(&self, _: ServerTag, (): &mut (), _: &mut dyn Sessions<ClientTag, ()>, _: &mut Outbox) {}

    fn refuse(&self, me: ClientTag, (): &mut (), _: Refusal, out: &mut Outbox) {
        out.insert(Peer::Client(me), |bytes| bytes.extend(b"go"));
    }

    fn reset(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn check(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn retire(&self, _: ServerTag, (): &mut (), _: &mut Outbox) {}

    fn cancel(&self, _: ClientTag, (): &mut (), _: &mut dyn Sessions<ServerTag, ()>, _: u64, _: bool, _: &mut Outbox) {}
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
