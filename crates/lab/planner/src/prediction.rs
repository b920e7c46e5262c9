//! The answer to a question as plain values: results of the given and the best settings, figures, and explanation.

use ::report::result::BenchResult;
use serde::Serialize;

use crate::{
    advice::Advice, facts::Facts, fragments::Fragment, question::Missed, search::Bound, sizes::Sizes, upkeep::Upkeep,
};

/// The version of its JSON.
pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    pub format: u32,
    /// Always `plan`. The result of a run has no kind.
    pub kind: &'static str,
    pub name: String,
    /// The description of the scenario.
    #[serde(skip)]
    pub about: String,
    pub server: String,
    pub objectives: Vec<String>,
    /// Share by which upper limits of objectives are lowered.
    pub margin: f64,
    /// The result of each load with its given settings.
    pub given: Vec<Case>,
    /// Null if no load has a pool, or [`Prediction::forbidden`].
    pub best: Option<Best>,
    /// Why the limits allow no size of the pools; null if they allow one.
    pub forbidden: Option<String>,
    /// The best settings of one pool that all instances share; null if there is one instance.
    pub shared: Option<Best>,
    pub facts: Facts,
    /// The recommended settings; null if no load has a pool, the limits allow none, or the server's curve is
    /// unreliable.
    pub settings: Option<Advice>,
    /// The recommended settings of one pool in front of all instances, whose clients are their pools; null as above,
    /// or if there is one instance.
    pub shared_settings: Option<Advice>,
    /// What to do, in three lines at most.
    pub answer: Vec<String>,
    pub reasons: Vec<Reason>,
    pub fragments: Vec<Fragment>,
    /// Assumptions, one sentence each.
    pub assumed: Vec<String>,
    pub warnings: Vec<String>,
}

/// The result of one load with some settings.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// The result in the form of a measurement.
    pub result: BenchResult,
    pub missed: Vec<Missed>,
    /// The most connections at a time of the server, or of a Poolhouse in front of Redis.
    pub most_connections: u32,
    /// Connections that the server has refused.
    pub refused: u64,
    /// The most concurrent operations of a shared server; null if operations do not slow each other down.
    pub at_once: Option<u32>,
    /// Clients that a Poolhouse in front has rejected.
    pub rejected: u64,
    /// Clients that a Poolhouse in front has evicted.
    pub evicted: u64,
}

/// The best settings found, and their results.
#[derive(Clone, Debug, Serialize)]
pub struct Best {
    pub sizes: Sizes,
    /// [`Self::sizes`] for people, in the time of the real service.
    pub words: String,
    /// Instances, each with such a pool.
    pub instances: u32,
    /// Names of settings that stay as given, because the rules would miss objectives.
    pub as_given: Vec<&'static str>,
    /// The rejected settings by rule, in the time of the simulation, and the objectives they miss.
    #[serde(skip)]
    pub rejected: Option<(Upkeep, Vec<Missed>)>,
    /// The result of each load with all recommended settings.
    pub cases: Vec<Case>,
    pub met: bool,
    pub with_margin: bool,
    /// The largest size found too small; null if the smallest candidate was large enough.
    pub too_small: Option<u32>,
    /// The largest size allowed.
    pub most: u32,
    #[serde(skip)]
    pub bound: Bound,
    /// p50, p95 and p99 in milliseconds with other seeds.
    pub other_seeds: Vec<[f64; 3]>,
    /// Number of other seeds with which all objectives were met.
    pub other_seeds_that_met: u64,
    /// Number of simulations run.
    pub simulations: u32,
}

/// A sentence of the explanation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    pub about: &'static str,
    pub text: String,
}

impl Prediction {
    /// No settings meet the objectives; without a pool, the given ones do not.
    pub fn is_hopeless(&self) -> bool {
        match &self.best {
            _ if self.needs_one_in_front() => false,
            Some(best) => !best.met,
            None => self.forbidden.is_some() || self.given.iter().all(|case| !case.missed.is_empty()),
        }
    }

    /// No pools of the instances meet the objectives, but one pool in front of all of them does.
    pub fn needs_one_in_front(&self) -> bool {
        let each = self.best.as_ref().is_some_and(|best| best.met);
        self.shared_settings.is_some() && self.shared.as_ref().is_some_and(|one| one.met) && !each
    }

    /// Whether the settings of a fragment miss the objectives.
    fn misses(&self, fragment: &Fragment) -> bool {
        // Given pools meet the objectives behind one pool in front that does.
        let best = if fragment.is_for_all || self.needs_one_in_front() { &self.shared } else { &self.best };
        best.as_ref().is_some_and(|best| !best.met)
    }

    /// The heading of a fragment: product, place, settings without a counterpart, whether it misses the objectives.
    pub fn heading(&self, fragment: &Fragment) -> String {
        let missing = match &fragment.missing[..] {
            [] => String::new(),
            names => format!(" (without a counterpart: {})", names.join(", ")),
        };
        let misses = if self.misses(fragment) { ", which misses the objectives" } else { "" };
        format!("{}, {}{missing}{misses}", fragment.of, fragment.place)
    }

    /// The results of the given and of the best settings, with names for a table.
    pub fn results(&self) -> Vec<BenchResult> {
        let given = self.given.iter().map(|case| case.result.clone());
        let best = self.best.iter().flat_map(|best| {
            best.cases.iter().map(|case| {
                let (scenario, own) = match case.result.name.split_once(": ") {
                    Some((scenario, own)) => (format!("{scenario}: "), own),
                    None => (String::new(), case.result.name.as_str()),
                };
                let of = if best.cases.len() > 1 { format!(" ({own})") } else { String::new() };
                BenchResult { name: format!("{scenario}best: {}{of}", best.words), ..case.result.clone() }
            })
        });
        given.chain(best).collect()
    }
}
