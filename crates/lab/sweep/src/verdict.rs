//! What follows from a measured curve: the best number of clients, the one to use, how sure that is, what the limit
//! was, and the settings. Concludes nothing beyond the largest number that was tested.
//!
//! The recommendation is the smallest tested number within 5% of the best throughput: near its top a curve is flat, so
//! that the best number itself is chance, while every connection saved is memory and latency.

use arrivals::Random;

use super::{
    advice::{self, Doubt},
    bimodal,
    bracketing::{self, Ending},
    chooser::MAX_LOSS,
    curve::{CurveEstimate, PointEstimate},
};
use load::run::processors::{is_generator_full, is_machine_full};
use report::result::sweep::{Curve, CurvePoint, Estimate, Safe, Settings, Verdict};
use report::sweep_sentences::format_amount;

/// Resamples of the curve.
const RESAMPLES: usize = 1000;
/// Share of the best throughput at the end of the curve that tells a peak from a plateau.
const PEAK_END_SHARE: f64 = 0.9;
/// Share of a full machine at which the load generator is part of the limit.
const MIN_GENERATOR_SHARE: f64 = 0.15;
/// Largest loss with which confidence can be medium.
const MAX_MEDIUM_LOSS: f64 = 0.15;
/// Largest noise of one visit with which confidence can be medium.
const MAX_MEDIUM_NOISE: f64 = 0.15;
/// Largest loss with which confidence can be high.
const MAX_HIGH_CONFIDENCE_LOSS: f64 = 0.10;
/// Connections kept free for administrators, monitoring, backups and replication.
const MIN_RESERVE: u32 = 10;
/// Instances of the application in the example.
const EXAMPLE_INSTANCES: u32 = 4;

/// What is known of the machine that made the load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Generator {
    /// Threads that make the load: the most processors it can use.
    pub threads: u32,
    /// Processors of its machine.
    pub processors: u32,
}

/// The verdict; `None` if at no number of clients anything was done.
pub fn verdict(curve: &Curve, generator: Generator, seed: u64) -> Option<Verdict> {
    let Found { estimate, eligible, best, recommended } = Found::of(curve)?;
    let (loss, best_from, best_to) = resample(&estimate, &eligible, recommended, best, seed);
    let top = bracketing::ending(&estimate, best);
    let fewest = estimate.points.first().map_or(1, |p| p.clients);
    let mut verdict = Verdict {
        best_clients: best.clients,
        best_throughput: best.smoothed,
        best_from,
        best_to,
        recommended_clients: recommended.clients,
        recommended_throughput: recommended.smoothed,
        loss,
        bracketed: top == Ending::Bracketed,
        bracketed_below: fewest == 1 || fewest < recommended.clients.min(best.clients),
        shape: shape(&estimate, best, top).to_owned(),
        limited_by: limit(point(curve, best.clients), generator, top == Ending::Bracketed),
        two_speeds: bimodal::bimodal(&curve.visits),
        ..Verdict::default()
    };
    let doubts = doubts(&verdict, &estimate);
    verdict.confidence = confidence(&verdict, &estimate, &doubts).to_owned();
    advise(&mut verdict, &estimate, &doubts);
    verdict.because = explain(curve, &verdict);
    Some(verdict)
}

/// What the curve says by itself.
struct Found {
    estimate: CurveEstimate,
    /// The numbers that were measured often enough to be recommended.
    eligible: Vec<PointEstimate>,
    best: PointEstimate,
    /// The smallest within 5% of the best.
    recommended: PointEstimate,
}

impl Found {
    /// `None`: nothing was done.
    fn of(curve: &Curve) -> Option<Self> {
        let estimate = CurveEstimate::of(&curve.visits);
        let best = estimate.best()?;
        let often = estimate.points.iter().map(|p| p.visits).max().unwrap_or(0).min(2);
        let eligible: Vec<PointEstimate> = estimate.points.iter().copied().filter(|p| p.visits >= often).collect();
        let recommended = *eligible.iter().find(|p| p.smoothed >= (1.0 - MAX_LOSS) * best.smoothed).unwrap_or(&best);
        Some(Self { estimate, eligible, best, recommended })
    }
}

/// The kind of server that the settings are for, and what it reserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerKind {
    /// Connections that a PostgreSQL reserves for superusers and other roles; `None`: not known.
    Postgres(Option<u32>),
    /// Another database, whose limit has nothing to do with its load.
    Other,
}

/// The settings that follow.
pub fn settings(verdict: &Verdict, server: ServerKind) -> Settings {
    let max_size = verdict.recommended_clients;
    let others = match (verdict.bracketed, verdict.bracketed_below) {
        (true, true) => "",
        (true, false) => " or fewer (fewer than were tested may do as well)",
        (false, _) => " or more (more than was tested may be better)",
    };
    let why = match verdict.safe.filter(|_| verdict.is_range()) {
        Some(Safe { from, to, .. }) => format!(
            "no number is certain yet, and this is the smallest of the safe ones ({from} to {to}) within 5% of the \
             best of them"
        ),
        None => "the fewest connections within 5% of the best throughput".to_owned(),
    };
    let pool = format!(
        "max_size {max_size}{others}: {why}; whoever finds them all busy waits in the pool, where waiting costs the \
         database nothing."
    );
    let ServerKind::Postgres(reserved) = server else {
        let limit =
            "The server's own limit of connections must be above that, for every Poolhouse and all other clients.";
        let because = vec![pool, limit.to_owned(), describe_sharing(max_size)];
        return Settings { max_size, max_connections: None, reserve: None, because };
    };
    let reserve = MIN_RESERVE.max(max_size.div_ceil(10)) + reserved.unwrap_or(0);
    let server = format!(
        "max_connections {}: the pool's {max_size}, and {reserve} kept free for administrators, monitoring, backups \
         and replication{}.",
        max_size + reserve,
        reserved.map_or_else(String::new, |n| format!(" ({n} of them the server keeps back itself)")),
    );
    let because = vec![pool, server, describe_sharing(max_size)];
    Settings { max_size, max_connections: Some(max_size + reserve), reserve: Some(reserve), because }
}

/// How the instances of an application share their connections.
fn describe_sharing(max_size: u32) -> String {
    match max_size {
        1 => "All instances of the application share this one: with more than one instance that takes one pooler in \
              front."
            .to_owned(),
        2..EXAMPLE_INSTANCES => format!(
            "All instances of the application share these {max_size}: with more than {max_size} instances that takes \
             one pooler in front."
        ),
        _ => format!(
            "All instances of the application share these {max_size}: with {EXAMPLE_INSTANCES} instances each has \
             {}, or one pooler in front has them all.",
            max_size / EXAMPLE_INSTANCES
        ),
    }
}

/// Draws curves that could as well have been measured: what the recommendation loses, and which points win, the
/// smallest and largest that win in at least 2.5% of the draws.
fn resample(
    estimate: &CurveEstimate,
    eligible: &[PointEstimate],
    recommended: PointEstimate,
    best: PointEstimate,
    seed: u64,
) -> (Estimate, u32, u32) {
    let mut random = Random::new(seed ^ 0x5eed_0f5a);
    let mut losses = Vec::with_capacity(RESAMPLES);
    let mut wins = vec![0usize; eligible.len()];
    for _ in 0..RESAMPLES {
        let drawn: Vec<f64> =
            eligible.iter().map(|p| p.smoothed * (1.0 + estimate.standard_error(p.visits) * random.normal())).collect();
        let top = (0..eligible.len()).max_by(|&a, &b| drawn[a].total_cmp(&drawn[b])).expect("the best was seen");
        wins[top] += 1;
        let of = |point: PointEstimate| {
            eligible.iter().position(|p| p.clients == point.clients).map_or(point.smoothed, |i| drawn[i])
        };
        losses.push(1.0 - of(recommended) / of(best));
    }
    losses.sort_by(f64::total_cmp);
    let share = |s: f64| losses[(s * (RESAMPLES - 1) as f64).round() as usize];
    let value = 1.0 - recommended.smoothed / best.smoothed;
    let loss = Estimate { value, low: share(0.025).min(value), high: share(0.975).max(value) };
    let winners = || eligible.iter().zip(&wins).filter(|(_, won)| **won * 40 >= RESAMPLES).map(|(p, _)| p.clients);
    (loss, winners().min().unwrap_or(best.clients).min(best.clients), winners().max().unwrap_or(0).max(best.clients))
}

fn shape(estimate: &CurveEstimate, best: PointEstimate, top: Ending) -> &'static str {
    let (Some(first), Some(last)) = (estimate.points.first(), estimate.points.last()) else { return "open" };
    let keeps = last.smoothed >= (1.0 - MAX_LOSS) * best.smoothed;
    match top {
        Ending::Rising => "rising",
        Ending::Unknown => "open",
        Ending::Bracketed if keeps && first.smoothed >= (1.0 - MAX_LOSS) * best.smoothed => "flat",
        Ending::Bracketed if first.clients == best.clients => "falling",
        Ending::Bracketed if last.throughput < PEAK_END_SHARE * best.throughput => "peak",
        Ending::Bracketed => "plateau",
    }
}

/// What was the limit at the best point. `is_bracketed`: there was one, since more clients gained nothing.
fn limit(at: Option<&CurvePoint>, generator: Generator, is_bracketed: bool) -> Option<String> {
    let at = at?;
    let cores = at.generator_cores?;
    let who = if is_generator_full(cores, generator.threads) {
        "generator"
    } else if is_machine_full(at.machine_idle?) && cores >= MIN_GENERATOR_SHARE * f64::from(generator.processors) {
        "machine"
    } else if is_bracketed {
        "database"
    } else {
        return None;
    };
    Some(who.to_owned())
}

/// Why the verdict is not to be relied on; each reason alone makes confidence low.
fn doubts(verdict: &Verdict, estimate: &CurveEstimate) -> Vec<Doubt> {
    let is_generator = verdict.limited_by.as_deref() == Some("generator");
    let falls = verdict.shape == "falling" && !verdict.bracketed_below;
    let decide = [verdict.recommended_clients, verdict.best_clients];
    let is_unsteady = verdict.two_speeds.iter().any(|t| decide.contains(&t.clients));
    let all = [
        (!verdict.bracketed, Doubt::NotBracketed),
        (falls, Doubt::OnlyFalls),
        (is_generator, Doubt::Generator),
        (is_unsteady, Doubt::TwoSpeeds),
        (verdict.loss.high > MAX_MEDIUM_LOSS || estimate.noise > MAX_MEDIUM_NOISE, Doubt::Noise),
    ];
    all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, doubt)| doubt).collect()
}

fn confidence(verdict: &Verdict, estimate: &CurveEstimate, doubts: &[Doubt]) -> &'static str {
    let is_steady = !estimate.drifted && estimate.measured_noise.is_some() && verdict.two_speeds.is_empty();
    match () {
        () if !doubts.is_empty() => "low",
        () if is_steady && verdict.bracketed_below && verdict.loss.high <= MAX_HIGH_CONFIDENCE_LOSS => "high",
        () => "medium",
    }
}

/// What people are told to do with it.
fn advise(verdict: &mut Verdict, estimate: &CurveEstimate, doubts: &[Doubt]) {
    let most = estimate.points.last().map_or(1, |p| p.clients);
    let is_range = advice::is_range(estimate, verdict.recommended_clients, &verdict.two_speeds, doubts);
    verdict.advice = if is_range { "range" } else { "use" }.to_owned();
    verdict.to_know = advice::to_know(verdict, doubts, most);
    if doubts.is_empty() {
        return;
    }
    let safe = advice::safe_range(estimate, verdict);
    verdict.safe = safe.map(|(safe, _)| safe);
    if let Some((_, least)) = safe.filter(|_| is_range) {
        (verdict.recommended_clients, verdict.recommended_throughput) = (least.clients, least.smoothed);
    }
}

fn counted_clients(number: u32) -> String {
    if number == 1 { "1 client".to_owned() } else { format!("{number} clients") }
}

/// Where the best is, and what the curve does beyond it.
fn describe_course(curve: &Curve, verdict: &Verdict) -> String {
    let (first, last) = (curve.points.first(), curve.points.last());
    let (first, last) = first.zip(last).expect("there is a best point");
    let top = format!(
        "{} operations/s with {}",
        format_amount(verdict.best_throughput),
        counted_clients(verdict.best_clients)
    );
    let range = if verdict.best_from == verdict.best_to {
        String::new()
    } else {
        format!(" (any of {} to {} may be the best)", verdict.best_from, verdict.best_to)
    };
    let above = match verdict.shape.as_str() {
        "rising" => format!("{top}, and throughput still rises there: the peak is not bracketed, test more clients."),
        "open" => format!(
            "{top}{range}; whether it still rises beyond {} is not known: the peak is not bracketed, test more \
             clients, or longer.",
            counted_clients(last.clients)
        ),
        "flat" => format!("{top}{range}, and any other number does about as well: {}", describe_end(last)),
        "falling" => format!("{top}, the fewest that were tested; more clients only lose: {}", describe_end(last)),
        "peak" => format!("{top}{range}; beyond that it falls: {}", describe_end(last)),
        _ => format!("{top}{range}; beyond the knee more clients gain nothing: {}", describe_end(last)),
    };
    if verdict.bracketed_below {
        return above;
    }
    format!("{above} Fewer than {} were not tested, and may do as well or better.", counted_clients(first.clients))
}

fn explain(curve: &Curve, verdict: &Verdict) -> Vec<String> {
    let recommended = point(curve, verdict.recommended_clients);
    let latency = |p: Option<&CurvePoint>| p.and_then(|p| p.p95_ms);
    let saved = match (latency(recommended), latency(point(curve, verdict.best_clients))) {
        (Some(here), Some(there)) if verdict.recommended_clients != verdict.best_clients => {
            format!(", and 95% of the operations take at most {here:.2} ms instead of {there:.2} ms")
        }
        _ => String::new(),
    };
    let rule = match verdict.safe.filter(|_| verdict.is_range()) {
        Some(Safe { from, to, throughput }) => {
            let slowest = if verdict.two_speeds.is_empty() { "" } else { ", each at the slower of its speeds" };
            let who = if from == to { counted_clients(from) } else { format!("{from} to {to} clients") };
            format!("{who} did {} operations/s or more{slowest}.", format_amount(throughput))
        }
        None if verdict.recommended_clients == verdict.best_clients => format!(
            "{} operations/s with {}, more than with any other number.",
            format_amount(verdict.recommended_throughput),
            counted_clients(verdict.recommended_clients),
        ),
        None => format!(
            "{} operations/s with {}, {:.1}% less than the best ({:.1}% to {:.1}%){saved}.",
            format_amount(verdict.recommended_throughput),
            counted_clients(verdict.recommended_clients),
            100.0 * verdict.loss.value,
            100.0 * verdict.loss.low,
            100.0 * verdict.loss.high,
        ),
    };
    let limit = limit_in_words(curve, verdict);
    let noise = curve.steadiness.noise.map_or_else(
        || "nothing was measured twice".to_owned(),
        |noise| format!("one measurement varies by {:.1}%", 100.0 * noise),
    );
    vec![
        describe_course(curve, verdict),
        rule,
        format!("Confidence {}: {} measurements, {noise}, {limit}.", verdict.confidence, curve.visits.len(),),
    ]
}

fn limit_in_words(curve: &Curve, verdict: &Verdict) -> &'static str {
    let idle = point(curve, verdict.best_clients).and_then(|p| p.machine_idle);
    match verdict.limited_by.as_deref() {
        Some("generator") => "the load generator used all of its processor: the database may do more",
        Some("machine") => {
            "nothing of the machine was idle and the load generator took its share: from another machine the \
             database may do more"
        }
        Some(_) if idle.is_some_and(is_machine_full) => {
            "the limit was not the load generator; nothing of this machine was idle"
        }
        Some(_) => "the limit was the database, not the load generator",
        None if verdict.shape == "rising" => "no limit was reached",
        None => "what the limit was is not known",
    }
}

fn describe_end(last: &CurvePoint) -> String {
    format!("{} operations/s with {}.", format_amount(last.throughput), counted_clients(last.clients))
}

fn point(curve: &Curve, clients: u32) -> Option<&CurvePoint> {
    curve.points.iter().find(|p| p.clients == clients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve_of;
    use report::result::sweep::Visit;

    const GENERATOR: Generator = Generator { threads: 1, processors: 2 };

    /// A curve of five visits at each of some points, with 1% of noise.
    fn curve(points: &[(u32, f64)]) -> Curve {
        let mut random = Random::new(1);
        let mut visits = Vec::new();
        for round in 0..5 {
            for &(clients, x) in points {
                let throughput = x * (1.0 + 0.01 * random.normal());
                visits.push(Visit { at_s: visits.len() as f64, round, clients, throughput, ..Visit::default() });
            }
        }
        curve_of(&visits, None)
    }

    fn judged(points: &[(u32, f64)]) -> Verdict {
        verdict(&curve(points), GENERATOR, 1).unwrap()
    }

    #[test]
    fn the_smallest_number_within_five_percent_is_recommended() {
        let verdict = judged(&[(1, 10.0), (8, 70.0), (16, 97.5), (24, 100.0), (32, 98.0), (64, 60.0)]);
        assert_eq!((verdict.recommended_clients, verdict.shape.as_str()), (16, "peak"));
        assert!(verdict.bracketed && verdict.confidence == "high", "{verdict:?}");
        assert!((0.0..0.06).contains(&verdict.loss.value) && verdict.loss.high > verdict.loss.value);
    }

    #[test]
    fn a_curve_that_still_rises_is_not_bracketed_and_says_so() {
        let verdict = judged(&[(1, 10.0), (2, 20.0), (4, 40.0), (8, 78.0), (16, 150.0)]);
        assert!(!verdict.bracketed);
        assert_eq!((verdict.shape.as_str(), verdict.confidence.as_str()), ("rising", "low"));
        assert!(verdict.because[0].contains("not bracketed"), "{:?}", verdict.because);
        assert!(verdict.because[2].contains("no limit was reached"), "{:?}", verdict.because);
        assert!(settings(&verdict, ServerKind::Postgres(Some(3))).because[0].contains("or more"));
    }

    #[test]
    fn a_plateau_is_bracketed_and_a_flat_curve_needs_one_connection() {
        let plateau = judged(&[(1, 10.0), (8, 80.0), (16, 100.0), (32, 100.5), (64, 100.0), (128, 99.0)]);
        assert_eq!((plateau.shape.as_str(), plateau.recommended_clients, plateau.bracketed), ("plateau", 16, true));
        let flat = judged(&[(1, 100.0), (8, 101.0), (32, 100.0), (128, 99.5)]);
        assert_eq!((flat.shape.as_str(), flat.recommended_clients, flat.bracketed), ("flat", 1, true));
    }

    #[test]
    fn a_curve_that_only_falls_is_not_called_flat() {
        let falls = judged(&[(1, 100.0), (2, 90.0), (8, 60.0), (64, 30.0)]);
        assert_eq!((falls.shape.as_str(), falls.recommended_clients, falls.bracketed), ("falling", 1, true));
        assert!(falls.because[0].contains("only lose: ") && falls.bracketed_below, "{:?}", falls.because);
        let peak = judged(&[(1, 98.0), (2, 100.0), (8, 60.0), (64, 30.0)]);
        assert_eq!((peak.shape.as_str(), peak.recommended_clients), ("peak", 1));
    }

    #[test]
    fn below_the_fewest_that_were_tested_nothing_is_concluded() {
        let falls = judged(&[(8, 100.0), (16, 80.0), (32, 60.0), (64, 30.0)]);
        assert!(!falls.bracketed_below && falls.confidence == "low", "{falls:?}");
        assert!(falls.because[0].contains("Fewer than 8 clients were not tested"), "{:?}", falls.because);
        assert!(settings(&falls, ServerKind::Postgres(None)).because[0].contains("8 or fewer"));
        let inside = judged(&[(8, 50.0), (16, 80.0), (32, 100.0), (64, 70.0)]);
        assert!(inside.bracketed_below && !inside.because[0].contains("not tested"), "{inside:?}");
        let recommended = judged(&[(8, 98.0), (16, 100.0), (32, 80.0), (64, 70.0)]);
        assert!(!recommended.bracketed_below && recommended.confidence == "medium", "{recommended:?}");
    }

    #[test]
    fn the_numbers_that_the_verdict_compares_are_in_the_curve() {
        let curve = curve(&[(1, 10.0), (8, 70.0), (16, 97.5), (24, 100.0), (32, 98.0), (64, 60.0)]);
        let verdict = verdict(&curve, GENERATOR, 1).unwrap();
        let believed = |clients| point(&curve, clients).unwrap().believed;
        assert_eq!(believed(verdict.best_clients), Some(verdict.best_throughput));
        assert_eq!(believed(verdict.recommended_clients), Some(verdict.recommended_throughput));
    }

    #[test]
    fn the_limit_is_told_from_processors() {
        let at = |cores: f64, idle: f64| {
            let point = CurvePoint { generator_cores: Some(cores), machine_idle: Some(idle), ..CurvePoint::default() };
            limit(Some(&point), GENERATOR, true).unwrap()
        };
        assert_eq!(at(0.97, 0.4), "generator");
        assert_eq!(at(0.6, 0.01), "machine");
        assert_eq!(at(0.1, 0.01), "database");
        assert_eq!(at(0.4, 0.3), "database");
        assert_eq!(limit(Some(&CurvePoint::default()), GENERATOR, true), None, "what is not known is not guessed");
        let idle = CurvePoint { generator_cores: Some(0.1), machine_idle: Some(0.8), ..CurvePoint::default() };
        assert_eq!(limit(Some(&idle), GENERATOR, false), None, "what still rises has met no limit");
    }

    #[test]
    fn settings_leave_a_reserve_on_the_server() {
        let verdict = Verdict { recommended_clients: 40, bracketed: true, bracketed_below: true, ..Verdict::default() };
        let few = settings(&verdict, ServerKind::Postgres(Some(3)));
        assert_eq!((few.max_size, few.reserve, few.max_connections), (40, Some(13), Some(53)));
        let many = settings(&Verdict { recommended_clients: 400, ..verdict.clone() }, ServerKind::Postgres(None));
        assert_eq!((many.reserve, many.max_connections), (Some(40), Some(440)));
        let other = settings(&verdict, ServerKind::Other);
        assert_eq!((other.max_size, other.reserve, other.max_connections), (40, None, None));
        assert!(other.because.len() == 3 && !other.because[1].contains("max_connections"), "{:?}", other.because);
        assert!(few.because[1].contains("3 of them the server keeps back"), "{:?}", few.because);
    }

    #[test]
    fn what_instances_get_adds_up_to_no_more_than_there_is() {
        let said = |recommended_clients| {
            settings(&Verdict { recommended_clients, ..Verdict::default() }, ServerKind::Postgres(None)).because[2]
                .clone()
        };
        assert!(said(16).contains("4 instances each has 4"), "{}", said(16));
        for few in 1..4 {
            assert!(!said(few).contains("each has") && said(few).contains("one pooler in front"), "{}", said(few));
        }
    }

    #[test]
    fn nothing_done_gives_no_verdict() {
        assert_eq!(verdict(&curve(&[(1, 0.0), (2, 0.0)]), GENERATOR, 1), None);
        assert_eq!(verdict(&Curve::default(), GENERATOR, 1), None);
    }
}
