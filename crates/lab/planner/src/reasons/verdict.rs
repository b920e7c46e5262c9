//! Explains which settings meet the objectives, by what margin and how certainly; or why none does.

use super::{Explanation, limits};
use crate::{
    prediction::{Best, Prediction},
    question::{Missed, Question},
    run::{LOAD_NOT_STARTED, STOPPED_EARLY},
    search::Bound,
    words::{counted, ms, percent},
};

/// Most given cases that are explained.
const MAX_CASES: usize = 6;
/// Most missed objectives that are named of one case.
const MAX_MISSED: usize = 2;

/// Names the objectives that the given settings miss.
fn explain_given(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    for (case, load) in prediction.given.iter().zip(&question.loads).take(MAX_CASES) {
        let own = case.result.name.split_once(": ").map_or("as given", |(_, own)| own);
        let text = match &case.missed[..] {
            [] if limits::could_want_more(question, load) => {
                "meets the objectives under this load, but could want more connections than the server has.".to_owned()
            }
            [] => "meets the objectives.".to_owned(),
            all => {
                let more = all.len().saturating_sub(MAX_MISSED);
                let more = if more > 0 { format!(" and {}", counted(more as u64, "other")) } else { String::new() };
                let named: Vec<String> = all.iter().take(MAX_MISSED).map(describe_miss).collect();
                format!("misses {}{more}.", named.join(", "))
            }
        };
        to.reason("given", format!("{own}: {text}"));
    }
}

fn describe_miss(miss: &Missed) -> String {
    let step = miss.step.as_ref().map_or(String::new(), |step| format!(" in the step {step}"));
    format!("{} ({}{step})", miss.objective, miss.measured)
}

/// An adjective for "smallest": with low confidence in the curve, only its reliable range is searched.
fn size_adjective(prediction: &Prediction) -> &'static str {
    if prediction.facts.server_safe.is_some() { " reliable one" } else { "" }
}

pub(super) fn explain(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    if !question.is_sweep {
        explain_given(question, prediction, to);
    }
    if let Some(forbidden) = &prediction.forbidden {
        to.reason("none", forbidden.clone());
    }
    let Some(best) = &prediction.best else { return };
    if let (true, Some(_)) = (best.met, &prediction.facts.server_doubt) {
        to.reason(
            "found",
            format!("By the curve's figures {} would do, and nobody knows whether it does.", best.words),
        );
        return;
    }
    if question.is_sweep && best.met {
        let all = prediction.objectives.join(", ");
        to.reason("found", format!("{} is the smallest{} that meets {all}.", best.words, size_adjective(prediction)));
        return;
    }
    if best.met {
        let which = size_adjective(prediction);
        let text = match best.too_small {
            // The whole loads raised the size in steps.
            Some(size) if size + 1 < best.sizes.max_size => {
                format!("meets the objectives. A max_size of {size} is too small; one between them may do.")
            }
            Some(size) => {
                format!("is the smallest{which} that meets the objectives. A max_size of {size} is too small.")
            }
            None => format!("is the smallest{which} that meets the objectives."),
        };
        to.reason("found", format!("{} {text}", best.words));
        return;
    }
    let missed: Vec<String> =
        best.cases.iter().flat_map(|case| &case.missed).take(MAX_MISSED).map(describe_miss).collect();
    let lead = match prediction.needs_one_in_front() {
        true => "Without one in front no setting of the instances' pools",
        false => "No setting",
    };
    to.reason(
        "none",
        format!("{lead} meets the objectives. The nearest, {}, misses {}.", best.words, missed.join(", ")),
    );
    explain_failure(question, prediction, best, to);
}

/// Why no setting meets the objectives.
fn explain_failure(question: &Question, prediction: &Prediction, best: &Best, to: &mut Explanation) {
    let cases = prediction.given.iter().chain(&best.cases);
    let in_front = cases.filter_map(|case| case.result.total.front_wait_ms.as_ref()).map(|waits| waits.p99);
    if let Some(in_front) = in_front.reduce(f64::max).filter(|p99| *p99 > 0.0) {
        to.reason(
            "why",
            format!(
                "Behind larger pools the wait is in that of the Poolhouse in front, where 1 of 100 waits for up to \
                 {}: try a larger max_size there.",
                ms(in_front)
            ),
        );
    }
    // On a shared server, service times depend on the concurrency that the pool allows.
    let is_shared = question.spec.curve.is_some() || question.spec.processors.is_some();
    for (objective, limit) in question.objectives.iter().filter_map(|one| Some((one, one.response_limit_ms()?))) {
        // Behind the pool of a Poolhouse in front, service times include the wait there.
        let alone = best.cases.iter().filter(|case| case.result.total.front_wait_ms.is_none());
        let service = alone.filter_map(|case| case.result.total.service_ms.as_ref()).map(|all| all.p99);
        if let Some(service) =
            service.reduce(f64::max).filter(|service| *service > limit && objective.text().contains("p99"))
        {
            let verdict = if is_shared {
                format!(
                    "more than {} allows: with fewer at once it takes less, and the wait before it more.",
                    objective.text()
                )
            } else {
                format!("which is the database and the way to it: no pool can make {} true.", objective.text())
            };
            to.reason(
                "why",
                format!("Even without any wait for a connection 1 of 100 takes {}, {verdict}", ms(service)),
            );
        }
    }
    if best.sizes.max_size >= best.most {
        to.reason("why", explain_bound(best));
    }
}

/// Why no larger pool was tried.
fn explain_bound(best: &Best) -> String {
    let most = counted(best.most.into(), "connection");
    match best.bound {
        Bound::Server | Bound::Gate | Bound::Budget => {
            format!("More than {most} for each instance are not to be had.")
        }
        Bound::Measured | Bound::Safe => {
            format!("With more than {most} for each instance the server was not measured, or not reliably.")
        }
        Bound::Operations => format!("More than {most} for each instance would find nothing to do."),
    }
}

pub(super) fn explain_certainty(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    let cases = prediction.given.iter().chain(prediction.best.iter().flat_map(|best| &best.cases));
    let is_incomplete = |text: &&String| [LOAD_NOT_STARTED, STOPPED_EARLY].iter().any(|about| text.starts_with(about));
    for text in cases.flat_map(|case| &case.result.warnings).filter(is_incomplete) {
        if !to.warnings.contains(text) {
            to.warn(text.clone());
        }
    }
    let Some(best) = &prediction.best else { return };
    let has_upper = question.objectives.iter().any(|objective| objective.text().contains('<'));
    if best.met && question.margin > 0.0 && has_upper {
        let kept = if best.with_margin {
            format!("Each upper limit is kept by {} at least.", percent(question.margin))
        } else {
            format!(
                "The limits are met, but the upper ones not by the margin of {} that was asked for.",
                percent(question.margin)
            )
        };
        to.reason("margin", kept);
    }
    let response = best.cases.first().and_then(|case| case.result.total.response_ms.as_ref());
    if let Some(response) = response.filter(|_| !best.other_seeds.is_empty()) {
        let own = [response.p50, response.p95, response.p99];
        let all = best.other_seeds.iter().chain([&own]);
        let range = |at: usize| {
            let values = || all.clone().map(|seed| seed[at]);
            format!("{} to {}", ms(values().fold(f64::INFINITY, f64::min)), ms(values().fold(0.0, f64::max)))
        };
        let tried = best.other_seeds.len() as u64;
        to.reason(
            "uncertainty",
            format!(
                "With {tried} other random arrivals p50 is {}, p95 {}, p99 {}; {} of {tried} met all objectives. \
                 That is chance alone: the service times and the stalls are as they were said.",
                range(0),
                range(1),
                range(2),
                best.other_seeds_that_met
            ),
        );
    }
}
