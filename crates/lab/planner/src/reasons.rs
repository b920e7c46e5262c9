//! Explains a prediction in sentences: the answer, the reasons, the warnings.

mod answer;
mod hidden_stalls;
mod limits;
mod sizing;
mod upkeep;
mod verdict;

use load::plan::Plan;

use crate::{
    prediction::{Prediction, Reason},
    question::Question,
};

pub use answer::answer;

#[derive(Default)]
struct Explanation {
    reasons: Vec<Reason>,
    warnings: Vec<String>,
}

impl Explanation {
    fn reason(&mut self, about: &'static str, text: String) {
        self.reasons.push(Reason { about, text });
    }

    fn warn(&mut self, text: String) {
        self.warnings.push(text);
    }
}

/// All reasons and warnings, in reading order.
pub fn reasons(question: &Question, load: &Plan, prediction: &Prediction) -> (Vec<Reason>, Vec<String>) {
    let mut to = Explanation::default();
    verdict::explain(question, prediction, &mut to);
    sizing::explain(question, load, prediction, &mut to);
    upkeep::explain(question, load, prediction, &mut to);
    limits::explain(question, load, prediction, &mut to);
    hidden_stalls::warn(question, &mut to);
    verdict::explain_certainty(question, prediction, &mut to);
    (to.reasons, to.warnings)
}
