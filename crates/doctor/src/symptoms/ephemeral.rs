//! Clients connect for a transaction or two and leave.

use super::{Verdict, time};
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

pub(super) fn examine(window: &Window) -> Verdict {
    let (Some(change), Some((first, last))) = (window.change(), window.ends()) else { return Verdict::Absent };
    let transactions: u64 = change.pools.values().map(|pool| pool.transactions).sum();
    let ratio = change.logins as f64 / transactions.max(1) as f64;
    let here = |look: &watch::Look| look.listeners.iter().map(|listener| listener.clients.total()).sum::<u64>();
    // Many come: a new deployment, or a pool that grows. Then they stay.
    let more = here(last).saturating_sub(here(first));
    if change.logins < LEAST
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
                 database; what is left is the client's own handshake, which `poolhouse bench` with --reconnect measures."
            .to_owned(),
    })
}
