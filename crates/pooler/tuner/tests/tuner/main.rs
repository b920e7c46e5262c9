//! The tuner on virtual databases whose best size is known, in virtual time: how much throughput it gives away once it
//! has found a size, and how often it changes the pool. `docs/tuning.md` has the table that the ignored test prints.

mod closed;
mod database;
mod judge;

use std::thread;

use closed::{Clients, Work};
use database::{Course, Database, Noise, Weather};
use judge::{Judged, judged};

const SEEDS: u64 = 100;

/// The databases that the tuner is judged by. Noise is the coefficient of variation of the throughput of a window of 4
/// s.
fn databases() -> Vec<Database> {
    let usual = Noise { window: 0.03, weather: Weather::Fair };
    let of = |name, course, noise| Database { name, course, noise, clients: 100, moves: None };
    let law = |alpha, beta| Course::Law(1000.0, alpha, beta);
    let lock = law(0.5, 0.15);
    let stalls = Noise { weather: Weather::Stalls { every_s: 120.0, lasts_s: 6.0 }, ..usual };
    let shared = Noise { weather: Weather::Shared { share: 0.7, lasts_s: 40.0 }, ..usual };
    vec![
        of("row lock: best at 2", lock, usual),
        of("peak at 10", law(0.02, 1e-2), usual),
        of("peak at 32", law(0.0, 1e-3), usual),
        of("knee at 4", Course::Knee(4), usual),
        of("knee at 16", Course::Knee(16), usual),
        of("knee at 48", Course::Knee(48), usual),
        of("rises to the end", Course::Power(0.8), usual),
        of("rises slowly", Course::Power(0.2), usual),
        of("cliff at 30", Course::Cliff { knee: 24, from: 30, share: 0.5 }, usual),
        of("flat", Course::Flat, usual),
        of("row lock, noise of 8%", lock, Noise { window: 0.08, ..usual }),
        of("peak at 32, noise of 8%", law(0.0, 1e-3), Noise { window: 0.08, ..usual }),
        of("knee at 16, noise of 8%", Course::Knee(16), Noise { window: 0.08, ..usual }),
        of("flat, noise of 8%", Course::Flat, Noise { window: 0.08, ..usual }),
        of("knee at 16, stalls", Course::Knee(16), stalls),
        of("row lock, stalls", lock, stalls),
        of("knee at 16, shared machine", Course::Knee(16), shared),
        Database { moves: Some(Course::Knee(32)), ..of("knee moves from 8 to 32", Course::Knee(8), usual) },
        Database { moves: Some(lock), ..of("knee at 32, then a row lock", Course::Knee(32), usual) },
        Database { clients: 24, ..of("row lock, 24 clients", lock, usual) },
    ]
}

/// All of them judged, at the same time.
fn all() -> Vec<Judged> {
    let databases = databases();
    thread::scope(|scope| {
        let threads: Vec<_> = databases.iter().map(|database| scope.spawn(move || judged(database, SEEDS))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a judge")).collect()
    })
}

/// What 100 courses of each come to: regret at most 5% in the mean and in 95 of them, and changes of size bounded.
#[test]
fn a_found_size_loses_at_most_a_twentieth() {
    let all = all();
    all.iter().for_each(|judged| println!("{}", judged.line()));
    for judged in all {
        assert!(judged.found == SEEDS, "found in {} of {SEEDS}: {}", judged.found, judged.line());
        assert!(judged.mean_regret() <= 0.05 && judged.regret(0.95) <= 0.05, "{}", judged.line());
        assert!(judged.changes_an_hour(1.0) <= 120.0, "{}", judged.line());
    }
}

/// Clients come at a rate that the pool has room for. No client waits, and the tuner leaves the pool alone.
#[test]
fn an_open_loop_below_capacity_causes_no_change() {
    for (course, rate) in [(Course::Knee(16), 200.0), (Course::Law(100.0, 0.5, 0.15), 10.0), (Course::Flat, 100.0)] {
        for seed in 1..=20 {
            let judged = judge::open(course, rate, 20, seed);
            assert_eq!((judged.size, judged.changes), (20, 0), "{course:?} at {rate}/s, seed {seed}");
        }
    }
}

/// Clients come faster than the pool lets them: it is made as large as they need, and then left alone.
#[test]
fn an_open_loop_beyond_the_capacity_of_a_small_pool_gets_enough_servers() {
    for seed in 1..=20 {
        // 8 servers do 200/s, and 300/s come: 12 are needed at least.
        let judged = judge::open(Course::Knee(40), 300.0, 8, seed);
        assert!(judged.size > 12 && judged.changes < 300, "{judged:?}, seed {seed}");
        assert!(judged.waiting < 0.8, "{judged:?}, seed {seed}");
    }
}

/// Transactions that all take 5, 9 or 14 s, on a database that does the more the more servers there are: with windows
/// of 4 s, what ends while one size has its turn began while the other one had its own.
#[test]
fn transactions_longer_than_a_window_do_not_mislead_the_tuner() {
    for (took_s, seed) in [(5.0, 1), (9.0, 2), (14.0, 3)] {
        let course = Course::Law(1.0 / took_s, 0.0, 0.0);
        let judged = judge::closed(Clients::new(course, Work::Same, 100, seed), 4, None);
        let is_best = judged.throughput > 0.95 * course.best(1..=60);
        assert!(is_best && judged.size > 40, "{judged:?} with transactions of {took_s} s");
    }
}

/// Jobs of 20 minutes, of which in most windows none ends: with any size as many as with any other.
#[test]
fn with_hardly_any_ended_holds_fewer_servers_do_not_do_as_much() {
    for (work, seed) in [(Work::Same, 1), (Work::Drawn, 2), (Work::Drawn, 3)] {
        let clients = || Clients::new(Course::Law(1.0 / 1200.0, 0.0, 0.0), work, 100, seed);
        let (tuned, fixed) = (judge::closed(clients(), 24, None), judge::closed(clients(), 24, Some(20)));
        // A trial of 16 servers, which takes hours, costs a tenth meanwhile.
        assert!(tuned.throughput > 0.85 * fixed.throughput, "{tuned:?} beside {fixed:?}, seed {seed}");
    }
}

#[test]
#[ignore = "prints the table of docs/tuning.md: cargo test -p tuner --release --test tuner -- --ignored --nocapture table"]
fn table() {
    println!("{}", Judged::HEAD);
    all().iter().for_each(|judged| println!("{}", judged.line()));
}
