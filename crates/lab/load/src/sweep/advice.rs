//! What people are told to do: one number, or, where what is known of that number may not hold tomorrow, a range that
//! is safe and what it would take to know more. Puts into words and measures nothing.

use super::{
    chooser::WITHIN,
    curve::{Known, Place},
    result::{Safe, TwoSpeeds, Verdict},
};

/// A number is safe if it does this much less than the best of them, or better.
const SAFE_LOSS: f64 = 0.15;

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
fn at_worst(place: &Place, known: &Known, verdict: &Verdict) -> Option<f64> {
    let measured = place.believed * (1.0 - known.error(place.visits));
    match verdict.two_speeds.iter().find(|t| t.clients == place.clients) {
        Some(speeds) => speeds.slow.map(|slow| slow.min(measured)),
        None => Some(measured),
    }
}

/// The numbers around the best that lose little, each taken at its worst, and the smallest of those within 5% of the
/// best of them.
pub(super) fn safe(known: &Known, verdict: &Verdict) -> Option<(Safe, Place)> {
    let at_worst: Vec<f64> = known.points.iter().map(|p| at_worst(p, known, verdict).unwrap_or(0.0)).collect();
    let top = (0..at_worst.len()).max_by(|&a, &b| at_worst[a].total_cmp(&at_worst[b]).then(b.cmp(&a)))?;
    let best = at_worst[top];
    if best <= 0.0 {
        return None;
    }
    let is_good = |i: &usize| at_worst[*i] >= (1.0 - SAFE_LOSS) * best;
    let from = (0..=top).rev().take_while(is_good).last()?;
    let to = (top..at_worst.len()).take_while(is_good).last()?;
    let throughput = at_worst[from..=to].iter().copied().fold(f64::INFINITY, f64::min);
    let least = (from..=to).find(|&i| at_worst[i] >= (1.0 - WITHIN) * best)?;
    let safe = Safe { from: known.points[from].clients, to: known.points[to].clients, throughput };
    Some((safe, known.points[least]))
}

/// Whether no single number can be recommended: in doubt an extreme of what was tested is not, nor a number that has
/// two speeds.
pub(super) fn is_range(known: &Known, recommended: u32, two_speeds: &[TwoSpeeds], doubts: &[Doubt]) -> bool {
    let ends = [known.points.first(), known.points.last()];
    let is_extreme = ends.into_iter().flatten().any(|p| p.clients == recommended);
    let is_unsteady = two_speeds.iter().any(|t| t.clients == recommended);
    !doubts.is_empty() && (is_extreme || is_unsteady)
}

/// What to do, in one line.
pub fn lead(verdict: &Verdict) -> String {
    let open = match (verdict.bracketed, verdict.bracketed_below) {
        (true, true) => "",
        (true, false) => " or fewer (fewer were not tested)",
        (false, _) => " or more (not bracketed)",
    };
    if !verdict.is_range() {
        return format!("Use {}{open}.", connections(verdict.recommended_clients));
    }
    match verdict.safe {
        Some(Safe { from, to, .. }) if from == to => {
            format!("No number is recommended yet. Of those tested, {}{open} can be relied on.", connections(from))
        }
        Some(Safe { from, to, .. }) => {
            format!("No number is recommended yet. {from} to {to} connections{open} are safe.")
        }
        None => "No number is recommended, and none is safe.".to_owned(),
    }
}

fn connections(number: u32) -> String {
    if number == 1 { "1 connection".to_owned() } else { format!("{number} connections") }
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
            "Sweep again in an hour, and after the server was started anew, until {} had the same speed each time; or on a machine whose \
             processors do not sleep (a virtual machine wakes a sleeping processor slowly), with the load from another machine.",
            unsteady(verdict)
        ),
    };
    doubts.iter().map(sentence).collect()
}

/// The numbers with two speeds that matter to the verdict.
fn unsteady(verdict: &Verdict) -> String {
    let numbers: Vec<String> = verdict.two_speeds.iter().map(|t| t.clients.to_string()).collect();
    let clients = if verdict.two_speeds.iter().all(|t| t.clients == 1) { "client" } else { "clients" };
    format!("{} {clients}", numbers.join(" and "))
}

/// What the reader must know of a number with two speeds.
pub fn named(speeds: &TwoSpeeds) -> String {
    let who = if speeds.clients == 1 { "1 client has".to_owned() } else { format!("{} clients have", speeds.clients) };
    let (slow, fast) = (speeds.slow.map(amount), speeds.fast.map(amount));
    match (speeds.seen.as_str(), slow, fast) {
        ("within", Some(slow), Some(fast)) => format!(
            "{who} two speeds: in {} measurements it changed in the middle between {slow}/s and {fast}/s. Which one there is tomorrow is \
             chance.",
            speeds.slow_times
        ),
        (_, Some(slow), Some(fast)) => format!(
            "{who} two speeds: {slow}/s in {} of {} measurements, and {fast}/s in the others, each with new connections. Which one there \
             is tomorrow is chance.",
            speeds.slow_times,
            speeds.slow_times + speeds.fast_times
        ),
        (_, slow, _) => format!(
            "{who} perhaps two speeds, and only the {} one was seen: a median response of {:.2} ms, where other numbers of clients let \
             expect {:.2} ms.",
            if slow.is_some() { "slower" } else { "faster" },
            speeds.p50_ms.unwrap_or_default(),
            speeds.expected_p50_ms.unwrap_or_default(),
        ),
    }
}

/// A number for people: `12,341`, `8.4`.
pub fn amount(number: f64) -> String {
    if number < 100.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_thousands_set_apart() {
        assert_eq!(
            [amount(8.44), amount(999.4), amount(12_341.2), amount(1_234_567.0)],
            ["8.4", "999", "12,341", "1,234,567"]
        );
    }

    #[test]
    fn one_number_or_a_range_is_told_and_never_both() {
        let sure = Verdict { recommended_clients: 1, bracketed: true, bracketed_below: true, ..Verdict::default() };
        assert_eq!(lead(&sure), "Use 1 connection.");
        let rising = Verdict { recommended_clients: 64, bracketed_below: true, ..Verdict::default() };
        assert_eq!(lead(&rising), "Use 64 connections or more (not bracketed).");
        let range = |from, to| {
            let safe = Some(Safe { from, to, throughput: 100.0 });
            lead(&Verdict { advice: "range".to_owned(), safe, ..sure.clone() })
        };
        assert_eq!(range(2, 8), "No number is recommended yet. 2 to 8 connections are safe.");
        assert_eq!(range(8, 8), "No number is recommended yet. Of those tested, 8 connections can be relied on.");
        let none = Verdict { advice: "range".to_owned(), ..sure };
        assert!(lead(&none).starts_with("No number is recommended"), "{}", lead(&none));
    }

    #[test]
    fn a_number_with_two_speeds_is_named_with_what_was_seen_of_it() {
        let between = TwoSpeeds {
            clients: 1,
            seen: "between".to_owned(),
            slow: Some(1200.0),
            fast: Some(5500.0),
            slow_times: 2,
            fast_times: 3,
            ..TwoSpeeds::default()
        };
        let said = named(&between);
        assert!(said.starts_with("1 client has two speeds: 1,200/s in 2 of 5 measurements, and 5,500/s in"), "{said}");
        let within = TwoSpeeds { clients: 2, seen: "within".to_owned(), ..between.clone() };
        assert!(
            named(&within).starts_with("2 clients have two speeds: in 2 measurements it changed"),
            "{}",
            named(&within)
        );
        let (p50_ms, expected_p50_ms) = (Some(0.18), Some(0.32));
        let neighbours = TwoSpeeds { seen: "neighbours".to_owned(), slow: None, p50_ms, expected_p50_ms, ..between };
        let said = named(&neighbours);
        assert!(said.contains("perhaps") && said.contains("faster") && said.contains("0.18 ms"), "{said}");
    }
}
