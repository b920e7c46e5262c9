//! The prediction as text of at most 100 columns: the answer, a table, the reasons, what to paste.

use std::io::{self, Write};

use ::report::{
    figures::printable,
    grid::{WIDTH, wrap},
    run_text,
};

use crate::prediction::Prediction;

/// Most given cases whose settings are printed.
const MAX_GIVEN: usize = 6;
/// Column at which the text of a reason begins.
const REASON_COLUMN: usize = 20;

/// # Errors
/// The errors of `out`.
pub fn write(out: &mut dyn Write, prediction: &Prediction) -> io::Result<()> {
    if !prediction.about.is_empty() {
        writeln!(out, "{}\n", wrap(&printable(&prediction.about), 0, WIDTH))?;
    }
    for text in &prediction.answer {
        let (lead, text) = text.strip_prefix("  ").map_or(("", text.as_str()), |text| ("  ", text));
        line(out, lead, text)?;
    }
    if !prediction.answer.is_empty() {
        writeln!(out)?;
    }
    writeln!(out, "{}", printable(&prediction.name))?;
    if let Some(case) = prediction.given.first() {
        line(out, "  load        ", &case.result.about.load)?;
        if let Some(way) = case.result.about.way.as_ref().filter(|way| *way != "straight") {
            line(out, "  way         ", way)?;
        }
    }
    line(out, "  server      ", &prediction.server)?;
    line(out, "  objectives  ", &prediction.objectives.join(", "))?;
    for case in prediction.given.iter().take(MAX_GIVEN) {
        let own = case.result.name.split_once(": ").map_or(case.result.name.as_str(), |(_, own)| own);
        let label = if prediction.given.len() > 1 { format!("{own}: ") } else { String::new() };
        line(out, "  given       ", &format!("{label}{}", case.result.about.pool))?;
    }
    if prediction.given.len() > MAX_GIVEN {
        line(out, "              ", &format!("and {} more, as below", prediction.given.len() - MAX_GIVEN))?;
    }
    writeln!(out)?;
    let mut results = prediction.results();
    if let [one] = &mut results[..] {
        "as given".clone_into(&mut one.name);
    }
    run_text::figures_by_step(&results).write(out, WIDTH)?;
    writeln!(out)?;
    for reason in &prediction.reasons {
        let about = format!("  {:<width$}", reason.about, width = REASON_COLUMN - 2);
        line(out, &about, &reason.text)?;
    }
    for text in &prediction.assumed {
        line(out, "  assumed: ", text)?;
    }
    for text in &prediction.warnings {
        line(out, "  warning: ", text)?;
    }
    for fragment in &prediction.fragments {
        writeln!(out)?;
        line(out, "", &format!("{}:", prediction.heading(fragment)))?;
        for text in fragment.text.lines() {
            writeln!(out, "{}", if text.is_empty() { String::new() } else { format!("    {text}") })?;
        }
    }
    Ok(())
}

/// Writes a label and a text. Wrapped lines are aligned with the first one.
fn line(out: &mut dyn Write, label: &str, text: &str) -> io::Result<()> {
    writeln!(out, "{label}{}", wrap(&printable(text), label.chars().count(), WIDTH))
}
