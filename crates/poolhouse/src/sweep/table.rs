//! What a sweep has found, as text: the curve with bars, what to use, why. Knows the result, not how it came about.

use std::fmt::Write;

use ::report::sweep_sentences::{describe_recommendation, format_amount};
use ::report::{
    self, printable,
    result::sweep::{Curve, SweepResult, Verdict},
};

/// The longest bar.
const BAR: f64 = 30.0;

/// Everything for standard output.
pub fn text(result: &SweepResult) -> String {
    let mut text = String::new();
    let server = result.about.server.as_deref().unwrap_or("server");
    let about = format!("{server} at {}: {}", result.about.target, result.about.load);
    let _ = writeln!(text, "{}\n", printable(&about));
    if let Some(scenario) = report::scenario(&result.about) {
        let _ = writeln!(text, "{scenario}\n");
    }
    let verdict = result.verdict.as_ref();
    curve(&mut text, &result.direct, verdict);
    if result.verdict.is_some() {
        text.push_str("smoothed: near the top drawn towards the neighbours; best and recommendation go by it\n");
    }
    if let Some(through) = &result.through {
        let _ = writeln!(text, "\n{}", printable(&format!("{}, {}", through.name, through.target)));
        curve(&mut text, through, None);
    }
    if let Some(verdict) = verdict {
        let _ = writeln!(text, "\n{}", printable(&describe_recommendation(verdict)));
        verdict.because.iter().for_each(|line| writeln!(text, "  {}", printable(line)).expect("a string"));
        for line in &verdict.to_know {
            let _ = writeln!(text, "  To know more: {}", printable(line));
        }
    }
    law(&mut text, &result.direct);
    if let Some(settings) = &result.settings {
        text.push_str("\nSettings\n");
        settings.because.iter().for_each(|line| writeln!(text, "  {}", printable(line)).expect("a string"));
    }
    for said in &result.about.doctor {
        let _ = writeln!(text, "\ndoctor: {}", printable(said));
    }
    for warning in &result.warnings {
        let _ = writeln!(text, "\nwarning: {}", printable(warning));
    }
    text
}

/// What is marked of a curve: what to use, or what is safe; and the best.
fn mark(clients: u32, verdict: &Verdict) -> &'static str {
    let is_safe = verdict.safe.is_some_and(|safe| (safe.from..=safe.to).contains(&clients));
    match () {
        () if !verdict.is_range() && clients == verdict.recommended_clients => "  <- use this",
        () if verdict.is_range() && is_safe => "  <- safe",
        () if clients == verdict.best_clients => "  <- the best",
        () => "",
    }
}

fn curve(text: &mut String, curve: &Curve, verdict: Option<&Verdict>) {
    let top = curve.points.iter().map(|p| p.throughput).fold(0.0, f64::max);
    let _ = writeln!(text, "clients  operations/s   +-%  smoothed     p50      p95      p99 ms  times");
    for point in &curve.points {
        let half = if point.throughput > 0.0 { 50.0 * (point.high - point.low) / point.throughput } else { 0.0 };
        let bar = if top > 0.0 { (BAR * point.throughput / top).round() as usize } else { 0 };
        let mark = verdict.map_or("", |verdict| mark(point.clients, verdict));
        let _ = writeln!(
            text,
            "{:>7}  {:>12}  {:>4.1} {:>9} {:>8} {:>8} {:>8} {:>6}  {}{mark}",
            point.clients,
            format_amount(point.throughput),
            half,
            point.believed.map_or_else(|| "-".to_owned(), format_amount),
            milliseconds(point.p50_ms),
            milliseconds(point.p95_ms),
            milliseconds(point.p99_ms),
            point.visits,
            "#".repeat(bar),
        );
    }
}

fn law(text: &mut String, curve: &Curve) {
    let Some(fit) = &curve.fit else { return };
    let peak = match (fit.peak_clients, fit.peak_tested) {
        (Some(peak), true) => format!("peak at {peak:.0}"),
        (Some(_), false) => "its peak lies outside what was tested, so it says nothing".to_owned(),
        (None, _) => "no peak".to_owned(),
    };
    let _ = writeln!(
        text,
        "  Universal Scalability Law: contention {:.4} ({:.4} to {:.4}), coherency {:.2e} ({:.2e} to {:.2e}), {peak}; \
         it is off by {:.1}%.",
        fit.alpha.value,
        fit.alpha.low,
        fit.alpha.high,
        fit.beta.value,
        fit.beta.low,
        fit.beta.high,
        100.0 * fit.residual,
    );
}

fn milliseconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::report::result::sweep::{CurvePoint, Safe};

    #[test]
    fn the_table_marks_what_to_use_and_leaves_out_what_is_not_known() {
        let believed = Some(950.0);
        let point =
            |clients, throughput| CurvePoint { clients, throughput, believed, visits: 3, ..CurvePoint::default() };
        let result = SweepResult {
            direct: Curve { points: vec![point(8, 900.0), point(16, 1000.0)], ..Curve::default() },
            verdict: Some(Verdict {
                best_clients: 16,
                recommended_clients: 8,
                because: vec!["Because.".to_owned()],
                ..Verdict::default()
            }),
            warnings: vec!["Careful.".to_owned(), "It said \u{1b}[2Jboo".to_owned()],
            ..SweepResult::default()
        };
        let text = text(&result);
        let line = |words: &str| text.lines().find(|l| l.contains(words)).unwrap_or_else(|| panic!("{words}:\n{text}"));
        assert!(line("<- use this").trim_start().starts_with("8 "));
        assert!(line("<- the best").trim_start().starts_with("16 "));
        assert!(line("<- the best").contains("1,000") && line("<- the best").contains(" 950 "), "{text}");
        assert!(line("Use 8 connections").contains("not bracketed"));
        assert!(line("<- use this").contains(" - "), "what is not known is no zero");
        line("warning: Careful.");
        assert!(line("boo").contains("\u{fffd}[2J") && !text.contains('\u{1b}'), "what servers say moves no cursor");
    }

    #[test]
    fn a_range_is_told_without_a_number_to_use() {
        let point = |clients| CurvePoint { clients, throughput: 1000.0, ..CurvePoint::default() };
        let verdict = Verdict {
            best_clients: 1,
            recommended_clients: 2,
            bracketed: true,
            bracketed_below: true,
            advice: "range".to_owned(),
            safe: Some(Safe { from: 2, to: 8, throughput: 900.0 }),
            to_know: vec!["Sweep again.".to_owned()],
            ..Verdict::default()
        };
        let result = SweepResult {
            direct: Curve { points: [1, 2, 8, 16].map(point).to_vec(), ..Curve::default() },
            verdict: Some(verdict),
            ..SweepResult::default()
        };
        let text = text(&result);
        assert!(text.contains("No number is recommended yet. 2 to 8 connections are safe.\n"), "{text}");
        assert!(
            text.contains("To know more: Sweep again.") && !text.contains("Use ") && !text.contains("use this"),
            "{text}"
        );
        assert_eq!((text.matches("<- safe").count(), text.matches("<- the best").count()), (2, 1), "{text}");
    }
}
