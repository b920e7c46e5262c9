//! Sessions that panic: each ends with its own connection and its own server, and the worker and all other sessions go
//! on.

mod harness;

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    sync::atomic::Ordering::SeqCst,
    thread,
    time::Duration,
};

use driver::Timeouts;
use harness::{Harness, eventually, lines::Lines, roomy};
use pool::PoolConfig;
use seam::LeaseKind;

/// An upstream that answers each line with itself; before it answers `slow`, it thinks. `die` makes it close.
fn serve(mut stream: TcpStream, _: u32) {
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        let Ok(line) = line else { return };
        if line == "slow" {
            thread::sleep(Duration::from_millis(700));
        }
        if line == "die" || line == "panic lost" || stream.write_all(format!("{line}\n").as_bytes()).is_err() {
            return;
        }
    }
}

impl Harness {
    fn open(kind: LeaseKind) -> Self {
        let config = PoolConfig { max_size: 2, ..PoolConfig::default() };
        Self::of(Lines { kind, starts: true }, serve, (1, config, roomy(), Timeouts::default()))
    }

    fn eventually(&self, what: &str, holds: impl Fn(&driver::Snapshot) -> bool) {
        eventually(what, || holds(&self.handle.snapshot()));
    }
}

const KINDS: [LeaseKind; 2] = [LeaseKind::Exclusive, LeaseKind::Shared];

#[test]
fn a_session_that_panics_ends_alone_and_its_server_with_it() {
    for kind in KINDS {
        // Whether the session had a server by then.
        for (word, had_a_server) in
            [("panic early", false), ("panic granted", true), ("panic late", true), ("panic back", true)]
        {
            let harness = Harness::open(kind);
            let (mut other, mut unlucky) = (harness.client(), harness.client());
            assert_eq!(other.ask("before"), "before");
            assert_eq!(unlucky.ask("before"), "before");
            unlucky.say(word);
            let heard = unlucky.last_words();
            assert!(heard.is_empty() || heard == "server lost\n", "{kind:?} {word}: {heard:?}");
            assert_eq!(other.ask("after"), "after", "{kind:?} {word}");
            assert_eq!(harness.client().ask("new"), "new", "{kind:?} {word}");
            harness.eventually("it is counted and nothing of it is left", |seen| {
                let pool = &seen.pools[0];
                seen.session_panics == 1
                    && pool.clients == 1
                    && pool.counts.in_use <= usize_of(kind)
                    && pool.counts.closing == 0
            });
            assert_eq!(harness.upstream_connections.load(SeqCst), 1 + u32::from(had_a_server), "{kind:?} {word}");
        }
    }
}

/// Servers that are in use although nothing is asked: a worker keeps a shared one for a while.
fn usize_of(kind: LeaseKind) -> u32 {
    u32::from(kind == LeaseKind::Shared)
}

#[test]
fn clients_that_share_a_server_with_a_session_that_panics_hear_of_its_loss_and_go_on() {
    for word in ["panic late", "panic back"] {
        let harness = Harness::open(LeaseKind::Shared);
        let (mut waiting, mut unlucky) = (harness.client(), harness.client());
        assert_eq!(waiting.ask("before"), "before");
        assert_eq!(unlucky.ask("before"), "before");
        // In the same batch the server answers both, and its session panics at the first.
        unlucky.say(word);
        waiting.say("slow");
        unlucky.last_words();
        let answer = waiting.hear();
        assert!(answer == "server lost" || answer == "slow", "{word}: {answer}");
        for n in 0..20 {
            assert_eq!(waiting.ask(&format!("line {n}")), format!("line {n}"), "{word}");
        }
        assert_eq!(harness.handle.snapshot().session_panics, 1);
    }
}

#[test]
fn a_session_that_panics_when_its_client_goes_takes_only_its_server_along() {
    for kind in KINDS {
        let harness = Harness::open(kind);
        let mut other = harness.client();
        assert_eq!(other.ask("before"), "before");
        let mut unlucky = harness.client();
        assert_eq!(unlucky.ask("panic gone"), "panic gone");
        unlucky.say("slow");
        harness.eventually("it works", |seen| seen.listeners[0].active == 1);
        drop(unlucky);
        harness.eventually("it has gone", |seen| seen.session_panics > 0 && seen.pools[0].clients == 1);
        assert_eq!(other.ask("after"), "after");
    }
}

#[test]
fn a_session_that_panics_when_it_hears_of_a_loss_is_the_only_one_to_end() {
    for kind in KINDS {
        let harness = Harness::open(kind);
        let (mut other, mut unlucky) = (harness.client(), harness.client());
        assert_eq!(other.ask("before"), "before");
        unlucky.say("panic lost");
        assert_eq!(unlucky.last_words(), "");
        assert_eq!(other.ask("after"), "after", "{kind:?}");
        harness.eventually("it has gone", |seen| seen.session_panics > 0 && seen.pools[0].clients == 1);
    }
}

#[test]
fn many_sessions_that_panic_leave_nothing_behind() {
    for kind in KINDS {
        let harness = Harness::open(kind);
        let words = ["panic early", "panic granted", "panic late", "panic back", "panic gone", "panic lost", "die"];
        thread::scope(|scope| {
            for visitor in 0..8 {
                let harness = &harness;
                scope.spawn(move || {
                    for n in 0..60 {
                        let mut client = harness.client();
                        client.say(&format!("line {n}"));
                        client.say(words[(visitor * 5 + n * 3) % words.len()]);
                        client.0.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
                        client.last_words();
                    }
                });
            }
        });
        harness.eventually("nothing is left", |seen| {
            let pool = &seen.pools[0];
            pool.clients == 0 && pool.counts.waiters == 0 && pool.counts.in_use <= usize_of(kind)
        });
        assert_eq!(harness.client().ask("still here"), "still here");
    }
}
