//! The database cannot be reached.

use super::{Verdict, time};
use crate::{
    finding::{Finding, Symptom},
    window::PoolWindow,
};

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let Some(down) = pool.last.unavailable_ms else { return Verdict::Absent };
    let failed: u64 = pool.change.failed.values().sum();
    let said = pool.last.last_error.clone().unwrap_or_else(|| "no attempt has ended yet".to_owned());
    Verdict::Present(Finding {
        symptom: Symptom::OutOfReach,
        of: pool.name(),
        evidence: vec![
            format!("no connection to {} could be made for {}", pool.last.address, time(down)),
            format!("the last attempt ended with: {said}"),
            format!("{failed} check-outs failed meanwhile, and {} clients wait", pool.last.waiters),
        ],
        rules_out: "the pool is not too small: nobody gets a server at all".to_owned(),
        setting: None,
        advice: "Poolhouse tries again by itself, at most 5 s apart. If the error is one of configuration (password, name), change that and \
                 reload."
            .to_owned(),
    })
}
