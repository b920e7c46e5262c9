//! The findings of a sweep in sentences.

use crate::{
    figures,
    result::sweep::{Safe, TwoSpeeds, Verdict},
};

/// The recommendation in one line.
pub fn describe_recommendation(verdict: &Verdict) -> String {
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
            format!(
                "No number is recommended yet. Of the tested numbers, {}{open} can be relied on.",
                connections(from)
            )
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

/// A warning about a number of clients with two speeds.
pub fn describe_two_speeds(speeds: &TwoSpeeds) -> String {
    let who = if speeds.clients == 1 { "1 client has".to_owned() } else { format!("{} clients have", speeds.clients) };
    let (slow, fast) = (speeds.slow.map(format_amount), speeds.fast.map(format_amount));
    match (speeds.seen.as_str(), slow, fast) {
        ("within", Some(slow), Some(fast)) => format!(
            "{who} two speeds: in {} measurements it changed in the middle between {slow}/s and {fast}/s. Which one \
             there is tomorrow is chance.",
            speeds.slow_times
        ),
        (_, Some(slow), Some(fast)) => format!(
            "{who} two speeds: {slow}/s in {} of {} measurements, and {fast}/s in the others, each with new \
             connections. Which one there is tomorrow is chance.",
            speeds.slow_times,
            speeds.slow_times + speeds.fast_times
        ),
        (_, slow, _) => format!(
            "{who} perhaps two speeds, and only the {} one was seen: a median response of {:.2} ms, where other \
             numbers of clients let expect {:.2} ms.",
            if slow.is_some() { "slower" } else { "faster" },
            speeds.p50_ms.unwrap_or_default(),
            speeds.expected_p50_ms.unwrap_or_default(),
        ),
    }
}

/// A number for people: `12,341`, `8.4`.
pub fn format_amount(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { figures::count(number.round_ties_even() as u64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_thousands_separators() {
        assert_eq!(
            [format_amount(8.44), format_amount(999.4), format_amount(12_341.2), format_amount(1_234_567.0)],
            ["8.4", "999", "12,341", "1,234,567"]
        );
    }

    #[test]
    fn the_recommendation_is_one_number_or_a_range() {
        let sure = Verdict { recommended_clients: 1, bracketed: true, bracketed_below: true, ..Verdict::default() };
        assert_eq!(describe_recommendation(&sure), "Use 1 connection.");
        let rising = Verdict { recommended_clients: 64, bracketed_below: true, ..Verdict::default() };
        assert_eq!(describe_recommendation(&rising), "Use 64 connections or more (not bracketed).");
        let range = |from, to| {
            let safe = Some(Safe { from, to, throughput: 100.0 });
            describe_recommendation(&Verdict { advice: "range".to_owned(), safe, ..sure.clone() })
        };
        assert_eq!(range(2, 8), "No number is recommended yet. 2 to 8 connections are safe.");
        assert_eq!(range(8, 8), "No number is recommended yet. Of the tested numbers, 8 connections can be relied on.");
        let none = Verdict { advice: "range".to_owned(), ..sure };
        assert!(
            describe_recommendation(&none).starts_with("No number is recommended"),
            "{}",
            describe_recommendation(&none)
        );
    }

    #[test]
    fn a_number_with_two_speeds_is_described_by_how_it_was_seen() {
        let between = TwoSpeeds {
            clients: 1,
            seen: "between".to_owned(),
            slow: Some(1200.0),
            fast: Some(5500.0),
            slow_times: 2,
            fast_times: 3,
            ..TwoSpeeds::default()
        };
        let text = describe_two_speeds(&between);
        assert!(text.starts_with("1 client has two speeds: 1,200/s in 2 of 5 measurements, and 5,500/s in"), "{text}");
        let within = TwoSpeeds { clients: 2, seen: "within".to_owned(), ..between.clone() };
        assert!(
            describe_two_speeds(&within).starts_with("2 clients have two speeds: in 2 measurements it changed"),
            "{}",
            describe_two_speeds(&within)
        );
        let (p50_ms, expected_p50_ms) = (Some(0.18), Some(0.32));
        let neighbours = TwoSpeeds { seen: "neighbours".to_owned(), slow: None, p50_ms, expected_p50_ms, ..between };
        let text = describe_two_speeds(&neighbours);
        assert!(text.contains("perhaps") && text.contains("faster") && text.contains("0.18 ms"), "{text}");
    }
}
