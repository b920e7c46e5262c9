//! What people are told to do: one number, or, where what is known of that number may not hold tomorrow, a range that
//! is safe and what it would take to know more. Puts into words and measures nothing.

use super::{
    chooser::MAX_LOSS,
    curve::{CurveEstimate, PointEstimate},
};
use report::result::sweep::{Safe, TwoSpeeds, Verdict};

/// Share of the best throughput that a safe number may lose.
const MAX_SAFE_LOSS: f64 = 0.15;

/// Why a verdict is not to be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Doubt {
    /// More clients than were tested may be better.
    NotBracketed,
    /// The fewest that were tested are the best: fewer may be better.
    OnlyFalls,
    /// The load generator was the limit.
    Generator,
    /// Measurements vary by so much that the recommendation may lose much.
    Noise,
    /// The recommended or the best number has two speeds, or may have.
    TwoSpeeds,
}

/// What a number does at least, whichever of its speeds it has tomorrow; `None`: its slower speed is not known.
fn worst_throughput(point: &PointEstimate, estimate: &CurveEstimate, verdict: &Verdict) -> Option<f64> {
    let measured = point.smoothed * (1.0 - estimate.standard_error(point.visits));
    match verdict.two_speeds.iter().find(|t| t.clients == point.clients) {
        Some(speeds) => speeds.slow.map(|slow| slow.min(measured)),
        None => Some(measured),
    }
}

/// The numbers around the best that lose little, each taken at its worst, and the smallest one within 5% of the
/// best of them.
pub(super) fn safe_range(estimate: &CurveEstimate, verdict: &Verdict) -> Option<(Safe, PointEstimate)> {
    let at_worst: Vec<f64> =
        estimate.points.iter().map(|p| worst_throughput(p, estimate, verdict).unwrap_or(0.0)).collect();
    let top = (0..at_worst.len()).max_by(|&a, &b| at_worst[a].total_cmp(&at_worst[b]).then(b.cmp(&a)))?;
    let best = at_worst[top];
    if best <= 0.0 {
        return None;
    }
    let is_good = |i: &usize| at_worst[*i] >= (1.0 - MAX_SAFE_LOSS) * best;
    let from = (0..=top).rev().take_while(is_good).last()?;
    let to = (top..at_worst.len()).take_while(is_good).last()?;
    let throughput = at_worst[from..=to].iter().copied().fold(f64::INFINITY, f64::min);
    let least = (from..=to).find(|&i| at_worst[i] >= (1.0 - MAX_LOSS) * best)?;
    let safe = Safe { from: estimate.points[from].clients, to: estimate.points[to].clients, throughput };
    Some((safe, estimate.points[least]))
}

/// Whether no single number can be recommended: in doubt an extreme of what was tested is not, nor a number that has
/// two speeds.
pub(super) fn is_range(estimate: &CurveEstimate, recommended: u32, two_speeds: &[TwoSpeeds], doubts: &[Doubt]) -> bool {
    let ends = [estimate.points.first(), estimate.points.last()];
    let is_extreme = ends.into_iter().flatten().any(|p| p.clients == recommended);
    let is_unsteady = two_speeds.iter().any(|t| t.clients == recommended);
    !doubts.is_empty() && (is_extreme || is_unsteady)
}

/// What it would take to be more certain. `most`: the largest number that was tested.
pub(super) fn to_know(verdict: &Verdict, doubts: &[Doubt], most: u32) -> Vec<String> {
    let sentence = |doubt: &Doubt| match doubt {
        Doubt::NotBracketed => {
            format!("Sweep further, on a copy that lets more in: --clients {most}..{}.", most.saturating_mul(4))
        }
        Doubt::OnlyFalls => format!("Sweep from 1: --clients 1..{most}."),
        Doubt::Generator => "Use a heavier script, or several load machines.".to_owned(),
        Doubt::Noise => "Measure longer, on a quieter machine: --point-time 10s, and more --rounds.".to_owned(),
        Doubt::TwoSpeeds => format!(
            "Sweep again in an hour, and after the server was started anew, until {} had the same speed each time; \
             or on a machine whose processors do not sleep (a virtual machine wakes a sleeping processor slowly), \
             with the load from another machine.",
            describe_two_speed_clients(verdict)
        ),
    };
    doubts.iter().map(sentence).collect()
}

/// The numbers with two speeds that matter to the verdict.
fn describe_two_speed_clients(verdict: &Verdict) -> String {
    let numbers: Vec<String> = verdict.two_speeds.iter().map(|t| t.clients.to_string()).collect();
    let clients = if verdict.two_speeds.iter().all(|t| t.clients == 1) { "client" } else { "clients" };
    format!("{} {clients}", numbers.join(" and "))
}
