//! Warnings of which there are many alike, such as one about each of 10,000 databases.

use std::collections::HashMap;

use settings::{Problem, Severity};

/// The most warnings with the same advice that are shown.
const MAX_ALIKE: usize = 20;

/// Leaves out what says the same once more, and counts it.
pub(super) fn fold(found: &mut Vec<Problem>) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    found.retain(|problem| {
        let Some(hint) = problem.hint.as_ref().filter(|_| problem.severity == Severity::Warning) else { return true };
        let count = counts.entry(hint.clone()).or_default();
        *count += 1;
        *count <= MAX_ALIKE
    });
    for (hint, count) in counts.into_iter().filter(|(_, count)| *count > MAX_ALIKE) {
        let last = found
            .iter()
            .rposition(|problem| problem.severity == Severity::Warning && problem.hint.as_ref() == Some(&hint))
            .expect("the first ones stay");
        let text = format!("{} more warnings are like the one before", count - MAX_ALIKE);
        let file = found[last].file.clone();
        found.insert(last + 1, Problem { file, ..Problem::warning(text) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_alike_are_counted_and_errors_stay() {
        let mut found: Vec<Problem> = (0..30).map(|n| Problem::warning(format!("of {n}")).hint("do this")).collect();
        found.extend((0..30).map(|n| Problem::error(format!("of {n}")).hint("do this")));
        fold(&mut found);
        assert_eq!(found.len(), 20 + 30 + 1);
        assert!(found.iter().any(|problem| problem.message == "10 more warnings are like the one before"));
    }
}
