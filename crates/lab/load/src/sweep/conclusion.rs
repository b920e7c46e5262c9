//! From a curve to a verdict that holds: what the curve recommends is measured once more beside its rivals, and what
//! that showed is part of the verdict. Decides nothing itself.

use super::{
    Options, Probe, ProbeError,
    check::{self, Check},
    result::{Checked, Curve, Verdict},
    verdict::{self, Generator},
};

/// The verdict of a curve, with its check. `progress` is told the number of clients, how many measurements of the check
/// are done and how many there are at most. No verdict: nothing was done. What kept the check from its end, if anything
/// did, is beside the verdict.
pub fn conclude(
    probe: &mut dyn Probe,
    options: &Options,
    curve: &Curve,
    generator: Generator,
    progress: &mut dyn FnMut(u32, usize, usize),
) -> (Option<Verdict>, Option<ProbeError>) {
    let first = verdict::verdict(curve, generator, options.seed);
    let claim = first.as_ref().and_then(|first| verdict::claim(first, curve));
    let Some(check) = claim.and_then(|claim| Check::new(claim, options.rounds, options.seed)) else {
        return (first, None);
    };
    let (checked, error) = check::drive(probe, options, check, progress);
    (verdict::with_check(curve, Some(checked), generator, options.seed), error)
}

/// The verdict of a curve that cannot be checked any more, since the sweep ended early.
pub fn unchecked(curve: &Curve, generator: Generator, seed: u64) -> Option<Verdict> {
    let first = verdict::verdict(curve, generator, seed)?;
    let claim = verdict::claim(&first, curve);
    let checked = claim.map(|claim| Checked {
        outcome: "unfinished".to_owned(),
        candidate: claim.candidate,
        ..Checked::default()
    });
    verdict::with_check(curve, checked, generator, seed)
}
