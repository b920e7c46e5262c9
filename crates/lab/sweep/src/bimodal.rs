//! Bimodal numbers of clients: those with two speeds. On a virtual machine one client can be several times as fast in
//! one minute as in the next, depending on whether the processor that has to answer sleeps and must first be woken. The
//! median then tells which speed was met more often, and nothing about tomorrow. There are three signs, the strongest
//! first: the measurements of one number fall into two groups (`between`); the speed changes in the middle of
//! measurements (`within`); a small number of clients is far from what its neighbours predict (`neighbours`), of which
//! only one speed was seen.
//!
//! A change that all numbers share is no sign: a slow minute of the machine is excused by the measurements beside it,
//! and a speed that changes in the middle of the measurements of all numbers is the database's own (a checkpoint).
//! Noise is no sign either; the tests say up to which amount.

use std::collections::BTreeMap;

use report::result::sweep::{TwoSpeeds, Visit};

use super::curve::{MEDIAN_DISTANCE, PRIOR_NOISE, median};

/// Ratio of the two speeds within one measurement, and of a response time to the predicted one.
const MIN_SPEED_RATIO: f64 = 1.5;
/// Ratio of two groups of measurements. It is higher, since a shared machine may be slower by half for a minute.
const MIN_GROUP_RATIO: f64 = 1.8;
/// Ratio of two groups of which one has a single measurement.
const MIN_SINGLE_RATIO: f64 = 2.0;
/// Gap between two groups, in standard deviations of one measurement.
const MIN_GAP_DEVIATIONS: f64 = 4.0;
/// Gap between two groups, as a ratio.
const MIN_GAP_RATIO: f64 = 1.35;
/// Measurements on each side of one that tell how fast the machine was.
const SIDE_MEASUREMENTS: usize = 2;
/// Iterations of the median polish.
const POLISH_ITERATIONS: u32 = 4;

/// Fewest operations in a slice; slices with fewer are joined.
const MIN_SLICE_OPERATIONS: f64 = 40.0;
const SLICE_SECONDS: f64 = 0.1;
/// Fewest slices of a measurement in which two speeds are looked for.
const MIN_SLICES: usize = 8;
/// Smallest share of the slices at either speed.
const MIN_SPEED_SHARE: f64 = 0.2;
/// Distance between the two groups of slices, in standard deviations of a slice.
const MIN_SLICE_DEVIATIONS: f64 = 5.0;
/// Most changes between the two speeds, as a share of the slices: a speed lasts.
const MAX_CHANGE_SHARE: f64 = 0.25;
/// Fewest measurements of one number in which the speed must have changed.
const MIN_CHANGED_MEASUREMENTS: usize = 2;
/// Largest share of the measurements of all other numbers in which the speed may have changed, too.
const MAX_OTHERS_CHANGED_SHARE: f64 = 0.34;

/// Clients up to which a sleeping processor can decide the speed.
const MAX_SUSPECT_CLIENTS: u32 = 4;
/// Neighbours have up to this many times the clients.
const NEIGHBOUR_REACH: u32 = 16;
/// Fewest neighbours for a prediction.
const MIN_NEIGHBOURS: usize = 3;
/// Distance from the prediction, in standard deviations.
const MIN_UNLIKELY_DEVIATIONS: f64 = 4.0;

/// The bimodal numbers and the suspected ones, in order, each once.
pub(crate) fn bimodal(visits: &[Visit]) -> Vec<TwoSpeeds> {
    let mut numbers: Vec<u32> = visits.iter().map(|v| v.clients).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut found: BTreeMap<u32, TwoSpeeds> = BTreeMap::new();
    for &clients in &numbers {
        if let Some(seen) = find_two_groups(visits, clients).or_else(|| find_speed_changes(visits, clients)) {
            found.insert(clients, seen);
        }
    }
    for suspect in find_unlike_neighbours(visits, &found.keys().copied().collect::<Vec<_>>()) {
        found.entry(suspect.clients).or_insert(suspect);
    }
    found.into_values().collect()
}

/// The two groups into which the measurements of this number fall.
fn find_two_groups(visits: &[Visit], clients: u32) -> Option<TwoSpeeds> {
    let residuals = residuals(visits);
    let mut own: Vec<(f64, f64)> = (0..visits.len())
        .filter(|&i| visits[i].clients == clients)
        .filter_map(|i| Some((unshared_residual(visits, &residuals, i)?, visits[i].throughput)))
        .collect();
    own.sort_by(|a, b| a.0.total_cmp(&b.0));
    let cut = (1..own.len()).max_by(|&a, &b| (own[a].0 - own[a - 1].0).total_cmp(&(own[b].0 - own[b - 1].0)))?;
    let (slow, fast) = own.split_at(cut);
    let middle = |group: &[(f64, f64)]| median(&mut group.iter().map(|v| v.0).collect::<Vec<_>>());
    let apart = if slow.len().min(fast.len()) > 1 { MIN_GROUP_RATIO } else { MIN_SINGLE_RATIO };
    let gap = fast[0].0 - slow[slow.len() - 1].0;
    let wanted = (MIN_GAP_DEVIATIONS * noise_of_others(visits, Some(clients))).max(MIN_GAP_RATIO.ln());
    let speed = |group: &[(f64, f64)]| median(&mut group.iter().map(|v| v.1).collect::<Vec<_>>());
    let are_apart = middle(fast) - middle(slow) >= apart.ln() && speed(fast) >= apart * speed(slow);
    if !are_apart || gap < wanted {
        return None;
    }
    Some(TwoSpeeds {
        clients,
        seen: "between".to_owned(),
        slow: Some(speed(slow)),
        fast: Some(speed(fast)),
        slow_times: slow.len() as u32,
        fast_times: fast.len() as u32,
        ..TwoSpeeds::default()
    })
}

/// The logarithm of each visit's throughput less the level of its number of clients. The speed of the machine stays in
/// it; Tukey's median polish takes it out only while it finds the levels, so that a number that was mostly measured in
/// slow minutes gets no lower level. `None`: no operation was done, or the number was visited once.
fn residuals(visits: &[Visit]) -> Vec<Option<f64>> {
    let mut common = vec![0.0; visits.len()];
    let mut residuals = Vec::new();
    for _ in 0..POLISH_ITERATIONS {
        let mut logs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for (visit, common) in visits.iter().zip(&common).filter(|(v, _)| v.throughput > 0.0) {
            logs.entry(visit.clients).or_default().push(visit.throughput.ln() - common);
        }
        logs.retain(|_, logs| logs.len() > 1);
        let levels: BTreeMap<u32, f64> = logs.iter_mut().map(|(&clients, logs)| (clients, median(logs))).collect();
        let residual = |v: &Visit| Some(v.throughput.ln() - levels.get(&v.clients)?).filter(|r| r.is_finite());
        residuals = visits.iter().map(residual).collect();
        for (i, common) in common.iter_mut().enumerate() {
            let [mut near, after] = residuals_beside(visits, &residuals, i);
            near.extend(after);
            *common = median(&mut near);
        }
    }
    residuals
}

/// The residuals of the visits before and after one, of other numbers than its own.
fn residuals_beside(visits: &[Visit], residuals: &[Option<f64>], i: usize) -> [Vec<f64>; 2] {
    let is_other = |j: &usize| visits[*j].clients != visits[i].clients;
    let before = (0..i).rev().filter(is_other).filter_map(|j| residuals[j]).take(SIDE_MEASUREMENTS);
    let after = (i + 1..visits.len()).filter(is_other).filter_map(|j| residuals[j]).take(SIDE_MEASUREMENTS);
    [before.collect(), after.collect()]
}

/// The residual of a visit, less what the visits just before or just after it share with it. This only shrinks a
/// residual: a number that jumps must not make its neighbours in time look as if they jumped.
fn unshared_residual(visits: &[Visit], residuals: &[Option<f64>], i: usize) -> Option<f64> {
    let own = residuals[i]?;
    let excuse = |side: &Vec<f64>| match side.len() {
        // All visits of one side must share it.
        SIDE_MEASUREMENTS if own > 0.0 => side.iter().copied().fold(own, f64::min).max(0.0),
        SIDE_MEASUREMENTS => side.iter().copied().fold(own, f64::max).min(0.0),
        _ => 0.0,
    };
    let excuses = residuals_beside(visits, residuals, i).map(|side| excuse(&side));
    let most = if excuses[0].abs() > excuses[1].abs() { excuses[0] } else { excuses[1] };
    Some(own - most)
}

/// The relative deviation of one measurement, by the repeats of all numbers of clients but one.
fn noise_of_others(visits: &[Visit], except: Option<u32>) -> f64 {
    let others: Vec<&Visit> = visits.iter().filter(|v| Some(v.clients) != except && v.throughput > 0.0).collect();
    let mut distances = Vec::new();
    for (at, a) in others.iter().enumerate() {
        let repeats = others[..at].iter().filter(|b| b.clients == a.clients);
        distances.extend(repeats.map(|b| (a.throughput / b.throughput).ln().abs()));
    }
    if distances.is_empty() { PRIOR_NOISE } else { (median(&mut distances) / MEDIAN_DISTANCE).max(PRIOR_NOISE / 2.0) }
}

/// The two speeds of measurements of this number in whose middle the speed changed.
fn find_speed_changes(visits: &[Visit], clients: u32) -> Option<TwoSpeeds> {
    let (own, others): (Vec<&Visit>, Vec<&Visit>) = visits.iter().partition(|v| v.clients == clients);
    let both: Vec<(f64, f64)> = own.iter().filter_map(|v| split_speeds(&v.slices)).collect();
    let alike = others.iter().filter(|v| split_speeds(&v.slices).is_some()).count();
    if both.len() < MIN_CHANGED_MEASUREMENTS || alike as f64 > MAX_OTHERS_CHANGED_SHARE * others.len() as f64 {
        return None;
    }
    let times = u32::try_from(both.len()).expect("visits are few");
    Some(TwoSpeeds {
        clients,
        seen: "within".to_owned(),
        slow: Some(median(&mut both.iter().map(|b| b.0).collect::<Vec<_>>())),
        fast: Some(median(&mut both.iter().map(|b| b.1).collect::<Vec<_>>())),
        slow_times: times,
        fast_times: times,
        ..TwoSpeeds::default()
    })
}

/// The two speeds of one measurement, if its slices have two that each last.
fn split_speeds(slices: &[f64]) -> Option<(f64, f64)> {
    let mean = slices.iter().sum::<f64>() / slices.len().max(1) as f64;
    if mean <= 0.0 {
        return None;
    }
    let joined = (MIN_SLICE_OPERATIONS / (mean * SLICE_SECONDS)).ceil().max(1.0) as usize;
    // A slice without operations is a pause, and no speed.
    let speeds: Vec<f64> = slices
        .chunks_exact(joined)
        .map(|part| part.iter().sum::<f64>() / joined as f64)
        .filter(|&speed| speed > 0.0)
        .collect();
    if speeds.len() < MIN_SLICES {
        return None;
    }
    let least = (MIN_SPEED_SHARE * speeds.len() as f64).ceil() as usize;
    let mut sorted: Vec<f64> = speeds.iter().map(|speed| speed.ln()).collect();
    sorted.sort_by(f64::total_cmp);
    let (cut, inside) = (least..=sorted.len() - least)
        .map(|cut| (cut, squares(&sorted[..cut]) + squares(&sorted[cut..])))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let distance = average(&sorted[cut..]) - average(&sorted[..cut]);
    let deviation = (inside / (sorted.len() - 2) as f64).sqrt();
    if distance < MIN_SPEED_RATIO.ln() || distance < MIN_SLICE_DEVIATIONS * deviation {
        return None;
    }
    let limit = f64::midpoint(sorted[cut - 1], sorted[cut]).exp();
    let changes = speeds.windows(2).filter(|pair| (pair[0] > limit) != (pair[1] > limit)).count();
    let lasts = changes as f64 <= MAX_CHANGE_SHARE * speeds.len() as f64;
    lasts.then(|| (average(&sorted[..cut]).exp(), average(&sorted[cut..]).exp()))
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn squares(values: &[f64]) -> f64 {
    let mean = average(values);
    values.iter().map(|v| (v - mean).powi(2)).sum()
}

/// A number of clients as the prediction sees it: the suspected one, or one that it is compared with.
#[derive(Clone, Copy)]
struct NumberSeen {
    clients: f64,
    /// Operations per second.
    throughput: f64,
    /// The median response in milliseconds; without one, what the throughput makes it on average.
    p50_ms: f64,
    visits: u32,
}

/// The smallest numbers of clients, as long as their neighbours do not predict their speed. Numbers in `known` are
/// bimodal already, and no prediction uses them. Larger numbers are not suspected: near a peak or a cliff any speed is
/// possible.
fn find_unlike_neighbours(visits: &[Visit], known: &[u32]) -> Vec<TwoSpeeds> {
    let mut left = neighbours(visits);
    left.retain(|n| !known.contains(&(n.clients as u32)));
    let noise = noise_of_others(visits, None);
    let mut found = Vec::new();
    while let Some((here, others)) = left.split_first() {
        let Some(expected) = unlike_response(here, others, noise) else { break };
        let is_fast = here.p50_ms < expected;
        found.push(TwoSpeeds {
            clients: here.clients as u32,
            seen: "neighbours".to_owned(),
            slow: (!is_fast).then_some(here.throughput),
            fast: is_fast.then_some(here.throughput),
            slow_times: if is_fast { 0 } else { here.visits },
            fast_times: if is_fast { here.visits } else { 0 },
            p50_ms: Some(here.p50_ms),
            expected_p50_ms: Some(expected),
        });
        left.remove(0);
    }
    found
}

fn neighbours(visits: &[Visit]) -> Vec<NumberSeen> {
    let mut by_clients: BTreeMap<u32, Vec<&Visit>> = BTreeMap::new();
    for visit in visits.iter().filter(|v| v.throughput > 0.0) {
        by_clients.entry(visit.clients).or_default().push(visit);
    }
    let whole = by_clients.values().flatten().all(|v| v.p50_ms.is_some_and(|ms| ms > 0.0));
    let neighbour = |(&clients, here): (&u32, &Vec<&Visit>)| {
        let throughput = median(&mut here.iter().map(|v| v.throughput).collect::<Vec<_>>());
        let p50_ms = match whole {
            true => median(&mut here.iter().filter_map(|v| v.p50_ms).collect::<Vec<_>>()),
            false => f64::from(clients) * 1000.0 / throughput,
        };
        let visits = u32::try_from(here.len()).expect("visits are few");
        NumberSeen { clients: f64::from(clients), throughput, p50_ms, visits }
    };
    by_clients.iter().map(neighbour).collect()
}

/// The predicted response time of the fewest clients, if theirs is far from it: shorter than the law of their
/// neighbours allows, or longer than with more clients.
fn unlike_response(here: &NumberSeen, others: &[NumberSeen], noise: f64) -> Option<f64> {
    let near: Vec<NumberSeen> =
        others.iter().filter(|n| n.clients <= f64::from(NEIGHBOUR_REACH) * here.clients).copied().collect();
    if here.clients > f64::from(MAX_SUSPECT_CLIENTS) || near.len() < MIN_NEIGHBOURS {
        return None;
    }
    let is_far = |expected: f64, error: f64| {
        let error = (noise / f64::from(here.visits).sqrt()).hypot(error);
        (here.p50_ms / expected).ln().abs() >= MIN_SPEED_RATIO.ln().max(MIN_UNLIKELY_DEVIATIONS * error)
    };
    let (least, misfit) = shortest_expected_response(&near, here.clients)?;
    let most = near[0].p50_ms;
    if here.p50_ms < least && is_far(least, misfit) {
        return Some(least);
    }
    let error = noise / f64::from(near[0].visits).sqrt();
    (here.p50_ms > most && is_far(most, error)).then_some(most)
}

/// The shortest median response time that a law of contention allows for this number of clients, and how far, in
/// relation, its neighbours are from that law: R(N) = R N (1 + b (N - 1)), in which all work is serial and each pair of
/// clients costs extra. With less serial work, fewer clients take longer. Tries values of b.
fn shortest_expected_response(neighbours: &[NumberSeen], clients: f64) -> Option<(f64, f64)> {
    let slowdown = |b: f64, n: f64| (n * (1.0 + b * (n - 1.0))).ln();
    let try_one = |b: f64| {
        let off: Vec<f64> = neighbours.iter().map(|n| n.p50_ms.ln() - slowdown(b, n.clients)).collect();
        (squares(&off), average(&off) + slowdown(b, clients))
    };
    let coherency = std::iter::once(0.0).chain((0..46).map(|i| 1e-4 * 10f64.powf(f64::from(i) * 0.1)));
    let (squares, log) = coherency.map(try_one).min_by(|x, y| x.0.total_cmp(&y.0))?;
    Some((log.exp(), (squares / neighbours.len() as f64).sqrt()))
}

#[cfg(test)]
mod tests {
    use arrivals::Random;

    use super::*;
    use crate::fit;

    /// What virtual machines did: two speeds of one client, and what more of them do.
    const SLOW: f64 = 1200.0;
    const FAST: f64 = 5500.0;
    const MORE: [(u32, f64); 4] = [(2, 3000.0), (4, 3300.0), (8, 3200.0), (16, 3000.0)];

    fn visit(clients: u32, throughput: f64) -> Visit {
        Visit { clients, throughput, p50_ms: Some(f64::from(clients) * 1000.0 / throughput), ..Visit::default() }
    }

    /// A round of all numbers for each speed of one client in `one`.
    fn rounds(one: &[f64], noise: f64, seed: u64) -> Vec<Visit> {
        let mut random = Random::new(seed);
        let mut visits = Vec::new();
        for &one in one {
            for (clients, x) in std::iter::once((1, one)).chain(MORE) {
                visits.push(visit(clients, x * (1.0 + noise * random.normal())));
            }
        }
        visits
    }

    fn of(visits: &[Visit], clients: u32) -> Option<TwoSpeeds> {
        bimodal(visits).into_iter().find(|t| t.clients == clients)
    }

    #[test]
    fn repetitions_at_two_speeds_are_named_with_both() {
        let seen = of(&rounds(&[SLOW, FAST, FAST, SLOW, FAST], 0.05, 1), 1).unwrap();
        assert_eq!((seen.seen.as_str(), seen.slow_times, seen.fast_times), ("between", 2, 3));
        assert!((seen.slow.unwrap() / SLOW - 1.0).abs() < 0.1 && (seen.fast.unwrap() / FAST - 1.0).abs() < 0.1);
        let once = of(&rounds(&[SLOW, FAST, FAST, FAST], 0.05, 2), 1).unwrap();
        assert_eq!((once.seen.as_str(), once.slow_times), ("between", 1));
        let others: Vec<u32> = bimodal(&rounds(&[SLOW, FAST, FAST, SLOW], 0.05, 3)).iter().map(|t| t.clients).collect();
        assert_eq!(others, [1], "a number that jumps does not make others jump");
    }

    #[test]
    fn a_number_of_which_only_one_speed_was_seen_is_suspected_because_of_its_neighbours() {
        let fast = of(&rounds(&[FAST; 4], 0.03, 1), 1).unwrap();
        assert_eq!((fast.seen.as_str(), fast.slow, fast.fast_times), ("neighbours", None, 4));
        assert!(fast.p50_ms.unwrap() * MIN_SPEED_RATIO < fast.expected_p50_ms.unwrap(), "{fast:?}");
        let more = [(1, 1200.0), (2, 4600.0), (4, 4900.0), (8, 5000.0)];
        let slow: Vec<Visit> = more.iter().chain(&more).map(|&(clients, x)| visit(clients, x)).collect();
        let slow = of(&slow, 1).unwrap();
        assert_eq!((slow.fast, slow.slow_times), (None, 2), "more than twice as much with two clients is no law's");
    }

    #[test]
    fn laws_of_contention_are_no_suspicion_however_steep() {
        let numbers = [1, 2, 4, 8, 16, 32];
        for (alpha, beta) in [(0.0, 0.0), (0.05, 1e-3), (0.5, 0.15), (1.0, 0.0), (1.0, 0.5), (0.9, 2.0)] {
            let law = |n: u32| fit::throughput(1000.0, alpha, beta, f64::from(n));
            let visits: Vec<Visit> = (0..3).flat_map(|_| numbers.map(|n| visit(n, law(n)))).collect();
            assert_eq!(bimodal(&visits), Vec::new(), "{alpha} {beta}");
        }
        let cliff = |n: u32| if n < 8 { 100.0 * f64::from(n) } else { 300.0 };
        let visits: Vec<Visit> = (0..3).flat_map(|_| numbers.map(|n| visit(n, cliff(n)))).collect();
        assert_eq!(bimodal(&visits), Vec::new(), "a cliff");
    }

    /// Thirty slices of 0.1 s at `speeds`, one after the other, each for as long.
    fn slices(speeds: &[f64], noise: f64, random: &mut Random) -> Vec<f64> {
        let each = 30 / speeds.len();
        let all = speeds.iter().flat_map(|&speed| vec![speed; each]);
        all.map(|speed| (speed * (1.0 + noise * random.normal())).max(0.0)).collect()
    }

    #[test]
    fn a_speed_that_changes_in_the_middle_of_measurements_is_seen_in_their_slices() {
        let mut random = Random::new(5);
        assert!(split_speeds(&slices(&[SLOW, FAST], 0.1, &mut random)).is_some());
        assert!(split_speeds(&slices(&[FAST, SLOW, FAST], 0.1, &mut random)).is_some());
        let flicker: Vec<f64> = (0..30).map(|i| if i % 2 == 0 { SLOW } else { FAST }).collect();
        assert_eq!(split_speeds(&flicker), None, "a speed lasts");
        assert_eq!(split_speeds(&slices(&[10.0, 40.0], 0.1, &mut random)), None, "too few operations to tell");
        assert_eq!(split_speeds(&[0.0; 30]), None);
        assert_eq!(split_speeds(&[]), None);
        let mut visits = rounds(&[3000.0; 4], 0.03, 6);
        for visit in &mut visits {
            visit.slices = match visit.clients {
                1 => slices(&[SLOW, FAST], 0.1, &mut random),
                _ => slices(&[visit.throughput], 0.1, &mut random),
            };
        }
        let seen = of(&visits, 1).unwrap();
        assert_eq!((seen.seen.as_str(), seen.slow_times), ("within", 4));
        for visit in &mut visits {
            visit.slices = slices(&[SLOW, FAST], 0.1, &mut random);
        }
        assert_eq!(bimodal(&visits), Vec::new(), "a change of all numbers is not this number's");
    }

    #[test]
    fn noise_alone_up_to_15_percent_between_and_30_percent_within_is_two_speeds_in_at_most_one_sweep_of_a_hundred() {
        let mut wrong = 0;
        for seed in 0..500 {
            let mut random = Random::new(seed);
            let noise = [0.02, 0.05, 0.1, 0.15][seed as usize % 4];
            let mut visits = rounds(&[2000.0; 7], noise, seed + 1000);
            for visit in &mut visits {
                visit.slices = slices(&[visit.throughput], 2.0 * noise, &mut random);
            }
            wrong += usize::from(!bimodal(&visits).is_empty());
        }
        assert!(wrong <= 5, "{wrong} of 500");
    }

    #[test]
    fn a_machine_that_is_slower_for_a_while_has_no_number_with_two_speeds() {
        let mut wrong = 0;
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let mut visits = rounds(&[2000.0; 7], 0.03, seed + 1000);
            let mut slow = false;
            for visit in &mut visits {
                slow ^= random.unit() < 0.1;
                visit.throughput *= if slow { 0.6 } else { 1.0 };
                visit.p50_ms = Some(f64::from(visit.clients) * 1000.0 / visit.throughput);
            }
            wrong += usize::from(!bimodal(&visits).is_empty());
        }
        assert!(wrong <= 10, "{wrong} of 200");
    }
}
