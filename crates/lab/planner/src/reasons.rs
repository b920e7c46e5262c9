//! The reasons of a prediction in words. Reads numbers; computes none but what stands in its sentences.

mod certainty;
mod first;
mod limits;
mod sizing;
mod stalls;
mod upkeep;

use load::plan::Plan;

use crate::{
    prediction::{Prediction, Reason},
    question::Question,
};

pub use first::answer;

/// What is said, and what the reader is warned of.
#[derive(Default)]
struct Words {
    reasons: Vec<Reason>,
    warnings: Vec<String>,
}

impl Words {
    fn say(&mut self, about: &'static str, text: String) {
        self.reasons.push(Reason { about, text });
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }
}

/// All reasons and warnings, in the order in which they are read.
pub fn reasons(question: &Question, load: &Plan, prediction: &Prediction) -> (Vec<Reason>, Vec<String>) {
    let mut words = Words::default();
    certainty::verdict(question, prediction, &mut words);
    sizing::say(question, load, prediction, &mut words);
    upkeep::say(question, load, prediction, &mut words);
    limits::say(question, load, prediction, &mut words);
    stalls::say(question, &mut words);
    certainty::say(question, prediction, &mut words);
    (words.reasons, words.warnings)
}
