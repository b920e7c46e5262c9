//! What the settings cost elsewhere: the server's limit and its memory over all instances, limits for clients, the
//! platform's freeze, what needs a connection of its own at a Redis.

use load::plan::{Plan, PoolConfig, Target};

use super::Words;
use crate::{
    advice::{Advice, ClientLimits},
    fragments::MONGODB,
    prediction::Prediction,
    question::Question,
    run::{max_pool_connections, monitoring_connections, own_pool},
    server::MONGODB_MONITORS_PER_HOST,
    sizes::Sizes,
    words::{counted, ms, number, percent, time},
};

/// Connections that a PostgreSQL lets in by default, and those of them that are anybody's.
const USUAL_LIMIT: (u32, u64) = (100, 97);
/// Poolhouses in front of which something is said.
const MAX_FRONTS: usize = 4;

pub(super) fn say(question: &Question, load: &Plan, prediction: &Prediction, words: &mut Words) {
    front(question, load, prediction, words);
    if own_pool(load).is_none() {
        given(question, words);
    }
    if let Some(settings) = prediction.settings.as_ref().filter(|_| own_pool(load).is_none()) {
        let watching = u64::from(monitoring_connections(load, &question.spec));
        budget(question, load, settings, words);
        hosts(question, settings, words);
        drivers(question, load, prediction, words);
        unlimited(question, load, settings, words);
        memory(question, settings, watching, words);
    }
    if let Some(budget) = question.spec.budget {
        words.say(
            "common limit",
            format!("The pools share {budget} connections: each gets a fair part of them, and gives up what others need more."),
        );
    }
    ephemeral(question, prediction, words);
    if own_pool(load).is_none() {
        shared(prediction, words);
    }
    refused(question, prediction, words);
    clients(question, load, prediction, words);
    platform(question, load, words);
    exclusive(prediction, words);
}

/// What the pools of a case could open at their largest, as far as they share no budget.
fn most(case: &Plan) -> u64 {
    u64::from(case.pool.config.effective_max_size()) * u64::from(case.pool.instances)
}

/// Whether the pools of a case could want more than the server has.
pub(super) fn could_want_more(question: &Question, case: &Plan) -> bool {
    let shared = question.spec.budget.map_or(u64::MAX, u64::from);
    case.pool.reuse
        && max_pool_connections(case, &question.spec).is_some_and(|room| most(case).min(shared) > u64::from(room))
}

/// What the given pools could open at their largest, though this load does not make them.
fn given(question: &Question, words: &mut Words) {
    let shared = question.spec.budget.map_or(u64::MAX, u64::from);
    let more = question.cases.iter().filter(|case| could_want_more(question, case));
    let Some(case) = more.max_by_key(|case| most(case)) else { return };
    let Some(room) = max_pool_connections(case, &question.spec) else { return };
    let instances = counted(case.pool.instances.into(), "instance");
    let wanted = match (case.pool.config.max_size, shared) {
        (_, shared) if shared < most(case) => format!("{shared} connections could be wanted by {instances} together"),
        (0, _) => format!("any number of connections could be wanted by {instances} without a max_size"),
        (size, _) => format!("{instances} x {size} = {} connections could be wanted", most(case)),
    };
    let each = match room / case.pool.instances.max(1) {
        0 => String::new(),
        _ if case.pool.instances == 1 => String::new(),
        1 => ", 1 for each".to_owned(),
        each => {
            let of_two = room_for_two(question, case).unwrap_or(room) / (2 * case.pool.instances);
            format!(", {each} for each, or {of_two} while a deployment runs old and new ones side by side")
        }
    };
    words.warn(format!(
        "As given, {wanted}, and {room} are free{each}: a bad day, or a leak in one instance, takes those of the others."
    ));
}

/// Connections that pools may have while a deployment runs old and new instances side by side.
fn room_for_two(question: &Question, load: &Plan) -> Option<u32> {
    question.spec.max_pool_connections(monitoring_connections(load, &question.spec).saturating_mul(2))
}

/// The most connections that the recommended pools have together.
fn in_all(question: &Question, settings: &Advice) -> u64 {
    settings.in_all().min(question.spec.budget.map_or(u64::MAX, u64::from))
}

/// The pool of a Poolhouse in front.
fn front(question: &Question, load: &Plan, prediction: &Prediction, words: &mut Words) {
    let whose = if own_pool(load).is_some() && prediction.settings.is_some() {
        " The max_size that is found is that of the pools before it, and so is what is to be pasted."
    } else {
        ""
    };
    let cases = question.cases.iter().zip(&prediction.given);
    for (wishes, case) in cases.filter_map(|(plan, case)| Some((own_pool(plan)?, case))).take(MAX_FRONTS) {
        let default = PoolConfig::default();
        let (most, size) = (case.most_connections, wishes.max_size.unwrap_or(default.max_size));
        let wait = wishes.max_wait_time.unwrap_or(default.max_wait_time);
        let wait = wait.map_or("for as long as it takes".to_owned(), |wait| format!("for {} at most", time(wait)));
        let waits = case.result.total.front_wait_ms.as_ref().filter(|waits| waits.p99 > 0.0);
        let wait = waits.map_or(wait.clone(), |waits| format!("{wait}, and 1 of 100 for {} as given", ms(waits.p99)));
        words.say(
            "in front",
            format!(
                "Its pool has {} at most, and here had {most}: whoever comes beyond that waits in it, {wait}.{whose}",
                counted(size.into(), "server")
            ),
        );
    }
    let is_sized = |case: &Plan| {
        let of_redis = case.poolhouse.filter(|_| matches!(case.target, Target::Redis(_)));
        of_redis.is_some_and(|wishes| wishes.max_size.is_some() || wishes.max_wait_time.is_some())
    };
    if question.cases.iter().any(is_sized) {
        words.warn(
            "Clients of Redis share the servers of the Poolhouse in front: its max_size and max_wait_time are not played.".to_owned(),
        );
    }
}

fn budget(question: &Question, load: &Plan, settings: &Advice, words: &mut Words) {
    let (Some(limit), Some(room)) = (question.spec.limit, max_pool_connections(load, &question.spec)) else { return };
    let watching = u64::from(monitoring_connections(load, &question.spec));
    let share = |count: u64| percent(count as f64 / f64::from(limit));
    let (most, kept) = (in_all(question, settings), u64::from(settings.min_size) * u64::from(settings.instances));
    let together = if most < settings.in_all() { ", and all of them together" } else { "" };
    let reserved = if question.spec.reserved > 0 {
        format!(", of which {} are reserved", question.spec.reserved)
    } else {
        String::new()
    };
    let watched = match watching {
        0 => String::new(),
        _ => {
            let all = most + watching;
            format!(" Watching it takes {} more: {all} ({}).", counted(watching, "connection"), share(all))
        }
    };
    words.say(
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
    let each = room / settings.instances.max(1);
    let needed = settings.exclusive.map_or(1, |needs| needs.max_size);
    if most > u64::from(room) {
        let way_out = match each < needed {
            // So many there have to be.
            true => "Raise the server's limit".to_owned(),
            false => format!("Lower max_size to {each}"),
        };
        let or = if settings.instances > 1 { ", or put one pool in front of all instances" } else { "" };
        words.warn(format!(
            "All pools together may want {most} connections, and {room} are free: some of them will be refused. {way_out}{or}."
        ));
    } else if room_for_two(question, load).is_some_and(|room| 2 * most > u64::from(room))
        && settings.instances > 1
        && question.spec.budget.is_none()
    {
        words.warn(format!(
            "At their largest the pools take {most} of the {room} connections that are free: during a deployment, when old and new \
             instances run side by side, they could want {}, and some would be refused.",
            2 * most
        ));
    }
}

/// What drivers of MongoDB have at each host.
fn hosts(question: &Question, settings: &Advice, words: &mut Words) {
    let watchers = question.spec.watchers;
    if watchers == 0 || question.spec.budget.is_some() {
        return;
    }
    let which = match watchers {
        MONGODB_MONITORS_PER_HOST => {
            "two connections besides, whatever maxPoolSize is: one waits for news of the host, one measures the way to it"
        }
        _ => "one connection besides, whatever maxPoolSize is, which asks the host what it is",
    };
    let at_each = (u64::from(settings.max_size) + u64::from(watchers)) * u64::from(settings.instances);
    words.say(
        "each host",
        format!(
            "A driver of MongoDB has such a pool for each host of a replica set, and {which}. Each host has a limit of its own, and at each \
             {} x ({} + {watchers}) = {at_each} count.",
            counted(settings.instances.into(), "instance"),
            settings.max_size
        ),
    );
}

/// The same where it may be a MongoDB, for all that is known, and there is no room for them.
fn drivers(question: &Question, load: &Plan, prediction: &Prediction, words: &mut Words) {
    let Some(settings) = prediction.settings.as_ref().filter(|_| !question.knows_database) else { return };
    let Some(room) = max_pool_connections(load, &question.spec) else { return };
    let (instances, watchers) = (u64::from(settings.instances), u64::from(MONGODB_MONITORS_PER_HOST));
    let wanted = settings.in_all() + watchers * instances;
    let is_pasted = prediction.fragments.iter().any(|fragment| fragment.of == MONGODB);
    // What the pools want alone is told elsewhere.
    if !is_pasted || wanted <= u64::from(room) || settings.in_all() > u64::from(room) {
        return;
    }
    let way_out = match (u64::from(room) / instances).saturating_sub(watchers) {
        0 => "raise the server's limit".to_owned(),
        size => format!("lower maxPoolSize to {size}"),
    };
    words.warn(format!(
        "A driver of MongoDB has two connections to each host beside its pool, which watch it: at each host these settings could want \
         {wanted}, and {room} are free. There {way_out}."
    ));
}

/// More connections than a server has of whose limit nothing was said.
fn unlimited(question: &Question, load: &Plan, settings: &Advice, words: &mut Words) {
    let most = in_all(question, settings);
    let (usual, free) = USUAL_LIMIT;
    if question.spec.limit.is_none() && matches!(load.target, Target::Postgres(_)) && most > free {
        words.warn(format!(
            "Nothing was said of how many connections the server lets in (`--server-limit`): a PostgreSQL lets in {usual} where nobody \
             has set max_connections, and here {} are wanted.",
            number(most as f64)
        ));
    }
}

/// Its memory and descriptors.
fn memory(question: &Question, settings: &Advice, watching: u64, words: &mut Words) {
    let kept = u64::from(settings.min_size) * u64::from(settings.instances) + watching;
    let most = in_all(question, settings) + watching;
    let included = if watching > 0 { ", those that watch it included" } else { "" };
    let mb = |count: u64| number(count as f64 * question.memory_mb);
    words.say(
        "server's memory",
        format!(
            "{} MB for each connection: {} MB for the {kept} that are kept, {} MB for {most}{included}; and as many descriptors.",
            number(question.memory_mb),
            mb(kept),
            mb(most)
        ),
    );
}

/// What it costs to open a connection for each operation, where both ways are given.
fn ephemeral(question: &Question, prediction: &Prediction, words: &mut Words) {
    let cases = || question.cases.iter().zip(&prediction.given);
    let Some((kept, with)) = cases().find(|(case, _)| case.pool.reuse) else { return };
    let alike = |case: &Plan| {
        let load = (&case.shape, &case.faults, case.freeze, &case.poolhouse);
        !case.pool.reuse && load == (&kept.shape, &kept.faults, kept.freeze, &kept.poolhouse)
    };
    let Some((_, without)) = cases().find(|(case, _)| alike(case)) else { return };
    if let (Some(with), Some(without)) = (&with.result.total.response_ms, &without.result.total.response_ms) {
        let longer = |more: f64| format!("{} {}", ms(more.abs()), if more < 0.0 { "shorter" } else { "longer" });
        let (p50, p99) = (without.p50 - with.p50, without.p99 - with.p99);
        // Both in one breath where they point the same way.
        let at_p99 = if (p50 < 0.0) == (p99 < 0.0) { ms(p99.abs()) } else { longer(p99) };
        words.say(
            "ephemeral",
            format!(
                "A connection for each operation makes it {} in the median, and {at_p99} at p99. What it costs the server besides is not in \
                 these times.",
                longer(p50)
            ),
        );
    }
}

/// One pool for all instances.
fn shared(prediction: &Prediction, words: &mut Words) {
    let Some(shared) = prediction.shared.as_ref().filter(|_| prediction.facts.server_doubt.is_none()) else { return };
    let Some(settings) = &prediction.settings else {
        let Sizes { max_size, min_size, .. } = shared.sizes;
        let meets = if shared.met { "" } else { ", which does not meet the objectives" };
        words.say(
            "one pool for all",
            format!("Behind one Poolhouse the same load is served by a max_size of {max_size} with a min_size of {min_size}{meets}."),
        );
        return;
    };
    let either = if prediction.best.as_ref().is_some_and(|best| best.met) { "" } else { " either" };
    let verdict = if shared.met { String::new() } else { format!(" (which does not meet the objectives{either})") };
    let why = match u64::from(shared.sizes.max_size) < settings.in_all() {
        true => ": not all instances are busy at the same moment",
        false => "",
    };
    words.say(
        "one pool for all",
        format!(
            "Behind one Poolhouse the same load needs a max_size of {} with a min_size of {}{verdict}, instead of {} x {} = {}{why}.",
            shared.sizes.max_size,
            shared.sizes.min_size,
            settings.instances,
            settings.max_size,
            settings.in_all()
        ),
    );
}

/// Connections that the server has refused.
fn refused(question: &Question, prediction: &Prediction, words: &mut Words) {
    let most = question.cases.iter().zip(&prediction.given).max_by_key(|(_, given)| given.refused);
    let Some((case, refused)) = most.map(|(case, given)| (case, given.refused)).filter(|(_, refused)| *refused > 0)
    else {
        return;
    };
    if let Some(room) = max_pool_connections(case, &question.spec) {
        words.say(
            "refused",
            format!(
                "With the given settings the server lets in {room}, and refuses {} connections beyond that.",
                number(refused as f64)
            ),
        );
    }
}

/// Limits for clients of one in front of all instances.
fn clients_of_one(question: &Question, load: &Plan, prediction: &Prediction) -> Option<String> {
    let one = prediction.shared_settings.as_ref().filter(|_| own_pool(load).is_none())?;
    if question.spec.budget.is_some() {
        return None;
    }
    let (soft, hard) = (one.soft_limit?, one.hard_limit?);
    let each = prediction.settings.as_ref().map_or(0, |each| each.max_size);
    let own = crate::advice::for_own_pools(question, load, each)?.expected;
    Some(format!(
        "The clients of one Poolhouse in front are the connections of the instances' pools, up to {own:.0}: soft_limit {soft} leaves a \
         quarter of room, and hard_limit {hard} makes that 80%."
    ))
}

fn clients(question: &Question, load: &Plan, prediction: &Prediction, words: &mut Words) {
    if let Some(text) = clients_of_one(question, load, prediction) {
        return words.say("clients", text);
    }
    let max_size = match &prediction.settings {
        Some(settings) => settings.max_size,
        // They follow from the size of the pools, of which none is recommended.
        None if load.pool.reuse => return,
        None => 0,
    };
    let Some(limits) = crate::advice::for_clients(question, load, max_size) else { return };
    let ClientLimits { expected, seldom, soft, hard } = limits;
    if question.is_sweep {
        words.say(
            "clients",
            format!(
                "soft_limit {soft} has room for the clients and a quarter more, and hard_limit {hard} makes that 80%."
            ),
        );
        return;
    }
    if load.pool.reuse {
        words.say(
            "clients",
            format!(
                "A Poolhouse between these pools and the database has up to {}: soft_limit {soft} leaves a quarter of room, and hard_limit \
                 {hard} makes that 80%. These are not among the settings to paste: where applications connect without such pools, count \
                 their connections instead.",
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
    let room = match seldom {
        Some(seldom) if seldom >= soft => "seldom has to make room for more".to_owned(),
        _ => "leaves a quarter of room".to_owned(),
    };
    words.say(
        "clients",
        format!(
            "Each client needs its connection for {}{in_stall}, and is not sent away before it has been idle for {}. At this rate that are \
             {} who cannot be sent away: soft_limit {soft} {room}, and hard_limit {hard} makes that 80%.",
            ms(facts.held_ms + facts.connect_ms),
            evict.map_or("5 s (evict_min_idle)".to_owned(), time),
            number(expected)
        ),
    );
}

/// The platform's freeze against the server's idle time.
fn platform(question: &Question, load: &Plan, words: &mut Words) {
    let Some(platform) = question.platform else { return };
    let advised = platform.outlived();
    words.say(
        "client idle time",
        format!(
            "A function is frozen {} after its last call and ended after {}. client_idle_time {} is longer than both together, so that no \
             thawed function finds its connection gone.",
            time(platform.freeze_after),
            time(platform.kill_after),
            time(advised)
        ),
    );
    let given = load.poolhouse.as_ref().and_then(|wishes| wishes.client_idle_time).flatten();
    if let Some(given) =
        given.map(|time| time.mul_f64(question.compression)).filter(|given| *given < platform.kill_after)
    {
        words.say(
            "zombies",
            format!(
                "The first setting given, {}, ends connections of functions that are frozen and will come back: between {} and {} after \
                 its last call a function's next one fails.",
                time(given),
                time(given),
                time(platform.kill_after)
            ),
        );
    }
}

/// What needs a connection of its own at a Redis.
fn exclusive(prediction: &Prediction, words: &mut Words) {
    let Some(needs) = prediction.settings.as_ref().and_then(|settings| settings.exclusive) else { return };
    words.say(
        "exclusive",
        format!(
            "Ordinary commands share one connection (one for each worker at most). Blocking commands need {} of their own, transactions {}, \
             all subscribers together {}: more are wanted in less than one of 1,000 moments. With those of the load that is a max_size of {}.",
            needs.blocking, needs.transactions, needs.subscribers, needs.max_size
        ),
    );
}
