//! Clients connect for a transaction or two and leave.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Symptom},
    window::Window,
};

/// Clients that come in the window, at least.
const LEAST: u64 = 50;
/// Clients a transaction, from which on they do not keep their connections.
const A_TRANSACTION: f64 = 0.3;
/// Those connected for less than this share of the window, of all.
const YOUNG: f64 = 0.25;

pub(super) fn examine(window: &Window) -> Verdict {
    let Some(change) = window.change() else { return Verdict::Absent };
    let transactions: u64 = change.pools.values().map(|pool| pool.transactions).sum();
    let ratio = change.accepted as f64 / transactions.max(1) as f64;
    let here: u64 =
        window.last().map_or(0, |look| look.listeners.iter().map(|listener| listener.clients.total()).sum());
    // Many come: a new deployment, or a pool that grows. Then they stay.
    let stays = here as f64 / change.accepted.max(1) as f64;
    if change.accepted < LEAST || ratio < A_TRANSACTION || stays > 0.5 {
        return Verdict::Absent;
    }
    let lasts = window.lasts().as_millis() as f64;
    let young = window.clients.iter().filter(|client| client.connected_ms < YOUNG * lasts).count();
    let of = window.clients.len();
    Verdict::Present(Finding {
        symptom: Symptom::EphemeralClients,
        of: "all listeners".to_owned(),
        evidence: vec![
            format!("{} clients came for {transactions} transactions in {}", change.accepted, time(lasts)),
            format!("only {here} are here at the end"),
            format!("{} of those had come within the last {}", percent(young as f64 / of.max(1) as f64), time(YOUNG * lasts)),
        ],
        rules_out: "this is no growing number of clients: they leave as fast as they come".to_owned(),
        setting: None,
        advice: "Open the connection outside of the function or request, and keep it. Until then Poolhouse takes these logins off the \
                 database; what is left is the client's own handshake, which `poolhouse bench` with --reconnect measures."
            .to_owned(),
    })
}
