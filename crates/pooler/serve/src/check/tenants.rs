//! Client limits of a database or user, compared with those of its listeners.

use driver::TenantLimits;
use settings::{Problem, Spots};
use upstream::Kind;

use crate::config::{Config, Listener};

/// Limits that are never reached, or that do not protect other databases' clients from eviction.
pub fn tenants(config: &Config, found: &mut Vec<Problem>) {
    let mut kinds: Vec<Kind> = config.databases.iter().map(|database| database.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    for kind in kinds {
        let limits =
            config.databases_of(kind).map(|database| ("database", &database.name, database.clients, &database.spots));
        held_against(config, |listener| listener.kind == kind, limits, found);
    }
    let limits = config.users.iter().map(|user| ("user", &user.name, user.clients, &user.spots));
    held_against(config, |_| true, limits, found);
}

fn held_against<'c>(
    config: &'c Config,
    comes_by: impl Fn(&Listener) -> bool,
    tenants: impl Iterator<Item = (&'static str, &'c String, Option<TenantLimits>, &'c Spots)>,
    found: &mut Vec<Problem>,
) {
    let listeners: Vec<&Listener> = config.listeners.iter().filter(|listener| comes_by(listener)).collect();
    let sum = |of: fn(&Listener) -> u32| listeners.iter().map(|listener| u64::from(of(listener))).sum::<u64>();
    let (soft, hard) = (sum(|listener| listener.gate.soft_limit), sum(|listener| listener.gate.hard_limit));
    let theirs = if listeners.len() == 1 { "its listener" } else { "all its listeners together" };
    let mut all = 0;
    let mut last = None;
    let mut is_one_above = false;
    for (what, name, limits, spots) in tenants {
        let Some(limit) = limits.map(|limits| limits.hard_limit).filter(|limit| *limit != u32::MAX) else { continue };
        all += u64::from(limit);
        last = Some((what, spots));
        if u64::from(limit) > hard {
            is_one_above = true;
            let message =
                format!("hard_limit {limit} of the {what} `{name}` is above the {hard} of {theirs} and never reached");
            found.push(config.locate(Problem::warning(message), spots, "hard_limit"));
        }
    }
    let Some((what, spots)) = last.filter(|_| !is_one_above && all > soft) else { return };
    let message = format!("the hard_limit of each {what} makes {all} in all, above the soft_limit {soft} of {theirs}");
    let problem = Problem::warning(message).hint(
        "the listener evicts clients of all of them before these limits are reached: lower them, or raise soft_limit",
    );
    found.push(config.locate(problem, spots, "hard_limit"));
}
