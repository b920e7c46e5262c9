//! Clients connect to the database for an operation or two and leave.

use super::{Verdict, made, most_coming, time};
use crate::{
    finding::{Finding, Symptom},
    mongodb::MongoWindow,
};

/// Connections in the window, at least.
const MIN_CONNECTIONS: u64 = 50;
/// From this many connections an operation on, clients do not keep their connections.
const MIN_PER_OPERATION: f64 = 0.3;
/// Connections arrive before this share of the looks at least; otherwise it is a burst that passes.
const MIN_ARRIVING_SHARE: f64 = 0.3;
/// The share of the arrived connections that may have stayed.
const MAX_STAYED_SHARE: f64 = 0.5;

pub(super) fn examine(window: &MongoWindow) -> Verdict {
    let (Some((first, last)), Some((came, asked))) = (window.ends(), made(window)) else { return Verdict::Absent };
    let ratio = came as f64 / asked.max(1) as f64;
    // Many come: a new deployment, or pools that grow. Then they stay.
    let more = last.current.saturating_sub(first.current);
    if came < MIN_CONNECTIONS
        || window.arrivals() < MIN_ARRIVING_SHARE
        || ratio < MIN_PER_OPERATION
        || more as f64 > MAX_STAYED_SHARE * came as f64
    {
        return Verdict::Absent;
    }
    Verdict::Present(Finding {
        symptom: Symptom::EphemeralClients,
        of: most_coming(window),
        evidence: vec![
            format!(
                "{came} connections were made for {asked} operations in {}, not counting what connections ask for themselves",
                time(window.lasts().as_millis() as f64)
            ),
            format!("{} connections were there at first, and {} at the end", first.current, last.current),
        ],
        rules_out: "this is no growing number of clients: they leave as fast as they come".to_owned(),
        setting: None,
        advice: "Make one MongoClient for a process and keep it, outside of the function or request: each has a pool of its own, and up to two \
                 connections to watch the server beside. Where processes live briefly, put a pooler in front (`poolhouse serve mongodb://...`): \
                 it takes these logins off the database; `poolhouse bench` with --reconnect measures what each costs."
            .to_owned(),
    })
}
