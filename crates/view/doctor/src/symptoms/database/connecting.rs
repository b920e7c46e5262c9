//! Clients connect to the database for a transaction or two and leave.

use super::{Verdict, time};
use crate::{
    database::{DatabaseWindow, Origin},
    finding::{Finding, Symptom},
};

/// Connections in the window, at least.
const MIN_CONNECTIONS: u64 = 50;
/// From this many connections a transaction on, clients do not keep their connections.
const MIN_PER_TRANSACTION: f64 = 0.3;
/// Connections arrive before this share of the looks at least; otherwise it is a burst that passes.
const MIN_ARRIVING_SHARE: f64 = 0.3;
/// The share of the arrived connections that may have stayed.
const MAX_STAYED_SHARE: f64 = 0.5;
/// Transactions that each connection makes for itself, before its client asks for anything.
const OWN_TRANSACTIONS: u64 = 1;
/// Transactions that the doctor itself makes for each look.
const TRANSACTIONS_PER_LOOK: u64 = 2;

pub(super) fn examine(window: &DatabaseWindow) -> Verdict {
    let Some((first, last)) = window.ends() else { return Verdict::Absent };
    let seen = admin_api::sum(window.origins().map(|(_, origin)| &origin.came));
    let (ended, counted) = window.counted();
    let came = counted.unwrap_or(seen).max(seen);
    let own = came.saturating_mul(OWN_TRANSACTIONS).saturating_add(TRANSACTIONS_PER_LOOK * window.looks() as u64);
    let transactions = ended.saturating_sub(own);
    let ratio = came as f64 / transactions.max(1) as f64;
    let here = |look: &admin_api::Activity| admin_api::sum(&[look.backends.len() as u64, look.hidden, look.left_out]);
    let (was, is) = (here(first), here(last));
    // Many come: a new deployment, or pools that grow. Then they stay.
    let more = is.saturating_sub(was);
    if came < MIN_CONNECTIONS
        || window.arrivals() < MIN_ARRIVING_SHARE
        || ratio < MIN_PER_TRANSACTION
        || more as f64 > MAX_STAYED_SHARE * came as f64
    {
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
