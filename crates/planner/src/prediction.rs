//! The whole answer to a question: what the given settings do, what the best ones are and do, the numbers behind it. It is made here and
//! only read by those who tell it.

use bench::result::BenchResult;
use serde::Serialize;

use crate::{
    advice::{self, Advice},
    facts::Facts,
    fragments::{Fragment, fragments},
    question::{Missed, Question},
    reasons,
    run::{Outcome, run},
    search::{self, Found, Sizes},
};

/// The version of its JSON.
pub const FORMAT: u32 = 1;

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// [`FORMAT`].
    pub format: u32,
    /// Always `plan`: tells such a file from a measurement.
    pub kind: &'static str,
    /// What was asked.
    pub name: String,
    /// What the scenario shows.
    #[serde(skip)]
    pub about: String,
    /// The server in words.
    pub server: String,
    /// What must hold.
    pub objectives: Vec<String>,
    /// By how much limits must be kept, as a share.
    pub margin: f64,
    /// The settings that were given, each with what they do.
    pub given: Vec<Case>,
    /// The best settings that were found; null: no load has a pool.
    pub best: Option<Best>,
    /// The same for one pool that all instances share; null: there is one instance.
    pub shared: Option<Best>,
    /// What arithmetic says; null: there is no load.
    pub facts: Facts,
    /// The settings to use; null: no load has a pool.
    pub settings: Option<Advice>,
    /// Why, sentence by sentence.
    pub reasons: Vec<Reason>,
    /// The settings to paste.
    pub fragments: Vec<Fragment>,
    /// What had to be assumed.
    pub assumed: Vec<String>,
    /// What the reader must know to read it rightly.
    pub warnings: Vec<String>,
}

/// Settings, and what they do to one load.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// As a measurement would show it.
    pub result: BenchResult,
    /// Objectives that are not met.
    pub missed: Vec<Missed>,
    /// The most connections that the server had at a time.
    pub most_connections: u32,
    /// Connections that the server has refused.
    pub refused: u64,
    /// The most operations that shared the server; null: they do not hinder one another.
    pub at_once: Option<u32>,
    /// Clients that a Poolhouse in front has rejected.
    pub rejected: u64,
    /// Clients that it has evicted.
    pub evicted: u64,
}

/// The best settings that were found.
#[derive(Clone, Debug, Serialize)]
pub struct Best {
    /// They.
    pub sizes: Sizes,
    /// Instances, each with such a pool.
    pub instances: u32,
    /// What they do to each load.
    pub cases: Vec<Case>,
    /// All objectives are met.
    pub met: bool,
    /// With the margin, too.
    pub with_margin: bool,
    /// The largest size that was tried and too small; null: the smallest was large enough.
    pub too_small: Option<u32>,
    /// The most that was allowed.
    pub most: u32,
    /// p50, p95 and p99 in milliseconds with other seeds.
    pub other_seeds: Vec<[f64; 3]>,
    /// How many of those met all objectives.
    pub other_seeds_that_met: u64,
    /// Simulations that the search took.
    pub simulations: u32,
}

/// A sentence, and what it is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// In a word or two.
    pub about: &'static str,
    /// The sentence.
    pub text: String,
}

/// Answers a question.
pub fn predict(question: &Question, progress: search::Progress<'_>) -> Prediction {
    let load = question.pooled().or(question.cases.first()).expect("a question has a load");
    let given: Vec<Case> = question.cases.iter().map(|case| Case::of(question, &run(case, &question.spec))).collect();
    let found = search::search(question, &mut *progress);
    let shared = (load.pool.reuse && load.pool.instances > 1).then(|| {
        let mut one = question.clone();
        one.cases.retain(|case| case.pool.instances == load.pool.instances);
        one.cases.iter_mut().for_each(|case| case.pool.instances = 1);
        search::search(&one, &mut *progress)
    });
    let shared = shared.flatten().map(|found| Best::of(question, &found, 1));
    let best = found.as_ref().map(|found| Best::of(question, found, load.pool.instances));
    let facts = Facts::of(question, load);
    let settings = best.as_ref().map(|best| {
        let results: Vec<&BenchResult> = best.cases.iter().map(|case| &case.result).collect();
        Advice::of(question, load, &facts, &best.sizes, &results)
    });
    let mut prediction = Prediction {
        format: FORMAT,
        kind: "plan",
        name: question.name.clone(),
        about: question.about.clone(),
        server: server(question),
        objectives: question.objectives.iter().map(|objective| objective.text().to_owned()).collect(),
        margin: question.margin,
        fragments: Vec::new(),
        given,
        best,
        shared,
        facts,
        settings,
        reasons: Vec::new(),
        assumed: question.assumed.clone(),
        warnings: Vec::new(),
    };
    let pasted = prediction.settings.clone().or_else(|| for_clients(question));
    prediction.fragments = pasted.map_or(Vec::new(), |advice| {
        fragments(&advice, &load.target, load.target.url().is_empty() && question.about.is_empty())
    });
    (prediction.reasons, prediction.warnings) = reasons::reasons(question, load, &prediction);
    prediction
}

impl Prediction {
    /// No setting meets the objectives; of a question without a pool: those that were given do not.
    pub fn is_hopeless(&self) -> bool {
        match &self.best {
            Some(best) => !best.met,
            None => self.given.iter().all(|case| !case.missed.is_empty()),
        }
    }

    /// The results of the given settings and of the best ones, each named, as measurements are shown.
    pub fn results(&self) -> Vec<BenchResult> {
        let given = self.given.iter().map(|case| case.result.clone());
        let best = self.best.iter().flat_map(|best| {
            best.cases.iter().map(|case| {
                let scenario = case.result.name.split_once(": ").map_or(String::new(), |(name, _)| format!("{name}: "));
                BenchResult { name: format!("{scenario}best: {}", best.sizes.words()), ..case.result.clone() }
            })
        });
        given.chain(best).collect()
    }
}

impl Sizes {
    /// In words.
    pub fn words(&self) -> String {
        let idle = self.max_idle_time.map_or("off".to_owned(), crate::words::time);
        format!("max_size {}, min_size {}, max_idle_time {idle}", self.max_size, self.min_size)
    }
}

impl Case {
    fn of(question: &Question, outcome: &Outcome) -> Self {
        let mut result = outcome.result.clone();
        result.about.scenario = (!question.about.is_empty()).then(|| question.about.clone());
        result.about.compression = Some(question.compression).filter(|times| *times != 1.0);
        Self {
            missed: question.missed(&result, 0.0),
            result,
            most_connections: outcome.server.most,
            refused: outcome.server.refused,
            at_once: outcome.server.at_once,
            rejected: outcome.gate.0,
            evicted: outcome.gate.1,
        }
    }
}

impl Best {
    fn of(question: &Question, found: &Found, instances: u32) -> Self {
        Self {
            sizes: found.sizes,
            instances,
            cases: found.outcomes.iter().map(|outcome| Case::of(question, outcome)).collect(),
            met: found.missed.is_empty(),
            with_margin: found.with_margin,
            too_small: found.too_small.as_ref().map(|(size, _)| *size),
            most: found.most.0,
            other_seeds: found.spread.clone(),
            other_seeds_that_met: found.seeds_that_met,
            simulations: found.simulations,
        }
    }
}

/// The settings of a load without a pool: limits for clients only.
fn for_clients(question: &Question) -> Option<Advice> {
    let load = question.cases.first()?;
    let (soft_limit, hard_limit) = advice::for_clients(question, load).unzip();
    Some(Advice {
        max_size: 0,
        min_size: 0,
        max_idle_time: None,
        max_life_time: None,
        max_wait_time: None,
        max_connecting: 0,
        instances: load.pool.instances,
        soft_limit: Some(soft_limit?),
        hard_limit,
        client_idle_time: question.platform.map(|platform| platform.kill_after + std::time::Duration::from_secs(10)),
        exclusive: None,
    })
}

fn server(question: &Question) -> String {
    let spec = &question.spec;
    let mut parts = vec![spec.service.words()];
    if let Some(curve) = &spec.curve {
        parts.push(match curve.measured_until() {
            Some(until) => format!("shared by those that run at once, as measured up to {until}"),
            None => format!("{} at a time without hindering one another", curve.best(0.0).1),
        });
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
