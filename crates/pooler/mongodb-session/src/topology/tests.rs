use seam::ClientTag;

use super::*;

fn primary_of(term: u8) -> ServerDescription {
    ServerDescription {
        server_type: ServerType::Primary,
        set: Some("rs".into()),
        wire: 21,
        session_minutes: Some(30),
        election: Election::of_term(term),
        ..ServerDescription::default()
    }
}

#[test]
fn a_primary_that_was_replaced_takes_no_writes_though_its_successor_is_away() {
    let (mut topology, mut out) = (Topology::new(), Outbox::default());
    topology.learn(0, primary_of(1), HelloReceived::default(), &mut out);
    topology.learn(1, primary_of(2), HelloReceived::default(), &mut out);
    assert_eq!(topology.writable_host(), Some(1));
    topology.mark_unknown(1, &mut out);
    assert_eq!(topology.writable_host(), None);
    assert!(!topology.serves(0, Target::Writable) && !topology.serves(1, Target::Writable));
    topology.learn(0, primary_of(1), HelloReceived::default(), &mut out);
    assert_eq!(topology.writable_host(), None);
    assert!(topology.has_lost_transactions(0));
    topology.learn(0, primary_of(3), HelloReceived::default(), &mut out);
    assert_eq!(topology.writable_host(), Some(0));
}

#[test]
fn a_replica_set_that_was_made_anew_has_a_primary_after_a_while() {
    let (mut topology, mut out) = (Topology::new(), Outbox::default());
    topology.learn(0, primary_of(9), HelloReceived::default(), &mut out);
    topology.mark_unknown(0, &mut out);
    topology.learn(0, primary_of(1), HelloReceived::default(), &mut out);
    assert_eq!(topology.writable_host(), None);
    topology.on_tick(STALE_PRIMARY_TIME, &mut out);
    assert_eq!(topology.writable_host(), Some(0));
}

#[test]
fn a_list_of_the_hosts_takes_no_turn_among_equal_mongos() {
    let (mut topology, mut out) = (Topology::new(), Outbox::default());
    for host in 0..2 {
        let mongos = ServerDescription { server_type: ServerType::Mongos, set: None, ..primary_of(0) };
        topology.learn(host, mongos, HelloReceived::default(), &mut out);
    }
    let first = topology.choose(Target::Writable, None);
    assert_eq!(topology.readable_hosts().len(), 2);
    assert_ne!(topology.choose(Target::Writable, None), first);
}

/// How often monitors have been asked since the last call, and how often the client has been notified.
fn posts(out: &mut Outbox) -> (usize, usize) {
    let to = |effect: Effect| match effect {
        Effect::Post { to, .. } => to,
        other => panic!("only posts: {other:?}"),
    };
    let (servers, clients): (Vec<_>, Vec<_>) =
        out.effects.drain(..).map(to).partition(|to| matches!(to, Peer::Server(_)));
    out.clear();
    (servers.len(), clients.len())
}

fn watched() -> (Topology, Outbox) {
    let (mut topology, mut out) = (Topology::new(), Outbox::default());
    for host in 0..3 {
        let description = if host == 0 {
            primary_of(1)
        } else {
            ServerDescription { server_type: ServerType::Secondary, ..primary_of(0) }
        };
        topology.learn(host, description, HelloReceived::default(), &mut out);
        topology.monitor_started(host, ServerTag(host as u32), 7);
    }
    topology.clients.enter(ClientTag(5), 5);
    topology.on_tick(Duration::from_secs(10), &mut out);
    out.clear();
    (topology, out)
}

#[test]
fn all_are_asked_at_once_when_the_primary_is_none_any_more_and_then_in_a_hurry() {
    let (mut topology, mut out) = watched();
    let at = |ms: u64| Duration::from_millis(10_000 + ms);
    topology.on_tick(at(500), &mut out);
    topology.mark_unknown(0, &mut out);
    assert_eq!(posts(&mut out), (4, 1), "the one that said it, and all; and a client that may wait there");
    for (ms, asked) in [(540, 0), (600, 3), (640, 0), (700, 3)] {
        topology.on_tick(at(ms), &mut out);
        assert_eq!(posts(&mut out).0, asked, "after {ms} ms");
    }
    topology.learn(1, primary_of(2), HelloReceived::default(), &mut out);
    topology.on_tick(at(800), &mut out);
    posts(&mut out);
    topology.on_tick(at(900), &mut out);
    assert_eq!(posts(&mut out).0, 0, "there is no hurry any more");
}
