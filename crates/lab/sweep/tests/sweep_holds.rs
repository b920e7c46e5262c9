//! Whether what a sweep recommends holds tomorrow: whole sweeps of planted databases in virtual time.

use std::time::Duration;

use arrivals::Random;
use load::plan::SweepOptions;
use report::result::sweep::{Verdict, Visit};
use sweep::{
    Probe, ProbeError, measure,
    synthetic::systems,
    verdict::{Generator, verdict},
};

const GENERATOR: Generator = Generator { threads: 1, processors: 2 };

/// A database whose throughput depends on the clients, and on the seconds since the sweep began.
struct Planted<F> {
    course: F,
    noise: f64,
    random: Random,
    now_s: f64,
}

impl<F: Fn(u32, f64) -> f64> Probe for Planted<F> {
    fn measure(&mut self, clients: u32, warmup: Duration, duration: Duration) -> Result<Visit, ProbeError> {
        let slices = (duration.as_secs_f64() * 10.0) as usize;
        let truth = (self.course)(clients, self.now_s);
        self.now_s += (warmup + duration).as_secs_f64();
        let throughput = truth * (1.0 + self.noise * self.random.normal()).max(0.1);
        let slice = |random: &mut Random| throughput * (1.0 + 2.0 * self.noise * random.normal()).max(0.1);
        let slices = (0..slices).map(|_| slice(&mut self.random)).collect();
        Ok(Visit { throughput, p50_ms: Some(f64::from(clients) * 1000.0 / throughput), slices, ..Visit::default() })
    }

    fn now_s(&self) -> f64 {
        self.now_s
    }
}

fn options(to: u32, seed: u64) -> SweepOptions {
    let second = Duration::from_secs(1);
    SweepOptions { from: 1, to, rounds: 7, duration: 3 * second, warmup: second, seed }
}

fn sweep(probe: &mut dyn Probe, options: &SweepOptions) -> Verdict {
    let measured = measure(probe, options, ("planted", "nowhere"), &mut |_| ()).expect("a curve");
    verdict(&measured.curve, GENERATOR, options.seed).expect("something was done")
}

fn planted(course: impl Fn(u32, f64) -> f64, noise: f64, seed: u64) -> Verdict {
    let mut probe = Planted { course, noise, random: Random::new(seed), now_s: 0.0 };
    sweep(&mut probe, &options(64, seed))
}

/// What more clients than one do, on a machine of two processors.
fn more(clients: u32) -> f64 {
    match clients {
        1 => 1500.0,
        2 => 3000.0,
        3..=8 => 3300.0,
        n => 3300.0 * (8.0 / f64::from(n)).powf(0.2),
    }
}

#[test]
fn a_knee_is_recommended_with_high_confidence() {
    for seed in 0..20 {
        let verdict = planted(|n, _| 100.0 * f64::from(n.min(8)) * if n > 16 { 0.7 } else { 1.0 }, 0.02, seed);
        assert_eq!((verdict.advice.as_str(), verdict.recommended_clients), ("use", 8), "{verdict:?}");
        assert!(verdict.confidence == "high" && verdict.safe.is_none() && verdict.to_know.is_empty(), "{verdict:?}");
    }
}

#[test]
fn a_first_number_with_two_speeds_is_named_and_not_recommended() {
    let mut named = 0;
    for seed in 0..50 {
        // For minutes at a time, as on a virtual machine. Every other sweep begins in a fast one; in the others one
        // client loses the first pass, is not measured again, and need not be named.
        let speeds = move |n: u32, now: f64| match n {
            1 if (now / 100.0) as u64 % 2 == seed % 2 => 1200.0,
            1 => 5500.0,
            n => more(n),
        };
        let verdict = planted(speeds, 0.04, seed);
        assert!(verdict.recommended_clients > 1, "{verdict:?}");
        let safe = verdict.safe.map(|safe| safe.from);
        assert!(safe.is_none_or(|from| from > 1), "{verdict:?}");
        named += usize::from(seed % 2 == 1 && verdict.two_speeds.iter().any(|t| t.clients == 1));
    }
    assert!(named >= 24, "{named} of 25");
}

#[test]
fn a_first_number_of_which_only_the_fast_speed_was_met_is_suspected_and_a_range_is_told() {
    for seed in 0..50 {
        let verdict = planted(|n, _| if n == 1 { 5500.0 } else { more(n) }, 0.04, seed);
        assert_eq!((verdict.advice.as_str(), verdict.confidence.as_str()), ("range", "low"), "{verdict:?}");
        assert_eq!(verdict.two_speeds[0].clients, 1, "{verdict:?}");
        assert_eq!((verdict.two_speeds[0].seen.as_str(), verdict.two_speeds[0].slow), ("neighbours", None));
        let safe = verdict.safe.expect("a range");
        assert!(safe.from >= 2 && safe.to <= 16 && safe.throughput > 2500.0, "{verdict:?}");
        assert!((safe.from..=safe.to).contains(&verdict.recommended_clients), "{verdict:?}");
        assert!(verdict.to_know.iter().any(|line| line.contains("Sweep again")), "{verdict:?}");
    }
}

#[test]
fn noise_alone_up_to_8_percent_gives_no_two_speeds_and_takes_no_recommendation_away() {
    let (mut speeds, mut ranges) = (0, 0);
    for seed in 0..200 {
        let noise = [0.01, 0.03, 0.05, 0.08][seed as usize % 4];
        let verdict = planted(|n, _| 100.0 * f64::from(n.min(8)) * if n > 16 { 0.7 } else { 1.0 }, noise, seed);
        speeds += usize::from(!verdict.two_speeds.is_empty());
        ranges += usize::from(verdict.is_range());
    }
    assert!(speeds <= 2, "two speeds in {speeds} of 200");
    assert!(ranges <= 2, "a range in {ranges} of 200");
}

#[test]
fn of_a_curve_that_still_rises_no_extreme_is_recommended() {
    let verdict = planted(|n, _| 50.0 * f64::from(n), 0.02, 1);
    assert!(verdict.advice == "range", "{verdict:?}");
    assert!(verdict.to_know[0].contains("--clients 64..256"), "{:?}", verdict.to_know);
}

#[test]
fn known_databases_keep_their_recommendation() {
    let mut told = Vec::new();
    for system in systems() {
        let (mut speeds, mut worst): (u32, f64) = (0, 0.0);
        for seed in 0..10 {
            let verdict = sweep(&mut system.probe(seed), &options(system.to, seed));
            speeds += u32::from(!verdict.two_speeds.is_empty());
            worst = worst.max(1.0 - system.throughput(verdict.recommended_clients) / system.best().1);
        }
        told.push((system.name, speeds, worst));
    }
    let wrong: Vec<_> = told.iter().filter(|(_, speeds, worst)| *speeds > 1 || *worst > 0.15).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}
