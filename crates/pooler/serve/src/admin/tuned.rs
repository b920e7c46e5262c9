//! A tuner as `/api/pools` shows it.

use admin_api::{Tuning, TuningEvidence, TuningStep, TuningTrial};
use tuner::{Evidence, Step, Tuner};

/// `tuning` of a pool.
pub fn shown(tuner: &Tuner) -> Tuning {
    let limits = tuner.limits();
    let trial = |(candidate, present): (u32, u32)| TuningTrial { candidate: candidate.into(), present: present.into() };
    Tuning {
        changes: tuner.changes(),
        last: tuner.last().map(step),
        max: limits.max.into(),
        min: limits.min.into(),
        state: tuner.state().as_str().to_owned(),
        steps: tuner.steps().map(|(reason, count)| (reason.as_str().to_owned(), count)).collect(),
        trial: tuner.trial().map(trial),
        window_ms: limits.window.as_secs_f64() * 1e3,
    }
}

fn step(step: &Step) -> TuningStep {
    TuningStep {
        evidence: step.evidence.as_ref().map(evidence),
        from: step.from.into(),
        reason: step.reason.as_str().to_owned(),
        text: step.to_string(),
        to: step.to.into(),
    }
}

fn evidence(evidence: &Evidence) -> TuningEvidence {
    let Evidence { present, candidate, pairs, gain, interval, at_present, at_candidate, .. } = evidence;
    let ms = |window: &tuner::Window| (window.completed > 0).then(|| window.mean_hold().as_secs_f64() * 1e3);
    TuningEvidence {
        candidate: (*candidate).into(),
        candidate_errors: at_candidate.errors,
        candidate_hold_ms: ms(at_candidate),
        candidate_tps: at_candidate.throughput(),
        gain: *gain,
        gain_high: interval.map(|(_, high)| high),
        gain_low: interval.map(|(low, _)| low),
        pairs: (*pairs).into(),
        present: (*present).into(),
        present_errors: at_present.errors,
        present_hold_ms: ms(at_present),
        present_tps: at_present.throughput(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pool::Time;
    use serde_json::{Value, json};
    use tuner::{Limits, Sample};

    use super::*;

    fn shown(tuner: &Tuner) -> Value {
        serde_json::to_value(super::shown(tuner)).unwrap()
    }

    #[test]
    fn a_tuner_is_shown_with_its_steps_and_their_evidence() {
        let limits = Limits { min: 1, max: 60, window: Duration::from_secs(4) };
        let mut tuner = Tuner::new(limits, 20);
        assert_eq!(shown(&tuner)["last"], Value::Null);
        let mut sample = Sample { in_use: 20, waiters: 9, is_working: true, ..Sample::default() };
        for second in 1..300 {
            sample.completed += 100;
            sample.held += Duration::from_secs(20);
            tuner.observe(&sample, Time(second * 1_000_000_000));
        }
        let shown = shown(&tuner);
        assert_eq!(
            (&shown["state"], &shown["max"], &shown["window_ms"]),
            (&json!("searching"), &json!(60), &json!(4000.0))
        );
        assert!(shown["steps"]["tries"].as_u64() > Some(0), "{shown}");
        assert_eq!(shown["last"]["reason"], json!("alike"), "{shown}");
        assert_eq!(shown["last"]["evidence"]["pairs"], json!(7), "{shown}");
    }
}
