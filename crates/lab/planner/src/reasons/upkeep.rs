//! Explains how connections are made, kept, closed and replaced: growth of a pool, creations by cause, idle time, life
//! time, wait time.

use std::time::Duration;

use ::report::result::BenchResult;
use load::plan::Plan;

use super::Explanation;
use crate::{
    advice::Advice,
    prediction::{Best, Prediction},
    question::Question,
    words::{counted, ms, number, time},
};

/// Growth of a pool that takes longer lets operations queue.
const MAX_GROWTH_TIME: Duration = Duration::from_millis(500);

pub(super) fn explain(question: &Question, load: &Plan, prediction: &Prediction, to: &mut Explanation) {
    if question.is_sweep {
        return;
    }
    creations(question, prediction, to);
    let (Some(settings), Some(best)) = (&prediction.settings, &prediction.best) else { return };
    growth(load, settings, prediction, to);
    as_given(question, settings, best, to);
    idle_time(question, prediction, best, to);
    if let Some(life) = settings.max_life_time {
        let kept = settings.min_size.max(1);
        let an_hour = 3600.0 / life.as_secs_f64() * f64::from(kept) * f64::from(settings.instances);
        to.reason(
            "life time",
            format!(
                "{}: {} kept for so long at most are {} rotations an hour, at different moments (the life of each is \
                 shorter by up to 10%).",
                time(life),
                counted(u64::from(kept) * u64::from(settings.instances), "connection"),
                number(an_hour)
            ),
        );
    }
    if let Some(wait) = settings.max_wait_time {
        let longest =
            best.cases.iter().filter_map(|case| case.result.total.pool_wait_ms.as_ref()).map(|waits| waits.p999);
        let longest = longest.fold(0.0, f64::max);
        to.reason(
            "waiting",
            format!(
                "With these settings 999 of 1,000 wait for a connection for less than {}. Whoever has waited for {} \
                 had better fail.",
                ms(longest.max(0.001)),
                time(wait)
            ),
        );
    }
}

/// How long a pool takes to grow from the minimum to the maximum.
fn growth(load: &Plan, settings: &Advice, prediction: &Prediction, to: &mut Explanation) {
    let facts = &prediction.facts;
    let missing = settings.max_size - settings.min_size;
    let given = load.pool.config.max_connecting;
    let takes = facts.growth_time(missing, given);
    let in_stall = facts.connect_in_stall_ms.map_or(String::new(), |late| format!(" (in the stall {})", ms(late)));
    let mut text = format!("A new connection takes {}{in_stall}.", ms(facts.connect_ms));
    if missing > 0 {
        text += &format!(
            " Growing from {} to {}, {given} at a time, takes {}{}.",
            settings.min_size,
            settings.max_size,
            time(takes),
            if takes > MAX_GROWTH_TIME { ", during which operations queue" } else { "" }
        );
    }
    if settings.max_connecting > given && missing > 0 {
        text += &format!(
            " With max_connecting {} it takes {}, and that is what the best settings are shown with; their sizes were \
             looked for with {given}.",
            settings.max_connecting,
            time(facts.growth_time(missing, settings.max_connecting))
        );
    }
    to.reason("connecting", text);
}

/// Names the settings that stay as given because the objectives fail with the rules.
fn as_given(question: &Question, settings: &Advice, best: &Best, to: &mut Explanation) {
    let Some((by_rule, missed)) = &best.rejected else { return };
    let off = |time: Option<Duration>| time.map_or("off".to_owned(), crate::words::time);
    let both = |name: &&str| match *name {
        "max_connecting" => (settings.max_connecting.to_string(), by_rule.max_connecting.to_string()),
        "max_life_time" => {
            let life = by_rule.max_life_time.map(|time| time.mul_f64(question.compression));
            (off(settings.max_life_time), off(life))
        }
        _ => (off(settings.max_wait_time), off(by_rule.max_wait_time)),
    };
    let kept: Vec<String> = best.as_given.iter().map(|name| format!("{name} {}", both(name).0)).collect();
    let instead: Vec<String> = best.as_given.iter().map(|name| format!("{name} {}", both(name).1)).collect();
    let why = match &missed[..] {
        [] => "more operations fail, or fewer other random arrivals meet the objectives".to_owned(),
        [first, ..] if first.measured.starts_with("unknown") => "the simulation does not come to its end".to_owned(),
        [first, ..] if best.with_margin => {
            format!("{} comes to {}, which does not leave the margin", first.objective, first.measured)
        }
        [first, ..] => format!("{} comes to {}", first.objective, first.measured),
    };
    to.reason("as given", format!("{}: with what follows by rule ({}) {why}.", kept.join(", "), instead.join(", ")));
}

/// Connections made per hour, by cause, with the given and the best settings. Growth to the final size happens once and
/// is left out.
fn creations(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    let given = prediction.given.iter().map(|case| &case.result);
    let best = prediction.best.iter().flat_map(|best| best.cases.iter().map(|case| &case.result));
    let told = |result: &BenchResult| {
        let hours = result.total.duration_s * question.compression / 3600.0;
        let connections = &result.total.connections;
        let count = |cause: &str| connections.created_for.get(cause).copied().unwrap_or(0);
        let mut growth = u64::from(connections.last).saturating_sub(count("start"));
        let causes = ["burst", "minimum", "rotation", "replacement", "ephemeral"].map(|cause| {
            let once = if ["burst", "minimum"].contains(&cause) { growth.min(count(cause)) } else { 0 };
            growth -= once;
            (cause, (count(cause) - once) as f64 / hours)
        });
        let sum: f64 = causes.iter().map(|(_, rate)| rate).sum();
        let parts: Vec<String> = causes
            .iter()
            .filter(|(_, rate)| *rate > 0.0)
            .map(|(cause, rate)| format!("{cause} {}", number(rate.round().max(1.0))))
            .collect();
        let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        (hours > 0.0).then(|| format!("{}{parts}", number(sum.round())))
    };
    let given: Vec<String> = given.filter_map(told).collect();
    let best: Vec<String> = best.filter_map(told).collect();
    if given.iter().chain(&best).all(|text| text == "0") {
        return;
    }
    let best = if best.is_empty() { String::new() } else { format!("; with the best settings {}", best.join(" and ")) };
    to.reason("created an hour", format!("{} as given, once the pools have grown{best}.", given.join(" and ")));
}

/// Compares the idle time with the quiet time between bursts.
fn idle_time(question: &Question, prediction: &Prediction, best: &Best, to: &mut Explanation) {
    let Some(settings) = &prediction.settings else { return };
    if settings.min_size == settings.max_size {
        to.reason("idle time", "All connections are kept, so none is ever closed for being idle.".to_owned());
        return;
    }
    let idle = settings.max_idle_time.map_or("off".to_owned(), time);
    let Some(gap) = prediction.facts.idle_gap_s.map(Duration::from_secs_f64) else {
        to.reason(
            "min size",
            format!(
                "{} with an idle time of {idle}: the fewest that meet the objectives. Each costs the server memory \
                 while no client uses it.",
                best.sizes.min_size
            ),
        );
        return;
    };
    let given = question.first_pooled().and_then(|case| case.pool.config.max_idle_time);
    let given = given.map(|time| time.mul_f64(question.compression));
    if given.is_some_and(|given| given < gap) {
        to.reason(
            "churn",
            format!(
                "The given idle time of {} is shorter than the quiet of {}: whatever is not kept by min_size is \
                 closed before each burst and made again in it.",
                given.map_or(String::new(), time),
                time(gap)
            ),
        );
    }
    let verdict = match settings.max_idle_time {
        Some(idle) if idle < gap => "shorter than the quiet, so that min_size alone decides what the next burst finds",
        _ => "longer than the quiet, so that the next burst finds the connections of this one",
    };
    to.reason(
        "min size",
        format!(
            "{} is the fewest that meet the objectives, with an idle time of {idle}: {verdict}.",
            best.sizes.min_size
        ),
    );
}
