//! Why a pool has to be as large as it is: Little's law at the mean and in a stall, the inflection, what the server can
//! do at all, and rules of thumb as a check.

use load::plan::{Plan, PoolConfig};

use super::Words;
use crate::{
    facts::{CPU_FACTOR, UTILISATION, stall},
    prediction::Prediction,
    question::Question,
    run::{max_pool_connections, own_pool},
    words::{counted, ms, number, percent, time},
};

pub(super) fn say(question: &Question, load: &Plan, prediction: &Prediction, words: &mut Words) {
    little(load, prediction, words);
    in_stall(question, load, prediction, words);
    server(question, prediction, words);
    if let Some(to_know) = &prediction.facts.server_doubt {
        words.warn(format!(
            "The confidence of the curve's sweep is low, and it names no range that is safe: no setting is recommended. To know more: \
             {to_know}"
        ));
    }
    rules(question, prediction, words);
}

fn little(load: &Plan, prediction: &Prediction, words: &mut Words) {
    let facts = &prediction.facts;
    if let (Some(rate), Some(in_use)) = (facts.peak_rate, facts.in_use_at_mean) {
        let each = if load.pool.instances > 1 {
            format!(
                ", {} in each of {} instances",
                number(in_use / f64::from(load.pool.instances)),
                load.pool.instances
            )
        } else {
            String::new()
        };
        words.say(
            "Little's law",
            format!(
                "{}/s x {} = {} connections in use on average{each}, while nothing stalls.",
                number(rate),
                ms(facts.held_ms),
                number(in_use)
            ),
        );
    } else if let Some(at_once) = facts.at_once {
        let gap = facts.idle_gap_s.map_or(String::new(), |gap| {
            format!(", each after {} of quiet", time(std::time::Duration::from_secs_f64(gap)))
        });
        words.say(
            "load",
            format!(
                "{} at once{gap}; one holds a connection for {}.",
                counted(at_once.into(), "operation"),
                ms(facts.held_ms)
            ),
        );
    }
}

fn in_stall(question: &Question, load: &Plan, prediction: &Prediction, words: &mut Words) {
    let facts = &prediction.facts;
    let (Some(held), Some(need), Some(rate), Some((delay, length))) =
        (facts.held_in_stall_ms, facts.in_use_in_stall, facts.peak_rate, stall(&load.faults))
    else {
        return;
    };
    words.say(
        "in the stall",
        format!(
            "Answers are {} late for {}: {}/s x {} = {} connections, {} times as many.",
            time(delay),
            time(length),
            number(rate),
            ms(held),
            number(need),
            number(need / facts.in_use_at_mean.unwrap_or(need))
        ),
    );
    if own_pool(load).is_some() {
        // How many of these pools' connections reach the database is up to the Poolhouse in front.
        return;
    }
    let mut told = Vec::new();
    let alike = |case: &&Plan| case.pool.reuse && (&case.shape, &case.faults) == (&load.shape, &load.faults);
    for case in question.cases.iter().filter(alike) {
        let PoolConfig { max_size, .. } = case.pool.config;
        let limits = [max_pool_connections(case, &question.spec), question.spec.budget];
        let wanted = if max_size == 0 { u32::MAX } else { max_size.saturating_mul(case.pool.instances) };
        let all = limits.into_iter().flatten().fold(wanted, u32::min);
        if all == u32::MAX {
            // There are always enough.
            continue;
        }
        if let Some(inflection) = facts.inflection(all).filter(|_| !told.contains(&all)) {
            told.push(all);
            let verdict =
                if inflection < rate { "beyond that, operations queue in each stall" } else { "above the load" };
            words.say(
                "inflection",
                format!(
                    "{} bridge the stall up to {}/s ({verdict}).",
                    counted(all.into(), "connection"),
                    number(inflection)
                ),
            );
        }
    }
}

/// What concurrency does to the server.
fn server(question: &Question, prediction: &Prediction, words: &mut Words) {
    let facts = &prediction.facts;
    let Some((most, knee)) = facts.server_best else {
        if !question.is_sweep {
            words.warn(
                "The service time is taken not to depend on the load. A server that slows down under more connections needs a measured \
                 curve (`poolhouse sweep --json`, then `curve`), or it will seem that more connections always help."
                    .to_owned(),
            );
        }
        return;
    };
    match facts.measured_until {
        None if question.spec.processors.is_some() => words.say(
            "server",
            format!(
                "Its processors do {}/s at most, with {} at once; more wait for a processor inside the server instead of in the pool.",
                number(most),
                counted(knee.into(), "operation")
            ),
        ),
        None => words.say(
            "server",
            format!(
                "It works on {knee} operations at a time, {}/s at most; more share that and only become slower.",
                number(most)
            ),
        ),
        Some(until) => {
            words.say(
                "server",
                format!(
                    "Measured best: {}/s; {} come within 5% of it, and more only wait inside the server instead of in the pool.",
                    number(most),
                    counted(knee.into(), "connection")
                ),
            );
            safe_range(question, prediction, words);
            beyond(until, prediction, words);
        }
    }
    too_much(most, prediction, words);
}

/// Where a doubtful sweep's best is looked for.
fn safe_range(question: &Question, prediction: &Prediction, words: &mut Words) {
    let Some((from, to)) = prediction.facts.server_safe else { return };
    let safe = if from == to { counted(to.into(), "connection") } else { format!("{from} to {to} connections") };
    let least = question.spec.curve.as_ref().map_or(1, |curve| curve.least());
    let fewer = if least > 1 { format!(", and fewer than {least} in none: they may be chance") } else { String::new() };
    // Each instance has one connection at least, and what Redis lends to one client alone comes on top.
    let within = in_all(question, prediction).is_none_or(|all| all <= to.into());
    let more = if within {
        format!("; more are not recommended{fewer}")
    } else {
        format!(". Together the pools recommended here are larger{fewer}")
    };
    words.say(
        "safe range",
        format!("The sweep's confidence is low. Its best is looked for only where the sweep calls it safe, at {safe} in all{more}."),
    );
}

/// More at once than were measured.
fn beyond(until: u32, prediction: &Prediction, words: &mut Words) {
    let cases = prediction.given.iter().chain(prediction.best.iter().flat_map(|best| &best.cases));
    if let Some(beyond) = cases.filter_map(|case| case.at_once).filter(|at_once| *at_once > until).max() {
        words.warn(format!(
            "The server was measured up to {until} operations at once, and here up to {beyond} run at once: beyond {until} the \
             throughput is taken to stay, which nobody has measured."
        ));
    }
}

/// More arrives than the server can do.
fn too_much(most: f64, prediction: &Prediction, words: &mut Words) {
    let Some(rate) = prediction.facts.peak_rate.filter(|rate| *rate > most) else { return };
    let arrives = format!("{}/s arrive", number(rate));
    // Of a doubtful curve there may be better than what is looked at.
    let most = match prediction.facts.server_safe {
        Some(_) => format!("the server is sure to do {}/s", number(most)),
        None => format!("the server does {}/s at most", number(most)),
    };
    words.warn(match &prediction.best {
        Some(best) if best.met => {
            format!("At the peak {arrives}, and {most}: for as long as that lasts, operations pile up.")
        }
        _ => format!("{arrives}, and {most}: no pool can help."),
    });
}

/// Connections of the recommended pools together.
fn in_all(question: &Question, prediction: &Prediction) -> Option<u64> {
    let shared = question.spec.budget.map_or(u64::MAX, u64::from);
    prediction.settings.as_ref().map(|settings| settings.in_all().min(shared))
}

/// Rules of thumb, as a check.
fn rules(question: &Question, prediction: &Prediction, words: &mut Words) {
    let (Some(rule), Some(cpus)) = (prediction.facts.by_processors, question.cpus) else { return };
    let found = in_all(question, prediction);
    // The nearest of settings that do not meet the objectives may be far from what would.
    let met = prediction.best.as_ref().is_some_and(|best| best.met);
    let judged = found.filter(|_| met).map_or(String::new(), |found| {
        let ratio = found as f64 / rule;
        let verdict = match ratio {
            r if r > 2.0 => {
                "far more: see that the server can run so many at once, or let most of them wait in a pooler"
            }
            r if r < 0.5 => "far fewer: nothing is gained by more",
            _ => "about the same",
        };
        format!(" Found: {found}, {verdict}.")
    });
    words.say(
        "rule of thumb",
        format!(
            "{} x {} x {CPU_FACTOR} = {} connections.{judged}",
            counted(cpus.into(), "processor"),
            percent(UTILISATION),
            number(rule)
        ),
    );
}
