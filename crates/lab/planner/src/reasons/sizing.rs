//! Explains the size of a pool: Little's law at the mean and in a stall, the server's throughput, and a rule of thumb.

use load::plan::{Plan, PoolConfig};

use super::Explanation;
use crate::{
    advice::Advice,
    facts::{RULE_FACTOR, RULE_UTILISATION, WorstStall, worst_stall},
    prediction::Prediction,
    question::Question,
    run::{front_with_exclusive_leases, max_pool_connections},
    words::{counted, ms, number, percent, time},
};

pub(super) fn explain(question: &Question, load: &Plan, prediction: &Prediction, to: &mut Explanation) {
    littles_law(load, prediction, to);
    in_stall(question, load, prediction, to);
    server(question, prediction, to);
    if let Some(to_know) = &prediction.facts.server_doubt {
        to.warn(format!(
            "The confidence of the curve's sweep is low, and it names no range that is safe: no setting is \
             recommended. To know more: {to_know}"
        ));
    }
    rule_of_thumb(question, prediction, to);
}

fn littles_law(load: &Plan, prediction: &Prediction, to: &mut Explanation) {
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
        to.reason(
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
        to.reason(
            "load",
            format!(
                "{} at once{gap}; one holds a connection for {}.",
                counted(at_once.into(), "operation"),
                ms(facts.held_ms)
            ),
        );
    }
}

fn in_stall(question: &Question, load: &Plan, prediction: &Prediction, to: &mut Explanation) {
    let facts = &prediction.facts;
    let (Some(held), Some(need), Some(rate), Some(WorstStall { delay, length })) =
        (facts.held_in_stall_ms, facts.in_use_in_stall, facts.peak_rate, worst_stall(load))
    else {
        return;
    };
    to.reason(
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
    if front_with_exclusive_leases(load).is_some() {
        // The Poolhouse in front decides how many of these connections reach the database.
        return;
    }
    let mut sizes = Vec::new();
    let alike = |other: &&Plan| other.pool.reuse && (&other.shape, &other.faults) == (&load.shape, &load.faults);
    for other in question.loads.iter().filter(alike) {
        let PoolConfig { max_size, .. } = other.pool.config;
        let limits = [max_pool_connections(other, &question.spec), question.spec.budget];
        let wanted = if max_size == 0 { u32::MAX } else { max_size.saturating_mul(other.pool.instances) };
        let all = limits.into_iter().flatten().fold(wanted, u32::min);
        let is_unlimited = all == u32::MAX;
        if let Some(max_rate) = facts.max_rate_in_stall(all).filter(|_| !is_unlimited && !sizes.contains(&all)) {
            sizes.push(all);
            let verdict =
                if max_rate < rate { "beyond that, operations queue in each stall" } else { "above the load" };
            to.reason(
                "inflection",
                format!(
                    "{} bridge the stall up to {}/s ({verdict}).",
                    counted(all.into(), "connection"),
                    number(max_rate)
                ),
            );
        }
    }
}

/// The server's highest throughput, and the concurrency it takes.
fn server(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    let facts = &prediction.facts;
    let Some((most, knee)) = facts.server_best else {
        if !question.is_sweep {
            to.warn(
                "The service time is taken not to depend on the load. A server that slows down under more \
                 connections needs a measured curve (`poolhouse sweep --json`, then `curve`), or it will seem that \
                 more connections always help."
                    .to_owned(),
            );
        }
        return;
    };
    match facts.measured_until {
        None if question.spec.processors.is_some() => to.reason(
            "server",
            format!(
                "Its processors do {}/s at most, with {} at once; more wait for a processor inside the server \
                 instead of in the pool.",
                number(most),
                counted(knee.into(), "operation")
            ),
        ),
        None => to.reason(
            "server",
            format!(
                "It works on {knee} operations at a time, {}/s at most; more share that and only become slower.",
                number(most)
            ),
        ),
        Some(until) => {
            to.reason(
                "server",
                format!(
                    "Measured best: {}/s; {} come within 5% of it, and more only wait inside the server instead of \
                     in the pool.",
                    number(most),
                    counted(knee.into(), "connection")
                ),
            );
            safe_range(question, prediction, to);
            warn_of_extrapolation(until, prediction, to);
        }
    }
    warn_of_overload(most, prediction, to);
}

/// The range of a curve with low confidence that is searched.
fn safe_range(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    let Some((fewest, most)) = prediction.facts.server_safe else { return };
    let safe =
        if fewest == most { counted(most.into(), "connection") } else { format!("{fewest} to {most} connections") };
    let least = question.spec.curve.as_ref().map_or(1, |curve| curve.least());
    let fewer = if least > 1 { format!(", and fewer than {least} in none: they may be chance") } else { String::new() };
    // Each instance has one connection at least, which can be more than the range has.
    let within = max_connections(prediction).is_none_or(|all| all <= most.into());
    let more = if within {
        format!("; more are not recommended{fewer}")
    } else {
        format!(". Together the pools recommended here are larger{fewer}")
    };
    to.reason(
        "safe range",
        format!(
            "The sweep's confidence is low. Its best is looked for only where the sweep calls it safe, at {safe} in \
             all{more}."
        ),
    );
}

fn warn_of_extrapolation(until: u32, prediction: &Prediction, to: &mut Explanation) {
    let cases = prediction.given.iter().chain(prediction.best.iter().flat_map(|best| &best.cases));
    if let Some(beyond) = cases.filter_map(|case| case.at_once).filter(|at_once| *at_once > until).max() {
        to.warn(format!(
            "The server was measured up to {until} operations at once, and here up to {beyond} run at once: beyond \
             {until} the throughput is taken to stay, which was not measured."
        ));
    }
}

fn warn_of_overload(most: f64, prediction: &Prediction, to: &mut Explanation) {
    let Some(rate) = prediction.facts.peak_rate.filter(|rate| *rate > most) else { return };
    let arrives = format!("{}/s arrive", number(rate));
    // A curve with low confidence may rise outside of its reliable range.
    let most = match prediction.facts.server_safe {
        Some(_) => format!("the server is sure to do {}/s", number(most)),
        None => format!("the server does {}/s at most", number(most)),
    };
    to.warn(match &prediction.best {
        Some(best) if best.met => {
            format!("At the peak {arrives}, and {most}: for as long as that lasts, operations pile up.")
        }
        _ => format!("{arrives}, and {most}: no pool can help."),
    });
}

fn max_connections(prediction: &Prediction) -> Option<u64> {
    prediction.settings.as_ref().map(Advice::max_connections)
}

fn rule_of_thumb(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    let (Some(rule), Some(cpus)) = (prediction.facts.by_processors, question.cpus) else { return };
    let found = max_connections(prediction);
    // Settings that miss the objectives are not compared.
    let met = prediction.best.as_ref().is_some_and(|best| best.met);
    let judged = found.filter(|_| met).map_or(String::new(), |found| {
        let ratio = found as f64 / rule;
        let verdict = match ratio {
            r if r > 2.0 => {
                "far more: see that the server can run that number at once, or let most of them wait in a pooler"
            }
            r if r < 0.5 => "far fewer: nothing is gained by more",
            _ => "about the same",
        };
        format!(" Found: {found}, {verdict}.")
    });
    to.reason(
        "rule of thumb",
        format!(
            "{} x {} x {RULE_FACTOR} = {} connections.{judged}",
            counted(cpus.into(), "processor"),
            percent(RULE_UTILISATION),
            number(rule)
        ),
    );
}
