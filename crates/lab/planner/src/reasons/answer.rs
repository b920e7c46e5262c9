//! The answer: what to do, in three lines at most.

use load::plan::Plan;

use crate::{
    advice::{Advice, client_limits_of_pools},
    prediction::{Best, Prediction},
    question::Question,
    run::front_with_exclusive_leases,
    words::counted,
};

/// What to do. Empty if no load has a pool.
pub fn answer(question: &Question, load: &Plan, prediction: &Prediction) -> Vec<String> {
    if let (Some(one), Some(settings)) = (&prediction.shared, &prediction.shared_settings)
        && front_with_exclusive_leases(load).is_none()
        && question.spec.budget.is_none()
    {
        let each = prediction.settings.as_ref().map_or(0, |each| each.max_size);
        return in_front(question, load, one, settings, each);
    }
    if prediction.forbidden.is_some() {
        return vec!["No setting keeps to the limits.".to_owned()];
    }
    let Some(best) = &prediction.best else { return Vec::new() };
    let Some(settings) = &prediction.settings else {
        let meets = if best.met { "" } else { ", and by its figures none meets the objectives" };
        return vec![format!("No setting is recommended: nothing of the server's curve can be relied on{meets}.")];
    };
    let each = if best.instances > 1 { format!(" in each of {} instances", best.instances) } else { String::new() };
    let verdict = if best.met { "Use" } else { "No setting meets the objectives; the nearest is" };
    vec![format!("{verdict} max_size {}, min_size {}{each}.", settings.max_size, settings.min_size)]
}

/// Recommends one Poolhouse for all instances. Its clients are their pools, of the given size or of `each`, whichever
/// is larger.
fn in_front(question: &Question, load: &Plan, one: &Best, settings: &Advice, each: u32) -> Vec<String> {
    let instances = counted(load.pool.instances.into(), "instance");
    let first = if one.met {
        format!("Put one Poolhouse in front of all {instances}, with")
    } else {
        format!("No setting meets the objectives; the nearest is one Poolhouse in front of all {instances}, with")
    };
    let mut lines = vec![
        first,
        format!("  max_size {}, min_size {}: its connections to the database", settings.max_size, settings.min_size),
    ];
    if let (Some(soft), Some(hard)) = (settings.soft_limit, settings.hard_limit) {
        let own = client_limits_of_pools(question, load, each).map_or(0.0, |limits| limits.expected);
        lines.push(format!(
            "  hard_limit {hard}, soft_limit {soft}: the pools of the {instances} have up to {own:.0} connections to it"
        ));
    }
    lines
}
