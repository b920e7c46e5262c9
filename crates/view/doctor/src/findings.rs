//! The answer of `/api/findings`, of a Poolhouse that examines itself.

use std::time::Duration;

use admin_api::{Client, Examiner, Observation};
use serde_json::{Value, json};

use crate::{
    diagnosis::{Diagnosis, examine},
    pooler::PoolerWindow,
};

impl Examiner for PoolerWindow {
    fn add(&mut self, observation: Observation, clients: Vec<Client>) {
        self.add(observation);
        self.clients = clients;
    }

    fn looks(&self) -> usize {
        self.looks()
    }

    fn duration(&self) -> Duration {
        self.duration()
    }

    fn findings(&self) -> Value {
        with_names(&examine(self))
    }
}

/// A diagnosis, with the names that people have for symptoms.
fn with_names(diagnosis: &Diagnosis) -> Value {
    let mut answer = serde_json::to_value(diagnosis).expect("it has text keys and finite numbers");
    answer["state"] = json!("examined");
    for (shown, finding) in answer["findings"].as_array_mut().into_iter().flatten().zip(&diagnosis.findings) {
        shown["name"] = json!(finding.symptom.name());
    }
    for (shown, undecided) in answer["undecided"].as_array_mut().into_iter().flatten().zip(&diagnosis.undecided) {
        shown["names"] = undecided.between.iter().map(|symptom| symptom.name()).collect();
    }
    answer
}

#[cfg(test)]
mod tests {
    use admin_api::{Look, Pool};

    use super::*;

    #[test]
    fn findings_have_a_state_and_names_for_people() {
        let pool = Pool { created: 1, unavailable_ms: Some(90_000.0), ..Pool::default() };
        let look = Look { pools: vec![pool], ..Look::default() };
        let mut window = PoolerWindow::default();
        for second in [0, 4, 8, 12] {
            let observation = Observation { at: Duration::from_secs(second), look: look.clone(), holders: Vec::new() };
            Examiner::add(&mut window, observation, Vec::new());
        }
        let answer = window.findings();
        assert_eq!((&answer["state"], &answer["window_s"]), (&json!("examined"), &json!(12.0)));
        assert_eq!(answer["findings"][0]["symptom"], json!("out_of_reach"));
        assert_eq!(answer["findings"][0]["name"], json!("the database is out of reach"));
    }
}
