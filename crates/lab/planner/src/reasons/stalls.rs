//! Whether what the objectives ask for can see the stalls: one that the load is over before, or that too few operations
//! meet for the percentile, is met by every pool.

use std::time::Duration;

use arrivals::{Fault, Shape, Window};
use load::plan::Plan;

use super::Words;
use crate::{
    question::Question,
    words::{percent, time},
};

/// What the reader is to know of that.
pub(super) fn say(question: &Question, words: &mut Words) {
    let mut told: Vec<String> = question.cases.iter().filter_map(|case| unseen(question, case)).collect();
    told.dedup();
    told.into_iter().for_each(|text| words.warn(text));
}

fn unseen(question: &Question, case: &Plan) -> Option<String> {
    let Shape::Open { stages, .. } = &case.shape else { return None };
    let length: Duration = stages.iter().map(|stage| stage.duration).sum();
    let windows = case.faults.iter().filter_map(|fault| match fault {
        Fault::Stall { window, .. } | Fault::BlackHole { window } => Some(*window),
        Fault::Delay { .. } | Fault::Forget { .. } | Fault::Cut { .. } => None,
    });
    let worst = windows.max_by_key(|window| window.length)?;
    let late = covered(worst, length);
    if late.is_zero() {
        return Some(format!(
            "The first stall would begin after {}, and the load lasts {}: it never comes. Give a longer load, or say when it begins \
             (DELAY/LENGTH/EVERY@FIRST).",
            time(worst.first),
            time(length)
        ));
    }
    // Steps are judged by themselves.
    let share = late.as_secs_f64() / length.as_secs_f64();
    let finest = question.objectives.iter().filter_map(|objective| Some((objective.rank()?, objective.text())));
    let (rank, text) = finest.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (stages.len() == 1 && share < 2.0 * (1.0 - rank)).then(|| {
        format!(
            "Answers are late for {} of the load: {text} over all of it hardly sees that, and a pool that it finds large enough may not \
             bridge the stall. Plan a minute around one stall (leave out the duration), or ask for a higher percentile, p999 or max.",
            percent(share)
        )
    })
}

/// For how long a load is in one of the windows.
fn covered(window: Window, length: Duration) -> Duration {
    let (mut begins, mut covered) = (window.first, Duration::ZERO);
    while begins < length {
        covered += window.length.min(length - begins);
        match window.every {
            Some(every) if !every.is_zero() => begins += every,
            _ => break,
        }
    }
    covered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_late_of_a_load_is_the_windows_that_it_lasts_for() {
        let s = Duration::from_secs;
        let window = |first, every: Option<u64>| Window { first: s(first), length: s(3), every: every.map(s) };
        assert_eq!(covered(window(300, Some(300)), s(60)), Duration::ZERO);
        assert_eq!(covered(window(20, Some(20)), s(60)), s(6));
        assert_eq!(covered(window(20, Some(20)), s(61)), s(7));
        assert_eq!(covered(window(20, None), s(600)), s(3));
    }
}
