//! A tuner, as JSON for `/api/pools`. Numbers that nobody has measured are null.

use serde_json::{Map, Value, json};
use tuner::{Evidence, Step, Tuner};

/// `tuning` of a pool.
pub fn shown(tuner: &Tuner) -> Value {
    let limits = tuner.limits();
    let steps: Map<_, _> = tuner.steps().map(|(reason, count)| (reason.as_str().to_owned(), json!(count))).collect();
    json!({
        "state": tuner.standing().as_str(),
        "min": limits.least,
        "max": limits.most,
        "window_ms": limits.window.as_secs_f64() * 1e3,
        "trial": tuner.trial().map(|(candidate, present)| json!({ "candidate": candidate, "present": present })),
        "changes": tuner.changes(),
        "steps": steps,
        "last": tuner.last().map(step),
    })
}

fn step(step: &Step) -> Value {
    json!({
        "from": step.from,
        "to": step.to,
        "reason": step.reason.as_str(),
        "text": step.to_string(),
        "evidence": step.evidence.as_ref().map(evidence),
    })
}

fn evidence(evidence: &Evidence) -> Value {
    let Evidence { present, candidate, pairs, gain, interval, at_present, at_candidate, .. } = evidence;
    let ms = |window: &tuner::Window| (window.completed > 0).then(|| window.hold().as_secs_f64() * 1e3);
    json!({
        "present": present,
        "candidate": candidate,
        "pairs": pairs,
        "gain": gain,
        "gain_low": interval.map(|(low, _)| low),
        "gain_high": interval.map(|(_, high)| high),
        "present_tps": at_present.throughput(),
        "candidate_tps": at_candidate.throughput(),
        "present_hold_ms": ms(at_present),
        "candidate_hold_ms": ms(at_candidate),
        "present_errors": at_present.errors,
        "candidate_errors": at_candidate.errors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::Time;
    use std::time::Duration;
    use tuner::{Limits, Look};

    #[test]
    fn a_tuner_is_shown_with_its_steps_and_their_evidence() {
        let limits = Limits { least: 1, most: 60, window: Duration::from_secs(4) };
        let mut tuner = Tuner::new(limits, 20);
        assert_eq!(shown(&tuner)["last"], Value::Null);
        let mut look = Look { in_use: 20, waiters: 9, fit: true, ..Look::default() };
        for second in 1..300 {
            look.completed += 100;
            look.held += Duration::from_secs(20);
            tuner.look(&look, Time(second * 1_000_000_000));
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
