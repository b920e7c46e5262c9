//! Far more connections are kept than ever have work, and they take up what the database allows.

use super::{Verdict, percent, time};
use crate::{
    database::DatabaseWindow,
    finding::{Finding, Setting, Symptom},
};

/// From this share of the connections open to ordinary users on, the next instance may find none left.
const MIN_TAKEN_SHARE: f64 = 0.8;
/// The share of looks at which that holds.
const MIN_LOOK_SHARE: f64 = 0.8;
/// At most this share of the connections has ever worked at once.
pub(super) const MAX_USED_SHARE: f64 = 0.25;
/// The share of connections that must be visible.
const MIN_KNOWN_SHARE: f64 = 0.9;
/// A connection that has been idle for this long is not needed.
const UNNEEDED_IDLE_MS: f64 = 3_600_000.0;
/// The proposed pool is this many times as large as the most connections ever seen at work at once: looks miss peaks.
const SPARE_FACTOR: u64 = 2;
/// Origins that are named.
const MAX_NAMED_ORIGINS: usize = 3;

pub(super) fn examine(window: &DatabaseWindow) -> Verdict {
    let Some((_, last)) = window.ends() else { return Verdict::Absent };
    let all = window.all();
    let allowed = last.max_connections.saturating_sub(last.reserved);
    let (kept, busy) = (all.sessions.mean(), all.busy.most);
    let seen = last.backends.len() as f64;
    if allowed == 0
        || all.sessions.share_from(MIN_TAKEN_SHARE * allowed as f64) < MIN_LOOK_SHARE
        || busy as f64 > MAX_USED_SHARE * kept
        || seen < MIN_KNOWN_SHARE * (seen + last.hidden.saturating_add(last.left_out) as f64)
    {
        return Verdict::Absent;
    }
    let mut origins: Vec<_> = window.origins().collect();
    origins.sort_by_key(|(_, own)| std::cmp::Reverse(own.now));
    let named: Vec<_> = origins
        .iter()
        .take(MAX_NAMED_ORIGINS)
        .map(|(origin, own)| format!("{} of {}", own.now, origin.name()))
        .collect();
    let idle = last.backends.iter().filter(|backend| backend.state == "idle");
    let long = idle.clone().filter(|backend| backend.state_ms >= UNNEEDED_IDLE_MS).count();
    let longest = idle.map(|backend| backend.state_ms).fold(0.0, f64::max);
    let to = busy.saturating_mul(SPARE_FACTOR).max(2);
    Verdict::Present(Finding {
        symptom: Symptom::OverProvisioned,
        of: "the whole server".to_owned(),
        evidence: vec![
            format!(
                "{kept:.0} of {allowed} connections were taken ({}): {}",
                percent(kept / allowed as f64),
                named.join(", ")
            ),
            format!("at most {busy} of them had a statement or a transaction at once"),
            format!("{long} have been idle for over an hour, the longest for {}", time(longest)),
        ],
        rules_out: "they are not taken up by load: a higher max_connections would only keep more of them idle"
            .to_owned(),
        setting: Some(Setting { key: "max_size", from: None, to: to.to_string() }),
        advice: format!(
            "Let the applications' pools keep fewer, or put one pool in front of the database for all of them, such as `poolhouse serve` with \
             max_size {to}: twice what was ever seen at work at once in {}. Look over a busy hour before you decide. A connection that an \
             application holds between two statements, or while its answer is on a slow way, looks idle from here: its own pool knows.",
            time(window.lasts().as_millis() as f64)
        ),
    })
}
