//! Values of settings, computed: a [`Forecast`](crate::Forecast) simulates the load that was seen with pools of other
//! sizes. Where the looks do not suffice for that, the value stays the one that a rule gave, and the finding has the
//! reason. Each setting is a file.

mod min_size;
mod pool_size;

use crate::{
    finding::{Finding, Predicted, Setting, Symptom},
    forecast::{Effect, Forecast},
    pooler::PoolWindow,
};

/// Rates that were simulated with the settings in force and rates that were seen may differ by this factor.
const MAX_SIMULATED_RATE_RATIO: f64 = 1.3;
/// The same for percentiles, which are only known to lie in a bucket whose upper bound is up to 2.5 times its lower
/// one.
const MAX_SIMULATED_PERCENTILE_RATIO: f64 = 2.5;
/// Waits shorter than this are alike: clients do not notice them.
const MAX_UNNOTICED_MS: f64 = 5.0;

const SIMULATION_TOO_LONG: &str = "it is more than is played";

/// A value and what it does; or why there is none.
type Planned = Result<(Setting, Predicted), String>;

/// A finding about a pool, with the value that a forecast gives to its setting if it can.
pub(crate) fn plan(pool: &PoolWindow<'_>, finding: Finding, forecast: Option<&dyn Forecast>) -> Finding {
    let plan: fn(&PoolWindow<'_>, &dyn Forecast) -> Planned = match finding.symptom {
        // The tuner sets a size that is tuned.
        Symptom::PoolTooSmall if pool.last.tuning.is_some() => return finding,
        Symptom::PoolTooSmall => pool_size::plan,
        Symptom::IdleChurn => min_size::plan,
        _ => return finding,
    };
    let Some(forecast) = forecast else {
        return finding.not_planned("only `poolhouse doctor` plays the load that was seen, which takes time");
    };
    match plan(pool, forecast) {
        Ok((setting, predicted)) => finding.planned(setting, predicted),
        Err(why) => finding.not_planned(why),
    }
}

/// A finding about something else than a pool that was watched.
pub(crate) fn leave_unplanned(finding: Finding) -> Finding {
    match (finding.symptom, &finding.setting) {
        (Symptom::IdleChurn | Symptom::OverProvisioned | Symptom::PoolTooSmall, Some(_)) => {
            finding.not_planned("from here it is not seen for how long transactions hold a connection")
        }
        _ => finding,
    }
}

/// The smallest size above `below` that is enough, up to `above`, and its effect. `after`: the effect of `above`, which
/// is enough.
fn smallest_enough(
    (mut below, mut above): (u32, u32),
    mut after: Effect,
    predict: impl Fn(u32) -> Result<Effect, String>,
    is_enough: impl Fn(&Effect) -> bool,
) -> Result<(u32, Effect), String> {
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        let effect = predict(middle)?;
        match is_enough(&effect) {
            true => (above, after) = (middle, effect),
            false => below = middle,
        }
    }
    Ok((above, after))
}

/// Whether two figures are the same up to a factor.
fn are_alike(a: f64, b: f64, factor: f64) -> bool {
    a <= b * factor && b <= a * factor
}

fn fit_size(size: u64) -> Result<u32, String> {
    u32::try_from(size).map_err(|_| format!("{size} is more than is played"))
}
