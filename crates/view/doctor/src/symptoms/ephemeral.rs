//! Clients connect for a transaction or two and leave.

use admin_api::Change;

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Symptom},
    window::Window,
};

/// Logins in the window, at least.
const MIN_LOGINS: u64 = 50;
/// From this many logins a transaction on, clients do not keep their connections.
const MIN_PER_TRANSACTION: f64 = 0.3;
/// The share of the arrived clients that may have stayed.
const MAX_STAYED_SHARE: f64 = 0.5;
/// Clients arrive before this share of the looks at least; otherwise it is a burst that passes.
const MIN_ARRIVING_SHARE: f64 = 0.3;
/// Where logins are not counted, short-lived clients are missed between two looks. Then this many new clients suffice,
/// if new ones are there at [`MIN_SEEN_ARRIVING_SHARE`] of the looks.
const MIN_SEEN_CLIENTS: u64 = 15;
/// See [`MIN_SEEN_CLIENTS`].
const MIN_SEEN_ARRIVING_SHARE: f64 = 0.6;

pub(super) fn examine(window: &Window) -> Verdict {
    let (Some(change), Some((first, last))) = (window.change(), window.ends()) else { return Verdict::Absent };
    let transactions = window.transactions();
    let ratio = change.logins as f64 / transactions.max(1) as f64;
    if let Some(brief) = change.brief {
        return seen_once(window, &change, brief);
    }
    // A session that is refused a server of its own ends, and its client comes again: that is another finding.
    let refused = admin_api::sum(change.pools.values().flat_map(|pool| pool.pins_refused.values()));
    if refused as f64 > MAX_STAYED_SHARE * change.logins as f64 {
        return Verdict::Absent;
    }
    let here = |look: &admin_api::Look| {
        admin_api::sum(&look.listeners.iter().map(|listener| listener.clients.total()).collect::<Vec<_>>())
    };
    // Many come: a new deployment, or a pool that grows. Then they stay.
    let more = here(last).saturating_sub(here(first));
    if change.logins < MIN_LOGINS
        || window.arrivals() < MIN_ARRIVING_SHARE
        || transactions == 0
        || ratio < MIN_PER_TRANSACTION
        || more as f64 > MAX_STAYED_SHARE * change.logins as f64
    {
        return Verdict::Absent;
    }
    Verdict::Present(Finding {
        symptom: Symptom::EphemeralClients,
        of: "all listeners".to_owned(),
        evidence: vec![
            format!("{} clients logged in for {transactions} transactions in {}", change.logins, time(window.lasts().as_millis() as f64)),
            format!("{} clients were here at first, and {} at the end", here(first), here(last)),
        ],
        rules_out: "this is no growing number of clients: they leave as fast as they come".to_owned(),
        setting: None,
        advice: "Open the connection outside of the function or request, and keep it. Until then Poolhouse takes these logins off the \
                 database; what is left is the client's own handshake, which `poolhouse bench` with --no-reuse measures."
            .to_owned(),
    })
}

/// PgBouncer does not count logins. But who is there at one look only has not stayed for long.
fn seen_once(window: &Window, change: &Change, brief: u64) -> Verdict {
    let (came, arrivals) = (change.logins, window.arrivals());
    let enough = came >= MIN_LOGINS && arrivals >= MIN_ARRIVING_SHARE
        || came >= MIN_SEEN_CLIENTS && arrivals >= MIN_SEEN_ARRIVING_SHARE;
    if !enough || (came - brief.min(came)) as f64 > MAX_STAYED_SHARE * came as f64 {
        return Verdict::Absent;
    }
    let transactions = window.transactions();
    Verdict::Present(Finding {
        symptom: Symptom::EphemeralClients,
        of: "all clients".to_owned(),
        evidence: vec![
            format!(
                "{came} new clients were seen in {}, and {brief} of them were gone at the next look; those that came and went between two \
                 looks are not among them",
                time(window.lasts().as_millis() as f64)
            ),
            format!("new ones were there at {} of the looks; {transactions} transactions ended meanwhile", percent(arrivals)),
        ],
        rules_out: "this is no deployment, whose clients stay, and no burst, which passes".to_owned(),
        setting: None,
        advice: "Open the connection outside of the function or request, and keep it. Until then PgBouncer takes these logins off the \
                 database."
            .to_owned(),
    })
}
