//! Clients connect to the database for a transaction or two and leave.

use super::{Verdict, time};
use crate::{
    database::{DatabaseWindow, Origin},
    finding::{Finding, Symptom},
};

/// Connections in the window, at least.
const LEAST: u64 = 50;
/// Connections a transaction, from which on clients do not keep them.
const A_TRANSACTION: f64 = 0.3;
/// Looks before which some came, or it is a burst that passes.
const ARRIVING: f64 = 0.3;
/// The share of those that came that may have stayed.
const STAYED: f64 = 0.5;
/// Transactions that each connection makes for itself, before its client asks for anything.
const OWN: u64 = 1;
/// Transactions of the one who looks, for each look.
const OF_A_LOOK: u64 = 2;

pub(super) fn examine(window: &DatabaseWindow) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let seen = admin_api::sum(window.origins().map(|(_, origin)| &origin.came));
    let (ended, counted) = window.counted();
    let came = counted.unwrap_or(seen).max(seen);
    let own = came.saturating_mul(OWN).saturating_add(OF_A_LOOK * window.looks() as u64);
    let transactions = ended.saturating_sub(own);
    let ratio = came as f64 / transactions.max(1) as f64;
    let here = |look: &admin_api::Activity| admin_api::sum(&[look.backends.len() as u64, look.hidden, look.left_out]);
    let (was, is) = (here(first), here(last));
    // Many come: a new deployment, or pools that grow. Then they stay.
    let more = is.saturating_sub(was);
    if came < LEAST || window.arrivals() < ARRIVING || ratio < A_TRANSACTION || more as f64 > STAYED * came as f64 {
        return Verdict::Absent;
    }
    let most = window.origins().max_by_key(|(_, origin)| origin.came).filter(|(_, origin)| origin.came > 0);
    let how = if counted.is_some() { "were made" } else { "were seen" };
    Verdict::Present(Finding {
        symptom: Symptom::EphemeralClients,
        of: most.map_or_else(|| "all clients".to_owned(), |(origin, _)| Origin::name(origin)),
        evidence: vec![
            format!(
                "{came} connections {how} for {transactions} transactions in {}",
                time(window.lasts().as_millis() as f64)
            ),
            format!("{was} connections were there at first, and {is} at the end"),
        ],
        rules_out: "this is no growing number of clients: they leave as fast as they come".to_owned(),
        setting: None,
        advice: "Keep connections: open them outside of the function or request, or in a pool of the application. Where that cannot be, put a \
                 pooler in front (`poolhouse serve`): it takes these logins off the database. Each costs it a process; `poolhouse bench` with \
                 --reconnect measures what."
            .to_owned(),
    })
}
