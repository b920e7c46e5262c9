//! What the tuner of a pool's size does, in the answer of `/api/pools`. Fields stand in alphabetical order, as in the
//! JSON. A number that was not measured is null.

use serde::{Deserialize, Serialize};

use crate::Counts;

#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Tuning {
    /// How often the size was changed.
    pub changes: u64,
    pub last: Option<TuningStep>,
    /// Bounds of the size.
    pub max: u64,
    pub min: u64,
    pub state: String,
    /// Steps, by reason.
    pub steps: Counts,
    /// The trial under way.
    pub trial: Option<TuningTrial>,
    /// How long one size is watched before the other has its turn.
    pub window_ms: f64,
}

/// Two sizes that are compared.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize, Serialize)]
pub struct TuningTrial {
    pub candidate: u64,
    pub present: u64,
}

/// A decision of the tuner.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
pub struct TuningStep {
    pub evidence: Option<TuningEvidence>,
    pub from: u64,
    pub reason: String,
    /// The step in words.
    pub text: String,
    pub to: u64,
}

/// What a trial measured.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, Serialize)]
pub struct TuningEvidence {
    pub candidate: u64,
    pub candidate_errors: u64,
    pub candidate_hold_ms: Option<f64>,
    pub candidate_tps: f64,
    /// The candidate's additional throughput, as a part of the present one, and its interval.
    pub gain: Option<f64>,
    pub gain_high: Option<f64>,
    pub gain_low: Option<f64>,
    /// Pairs of windows, one of each size.
    pub pairs: u64,
    pub present: u64,
    pub present_errors: u64,
    pub present_hold_ms: Option<f64>,
    pub present_tps: f64,
}
