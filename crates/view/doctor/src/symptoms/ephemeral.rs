//! Clients connect for a transaction or two and leave.

use admin_api::Change;

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Symptom},
    window::Window,
};

/// Logins in the window, at least.
const LEAST: u64 = 50;
/// Logins a transaction, from which on clients do not keep their connections.
const A_TRANSACTION: f64 = 0.3;
/// The share of those who came that may have stayed.
const STAYED: f64 = 0.5;
/// Looks before which some came, or it is a burst that passes.
const ARRIVING: f64 = 0.3;
/// Where only clients are seen that are there at a look, few are seen of those who come and go in between, and the
/// fewer the slower the looks are: so many suffice if new ones are there at this share of the looks.
const LEAST_SEEN: u64 = 15;
const SEEN_ARRIVING: f64 = 0.6;

pub(super) fn examine(window: &Window) -> Verdict {
    let (Some(change), Some((first, last))) = (window.change(), window.ends()) else { return Verdict::Absent };
    let transactions = window.transactions();
    let ratio = change.logins as f64 / transactions.max(1) as f64;
    if let Some(brief) = change.brief {
        return seen_once(window, &change, brief);
    }
    // A session that is refused a server of its own ends, and its client comes again: that is another finding.
    let refused = admin_api::sum(change.pools.values().flat_map(|pool| pool.pins_refused.values()));
    if refused as f64 > STAYED * change.logins as f64 {
        return Verdict::Absent;
    }
    let here = |look: &admin_api::Look| {
        admin_api::sum(&look.listeners.iter().map(|listener| listener.clients.total()).collect::<Vec<_>>())
    };
    // Many come: a new deployment, or a pool that grows. Then they stay.
    let more = here(last).saturating_sub(here(first));
    if change.logins < LEAST
        || window.arrivals() < ARRIVING
        || transactions == 0
        || ratio < A_TRANSACTION
        || more as f64 > STAYED * change.logins as f64
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
    let enough = came >= LEAST && arrivals >= ARRIVING || came >= LEAST_SEEN && arrivals >= SEEN_ARRIVING;
    if !enough || (came - brief.min(came)) as f64 > STAYED * came as f64 {
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
