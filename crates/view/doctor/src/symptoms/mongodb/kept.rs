//! Far more connections are kept than ever have work, and they take up what the database allows; or it refuses some
//! although those that it has do work.

use super::{Verdict, busy, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom, Undecided},
    mongodb::MongoWindow,
};

/// From this share of the allowed connections on, the next instance may find none left.
const MIN_TAKEN_SHARE: f64 = 0.8;
/// The share of looks at which that holds.
const MIN_LOOK_SHARE: f64 = 0.8;
/// At most this share of the connections has ever worked at once.
const MAX_USED_SHARE: f64 = 0.25;
/// The proposed pool is this many times as large as the most connections ever seen at work at once: looks miss peaks.
const SPARE_FACTOR: u64 = 2;
/// Refused connections, at least.
const MIN_REFUSED: u64 = 3;
/// Origins that are named.
const MAX_NAMED_ORIGINS: usize = 3;

pub(super) fn examine(window: &MongoWindow) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let Some(available) = last.available else { return Verdict::Absent };
    let refused = last.rejected.unwrap_or(0).saturating_sub(first.rejected.unwrap_or(0));
    let allowed = last.current.saturating_add(available);
    let connections = &window.sums.connections;
    let kept = connections.mean();
    let is_full = allowed > 0 && connections.share_from(MIN_TAKEN_SHARE * allowed as f64) >= MIN_LOOK_SHARE;
    let taken = format!("{kept:.0} of {allowed} connections were taken ({})", percent(kept / allowed.max(1) as f64));
    let turned = format!("{refused} connections were refused for want of room while this was looked at");
    let Some(level) = busy(window) else {
        let signs = is_full || refused >= MIN_REFUSED;
        return if signs { undecided(vec![taken, turned]) } else { Verdict::Absent };
    };
    let busy = level.most;
    let is_idle = busy as f64 <= MAX_USED_SHARE * kept;
    match (is_full && is_idle, refused >= MIN_REFUSED) {
        (true, _) => {}
        (false, true) => return refuses(window, allowed, busy, vec![turned, taken]),
        (false, false) => return Verdict::Absent,
    }
    let mut evidence =
        vec![format!("{taken}{}", named(window)), format!("at most {busy} of them had a command under way at once")];
    if last.watching > 0 {
        evidence.push(format!("{} of them are those on which drivers wait for news of the topology", last.watching));
    }
    if refused > 0 {
        evidence.push(turned);
    }
    let to = SPARE_FACTOR.saturating_mul(busy).max(2);
    Verdict::Present(Finding {
        symptom: Symptom::OverProvisioned,
        of: "the whole server".to_owned(),
        evidence,
        rules_out:
            "they are not taken up by load: a higher net.maxIncomingConnections would only keep more of them idle"
                .to_owned(),
        setting: Some(Setting { key: "maxPoolSize", from: None, to: to.to_string() }),
        advice: format!(
            "Let the drivers' pools keep fewer (maxPoolSize and minPoolSize are for each process, so {to} is what all of them need together; \
             maxIdleTimeMS closes what is idle), or put one pool in front of the database for all of them, such as `poolhouse serve` with \
             max_size {to}: twice what was ever seen at work at once in {}. Look over a busy hour before you decide.",
            time(window.lasts().as_millis() as f64)
        ),
    })
}

fn named(window: &MongoWindow) -> String {
    let mut origins: Vec<_> = window.origins().filter(|(_, own)| own.now > 0).collect();
    origins.sort_by_key(|(_, own)| std::cmp::Reverse(own.now));
    let named: Vec<_> = origins
        .iter()
        .take(MAX_NAMED_ORIGINS)
        .map(|(origin, own)| format!("{} of {}", own.now, origin.name()))
        .collect();
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

fn refuses(window: &MongoWindow, allowed: u64, busy: u64, mut evidence: Vec<String>) -> Verdict {
    evidence.push(format!("those that came most are of {}", super::most_coming(window)));
    Verdict::Present(Finding {
        symptom: Symptom::ConnectionsRefused,
        of: "the whole server".to_owned(),
        evidence,
        rules_out: format!(
            "they are not kept for nothing: up to {busy} had a command under way at once, and it is not out of reach: it answers those that \
             it has"
        ),
        setting: None,
        advice: format!(
            "Put one pool in front of the database for all clients (`poolhouse serve`), or let it take more than {allowed}: \
             net.maxIncomingConnections, and the descriptors that its process may have."
        ),
    })
}

fn undecided(seen: Vec<String>) -> Verdict {
    Verdict::Undecided(Undecided {
        between: vec![Symptom::OverProvisioned, Symptom::ConnectionsRefused],
        of: "the whole server".to_owned(),
        seen,
        needs:
            "how many connections have a command under way: this server does not tell, its log or the drivers' pools do"
                .to_owned(),
    })
}
