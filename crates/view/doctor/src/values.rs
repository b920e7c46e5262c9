//! Values of settings, computed: a [`Forecast`](crate::Forecast) plays the load that was seen against pools of other
//! sizes. Where what was seen does not suffice for that, the value stays the one that a rule gave, and the reason is
//! told. Each kind of load is a file.

mod bursts;
mod crowd;

use crate::{
    finding::{Finding, Predicted, Setting, Symptom, Told},
    forecast::Forecast,
    window::PoolWindow,
};

/// What is simulated with the settings in force must agree with what was seen, up to this factor.
const MAX_RATE_RATIO: f64 = 1.3;
/// The same for percentiles, which are only known to lie in a bucket whose upper bound is up to 2.5 times its lower
/// one.
const MAX_PERCENTILE_RATIO: f64 = 2.5;
/// Waits shorter than this are alike: clients do not notice them.
const MAX_UNNOTICED_MS: f64 = 5.0;

/// A value and what it does; or why there is none.
type Planned = Result<(Setting, Predicted), String>;

/// A finding about a pool, with the value that a plan gives to its setting if one can.
pub(crate) fn planned(pool: &PoolWindow<'_>, finding: Finding, forecast: Option<&dyn Forecast>) -> Told {
    let plan: fn(&PoolWindow<'_>, &dyn Forecast) -> Planned = match finding.symptom {
        // What is tuned is not set.
        Symptom::PoolTooSmall if pool.last.tuning.is_some() => return Told::new(finding),
        Symptom::PoolTooSmall => crowd::plan,
        Symptom::IdleChurn => bursts::plan,
        _ => return Told::new(finding),
    };
    let Some(forecast) = forecast else {
        return Told::by_rule(
            finding,
            "only `poolhouse doctor` plays the load that was seen, which takes time".to_owned(),
        );
    };
    match plan(pool, forecast) {
        Ok((setting, predicted)) => Told::by_plan(finding, setting, predicted),
        Err(why) => Told::by_rule(finding, why),
    }
}

/// A finding about something else than a pool that was watched.
pub(crate) fn unplanned(finding: Finding) -> Told {
    match (finding.symptom, &finding.setting) {
        (Symptom::IdleChurn | Symptom::OverProvisioned | Symptom::PoolTooSmall, Some(_)) => {
            Told::by_rule(finding, "from here it is not seen for how long transactions hold a connection".to_owned())
        }
        _ => Told::new(finding),
    }
}

/// Whether two figures are the same up to a factor.
fn alike(a: f64, b: f64, factor: f64) -> bool {
    a <= b * factor && b <= a * factor
}

fn small(size: u64) -> Result<u32, String> {
    u32::try_from(size).map_err(|_| format!("{size} is more than is played"))
}

fn too_long() -> String {
    "it is more than is played".to_owned()
}
