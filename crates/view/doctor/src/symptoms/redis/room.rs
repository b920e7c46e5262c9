//! Hardly any room is left for connections, or none: because far more are kept than have work, or because those that
//! are there do work.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom, Undecided},
    redis::RedisWindow,
};

/// From this share of the allowed connections on, the next instance may find none left.
const MIN_TAKEN_SHARE: f64 = 0.8;
/// The share of looks at which that holds.
const MIN_LOOK_SHARE: f64 = 0.8;
/// At most this share of the connections was ever used at once.
const MAX_USED_SHARE: f64 = 0.25;
/// The share of connections that must be listed.
const MIN_LISTED_SHARE: f64 = 0.9;
/// The proposed pool is this many times as large as the most connections ever seen in use at once: looks miss peaks.
const SPARE_FACTOR: u64 = 2;
/// Refused connections, at least.
const MIN_REFUSED: u64 = 3;
/// Origins that are named.
const MAX_NAMED_ORIGINS: usize = 3;

pub(super) fn examine(window: &RedisWindow) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let refused = last.rejected.saturating_sub(first.rejected);
    let kept = window.connected().mean();
    let (is_full, taken) = match last.max_clients {
        Some(most) => (
            window.connected().share_from(MIN_TAKEN_SHARE * most as f64) >= MIN_LOOK_SHARE,
            format!("{kept:.0} of {most} connections were taken ({})", percent(kept / most.max(1) as f64)),
        ),
        None => (false, format!("{kept:.0} connections were taken")),
    };
    if !is_full && refused < MIN_REFUSED {
        return Verdict::Absent;
    }
    let turned = format!(
        "{refused} connections were refused because there were too many, some of them before {} of the looks",
        percent(window.refusing())
    );
    let lists = window.lists();
    if lists.count == 0
        || (lists.listed as f64) < MIN_LISTED_SHARE * (lists.listed.saturating_add(lists.left_out)) as f64
    {
        return undecided(vec![taken, turned]);
    }
    let used = lists.most_used;
    match is_full && used as f64 <= MAX_USED_SHARE * kept {
        true => over_provisioned(window, used, taken, (refused > 0).then_some(turned)),
        false if refused >= MIN_REFUSED => refuses(window, used, vec![turned, taken]),
        false => Verdict::Absent,
    }
}

fn over_provisioned(window: &RedisWindow, used: u64, taken: String, turned: Option<String>) -> Verdict {
    let lists = window.lists();
    let to = SPARE_FACTOR.saturating_mul(used).max(2);
    let mut evidence = vec![
        format!("{taken}: {}", lists.largest(MAX_NAMED_ORIGINS).join(", ")),
        format!("at most {used} of them had asked anything within a second, waited in a command, or had subscribed"),
        format!(
            "{} have asked nothing for over an hour, the longest for {}",
            lists.long_idle,
            time(lists.longest_idle_s as f64 * 1e3)
        ),
    ];
    evidence.extend(turned);
    Verdict::Present(Finding {
        symptom: Symptom::OverProvisioned,
        of: "the whole server".to_owned(),
        evidence,
        rules_out: "they are not taken up by load: a higher maxclients would only keep more of them idle".to_owned(),
        setting: Some(Setting { key: "max_size", from: None, to: to.to_string() }),
        advice: format!(
            "Let the applications' pools keep fewer, or put one pool in front for all of them, such as `poolhouse serve redis://...` with \
             max_size {to}: twice what was ever seen in use at once in {}, and ordinary commands share connections there. Redis's own `timeout` \
             closes what is idle. Look over a busy hour before you decide.",
            time(window.lasts().as_millis() as f64)
        ),
    })
}

fn refuses(window: &RedisWindow, used: u64, mut evidence: Vec<String>) -> Verdict {
    let lists = window.lists();
    evidence.push(format!("those that it has: {}", lists.largest(MAX_NAMED_ORIGINS).join(", ")));
    Verdict::Present(Finding {
        symptom: Symptom::ConnectionsRefused,
        of: "the whole server".to_owned(),
        evidence,
        rules_out: format!(
            "they are not kept for nothing: {used} of {} had asked something within a second, waited in a command, or had subscribed; and it is \
             not out of reach: it answers those that it has",
            lists.listed
        ),
        setting: None,
        advice: "Put a pooler in front (`poolhouse serve redis://...`), where ordinary commands of all clients share a few connections, or raise \
                 maxclients and the descriptors that its process may have."
            .to_owned(),
    })
}

fn undecided(seen: Vec<String>) -> Verdict {
    Verdict::Undecided(Undecided {
        between: vec![Symptom::OverProvisioned, Symptom::ConnectionsRefused],
        of: "the whole server".to_owned(),
        seen,
        needs: "for how long each connection has asked nothing: CLIENT LIST, which this user may not ask, or which would be too long".to_owned(),
    })
}
