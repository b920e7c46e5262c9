//! What drivers tell of their own pools, made up as files: scrapes of HikariCP's metrics and events of a driver of
//! MongoDB, one for each symptom, and healthy ones that resemble them.

use doctor::Symptom;

#[path = "drivers/scrapes.rs"]
mod scrapes;

use scrapes::{EVERY_S, Hikari, MAX, found, quiet, read, scrapes, used};

#[test]
fn a_pool_that_is_used_a_little_is_healthy_and_what_cannot_be_seen_is_said() {
    let text = scrapes(30, quiet);
    assert_eq!(found(&text), (vec![], vec![]));
    let said = read(&text).unwrap().text(str::to_owned);
    assert!(
        said.starts_with("Looked at 1 pool of HikariCP for 145 s.\n") && said.contains("the database knows"),
        "{said}"
    );
}

/// At first two are taken, then all, and others wait; a use takes so long at first and then.
fn filling(light_ms: f64, full_ms: f64) -> impl Fn(u64) -> Hikari {
    move |n| {
        let (light, full) = (n.min(10), n.saturating_sub(10));
        let (calm, busy) = (light * used(2, light_ms), full * used(MAX, full_ms));
        let used_s = (calm as f64 * light_ms + busy as f64 * full_ms) / 1e3;
        let active = if n <= 10 { 2 } else { MAX };
        Hikari { active, pending: if n <= 10 { 0 } else { 6 }, used: calm + busy, used_s, timeouts: full, ..quiet(n) }
    }
}

#[test]
fn threads_that_wait_for_a_database_with_time_to_spare_need_a_larger_pool() {
    let text = scrapes(30, filling(20.0, 20.0));
    assert_eq!(found(&text), (vec![Symptom::PoolTooSmall], vec![]));
    let advice = &read(&text).unwrap().findings[0].advice;
    assert!(advice.contains("`poolhouse doctor postgres://...`"), "it cannot see whether connections work: {advice}");
    let setting = read(&text).unwrap().findings[0].setting.clone().unwrap();
    assert_eq!((setting.key, setting.from.as_deref(), setting.to.as_str()), ("maximumPoolSize", Some("10"), "16"));
    assert!(read(&text).unwrap().findings[0].evidence[0].ends_with("; 19 gave up"), "{:?}", read(&text));
    // Twice as long, and no load in between.
    let both = vec![vec![Symptom::PoolTooSmall, Symptom::ServerSaturated]];
    assert_eq!(found(&scrapes(30, filling(20.0, 40.0))), (vec![], both));
}

#[test]
fn work_that_gets_slower_the_more_of_it_there_is_is_a_saturated_database() {
    assert_eq!(found(&scrapes(60, slowing(0.005))), (vec![Symptom::ServerSaturated], vec![]));
}

/// More and more are taken, and each of them adds so many seconds to a use.
fn slowing(each_s: f64) -> impl Fn(u64) -> Hikari {
    move |n| {
        let taken = [2, 4, 6, 8, 10];
        let before = |n: u64| taken[(n as usize / 6).min(4)];
        let use_s = |n: u64| each_s * before(n) as f64;
        let uses = |n: u64| used(before(n), use_s(n) * 1e3);
        let used_s = (0..n).map(|n| uses(n) as f64 * use_s(n)).sum();
        let active = before(n.saturating_sub(1));
        Hikari { active, pending: if active == MAX { 5 } else { 0 }, used: (0..n).map(uses).sum(), used_s, ..quiet(n) }
    }
}

/// All are taken and others wait, and so many come back in a second after less than a millisecond each, of which
/// HikariCP makes nothing.
fn fleeting(a_second: u64) -> impl Fn(u64) -> Hikari {
    move |n| Hikari { active: MAX, pending: 6, used: n * EVERY_S * a_second, used_s: 0.0, ..quiet(n) }
}

#[test]
fn connections_that_come_back_within_a_millisecond_do_come_back() {
    let both = vec![vec![Symptom::PoolTooSmall, Symptom::ServerSaturated]];
    for a_second in [11_000, 40_000] {
        assert_eq!(found(&scrapes(100, fleeting(a_second))), (vec![], both.clone()), "{a_second}");
    }
}

#[test]
fn what_whole_milliseconds_do_not_tell_is_not_decided_by_them() {
    let both = vec![vec![Symptom::PoolTooSmall, Symptom::ServerSaturated]];
    for (light_ms, full_ms) in [(0.0, 0.0), (0.5, 0.6), (1.0, 2.2)] {
        let text = scrapes(30, filling(light_ms, full_ms));
        assert_eq!(found(&text), (vec![], both.clone()), "{light_ms} {full_ms}");
        assert!(read(&text).unwrap().undecided[0].needs.contains("less than a millisecond"), "{light_ms} {full_ms}");
    }
    assert_eq!(found(&scrapes(30, filling(3.0, 3.1))), (vec![Symptom::PoolTooSmall], vec![]));
    assert_eq!(found(&scrapes(60, slowing(0.0002))), (vec![], both));
    assert_eq!(found(&scrapes(60, slowing(0.0005))), (vec![Symptom::ServerSaturated], vec![]));
}

#[test]
fn connections_that_are_idle_while_threads_wait_are_no_other_limit() {
    // As HikariCP shows a pool that hands over more often than it is at rest.
    let handing = |n: u64| Hikari { active: 3 + n % 4, pending: 20, ..fleeting(11_000)(n) };
    let both = vec![vec![Symptom::PoolTooSmall, Symptom::ServerSaturated]];
    assert_eq!(found(&scrapes(30, handing)), (vec![], both));
}

#[test]
fn connections_that_never_come_back_are_a_leak_once_no_statement_can_take_so_long() {
    let leaking =
        |n: u64| Hikari { active: 8, pending: n % 2, used: n * 50, used_s: n as f64 * 0.5, timeouts: n, ..quiet(n) };
    let short = found(&scrapes(30, leaking));
    assert_eq!(short, (vec![], vec![vec![Symptom::Leak, Symptom::ServerSaturated]]));
    let text = scrapes(100, leaking);
    assert_eq!(found(&text), (vec![Symptom::Leak], vec![]));
    assert_eq!(read(&text).unwrap().findings[0].setting.as_ref().unwrap().key, "leakDetectionThreshold");
    // As many are taken, and come back.
    let working = |n: u64| Hikari { active: 8, used: n * 400, used_s: n as f64 * 40.0, ..quiet(n) };
    assert_eq!(found(&scrapes(100, working)), (vec![], vec![]));
}

#[test]
fn idle_connections_that_are_closed_before_each_burst_are_churn() {
    let churning = |min: u64| {
        move |n: u64| {
            let (round, phase) = (n / 10, n % 10);
            let (total, active) = if phase < 5 { (10, 7) } else { (min, 0) };
            Hikari {
                active,
                total,
                min,
                made: 10 + (10 - min) * round,
                used: round * 2_000,
                used_s: round as f64 * 30.0,
                ..quiet(n)
            }
        }
    };
    let text = scrapes(60, churning(2));
    assert_eq!(found(&text), (vec![Symptom::IdleChurn], vec![]));
    let setting = read(&text).unwrap().findings[0].setting.clone().unwrap();
    assert_eq!((setting.key, setting.from.as_deref(), setting.to.as_str()), ("minimumIdle", Some("2"), "7"));
    assert_eq!(found(&scrapes(15, churning(2))), (vec![], vec![]), "a deployment does that once");
    // None of the looks meets a burst.
    let text = scrapes(60, |n| Hikari { active: 0, ..churning(2)(n) });
    let setting = read(&text).unwrap().findings[0].setting.clone().unwrap();
    assert_eq!((setting.key, setting.from.as_deref(), setting.to.as_str()), ("minimumIdle", Some("2"), "10"));
}

#[test]
fn a_pool_without_a_connection_is_out_of_reach() {
    let down = |n: u64| Hikari { active: 0, total: 0, pending: 7, used: 0, used_s: 0.0, timeouts: n * 3, ..quiet(n) };
    let text = scrapes(30, down);
    assert_eq!(found(&text), (vec![Symptom::OutOfReach], vec![]));
    let evidence = read(&text).unwrap().findings[0].evidence.concat();
    assert!(evidence.contains("gave up") && evidence.contains("could not be"), "{evidence}");
    // Each look meets a moment at which nobody waits.
    assert_eq!(found(&scrapes(30, |n| Hikari { pending: 0, ..down(n) })), (vec![Symptom::OutOfReach], vec![]));
}

#[test]
fn a_process_that_was_restarted_begins_anew() {
    let restarted = |n: u64| Hikari { used: if n < 20 { n * 500 } else { (n - 20) * 500 }, ..quiet(n) };
    assert_eq!(read(&scrapes(30, restarted)).unwrap().window_s, 45.0);
}

/// Without the times in front of the scrapes.
fn untimed(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('1')).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_restart_in_scrapes_that_only_the_process_times_begins_anew() {
    // What the new process has done was soon more than the old one had.
    let text: String = (0..30u64)
        .map(|n| {
            let uptime = if n < 20 { 1_000 + n * EVERY_S } else { 1 + (n - 20) * EVERY_S };
            format!(
                "process_uptime_seconds {uptime}.5\n{}",
                untimed(&scrapes(n + 1, quiet).split_off(scrapes(n, quiet).len()))
            )
        })
        .collect();
    assert_eq!(read(&text).unwrap().window_s, 45.0);
}

#[test]
fn two_replicas_in_each_scrape_are_two_pools() {
    let one = untimed(&scrapes(1, quiet));
    let labelled = |name: &str| {
        let pools = one.replace("pool=\"shop\",", &format!("instance=\"{name}\",pool=\"shop\""));
        format!("{pools}process_uptime_seconds{{instance=\"{name}\"}} 7\n")
    };
    let text: String =
        (0..9u64).map(|n| format!("{}\n{}{}", 1_795_670_000 + n, labelled("a"), labelled("b"))).collect();
    assert!(read(&text).unwrap().looked_at.starts_with("2 pools"), "{:?}", read(&text));
}

#[test]
fn a_pool_that_does_not_tell_what_comes_back_is_no_leak() {
    let busy = |n: u64| Hikari { active: MAX, pending: n % 2, ..quiet(n) };
    let text: String =
        scrapes(100, busy).lines().filter(|line| !line.contains("_usage_")).map(|line| format!("{line}\n")).collect();
    assert_eq!(found(&text), (vec![], vec![vec![Symptom::PoolTooSmall, Symptom::ServerSaturated]]));
    assert!(read(&text).unwrap().unseen.iter().any(|unseen| unseen.contains("usage_seconds is lacking")));
}

#[test]
fn files_that_are_none_are_errors_in_words() {
    let text = scrapes(30, quiet);
    let without = untimed(&text);
    let backwards = format!("{text}5\n{}", text.split_once('\n').unwrap().1);
    let (few, many) = (scrapes(2, quiet), scrapes(6_000, quiet));
    for (text, part) in [
        (without.as_str(), "scrape 1 does not say when it was"),
        (
            "5\nhikaricp_connections{pool=\"a\"} 10\nhikaricp_active_connections{pool=\"a\"} 9\n",
            "those that Micrometer gives",
        ),
        (backwards.as_str(), "is from before the one in front of it"),
        ("# HELP up\nup 1.0\n", "nothing of HikariCP's"),
        ("5\n", "nothing of HikariCP's"),
        (few.as_str(), "only 2 looks"),
        (many.as_str(), "more than 5000 scrapes"),
        ("{}\n{}\n", "no event in it"),
        ("nonsense\n", "does not begin like a recording"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // What the application tells of its own time will do.
    let up: String =
        (0..10u64).map(|n| format!("process_uptime_seconds {}\n{}", n * 5, untimed(&scrapes(1, quiet)))).collect();
    assert_eq!(read(&up).unwrap().window_s, 45.0);
}

// -- events

/// Writes events in the order of their time.
struct Log(Vec<(f64, String)>);

impl Log {
    fn new(most: u64, least: u64) -> Self {
        Self(vec![(0.0, format!(r#""event":"poolCreated","options":{{"maxPoolSize":{most},"minPoolSize":{least}}}"#))])
    }

    fn at(&mut self, at: f64, event: &str, connection: Option<u64>, reason: &str) {
        let connection = connection.map_or(String::new(), |id| format!(r#","connectionId":{id}"#));
        let reason = if reason.is_empty() { String::new() } else { format!(r#","reason":"{reason}""#) };
        self.0.push((at, format!(r#""event":"{event}"{connection}{reason}"#)));
    }

    fn made(&mut self, at: f64, connection: u64) {
        self.at(at, "connectionCreated", Some(connection), "");
        self.at(at + 0.01, "connectionReady", Some(connection), "");
    }

    /// Waits from `at` on, and has the connection from `from` to `to`.
    fn used(&mut self, at: f64, connection: u64, from: f64, to: f64) {
        self.at(at, "connectionCheckOutStarted", None, "");
        self.at(from, "connectionCheckedOut", Some(connection), "");
        self.at(to, "connectionCheckedIn", Some(connection), "");
    }

    fn text(mut self) -> String {
        self.0.sort_by(|a, b| a.0.total_cmp(&b.0));
        let line = |(at, event): (f64, String)| {
            format!("{{\"time\":{},\"address\":\"db:27017\",{event}}}\n", 1_795_670_000.0 + at)
        };
        self.0.into_iter().map(line).collect()
    }
}

/// Two of five connections are used, each for 50 ms in 100; one of them at each half second.
fn calm(log: &mut Log, until: f64) {
    (0..5).for_each(|id| log.made(0.0, id));
    for id in 0..2 {
        let mut at = 0.07 + id as f64 * 0.03;
        while at < until {
            log.used(at, id, at + 0.001, at + 0.05);
            at += 0.1;
        }
    }
}

#[test]
fn events_of_a_pool_that_is_used_a_little_are_healthy() {
    let mut log = Log::new(5, 0);
    calm(&mut log, 60.0);
    let text = log.text();
    assert_eq!(found(&text), (vec![], vec![]));
    let said = read(&format!("{{\"message\":\"something else\"}}\n{text}")).unwrap().text(str::to_owned);
    assert!(said.starts_with("Looked at 1 pool of a driver of MongoDB for 60 s.\n"), "{said}");
}

#[test]
fn operations_that_wait_although_each_is_fast_need_a_larger_pool() {
    let mut log = Log::new(5, 0);
    calm(&mut log, 30.0);
    // Ten who ask again and again, of which five wait for their turn.
    for turn in 0..600u64 {
        let at = 30.02 + turn as f64 * 0.05;
        (0..5).for_each(|id| log.used(at - 0.03, id, at, at + 0.0499));
    }
    let text = log.text();
    assert_eq!(found(&text).0, [Symptom::PoolTooSmall], "{:?}", read(&text));
    let setting = read(&text).unwrap().findings[0].setting.clone().unwrap();
    assert_eq!((setting.key, setting.from.as_deref()), ("maxPoolSize", Some("5")));
}

#[test]
fn connections_that_are_never_checked_in_are_a_leak() {
    let mut log = Log::new(5, 0);
    calm(&mut log, 400.0);
    for id in 2..5 {
        log.at(0.05, "connectionCheckOutStarted", None, "");
        log.at(0.05, "connectionCheckedOut", Some(id), "");
    }
    for n in 0..20 {
        log.at(10.0 + n as f64 * 15.0, "connectionCheckOutStarted", None, "");
        log.at(20.0 + n as f64 * 15.0, "connectionCheckOutFailed", None, "timeout");
    }
    assert_eq!(found(&log.text()), (vec![Symptom::Leak], vec![]));
}

#[test]
fn connections_that_are_no_longer_checked_in_one_after_the_other_are_a_leak() {
    let mut log = Log::new(6, 0);
    calm(&mut log, 480.0);
    for id in 2..6 {
        let at = (id - 1) as f64 * 30.0 + 0.05;
        log.at(at, "connectionCheckOutStarted", None, "");
        log.at(at, "connectionCheckedOut", Some(id), "");
    }
    for n in 0..20 {
        log.at(150.0 + n as f64 * 15.0, "connectionCheckOutStarted", None, "");
        log.at(160.0 + n as f64 * 15.0, "connectionCheckOutFailed", None, "timeout");
    }
    assert_eq!(found(&log.text()), (vec![Symptom::Leak], vec![]));
}

#[test]
fn connections_that_a_process_had_when_it_was_killed_are_no_leak_of_the_next_one() {
    let mut log = Log::new(5, 0);
    for id in 0..4 {
        log.at(0.05, "connectionCheckOutStarted", None, "");
        log.at(0.05, "connectionCheckedOut", Some(id), "");
    }
    log.0.push((10.0, r#""event":"poolCreated","options":{"maxPoolSize":5}"#.to_owned()));
    for n in 0..4_000 {
        let at = 10.1 + n as f64 * 0.1;
        log.used(at, 9, at + 0.001, at + 0.05);
    }
    for n in 0..20 {
        log.at(20.0 + n as f64 * 15.0, "connectionCheckOutStarted", None, "");
        log.at(30.0 + n as f64 * 15.0, "connectionCheckOutFailed", None, "timeout");
    }
    let text = log.text();
    let (findings, undecided) = found(&text);
    assert!(!findings.contains(&Symptom::Leak) && !undecided.concat().contains(&Symptom::Leak), "{:?}", read(&text));
    assert!((399.0..401.0).contains(&read(&text).unwrap().window_s), "it begins anew");
}

#[test]
fn connections_that_idleness_ends_before_each_burst_are_churn() {
    let mut log = Log::new(20, 0);
    for burst in 0..6u64 {
        let at = burst as f64 * 20.0;
        for n in 0..8u64 {
            let id = burst * 8 + n;
            log.made(at, id);
            for use_ in 0..20u64 {
                let from = at + 0.1 + use_ as f64 * 0.2;
                log.used(from, id, from, from + 0.1);
            }
            log.at(at + 12.0, "connectionClosed", Some(id), "idle");
        }
    }
    let text = log.text();
    assert_eq!(found(&text), (vec![Symptom::IdleChurn], vec![]));
    let finding = &read(&text).unwrap().findings[0];
    assert_eq!(finding.setting.as_ref().unwrap().key, "minPoolSize");
    assert!(finding.evidence.iter().any(|seen| seen.contains("had been idle")), "{finding:?}");
}

#[test]
fn a_server_that_is_gone_is_out_of_reach() {
    let mut log = Log::new(5, 0);
    for n in 0..60 {
        let at = n as f64 * 0.5;
        log.at(at, "connectionCheckOutStarted", None, "");
        log.at(at, "connectionCreated", Some(n), "");
        log.at(at + 0.2, "connectionClosed", Some(n), "error");
        if n < 20 {
            log.at(at + 10.0, "connectionCheckOutFailed", None, "connectionError");
        }
    }
    let text = log.text();
    assert_eq!(found(&text), (vec![Symptom::OutOfReach], vec![]));
    assert!(read(&text).unwrap().findings[0].evidence[1].contains("20 gave up or failed"));
}

#[test]
fn a_file_of_days_is_read_in_longer_steps_and_one_of_ages_is_refused() {
    let mut log = Log::new(5, 0);
    for hour in 0..48u64 {
        let at = hour as f64 * 3_600.0;
        log.used(at, 0, at, at + 0.1);
    }
    let text = log.text();
    let (least, most) = (47.0 * 3_600.0, 47.0 * 3_600.0 + 1.0);
    let lasts = read(&text).unwrap().window_s;
    assert!((least..=most).contains(&lasts), "{lasts}");
    // As it is with many pools, of which fewer looks are kept.
    let of_all = |line: &str| (0..150).map(|n| line.replace("db:", &format!("db{n}:")) + "\n").collect::<String>();
    let lasts = read(&text.lines().map(of_all).collect::<String>()).unwrap();
    assert!((least..=most).contains(&lasts.window_s) && lasts.pools == 150, "{lasts:?}");
    let ages = "{\"event\":\"poolReady\",\"time\":1}\n{\"event\":\"poolReady\",\"time\":90000000000}\n";
    assert!(read(ages).unwrap_err().contains("too long"));
}

#[test]
fn whatever_stands_in_a_file_is_read_or_is_an_error() {
    let mut log = Log::new(5, 0);
    calm(&mut log, 8.0);
    let mut random = 1u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let values = [
        "-1",
        "1e400",
        "NaN",
        "18446744073709551615",
        "null",
        "\"",
        "{",
        "}",
        "",
        "hikaricp_connections",
        "0.0000001",
        "é",
    ];
    for whole in [scrapes(12, leaky), log.text()] {
        for _ in 0..400 {
            let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
            for _ in 0..=next() % 4 {
                let line = next() as usize % lines.len();
                let mut words: Vec<String> =
                    lines[line].split_inclusive([' ', ',', ':', '=']).map(str::to_owned).collect();
                if !words.is_empty() {
                    let word = next() as usize % words.len();
                    words[word] = values[next() as usize % values.len()].to_owned();
                }
                lines[line] = words.concat();
            }
            if let Ok(diagnosis) = read(&lines.join("\n")) {
                assert!(!diagnosis.text(str::to_owned).is_empty());
            }
        }
    }
}

fn leaky(n: u64) -> Hikari {
    Hikari { active: 9, pending: 3, timeouts: n, ..quiet(n) }
}
