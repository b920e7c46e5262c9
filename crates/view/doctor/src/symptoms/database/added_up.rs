//! Several pools, each within its own limit, that together have all connections that the database allows.

use super::{Verdict, kept, percent};
use crate::{
    database::{DatabaseWindow, Origin},
    finding::{Finding, Setting, Symptom},
};

/// From this share of the connections open to ordinary users on, none is left for the next instance.
const MIN_TAKEN_SHARE: f64 = 0.95;
/// The share of looks at which that holds.
const MIN_LOOK_SHARE: f64 = 0.5;
/// An origin with more than this share has too high a limit of its own, and nothing adds up.
const MAX_ORIGIN_SHARE: f64 = 0.6;
/// An origin with less than this share does not count among those that add up.
const MIN_ORIGIN_SHARE: f64 = 0.1;
/// The share of sessions whose origin must be known.
const MIN_KNOWN_SHARE: f64 = 0.9;
/// The share of the allowed connections that all pools together may have; the rest is for other clients.
const POOLS_SHARE: f64 = 0.9;
/// Origins that are named.
const MAX_NAMED_ORIGINS: usize = 3;

pub(super) fn examine(window: &DatabaseWindow) -> Verdict {
    let Some((_, last)) = window.ends() else { return Verdict::Absent };
    let allowed = last.max_connections.saturating_sub(last.reserved);
    let all = window.all();
    let (taken, busy) = (all.sessions.mean(), all.busy.most);
    let seen = last.backends.len() as f64;
    let hidden = last.hidden.saturating_add(last.left_out) as f64;
    let mut origins: Vec<(&Origin, u64)> = window.origins().map(|(origin, own)| (origin, own.now)).collect();
    origins.sort_by_key(|(_, now)| std::cmp::Reverse(*now));
    let most = origins.first().map_or(0.0, |(_, now)| *now as f64 / seen.max(1.0));
    let parts = origins.iter().take_while(|(_, now)| *now as f64 >= MIN_ORIGIN_SHARE * seen).count();
    if allowed == 0
        || all.sessions.share_from(MIN_TAKEN_SHARE * allowed as f64) < MIN_LOOK_SHARE
        // Where hardly any of them works, that is what is wrong.
        || busy as f64 <= kept::MAX_USED_SHARE * taken
        || seen < MIN_KNOWN_SHARE * (seen + hidden)
        || parts < 2
        || most > MAX_ORIGIN_SHARE
    {
        return Verdict::Absent;
    }
    let named: Vec<_> =
        origins.iter().take(MAX_NAMED_ORIGINS).map(|(origin, now)| format!("{now} of {}", origin.name())).collect();
    let more = if origins.len() > MAX_NAMED_ORIGINS {
        format!(" and {} others", origins.len() - MAX_NAMED_ORIGINS)
    } else {
        String::new()
    };
    // What the small ones have stays theirs.
    let of_parts: u64 = origins.iter().take(parts).map(|(_, now)| *now).sum();
    let room = POOLS_SHARE * allowed as f64 - (seen + hidden - of_parts as f64);
    let each = ((room / parts as f64) as u64).max(1);
    Verdict::Present(Finding {
        symptom: Symptom::LimitsAddUp,
        of: "the whole server".to_owned(),
        evidence: vec![
            format!(
                "{taken:.0} of {allowed} connections were taken, at least {} of them at {} of the looks: whoever comes next is refused",
                percent(MIN_TAKEN_SHARE),
                percent(all.sessions.share_from(MIN_TAKEN_SHARE * allowed as f64))
            ),
            format!("they are of {} origins, none of which has more than {}: {}{more}", origins.len(), percent(most), named.join(", ")),
            format!("up to {busy} of them had a statement or a transaction at once"),
        ],
        rules_out: "no single application takes them all, and they are not kept for nothing: each pool is within its own limit, and the sum is not"
            .to_owned(),
        setting: Some(Setting { key: "max_size", from: None, to: each.to_string() }),
        advice: format!(
            "Give the pools of {parts} origins together {:.0} of the {allowed}, {each} each if they are alike, or put one pool in front of the \
             database for all of them (`poolhouse serve`). `poolhouse plan --instances N --server-limit {} --reserved {}` says whether that \
             is enough for a load. The server's log has the refusals (SQLSTATE 53300): its views do not.",
            room.max(parts as f64),
            last.max_connections,
            last.reserved
        ),
    })
}
