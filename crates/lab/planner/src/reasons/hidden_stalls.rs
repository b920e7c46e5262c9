//! Warns of stalls that the objectives cannot show, so that any pool meets them: a stall after the end of the load, or
//! one that affects too few operations for the percentile.

use std::time::Duration;

use arrivals::{Fault, Shape, Window};
use load::plan::Plan;

use super::Explanation;
use crate::{
    question::Question,
    words::{percent, time},
};

pub(super) fn warn(question: &Question, to: &mut Explanation) {
    let mut warnings: Vec<String> = question.loads.iter().filter_map(|load| warning(question, load)).collect();
    warnings.dedup();
    to.warnings.extend(warnings);
}

fn warning(question: &Question, load: &Plan) -> Option<String> {
    let Shape::Open { stages, .. } = &load.shape else { return None };
    let length: Duration = stages.iter().map(|stage| stage.duration).sum();
    let windows = load.faults.iter().filter_map(|fault| match fault {
        Fault::Stall { window, .. } | Fault::BlackHole { window } => Some(*window),
        Fault::Delay { .. } | Fault::Forget { .. } | Fault::Cut { .. } => None,
    });
    // A stall after the end of the load matters only where none is within it.
    let worst = windows.max_by_key(|window| (!stalled_time(*window, length).is_zero(), window.length))?;
    let late = stalled_time(worst, length);
    if late.is_zero() {
        return Some(format!(
            "The first stall would begin after {}, and the load lasts {}: it never comes. Give a longer load, or say \
             when it begins (DELAY/LENGTH/EVERY@FIRST).",
            time(worst.first),
            time(length)
        ));
    }
    let share = late.as_secs_f64() / length.as_secs_f64();
    let ranks = question.objectives.iter().filter_map(|objective| Some((objective.rank()?, objective.text())));
    let (rank, text) = ranks.max_by(|one, other| one.0.total_cmp(&other.0))?;
    // Each of several stages is judged by itself.
    (stages.len() == 1 && share < 2.0 * (1.0 - rank)).then(|| {
        format!(
            "Answers are late for {} of the load: {text} over all of it hardly sees that, and a pool that it finds \
             large enough may not bridge the stall. Plan a minute around one stall (leave out the duration), or ask \
             for a higher percentile, p999 or max.",
            percent(share)
        )
    })
}

/// The sum of the stall's windows within a load of this length.
fn stalled_time(window: Window, load_length: Duration) -> Duration {
    let (mut begins, mut stalled) = (window.first, Duration::ZERO);
    while begins < load_length {
        stalled += window.length.min(load_length - begins);
        match window.every {
            Some(every) if !every.is_zero() => begins += every,
            _ => break,
        }
    }
    stalled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stalled_time_is_that_of_all_windows_within_the_load() {
        let s = Duration::from_secs;
        let window = |first, every: Option<u64>| Window { first: s(first), length: s(3), every: every.map(s) };
        assert_eq!(stalled_time(window(300, Some(300)), s(60)), Duration::ZERO);
        assert_eq!(stalled_time(window(20, Some(20)), s(60)), s(6));
        assert_eq!(stalled_time(window(20, Some(20)), s(61)), s(7));
        assert_eq!(stalled_time(window(20, None), s(600)), s(3));
    }
}
