//! Compares the settings with limits outside of the pool: the server's connections and memory, limits for clients, the
//! platform's freeze.

use load::plan::{Plan, Target};

use super::Explanation;
use crate::{
    advice::{Advice, ClientLimits},
    fragments::MONGODB,
    prediction::Prediction,
    question::Question,
    run::{front_with_exclusive_leases, max_pool_connections, monitoring_connections},
    server::MONGODB_MONITORS_PER_HOST,
    sizes::Sizes,
    words::{counted, ms, number, percent, time},
};

/// PostgreSQL's default of `max_connections`, and the part of it that is not reserved.
const POSTGRES_DEFAULT_LIMIT: (u32, u64) = (100, 97);

pub(super) fn explain(question: &Question, load: &Plan, prediction: &Prediction, to: &mut Explanation) {
    front(question, load, prediction, to);
    if front_with_exclusive_leases(load).is_none() {
        warn_of_given(question, to);
    }
    if let Some(settings) = prediction.settings.as_ref().filter(|_| front_with_exclusive_leases(load).is_none()) {
        let monitors = u64::from(monitoring_connections(load, &question.spec));
        server_limit(question, load, settings, to);
        mongodb_monitors(question, settings, to);
        warn_of_monitors(question, load, prediction, to);
        warn_of_default_limit(question, load, settings, to);
        memory(question, settings, monitors, to);
    }
    if let Some(budget) = question.spec.budget {
        to.reason(
            "common limit",
            format!(
                "The pools share {budget} connections: each gets a fair part of them, and gives up what others need \
                 more."
            ),
        );
    }
    if front_with_exclusive_leases(load).is_none() {
        one_pool_for_all(prediction, to);
    }
    refused(question, prediction, to);
    clients(question, load, prediction, to);
    platform(question, to);
}

/// The most connections of all pools of a load, apart from a budget.
fn max_connections(load: &Plan) -> u64 {
    u64::from(load.pool.config.effective_max_size()) * u64::from(load.pool.instances)
}

/// Whether the pools of a load could open more connections than the server allows.
pub(super) fn could_want_more(question: &Question, load: &Plan) -> bool {
    let shared = question.spec.budget.map_or(u64::MAX, u64::from);
    load.pool.reuse
        && max_pool_connections(load, &question.spec)
            .is_some_and(|free| max_connections(load).min(shared) > u64::from(free))
}

/// Warns of given pools that could open more connections than the server allows, though not under this load.
fn warn_of_given(question: &Question, to: &mut Explanation) {
    let shared = question.spec.budget.map_or(u64::MAX, u64::from);
    let more = question.loads.iter().filter(|load| could_want_more(question, load));
    let Some(load) = more.max_by_key(|load| max_connections(load)) else { return };
    let Some(free) = max_pool_connections(load, &question.spec) else { return };
    let instances = counted(load.pool.instances.into(), "instance");
    let wanted = match (load.pool.config.max_size, shared) {
        (_, shared) if shared < max_connections(load) => {
            format!("{shared} connections could be wanted by {instances} together")
        }
        (0, _) => format!("any number of connections could be wanted by {instances} without a max_size"),
        (size, _) => format!("{instances} x {size} = {} connections could be wanted", max_connections(load)),
    };
    let each = match free / load.pool.instances.max(1) {
        0 => String::new(),
        _ if load.pool.instances == 1 => String::new(),
        1 => ", 1 for each".to_owned(),
        each => {
            let of_two = free_during_deployment(question, load).unwrap_or(free) / (2 * load.pool.instances);
            format!(", {each} for each, or {of_two} while a deployment runs old and new ones side by side")
        }
    };
    to.warn(format!(
        "As given, {wanted}, and {free} are free{each}: a bad day, or a leak in one instance, takes those of the \
         others."
    ));
}

/// Connections for pools while a deployment runs old and new instances side by side.
fn free_during_deployment(question: &Question, load: &Plan) -> Option<u32> {
    question.spec.max_pool_connections(monitoring_connections(load, &question.spec).saturating_mul(2))
}

/// Explains what a Poolhouse in front of the pools changes.
fn front(question: &Question, load: &Plan, prediction: &Prediction, to: &mut Explanation) {
    if front_with_exclusive_leases(load).is_some() && prediction.settings.is_some() {
        let text =
            "The max_size that is found is that of the pools before the Poolhouse, and so is what is to be pasted.";
        to.reason("in front", text.to_owned());
    }
    let is_sized = |load: &Plan| {
        let of_redis = load.poolhouse.filter(|_| matches!(load.target, Target::Redis(_)));
        of_redis.is_some_and(|wishes| wishes.max_size.is_some() || wishes.max_wait_time.is_some())
    };
    if question.loads.iter().any(is_sized) {
        to.warn(
            "Clients of Redis share the servers of the Poolhouse in front: its max_size and max_wait_time are not \
             played."
                .to_owned(),
        );
    }
}

fn server_limit(question: &Question, load: &Plan, settings: &Advice, to: &mut Explanation) {
    let (Some(limit), Some(free)) = (question.spec.limit, max_pool_connections(load, &question.spec)) else { return };
    let monitors = u64::from(monitoring_connections(load, &question.spec));
    let share = |count: u64| percent(count as f64 / f64::from(limit));
    let (most, kept) = (settings.max_connections(), u64::from(settings.min_size) * u64::from(settings.instances));
    let together = if most < settings.total_max_size() { ", and all of them together" } else { "" };
    let reserved = if question.spec.reserved > 0 {
        format!(", of which {} are reserved", question.spec.reserved)
    } else {
        String::new()
    };
    let watched = match monitors {
        0 => String::new(),
        _ => {
            let all = most + monitors;
            format!(" Watching it takes {} more: {all} ({}).", counted(monitors, "connection"), share(all))
        }
    };
    to.reason(
        "server's limit",
        format!(
            "{} x {} kept = {kept} ({} of {limit}{reserved}), x {} at most{together} = {most} ({}).{watched}",
            counted(settings.instances.into(), "instance"),
            settings.min_size,
            share(kept),
            settings.max_size,
            share(most)
        ),
    );
    if free_during_deployment(question, load).is_some_and(|free| 2 * most > u64::from(free))
        && settings.instances > 1
        && question.spec.budget.is_none()
    {
        to.warn(format!(
            "At their largest the pools take {most} of the {free} connections that are free: during a deployment, \
             when old and new instances run side by side, they could want {}, and some would be refused.",
            2 * most
        ));
    }
}

/// Explains the monitoring connections of MongoDB's drivers.
fn mongodb_monitors(question: &Question, settings: &Advice, to: &mut Explanation) {
    let monitors_per_instance = question.spec.monitors_per_instance;
    if monitors_per_instance == 0 || question.spec.budget.is_some() {
        return;
    }
    let which = match monitors_per_instance {
        MONGODB_MONITORS_PER_HOST => {
            "two connections besides, whatever maxPoolSize is: one waits for news of the host, one measures the way \
             to it"
        }
        _ => "one connection besides, whatever maxPoolSize is, which asks the host what it is",
    };
    let at_each = (u64::from(settings.max_size) + u64::from(monitors_per_instance)) * u64::from(settings.instances);
    to.reason(
        "each host",
        format!(
            "A driver of MongoDB has such a pool for each host of a replica set, and {which}. Each host has a limit \
             of its own, and at each {} x ({} + {monitors_per_instance}) = {at_each} count.",
            counted(settings.instances.into(), "instance"),
            settings.max_size
        ),
    );
}

/// Warns if the database may be a MongoDB whose limit leaves no connections for monitoring.
fn warn_of_monitors(question: &Question, load: &Plan, prediction: &Prediction, to: &mut Explanation) {
    let Some(settings) = prediction.settings.as_ref().filter(|_| !question.is_database_known) else { return };
    let Some(free) = max_pool_connections(load, &question.spec) else { return };
    let (instances, monitors_per_instance) = (u64::from(settings.instances), u64::from(MONGODB_MONITORS_PER_HOST));
    let wanted = settings.total_max_size() + monitors_per_instance * instances;
    let is_pasted = prediction.fragments.iter().any(|fragment| fragment.of == MONGODB);
    if !is_pasted || wanted <= u64::from(free) {
        return;
    }
    let way_out = match (u64::from(free) / instances).saturating_sub(monitors_per_instance) {
        0 => "raise the server's limit".to_owned(),
        size => format!("lower maxPoolSize to {size}"),
    };
    to.warn(format!(
        "A driver of MongoDB has two connections to each host beside its pool, which watch it: at each host these \
         settings could want {wanted}, and {free} are free. There {way_out}."
    ));
}

/// Warns of more connections than a PostgreSQL allows by default, if its limit is not given.
fn warn_of_default_limit(question: &Question, load: &Plan, settings: &Advice, to: &mut Explanation) {
    let most = settings.max_connections();
    let (default, free) = POSTGRES_DEFAULT_LIMIT;
    if question.spec.limit.is_none() && matches!(load.target, Target::Postgres(_)) && most > free {
        to.warn(format!(
            "Nothing was said of how many connections the server lets in (`--server-limit`): a PostgreSQL lets in \
             {default} where nobody has set max_connections, and here {} are wanted.",
            number(most as f64)
        ));
    }
}

fn memory(question: &Question, settings: &Advice, monitors: u64, to: &mut Explanation) {
    let kept = u64::from(settings.min_size) * u64::from(settings.instances) + monitors;
    let most = settings.max_connections() + monitors;
    let included = if monitors > 0 { ", those that watch it included" } else { "" };
    let mb = |count: u64| number(count as f64 * question.memory_mb);
    to.reason(
        "server's memory",
        format!(
            "{} MB for each connection: {} MB for the {kept} that are kept, {} MB for {most}{included}; and as many \
             descriptors.",
            number(question.memory_mb),
            mb(kept),
            mb(most)
        ),
    );
}

fn one_pool_for_all(prediction: &Prediction, to: &mut Explanation) {
    let Some(shared) = prediction.shared.as_ref().filter(|_| prediction.facts.server_doubt.is_none()) else { return };
    let Some(settings) = &prediction.settings else {
        let Sizes { max_size, min_size, .. } = shared.sizes;
        let meets = if shared.met { "" } else { ", which does not meet the objectives" };
        to.reason(
            "one pool for all",
            format!(
                "Behind one Poolhouse the same load is served by a max_size of {max_size} with a min_size of \
                 {min_size}{meets}."
            ),
        );
        return;
    };
    let either = if prediction.best.as_ref().is_some_and(|best| best.met) { "" } else { " either" };
    let verdict = if shared.met { String::new() } else { format!(" (which does not meet the objectives{either})") };
    let why = match u64::from(shared.sizes.max_size) < settings.total_max_size() {
        true => ": not all instances are busy at the same moment",
        false => "",
    };
    to.reason(
        "one pool for all",
        format!(
            "Behind one Poolhouse the same load needs a max_size of {} with a min_size of {}{verdict}, instead of {} \
             x {} = {}{why}.",
            shared.sizes.max_size,
            shared.sizes.min_size,
            settings.instances,
            settings.max_size,
            settings.total_max_size()
        ),
    );
}

fn refused(question: &Question, prediction: &Prediction, to: &mut Explanation) {
    let most = question.loads.iter().zip(&prediction.given).max_by_key(|(_, given)| given.refused);
    let Some((load, refused)) = most.map(|(load, given)| (load, given.refused)).filter(|(_, refused)| *refused > 0)
    else {
        return;
    };
    if let Some(limit) = max_pool_connections(load, &question.spec) {
        to.reason(
            "refused",
            format!(
                "With the given settings the server lets in {limit}, and refuses {} connections beyond that.",
                number(refused as f64)
            ),
        );
    }
}

/// Limits for clients of one Poolhouse in front of all instances.
fn clients_of_one(question: &Question, load: &Plan, prediction: &Prediction) -> Option<String> {
    let one = prediction.shared_settings.as_ref().filter(|_| front_with_exclusive_leases(load).is_none())?;
    if question.spec.budget.is_some() {
        return None;
    }
    let (soft, hard) = (one.soft_limit?, one.hard_limit?);
    let each = prediction.settings.as_ref().map_or(0, |each| each.max_size);
    let own = crate::advice::client_limits_of_pools(question, load, each)?.expected;
    Some(format!(
        "The clients of one Poolhouse in front are the connections of the instances' pools, up to {own:.0}: \
         soft_limit {soft} leaves a quarter of room, and hard_limit {hard} makes that 80%."
    ))
}

fn clients(question: &Question, load: &Plan, prediction: &Prediction, to: &mut Explanation) {
    if let Some(text) = clients_of_one(question, load, prediction) {
        return to.reason("clients", text);
    }
    let max_size = match &prediction.settings {
        Some(settings) => settings.max_size,
        // Without a recommended size there are no limits for clients.
        None if load.pool.reuse => return,
        None => 0,
    };
    let Some(limits) = crate::advice::client_limits(question, load, max_size) else { return };
    let ClientLimits { expected, rare_peak, soft, hard } = limits;
    if question.is_sweep {
        to.reason(
            "clients",
            format!(
                "soft_limit {soft} has room for the clients and a quarter more, and hard_limit {hard} makes that 80%."
            ),
        );
        return;
    }
    if load.pool.reuse {
        to.reason(
            "clients",
            format!(
                "A Poolhouse between these pools and the database has up to {}: soft_limit {soft} leaves a quarter \
                 of room, and hard_limit {hard} makes that 80%. These are not among the settings to paste: where \
                 applications connect without such pools, count their connections instead.",
                counted(expected as u64, "client")
            ),
        );
        return;
    }
    let evict = load.poolhouse.as_ref().and_then(|wishes| wishes.evict_min_idle);
    let evict = evict.map(|idle| idle.mul_f64(question.compression));
    let facts = &prediction.facts;
    let in_stall = facts.held_in_stall_ms.map_or(String::new(), |held| {
        format!(" (in the stall {})", ms(held + facts.connect_in_stall_ms.unwrap_or(facts.connect_ms)))
    });
    let reserve = match rare_peak {
        Some(peak) if peak >= soft => "seldom has to make room for more".to_owned(),
        _ => "leaves a quarter of room".to_owned(),
    };
    to.reason(
        "clients",
        format!(
            "Each client needs its connection for {}{in_stall}, and is not sent away before it has been idle for {}. \
             At this rate that are {} who cannot be sent away: soft_limit {soft} {reserve}, and hard_limit {hard} \
             makes that 80%.",
            ms(facts.held_ms + facts.connect_ms),
            evict.map_or("5 s (evict_min_idle)".to_owned(), time),
            number(expected)
        ),
    );
}

/// Compares the platform's times with the client idle time.
fn platform(question: &Question, to: &mut Explanation) {
    let Some(platform) = question.platform else { return };
    let advised = platform.safe_client_idle_time();
    to.reason(
        "client idle time",
        format!(
            "A function is frozen {} after its last call and ended after {}. client_idle_time {} is longer than both \
             together, so that no thawed function finds its connection gone.",
            time(platform.freeze_after),
            time(platform.kill_after),
            time(advised)
        ),
    );
}
