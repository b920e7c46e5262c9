//! Answers a question: simulates the given settings, searches for the best ones, and collects the explanation and the
//! settings to paste.

use load::plan::Plan;

use crate::{
    advice::{self, Advice},
    facts::Facts,
    fragments::{Fragment, Recommended, fragments},
    prediction::{Best, Case, FORMAT, Prediction},
    question::Question,
    reasons,
    run::{Outcome, front_with_exclusive_leases, run},
    search::{self, Bound, Found},
};

pub fn predict(question: &Question, progress: search::Progress<'_>) -> Prediction {
    let load = question.first_pooled().or(question.loads.first()).expect("a question has a load");
    let given: Vec<Case> = question.loads.iter().map(|load| case(question, &run(load, &question.spec))).collect();
    let found = search::search(question, &mut *progress);
    let one_pool = (load.pool.reuse && load.pool.instances > 1).then(|| {
        let mut one = question.clone();
        one.loads.retain(|other| other.pool.instances == load.pool.instances);
        one.loads.iter_mut().for_each(|load| load.pool.instances = 1);
        one
    });
    let found_for_one = one_pool.as_ref().and_then(|one| search::search(one, &mut *progress));
    let shared = found_for_one.as_ref().map(|found| self::best(question, found, 1));
    let best = found.as_ref().map(|found| self::best(question, found, load.pool.instances));
    let facts = Facts::of(question, load);
    let forbidden =
        if best.is_none() { question.first_pooled().and_then(|load| forbidden(question, load)) } else { None };
    let is_known = facts.server_doubt.is_none();
    let settings = found.as_ref().filter(|_| is_known);
    let settings = settings.map(|found| Advice::of(question, load, &found.sizes, &found.upkeep));
    let shared_settings = match (one_pool.as_ref().and_then(Question::first_pooled), &found_for_one) {
        // The clients of one pool for all are the pools of the instances.
        (Some(for_one), Some(found)) if is_known => {
            let each = settings.as_ref().map_or(0, |each| each.max_size);
            let (soft_limit, hard_limit) =
                advice::client_limits_of_pools(question, load, each).map(|limits| (limits.soft, limits.hard)).unzip();
            Some(Advice { soft_limit, hard_limit, ..Advice::of(question, for_one, &found.sizes, &found.upkeep) })
        }
        _ => None,
    };
    let mut prediction = Prediction {
        format: FORMAT,
        kind: "plan",
        name: question.name.clone(),
        about: question.about.clone(),
        server: describe_server(question),
        objectives: question.objectives.iter().map(|objective| objective.text().to_owned()).collect(),
        margin: question.margin,
        fragments: Vec::new(),
        given,
        best,
        forbidden,
        shared,
        facts,
        settings,
        shared_settings,
        answer: Vec::new(),
        reasons: Vec::new(),
        assumed: question.assumptions.clone(),
        warnings: Vec::new(),
    };
    prediction.fragments = settings_to_paste(question, load, &prediction);
    prediction.answer = reasons::answer(question, load, &prediction);
    (prediction.reasons, prediction.warnings) = reasons::reasons(question, load, &prediction);
    prediction
}

fn settings_to_paste(question: &Question, load: &Plan, prediction: &Prediction) -> Vec<Fragment> {
    let target = question.is_database_known.then_some(&load.target);
    let clients_only = if question.first_pooled().is_none() { client_limits_only(question) } else { None };
    // Behind one Poolhouse for all, pools that need it stay as given.
    let kept = prediction.shared_settings.as_ref().filter(|_| prediction.needs_one_in_front()).map(|one| Advice {
        max_size: load.pool.config.max_size,
        min_size: load.pool.config.min_size,
        instances: load.pool.instances,
        // These limits are for the clients of that Poolhouse.
        soft_limit: None,
        hard_limit: None,
        ..one.clone()
    });
    // Limits that follow from the recommended pools would reject other clients, whose number is unknown.
    let are_clients_unknown = load.pool.reuse && !question.is_sweep;
    let own = prediction.settings.clone().map(|own| match are_clients_unknown {
        true => Advice { soft_limit: None, hard_limit: None, ..own },
        false => own,
    });
    let Some(each) = clients_only.as_ref().or(kept.as_ref()).or(own.as_ref()) else {
        return Vec::new();
    };
    let pooler = match &prediction.shared_settings {
        // The recommended size is that of the drivers' pools before the Poolhouse, so no pooler's settings are printed.
        _ if front_with_exclusive_leases(load).is_some() && prediction.settings.is_some() => None,
        // One pooler serves all instances. Pools that share a budget already belong to one.
        Some(one) if question.spec.budget.is_none() => Some(one),
        _ => Some(each),
    };
    fragments(&Recommended { each, pooler }, target, &question.products)
}

fn case(question: &Question, outcome: &Outcome) -> Case {
    let mut result = outcome.result.clone();
    result.about.scenario = (!question.about.is_empty()).then(|| question.about.clone());
    result.about.compression = Some(question.compression).filter(|times| *times != 1.0);
    Case {
        missed: question.missed(&result, 0.0),
        result,
        most_connections: outcome.server.max_open,
        refused: outcome.server.refused,
        at_once: outcome.server.max_concurrent,
        rejected: outcome.front.rejected,
        evicted: outcome.front.evicted,
    }
}

fn best(question: &Question, found: &Found, instances: u32) -> Best {
    let as_given = found.rejected.as_ref().map_or(Vec::new(), |(by_rule, _)| by_rule.differences(&found.upkeep));
    Best {
        sizes: found.sizes,
        instances,
        words: found.sizes.words(question.compression),
        as_given,
        rejected: found.rejected.clone(),
        cases: found.outcomes.iter().map(|outcome| case(question, outcome)).collect(),
        met: found.missed.is_empty(),
        with_margin: found.with_margin,
        too_small: found.too_small.as_ref().map(|(size, _)| *size),
        most: found.max_allowed.0,
        bound: found.max_allowed.1,
        other_seeds: found.spread.clone(),
        other_seeds_that_met: found.seeds_that_met,
        simulations: found.simulations,
    }
}

/// Why the limits allow no size of the pools. `None`: they allow one.
fn forbidden(question: &Question, load: &Plan) -> Option<String> {
    let instances = load.pool.instances;
    let (limit, bound) = search::limits(load, &question.spec).find(|(limit, _)| *limit < instances)?;
    let whose = if bound == Bound::Gate { "the hard_limit of the Poolhouse in front" } else { "the server" };
    let count = crate::words::counted(instances.into(), "instance");
    let beside = if question.spec.monitors_per_instance > 0 { " beside those that watch it" } else { "" };
    Some(format!(
        "Each of {count} needs a connection at least, and {whose} lets in {limit}{beside}. Raise that limit, or put \
         one pool in front of all instances."
    ))
}

/// The settings for a load without a pool: limits for its clients only.
fn client_limits_only(question: &Question) -> Option<Advice> {
    let load = question.loads.first()?;
    let limits = advice::client_limits(question, load, 0)?;
    let real_time = |time: std::time::Duration| time.mul_f64(question.compression);
    Some(Advice {
        max_size: 0,
        min_size: 0,
        max_idle_time: None,
        max_life_time: None,
        max_wait_time: None,
        max_connecting: 0,
        instances: load.pool.instances,
        budget: None,
        soft_limit: Some(limits.soft),
        hard_limit: Some(limits.hard),
        evict_min_idle: load.poolhouse.as_ref().and_then(|wishes| wishes.evict_min_idle).map(real_time),
        client_idle_time: question.platform.map(|platform| platform.safe_client_idle_time()),
    })
}

fn describe_server(question: &Question) -> String {
    let spec = &question.spec;
    let mut parts = vec![spec.service.words()];
    if let Some(curve) = &spec.curve {
        parts.push(match curve.measured_until() {
            Some(until) => format!("shared by those that run at once, as measured up to {until}"),
            None => format!("{} at a time without hindering one another", curve.best(0.0).1),
        });
    }
    if let Some(processors) = spec.processors {
        let count = crate::words::counted(processors.count.into(), "processor");
        parts.push(format!("of that {} with one of {count}", crate::words::time(processors.work)));
    }
    if spec.trips > 1 {
        parts.push(format!("{} round trips", spec.trips));
    }
    parts.push(format!("{} for a new connection", crate::words::time(spec.connect.mean())));
    if let Some(limit) = spec.limit {
        parts.push(format!("at most {limit} connections, {} of them reserved", spec.reserved));
    }
    parts.join("; ")
}
