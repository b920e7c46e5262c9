//! Files about drivers' own pools, one for each symptom, and healthy ones that resemble them: scrapes of HikariCP's
//! metrics, and events of a driver of MongoDB.

use doctor::Symptom;

use crate::{
    scrapes::{Hikari, INTERVAL_S, MAX, found, quiet, read, scrapes, used},
    support::{Random, setting},
};

const SMALL_OR_SATURATED: [Symptom; 2] = [Symptom::PoolTooSmall, Symptom::ServerSaturated];
const LEAK_OR_SATURATED: [Symptom; 2] = [Symptom::Leak, Symptom::ServerSaturated];

/// At first two are taken, then all, and others wait; a use takes so long at first and then.
fn filling(light_ms: f64, full_ms: f64) -> impl Fn(u64) -> Hikari {
    move |n| {
        let (light, full) = (n.min(10), n.saturating_sub(10));
        let (calm, busy) = (light * used(2, light_ms), full * used(MAX, full_ms));
        let used_s = (calm as f64 * light_ms + busy as f64 * full_ms) / 1e3;
        let (active, pending) = if n <= 10 { (2, 0) } else { (MAX, 6) };
        Hikari { active, pending, used: calm + busy, used_s, timeouts: full, ..quiet(n) }
    }
}

/// More and more are taken, and each of them makes a use longer.
fn slowing(each_s: f64) -> impl Fn(u64) -> Hikari {
    move |n| {
        let taken = |n: u64| [2, 4, 6, 8, 10][(n as usize / 6).min(4)];
        let use_s = |n: u64| each_s * taken(n) as f64;
        let uses = |n: u64| used(taken(n), use_s(n) * 1e3);
        let used_s = (0..n).map(|n| uses(n) as f64 * use_s(n)).sum();
        let active = taken(n.saturating_sub(1));
        Hikari { active, pending: if active == MAX { 5 } else { 0 }, used: (0..n).map(uses).sum(), used_s, ..quiet(n) }
    }
}

/// All are taken and others wait, and `a_second` come back in a second after less than a millisecond each, of which
/// HikariCP makes nothing.
fn fleeting(a_second: u64) -> impl Fn(u64) -> Hikari {
    move |n| Hikari { active: MAX, pending: 6, used: n * INTERVAL_S * a_second, used_s: 0.0, ..quiet(n) }
}

fn leaking(n: u64) -> Hikari {
    Hikari { active: 8, pending: n % 2, used: n * 50, used_s: n as f64 * 0.5, timeouts: n, ..quiet(n) }
}

/// The pool grows for each burst, and shrinks to `min` after it.
fn churning(min: u64) -> impl Fn(u64) -> Hikari {
    move |n| {
        let (round, phase) = (n / 10, n % 10);
        let (total, active) = if phase < 5 { (10, 7) } else { (min, 0) };
        let (used, used_s) = (round * 2_000, round as f64 * 30.0);
        Hikari { active, total, min, made: 10 + (10 - min) * round, used, used_s, ..quiet(n) }
    }
}

fn down(n: u64) -> Hikari {
    Hikari { active: 0, total: 0, pending: 7, used: 0, used_s: 0.0, timeouts: n * 3, ..quiet(n) }
}

#[test]
fn each_symptom_of_hikaricp_is_told_from_what_resembles_it() {
    let cases: Vec<(&str, String, &[Symptom], &[Symptom])> = vec![
        ("a pool that is used a little", scrapes(30, quiet), &[], &[]),
        (
            "work that takes as long under the full load",
            scrapes(30, filling(20.0, 20.0)),
            &[Symptom::PoolTooSmall],
            &[],
        ),
        ("twice as long, and no load in between", scrapes(30, filling(20.0, 40.0)), &[], &SMALL_OR_SATURATED),
        ("work that gets slower", scrapes(60, slowing(0.005)), &[Symptom::ServerSaturated], &[]),
        // Connections that come back within a millisecond do come back.
        ("uses of no time", scrapes(100, fleeting(11_000)), &[], &SMALL_OR_SATURATED),
        ("many uses of no time", scrapes(100, fleeting(40_000)), &[], &SMALL_OR_SATURATED),
        ("just longer", scrapes(30, filling(3.0, 3.1)), &[Symptom::PoolTooSmall], &[]),
        ("slower by parts of a millisecond", scrapes(60, slowing(0.0002)), &[], &SMALL_OR_SATURATED),
        ("slower by milliseconds", scrapes(60, slowing(0.0005)), &[Symptom::ServerSaturated], &[]),
        // As HikariCP shows a pool that hands over more often than it is at rest: that is no other limit.
        (
            "idle connections while threads wait",
            scrapes(30, |n| Hikari { active: 3 + n % 4, pending: 20, ..fleeting(11_000)(n) }),
            &[],
            &SMALL_OR_SATURATED,
        ),
        ("a leak, or a long statement", scrapes(30, leaking), &[], &LEAK_OR_SATURATED),
        ("a leak of a longer time than any statement", scrapes(100, leaking), &[Symptom::Leak], &[]),
        (
            "as many that are taken and come back",
            scrapes(100, |n| Hikari { active: 8, used: n * 400, used_s: n as f64 * 40.0, ..quiet(n) }),
            &[],
            &[],
        ),
        ("idle connections closed before each burst", scrapes(60, churning(2)), &[Symptom::IdleChurn], &[]),
        ("a deployment, which closes them once", scrapes(15, churning(2)), &[], &[]),
        ("a pool without a connection", scrapes(30, down), &[Symptom::OutOfReach], &[]),
        (
            "looks that meet no waiting thread",
            scrapes(30, |n| Hikari { pending: 0, ..down(n) }),
            &[Symptom::OutOfReach],
            &[],
        ),
    ];
    for (what, text, findings, undecided) in cases {
        let undecided: Vec<_> = Some(undecided.to_vec()).filter(|between| !between.is_empty()).into_iter().collect();
        assert_eq!(found(&text), (findings.to_vec(), undecided), "{what}");
    }
}

#[test]
fn findings_about_hikaricp_tell_what_was_seen_and_what_was_not() {
    let healthy = read(&scrapes(30, quiet)).unwrap().text(str::to_owned);
    let heading = "Looked at 1 pool of HikariCP for 145 s.\n";
    assert!(healthy.starts_with(heading) && healthy.contains("the database knows"), "{healthy}");
    let small = read(&scrapes(30, filling(20.0, 20.0))).unwrap();
    assert!(small.findings[0].advice.contains("`poolhouse doctor postgres://...`"), "{small:?}");
    assert!(small.findings[0].evidence[0].ends_with("; 19 gave up"), "{small:?}");
    assert_eq!(setting(&small), Some(("maximumPoolSize", Some("10"), "16")));
    assert_eq!(setting(&read(&scrapes(100, leaking)).unwrap()).unwrap().0, "leakDetectionThreshold");
    assert_eq!(setting(&read(&scrapes(60, churning(2))).unwrap()), Some(("minimumIdle", Some("2"), "7")));
    let unmet = scrapes(60, |n| Hikari { active: 0, ..churning(2)(n) });
    let unmet = read(&unmet).unwrap();
    assert_eq!(setting(&unmet), Some(("minimumIdle", Some("2"), "10")), "no look meets a burst");
    let evidence = read(&scrapes(30, down)).unwrap().findings[0].evidence.concat();
    assert!(evidence.contains("gave up") && evidence.contains("could not be"), "{evidence}");
}

#[test]
fn what_whole_milliseconds_do_not_tell_is_not_decided_by_them() {
    for (light_ms, full_ms) in [(0.0, 0.0), (0.5, 0.6), (1.0, 2.2)] {
        let text = scrapes(30, filling(light_ms, full_ms));
        assert_eq!(found(&text), (vec![], vec![SMALL_OR_SATURATED.to_vec()]), "{light_ms} {full_ms}");
        assert!(read(&text).unwrap().undecided[0].needs.contains("less than a millisecond"), "{light_ms} {full_ms}");
    }
}

/// Without the times in front of the scrapes.
fn untimed(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('1')).map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_process_that_was_restarted_begins_anew() {
    let restarted = |n: u64| Hikari { used: if n < 20 { n * 500 } else { (n - 20) * 500 }, ..quiet(n) };
    assert_eq!(read(&scrapes(30, restarted)).unwrap().window_s, 45.0);
    // In scrapes that only the process times: what the new one has done was soon more than the old one had.
    let scrape = |n: u64| {
        let uptime = if n < 20 { 1_000 + n * INTERVAL_S } else { 1 + (n - 20) * INTERVAL_S };
        let last = scrapes(n + 1, quiet).split_off(scrapes(n, quiet).len());
        format!("process_uptime_seconds {uptime}.5\n{}", untimed(&last))
    };
    assert_eq!(read(&(0..30).map(scrape).collect::<String>()).unwrap().window_s, 45.0);
}

#[test]
fn two_replicas_in_each_scrape_are_two_pools() {
    let one = untimed(&scrapes(1, quiet));
    let labelled = |name: &str| {
        let pools = one.replace("pool=\"shop\",", &format!("instance=\"{name}\",pool=\"shop\""));
        format!("{pools}process_uptime_seconds{{instance=\"{name}\"}} 7\n")
    };
    let scrape = |n: u64| format!("{}\n{}{}", 1_795_670_000 + n, labelled("a"), labelled("b"));
    let diagnosis = read(&(0..9).map(scrape).collect::<String>()).unwrap();
    assert!(diagnosis.looked_at.starts_with("2 pools"), "{diagnosis:?}");
}

#[test]
fn a_pool_that_does_not_tell_what_comes_back_is_no_leak() {
    let busy = scrapes(100, |n| Hikari { active: MAX, pending: n % 2, ..quiet(n) });
    let lines = busy.lines().filter(|line| !line.contains("_usage_"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    assert_eq!(found(&text), (vec![], vec![SMALL_OR_SATURATED.to_vec()]));
    assert!(read(&text).unwrap().unseen.iter().any(|unseen| unseen.contains("usage_seconds is lacking")));
}

#[test]
fn other_files_are_errors_in_words() {
    let text = scrapes(30, quiet);
    let without = untimed(&text);
    let backwards = format!("{text}5\n{}", text.split_once('\n').unwrap().1);
    let other_names = "5\nhikaricp_connections{pool=\"a\"} 10\nhikaricp_active_connections{pool=\"a\"} 9\n";
    for (text, part) in [
        (without.as_str(), "scrape 1 does not say when it was"),
        (other_names, "those that Micrometer gives"),
        (&backwards, "is from before the one in front of it"),
        ("# HELP up\nup 1.0\n", "nothing of HikariCP's"),
        ("5\n", "nothing of HikariCP's"),
        (&scrapes(2, quiet), "only 2 looks"),
        (&scrapes(6_000, quiet), "more than 5000 scrapes"),
        ("{}\n{}\n", "no event in it"),
        ("nonsense\n", "does not begin like a recording"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    // A time that the application tells of itself suffices.
    let scrape = |n: u64| format!("process_uptime_seconds {}\n{}", n * 5, untimed(&scrapes(1, quiet)));
    assert_eq!(read(&(0..10).map(scrape).collect::<String>()).unwrap().window_s, 45.0);
}

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

    /// Takes the connection, and never gives it back.
    fn leaked(&mut self, at: f64, connection: u64) {
        self.at(at, "connectionCheckOutStarted", None, "");
        self.at(at, "connectionCheckedOut", Some(connection), "");
    }

    /// Twenty threads wait for 10 s in vain, every 15 s from `at` on.
    fn timeouts(&mut self, at: f64) {
        for n in 0..20 {
            self.at(at + n as f64 * 15.0, "connectionCheckOutStarted", None, "");
            self.at(at + 10.0 + n as f64 * 15.0, "connectionCheckOutFailed", None, "timeout");
        }
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
    // Ten clients that ask again and again, of which five wait for their turn.
    for turn in 0..600u64 {
        let at = 30.02 + turn as f64 * 0.05;
        (0..5).for_each(|id| log.used(at - 0.03, id, at, at + 0.0499));
    }
    let text = log.text();
    assert_eq!(found(&text).0, [Symptom::PoolTooSmall], "{:?}", read(&text));
    let diagnosis = read(&text).unwrap();
    assert_eq!(setting(&diagnosis).map(|(key, from, _)| (key, from)), Some(("maxPoolSize", Some("5"))));
}

#[test]
fn connections_that_are_never_checked_in_are_a_leak() {
    let mut log = Log::new(5, 0);
    calm(&mut log, 400.0);
    (2..5).for_each(|id| log.leaked(0.05, id));
    log.timeouts(10.0);
    assert_eq!(found(&log.text()), (vec![Symptom::Leak], vec![]));
    // One after the other.
    let mut log = Log::new(6, 0);
    calm(&mut log, 480.0);
    (2..6).for_each(|id| log.leaked((id - 1) as f64 * 30.0 + 0.05, id));
    log.timeouts(150.0);
    assert_eq!(found(&log.text()), (vec![Symptom::Leak], vec![]));
}

#[test]
fn connections_that_a_process_had_when_it_was_killed_are_no_leak_of_the_next_one() {
    let mut log = Log::new(5, 0);
    (0..4).for_each(|id| log.leaked(0.05, id));
    log.0.push((10.0, r#""event":"poolCreated","options":{"maxPoolSize":5}"#.to_owned()));
    for n in 0..4_000 {
        let at = 10.1 + n as f64 * 0.1;
        log.used(at, 9, at + 0.001, at + 0.05);
    }
    log.timeouts(20.0);
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
fn any_content_of_a_file_is_read_or_is_an_error() {
    let mut log = Log::new(5, 0);
    calm(&mut log, 8.0);
    let mut random = Random::new(1);
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
    for whole in [scrapes(12, leaking), log.text()] {
        for _ in 0..400 {
            let mut lines: Vec<String> = whole.lines().map(str::to_owned).collect();
            for _ in 0..=random.below(4) {
                let line = random.below(lines.len());
                let words = lines[line].split_inclusive([' ', ',', ':', '=']);
                let mut words: Vec<String> = words.map(str::to_owned).collect();
                if !words.is_empty() {
                    let word = random.below(words.len());
                    words[word] = values[random.below(values.len())].to_owned();
                }
                lines[line] = words.concat();
            }
            if let Ok(diagnosis) = read(&lines.join("\n")) {
                assert!(!diagnosis.text(str::to_owned).is_empty());
            }
        }
    }
}
