//! The whole answer to a question, as plain values: what the given settings do, what the best ones are and do, the
//! numbers behind it, and what is said about them. Computes nothing.

use ::report::result::BenchResult;
use serde::Serialize;

use crate::{
    advice::Advice,
    facts::Facts,
    fragments::Fragment,
    question::Missed,
    search::{Bound, HeldBack},
    sizes::Sizes,
    upkeep::Upkeep,
};

/// The version of its JSON.
pub const FORMAT: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub struct Prediction {
    /// [`FORMAT`].
    pub format: u32,
    /// Always `plan`: tells such a file from a measurement.
    pub kind: &'static str,
    pub name: String,
    /// What the scenario shows.
    #[serde(skip)]
    pub about: String,
    pub server: String,
    pub objectives: Vec<String>,
    /// By how much limits must be kept, as a share.
    pub margin: f64,
    /// The settings that were given, each with what they do.
    pub given: Vec<Case>,
    /// The best settings that were found; null: no load has a pool, or [`Prediction::forbidden`].
    pub best: Option<Best>,
    /// Why the limits allow no size of the pools; null: they allow some.
    pub forbidden: Option<String>,
    /// The same for one pool that all instances share; null: there is one instance.
    pub shared: Option<Best>,
    /// What arithmetic says; null: there is no load.
    pub facts: Facts,
    /// The settings to use; null: no load has a pool, the limits allow none, or nothing of the server's curve can be
    /// relied on.
    pub settings: Option<Advice>,
    /// The same for one pool in front of all instances, whose clients are their pools; null: as above, or there is one
    /// instance.
    pub shared_settings: Option<Advice>,
    /// What to do, in three lines at most.
    pub answer: Vec<String>,
    /// Why, sentence by sentence.
    pub reasons: Vec<Reason>,
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
    /// The most connections that the server had at a time; or, where one is in front of a Redis, the Poolhouse.
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
    pub sizes: Sizes,
    /// In words, with the times of the real service.
    pub words: String,
    /// Instances, each with such a pool.
    pub instances: u32,
    /// Settings that stay as given, because the objectives do not hold with what the rules say.
    pub as_given: Vec<&'static str>,
    /// What the rules say then, in the time of the simulation, and what is missed with that.
    #[serde(skip)]
    pub not_kept: Option<(Upkeep, Vec<Missed>)>,
    /// What all settings that are recommended do to each load.
    pub cases: Vec<Case>,
    /// All objectives are met.
    pub met: bool,
    pub with_margin: bool,
    /// The largest size that was tried and too small; null: the smallest was large enough.
    pub too_small: Option<u32>,
    /// What the given `max_connecting` would have led to; absent: it holds nothing back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBack>,
    /// The most that was allowed.
    pub most: u32,
    #[serde(skip)]
    pub bound: Bound,
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
    pub about: &'static str,
    pub text: String,
}

impl Prediction {
    /// No setting meets the objectives; of a question without a pool: those that were given do not.
    pub fn is_hopeless(&self) -> bool {
        match &self.best {
            _ if self.needs_one_in_front() => false,
            Some(best) => !best.met,
            None => self.forbidden.is_some() || self.given.iter().all(|case| !case.missed.is_empty()),
        }
    }

    /// No pools of the instances meet the objectives, and one in front of all of them does.
    pub fn needs_one_in_front(&self) -> bool {
        let each = self.best.as_ref().is_some_and(|best| best.met);
        self.shared_settings.is_some() && self.shared.as_ref().is_some_and(|one| one.met) && !each
    }

    /// What is to be pasted there meets the objectives no more than anything else does: it is the nearest of what was
    /// tried.
    pub fn misses(&self, fragment: &Fragment) -> bool {
        // Pools that stay as they are miss nothing behind one in front that meets the objectives.
        let best = if fragment.is_for_all || self.needs_one_in_front() { &self.shared } else { &self.best };
        best.as_ref().is_some_and(|best| !best.met)
    }

    /// The results of the given settings and of the best ones, each named, as measurements are shown.
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
